"""From archive files to hourly usage: the rules of spark.usage as Spark plans.

Only files that the manifest shows to repeat records are compared row by row, by a shuffle on
their identity; in a healthy archive there are none. One shuffle by series makes differences of
the cumulative counters, and one sums. No Python runs in a worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark text uses

from metering.schema import (
    CUMULATIVE_COLUMNS,
    SCHEMA_VERSION,
    TEXT_COLUMNS,
    Action,
    Kind,
)
from metering.schema.record import NUMBER_COLUMNS
from spark.usage import CUMULATIVE_ORDER, DIMENSIONS, EGRESS, SERIES, SUMS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from spark.archive import Archive
    from spark.period import Period

IDENTITY = ("node", "epoch", "seq")
_TIMES = ("window_start", "window_end")
_NUMBERS = tuple(name for name in NUMBER_COLUMNS if name.removesuffix("_us") not in _TIMES)
# All that must be equal in two records of one identity; `emitted_at` is left out on purpose.
CONTENT = (*TEXT_COLUMNS, *_TIMES, *_NUMBERS, "incarnation")

# Why a record is in quarantine: it shares its identity with other content, or it is a cumulative
# record below an earlier one of its series.
REASON_CONFLICT = "conflict"
REASON_FELL = "counter_fell"

# Usage leaves the integers behind: no BIGINT may meet a price (see rated_lines).
SUM_TYPE = "decimal(28,0)"

ARCHIVE_COLUMNS = ", ".join(
    (
        "schema_version int, log_queue int, log_offset bigint",
        "node string, epoch bigint, seq bigint, emitted_at timestamp",
        *(f"{name} string" for name in TEXT_COLUMNS),
        *(f"{name} timestamp" for name in _TIMES),
        *(f"{name} bigint" for name in _NUMBERS),
        "incarnation bigint",
    )
)


@dataclass(frozen=True, slots=True)
class Stages:
    """The frames of one run.

    `compared` holds the records of repeating files, each different content once with `copies` and
    `conflict`; `plain` those of all other files. `grown` holds the cumulative records of both with
    what each adds. `usage` has the column `falls`: how many records of the key fell.
    """

    plain: DataFrame
    compared: DataFrame
    grown: DataFrame
    usage: DataFrame


def build(session: SparkSession, archive: Archive, period: Period) -> Stages:
    """The usage of a period from its archive files (none is an empty archive)."""
    start, end = _timestamp(period.start_us), _timestamp(period.end_us)
    in_period = (F.col("window_start") >= start) & (F.col("window_start") < end)
    store = F.col("kind") == Kind.STORE.value
    once = read_archive(session, archive.paths(repeating=False))
    repeating = read_archive(session, archive.paths(repeating=True))
    plain = once.where(in_period).select(*IDENTITY, *CONTENT)
    compared = compare(repeating.where(in_period))
    good = plain.unionByName(compared.where(~F.col("conflict")).select(plain.columns))
    earlier = once.unionByName(repeating).where(store & (F.col("window_start") < start))
    grown = differences(good.where(store), earlier)
    counted = good.where(~store).withColumn("fell", F.lit(False))
    usage = hourly(counted.unionByName(grown.select(counted.columns)))
    return Stages(plain=plain, compared=compared, grown=grown, usage=usage)


def read_archive(session: SparkSession, paths: list[str]) -> DataFrame:
    """The rows of the files. A row of another schema version fails the job."""
    if not paths:
        return session.createDataFrame([], ARCHIVE_COLUMNS)
    known = F.assert_true(
        F.col("schema_version") == SCHEMA_VERSION,
        F.lit(f"a metering record of another version than {SCHEMA_VERSION}"),
    )
    # The check is a null that is or-ed in, so that no optimizer finds it without use.
    rows = session.read.schema(ARCHIVE_COLUMNS).parquet(*paths).where(known.isNull())
    # Older files have no such column.
    return rows.withColumn("incarnation", F.coalesce(F.col("incarnation"), F.lit(0).cast("bigint")))


def compare(rows: DataFrame) -> DataFrame:
    """Each different content of an identity once, with `copies` and `conflict`."""
    by_identity = Window.partitionBy(*IDENTITY)
    return (
        rows.repartition(*IDENTITY)
        .groupBy(*IDENTITY, *CONTENT)
        .agg(F.count(F.lit(1)).alias("copies"))
        .withColumn("conflict", F.count(F.lit(1)).over(by_identity) > 1)
    )


def differences(store: DataFrame, earlier: DataFrame) -> DataFrame:
    """Cumulative records with what each adds in the place of its counts, and `fell`."""
    names = CUMULATIVE_COLUMNS
    baseline = earlier.groupBy(*SERIES).agg(*(F.max(name).alias(f"base_{name}") for name in names))
    # The series' columns are never null: the archive's writer has no nulls.
    joined = store.join(baseline, list(SERIES), "left")
    before_this = (
        Window.partitionBy(*SERIES)
        .orderBy(*CUMULATIVE_ORDER)
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    for name in names:
        base = F.coalesce(F.col(f"base_{name}"), F.lit(0))
        highest = F.coalesce(F.max(name).over(before_this), F.lit(0))
        joined = joined.withColumn(f"before_{name}", F.greatest(base, highest))
    fell = reduce(or_, (F.col(name) < F.col(f"before_{name}") for name in names))
    size_bytes = _growth("cum_bytes")
    egress = F.col("action").isin(*(action.value for action in EGRESS))
    nothing = F.lit(0).cast("bigint")
    return (
        joined.withColumn("fell", fell)
        .withColumn("messages", _growth("cum_messages"))
        .withColumn("units_4k", _growth("cum_units_4k"))
        .withColumn("bytes_in", F.when(egress, nothing).otherwise(size_bytes))
        .withColumn("bytes_out", F.when(egress, size_bytes).otherwise(nothing))
        .withColumn("requests", nothing)
        .withColumn("units_64k", nothing)
        .withColumn("gauge_integral", nothing)
    )


def hourly(rows: DataFrame) -> DataFrame:
    """The sums by dimension and hour, what was returned taken off what was delivered; and the
    number of records that fell.
    """
    returned = F.col("action") == Action.RETURN.value
    rows = rows.withColumns(
        {
            **{name: F.when(returned, -F.col(name)).otherwise(F.col(name)) for name in SUMS},
            "action": F.when(returned, F.lit(Action.DELIVER.value)).otherwise(F.col("action")),
        }
    )
    # Summed as 64-bit integers in half the time of decimals; in ANSI mode overflow is an error.
    sums = [F.sum(name).cast(SUM_TYPE).alias(name) for name in SUMS]
    falls = F.count(F.when(F.col("fell"), 1)).alias("falls")
    hour = F.date_trunc("hour", F.col("window_start")).alias("hour")
    return rows.groupBy(*DIMENSIONS, hour).agg(*sums, falls)


def quarantine(stages: Stages, *, with_falls: bool) -> DataFrame:
    """The records that are not billed, or only in part, with the reason.

    Looking for the cumulative records that fell costs as much as the usage: `with_falls` only if
    the usage has some.
    """
    columns = [*IDENTITY, *CONTENT]
    reason = F.lit(REASON_CONFLICT).alias("reason")
    conflicts = stages.compared.where("conflict").select(*columns, "copies", reason)
    if not with_falls:
        return conflicts
    fallen = stages.grown.where("fell").select(*IDENTITY)
    compared = stages.compared.where(~F.col("conflict")).select(*columns, "copies")
    billed = stages.plain.withColumn("copies", F.lit(1).cast("bigint")).unionByName(compared)
    reason = F.lit(REASON_FELL).alias("reason")
    falls = billed.join(fallen, list(IDENTITY), "left_semi").select(*columns, "copies", reason)
    return conflicts.unionByName(falls)


def _growth(name: str) -> Column:
    before = F.col(f"before_{name}")
    return F.greatest(F.col(name), before) - before


def _timestamp(us: int) -> Column:
    return F.timestamp_micros(F.lit(us))
