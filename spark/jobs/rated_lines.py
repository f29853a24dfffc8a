"""From hourly usage to lines and invoices: the rules of spark.rating as Spark plans.

Conditions, factors, prices and tiers are generated from the price book; the numbers of its rules
stand in spark.rating. Types do the arithmetic's proof (docs/design/billing.md, each checked by a
test):

    unit price decimal(19,12) x quantity decimal(18,0) = decimal(38,12), exact
    a sum of those stays decimal(38,12) and fails on overflow
    nothing divides, and no BIGINT or float ever meets a price
"""

from __future__ import annotations

from decimal import Decimal
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark text uses

from metering.schema import INTERNAL, Kind, Outcome
from spark.invoice import FREE_TIER
from spark.pricebook import QUANTITY_MAX, PriceBook, Sku
from spark.rating import Unpriced, line_positions, versions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from spark.period import Period

QUANTITY = "decimal(18,0)"
UNIT_PRICE = "decimal(19,12)"
MONEY = "decimal(38,12)"
# Money small enough that sums and differences of two stay within 38 digits.
_LINE_MONEY = "decimal(36,12)"


def build(session: SparkSession, book: PriceBook, usage: DataFrame, period: Period) -> DataFrame:
    """The lines of a period's hourly usage; `invoice_totals` makes the invoices of them.

    The plan fails (with the SKU or tenant in the message) for usage at a time without a price and
    for more than 10**18 - 1 units.
    """
    pools = free_quota(pool(session, book, usage, period))
    return shown_amounts(book, price_lines(session, book, pools))


def pool(session: SparkSession, book: PriceBook, usage: DataFrame, period: Period) -> DataFrame:
    """Steps 1 to 3: units by tenant, SKU and price version, with the month's free quota."""
    matches = F.filter(
        F.array(*(_match(number, sku) for number, sku in enumerate(book.skus))),
        lambda match: match.isNotNull(),
    )
    matched = usage.select("tenant", "hour", F.explode(matches).alias("match")).select(
        "tenant", "hour", "match.sku_number", "match.units"
    )
    in_force = _versions_frame(session, book, period)
    within = (F.col("hour") >= F.col("version_start")) & (F.col("hour") < F.col("version_end"))
    same_sku = matched["sku_number"] == in_force["sku"]
    rated = matched.join(F.broadcast(in_force), same_sku & within, "left")
    no_price = F.concat(
        F.lit("no price for SKU number "), F.col("sku_number").cast("string"),
        F.lit(" at "), F.col("hour").cast("string"), F.lit(" UTC, used by "), F.col("tenant"),
    )  # fmt: skip
    version = F.when(F.col("version").isNull(), F.raise_error(no_price)).otherwise(F.col("version"))
    units = F.greatest(F.sum("units"), F.lit(0)).cast("decimal(38,0)").alias("units")
    sums = (
        rated.withColumn("version", version.cast("int"))
        .groupBy("tenant", "sku_number", "version", "free")
        .agg(units)
    )
    too_many = F.concat(F.lit(f"more than {QUANTITY_MAX} units used by "), F.col("tenant"))
    checked = F.when(F.col("units") > F.lit(QUANTITY_MAX), F.raise_error(too_many)).otherwise(
        F.col("units")
    )
    return sums.withColumn("units", checked.cast(QUANTITY))


def free_quota(pools: DataFrame) -> DataFrame:
    """Step 4: `free_units` and `billed` of each pool, in order of time."""
    earlier = (
        Window.partitionBy("tenant", "sku_number")
        .orderBy("version")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    used = F.coalesce(F.sum("units").over(earlier), F.lit(0).cast("decimal(28,0)"))
    left = F.greatest(F.col("free") - F.least(used, F.col("free")), F.lit(0).cast(QUANTITY))
    free_units = F.least(F.col("units"), left).cast(QUANTITY)
    return pools.withColumn("free_units", free_units).withColumn(
        "billed", (F.col("units") - F.col("free_units")).cast(QUANTITY)
    )


def price_lines(session: SparkSession, book: PriceBook, pools: DataFrame) -> DataFrame:
    """Steps 5 and 6: one row for each tier that a pool reaches, with its exact amount."""
    tiers = _tiers_frame(session, book)
    joined = pools.join(F.broadcast(tiers), ["sku_number", "version"])
    nothing = F.lit(0).cast(QUANTITY)
    upper = F.least(F.col("billed"), F.coalesce(F.col("up_to"), F.col("billed")))
    in_tier = F.greatest(upper - F.col("lower"), nothing)
    quantity = F.when(F.col("tier") == FREE_TIER, F.col("free_units")).otherwise(in_tier)
    return (
        joined.withColumn("quantity", quantity.cast(QUANTITY))
        .where(F.col("quantity") > 0)
        .withColumn("exact", F.col("unit_price") * F.col("quantity"))
        .select(
            "tenant", "position", "sku", "price_id", "tier", "title", "quantity", "per",
            "unit_price", "exact",
        )
    )  # fmt: skip


def shown_amounts(book: PriceBook, lines: DataFrame) -> DataFrame:
    """Step 7 for the lines: rounded down, and the coins left over by largest remainder."""
    tenant = Window.partitionBy("tenant")
    total = _rounded(book, F.sum("exact").over(tenant)).cast(_LINE_MONEY)
    floor = F.floor(F.col("exact"), F.lit(book.minor_digits)).cast(_LINE_MONEY)
    parts = lines.withColumns({"total": total, "floor": floor}).withColumn(
        "remainder", F.col("exact").cast(_LINE_MONEY) - F.col("floor")
    )
    rank = F.row_number().over(tenant.orderBy(F.desc("remainder"), F.asc("position")))
    left = F.col("total") - F.sum("floor").over(tenant).cast(_LINE_MONEY)
    coin = F.lit(f"{Decimal(1).scaleb(-book.minor_digits):f}").cast("decimal(6,4)")
    gets_coin = rank.cast("decimal(10,0)") * coin <= left
    amount = F.col("floor") + F.when(gets_coin, coin).otherwise(F.lit(0).cast("decimal(6,4)"))
    return parts.withColumn("amount", amount.cast(MONEY)).drop("total", "floor", "remainder")


def unpriced(book: PriceBook, usage: DataFrame) -> list[Unpriced]:
    """What could be billed and no rule of the book matches."""
    covered = [
        reduce(and_, (F.col(name).isin(*values) for name, values in sku.filters))
        for sku in book.skus
    ]
    rows = (
        usage.where(_billable() & (F.col("kind") != Kind.GAUGE.value) & ~reduce(or_, covered))
        .groupBy("protocol", "action", "outcome")
        .agg(F.sum("messages").alias("messages"), F.sum("requests").alias("requests"))
        .collect()
    )
    return sorted(
        Unpriced(row[0], row[1], row[2], int(row["messages"]), int(row["requests"])) for row in rows
    )


def _billable() -> Column:
    return (F.col("protocol") != INTERNAL) & (F.col("outcome") != Outcome.SERVER_ERROR.value)


def invoice_totals(book: PriceBook, lines: DataFrame) -> DataFrame:
    """One row for each tenant: the exact sum, the rounded total, and the number of lines."""
    exact = F.sum("exact").cast(MONEY).alias("exact")
    count = F.count(F.lit(1)).cast("int").alias("lines")
    sums = lines.groupBy("tenant").agg(exact, count)
    return sums.withColumn("total", _rounded(book, F.col("exact")).cast(MONEY))


def _rounded(book: PriceBook, exact: Column) -> Column:
    """The one rounding, half to even."""
    return F.bround(exact, book.minor_digits)


def _match(number: int, sku: Sku) -> Column:
    """(sku_number, units) if the usage row is the SKU's and has units, else null."""
    conditions = [
        _billable(),
        *(F.col(name).isin(*values) for name, values in sku.filters),
        F.col(sku.measure) != 0,
    ]
    units = F.col(sku.measure)
    for name, factors in sku.multipliers:
        factor = F.lit(1)
        for value, times in factors:
            factor = F.when(F.col(name) == value, F.lit(times)).otherwise(factor)
        units = (units * factor.cast("decimal(4,0)")).cast("decimal(38,0)")
    match = F.struct(F.lit(number).alias("sku_number"), units.cast("decimal(38,0)").alias("units"))
    return F.when(reduce(and_, conditions), match)


def _versions_frame(session: SparkSession, book: PriceBook, period: Period) -> DataFrame:
    rows = [
        (number, version.number, version.start_us, version.end_us, sku.prices[version.number].free)
        for number, sku in enumerate(book.skus)
        for version in versions(sku, period)
    ]
    frame = session.createDataFrame(
        rows, "sku int, version int, start_us bigint, end_us bigint, free bigint"
    )
    return frame.select(
        "sku",
        "version",
        F.timestamp_micros("start_us").alias("version_start"),
        F.timestamp_micros("end_us").alias("version_end"),
        F.col("free").cast(QUANTITY).alias("free"),
    )


def _tiers_frame(session: SparkSession, book: PriceBook) -> DataFrame:
    """Every line that this book can make: the free quota and each tier of each price version."""
    positions = line_positions(book)
    rows: list[tuple[int | str | None, ...]] = []
    for (number, version, tier), position in positions.items():
        sku = book.skus[number]
        price = sku.prices[version]
        own = (number, version, tier, position, sku.id, price.id, sku.title, price.per)
        if tier == FREE_TIER:
            rows.append((*own, 0, None, "0"))
        else:
            lower = price.tiers[tier - 1].up_to if tier else 0
            item = price.tiers[tier]
            rows.append((*own, lower, item.up_to, f"{item.unit_price:f}"))
    frame = session.createDataFrame(
        rows,
        "sku_number int, version int, tier int, position int, sku string, price_id string,"
        " title string, per bigint, lower bigint, up_to bigint, unit_price string",
    )
    exact = {name: F.col(name).cast(QUANTITY) for name in ("lower", "up_to")}
    return frame.withColumns({**exact, "unit_price": F.col("unit_price").cast(UNIT_PRICE)})
