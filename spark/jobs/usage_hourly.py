"""From archive files to hourly usage: the rules of spark.usage as Spark plans.

One shuffle by identity finds repeats and conflicts, one by series makes differences of the
cumulative counters, one sums. No Python runs in a worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark text uses

from metering.schema import CUMULATIVE_COLUMNS, SCHEMA_VERSION, TEXT_COLUMNS, Action, Kind
from metering.schema.record import NUMBER_COLUMNS
from spark.usage import DIMENSIONS, SERIES, SUMS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from spark.period import Period

IDENTITY = ("node", "epoch", "seq")
_TIMES = ("window_start", "window_end")
_NUMBERS = tuple(name for name in NUMBER_COLUMNS if name.removesuffix("_us") not in _TIMES)
# All that must be equal in two records of one identity; `emitted_at` is left out on purpose.
CONTENT = (*TEXT_COLUMNS, *_TIMES, *_NUMBERS)

# Why a record is in quarantine: it shares its identity with other content, or it is a cumulative
# record below an earlier one of its series.
REASON_CONFLICT = "conflict"
REASON_FELL = "counter_fell"

# A sum of 64-bit values of up to 10**9 rows.
SUM_TYPE = "decimal(28,0)"

ARCHIVE_COLUMNS = ", ".join(
    (
        "schema_version int, log_queue int, log_offset bigint",
        "node string, epoch bigint, seq bigint, emitted_at timestamp",
        *(f"{name} string" for name in TEXT_COLUMNS),
        *(f"{name} timestamp" for name in _TIMES),
        *(f"{name} bigint" for name in _NUMBERS),
    )
)


@dataclass(frozen=True, slots=True)
class Stages:
    """The frames of one run: `records` is kept in memory until `records.unpersist()`."""

    records: DataFrame
    quarantine: DataFrame
    usage: DataFrame


def build(session: SparkSession, paths: list[str], period: Period) -> Stages:
    """The usage of a period from its archive files (none is an empty archive)."""
    archive = read_archive(session, paths)
    start, end = _timestamp(period.start_us), _timestamp(period.end_us)
    window_start = F.col("window_start")
    records = unique_records(archive.where((window_start >= start) & (window_start < end)))
    records = records.persist()
    good = records.where(~F.col("conflict"))
    earlier = archive.where((F.col("kind") == Kind.STORE.value) & (window_start < start))
    grown = differences(good.where(F.col("kind") == Kind.STORE.value), earlier)
    counted = good.where(F.col("kind") != Kind.STORE.value).withColumn("fell", F.lit(False))
    return Stages(
        records=records,
        quarantine=_quarantine(records, grown),
        usage=hourly(counted.unionByName(grown.select(counted.columns))),
    )


def read_archive(session: SparkSession, paths: list[str]) -> DataFrame:
    """The rows of the files. A row of another schema version fails the job."""
    if not paths:
        return session.createDataFrame([], ARCHIVE_COLUMNS)
    known = F.assert_true(
        F.col("schema_version") == SCHEMA_VERSION,
        F.lit(f"a metering record of another version than {SCHEMA_VERSION}"),
    )
    # The check is a null that is or-ed in, so that no optimizer finds it without use.
    return session.read.schema(ARCHIVE_COLUMNS).parquet(*paths).where(known.isNull())


def unique_records(rows: DataFrame) -> DataFrame:
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
        .orderBy("log_index", "cum_messages", "cum_bytes")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    for name in names:
        base = F.coalesce(F.col(f"base_{name}"), F.lit(0))
        highest = F.coalesce(F.max(name).over(before_this), F.lit(0))
        joined = joined.withColumn(f"before_{name}", F.greatest(base, highest))
    fell = reduce(or_, (F.col(name) < F.col(f"before_{name}") for name in names))
    size_bytes = _growth("cum_bytes")
    egress = F.col("action") == Action.DELIVER.value
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
    """The sums by dimension and hour; keys whose sums are all zero are left out."""
    sums = [F.sum(F.col(name).cast("decimal(18,0)")).alias(name) for name in SUMS]
    hour = F.date_trunc("hour", F.col("window_start")).alias("hour")
    total = rows.groupBy(*DIMENSIONS, hour).agg(*sums)
    total = total.select(*DIMENSIONS, "hour", *(F.col(name).cast(SUM_TYPE) for name in SUMS))
    return total.where(reduce(or_, (F.col(name) != 0 for name in SUMS)))


def _quarantine(records: DataFrame, grown: DataFrame) -> DataFrame:
    """What is not billed, or only in part, with the reason."""
    columns = [*IDENTITY, *CONTENT, "copies"]
    conflicts = records.where("conflict").select(*columns, F.lit(REASON_CONFLICT).alias("reason"))
    original = records.where((F.col("kind") == Kind.STORE.value) & ~F.col("conflict"))
    falls = grown.where("fell").select(*IDENTITY)
    fallen = original.join(falls, list(IDENTITY), "left_semi")
    return conflicts.unionByName(fallen.select(*columns, F.lit(REASON_FELL).alias("reason")))


def _growth(name: str) -> Column:
    before = F.col(f"before_{name}")
    return F.greatest(F.col(name), before) - before


def _timestamp(us: int) -> Column:
    return F.timestamp_micros(F.lit(us))
