"""The proof of the store's counters, from the archive alone: routed = growth of the end offsets.

Each row of action `route` carries in gauge_max the end offset that its topic's queues had when the
counter was read. So, for each topic and Raft group, what all origins together have routed must be
the highest end offset; what is billed of it is that less the server's own moves. The tests have the
same rule in plain Python (tests/spark/reconcile.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark text uses

from metering.schema import INTERNAL, Action, Kind
from spark.jobs.usage_hourly import read_archive
from spark.usage import EGRESS, PROOF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark.archive import Archive
    from spark.period import Period


def build(session: SparkSession, archive: Archive, period: Period) -> DataFrame:
    """One row for each of PROOF: `routed`, `internal` (part of it), `end_offset`."""
    end = F.timestamp_micros(F.lit(period.end_us))
    paths = [*archive.paths(repeating=False), *archive.paths(repeating=True)]
    rows = read_archive(session, paths).where(
        (F.col("kind") == Kind.STORE.value)
        & (F.col("action") == Action.ROUTE.value)
        & (F.col("window_start") < end)
    )
    counters = rows.groupBy(*PROOF, "protocol", "queue_class").agg(
        F.max("cum_messages").alias("messages"), F.max("gauge_max").alias("end_offset")
    )
    internal = F.when(F.col("protocol") == INTERNAL, F.col("messages")).otherwise(F.lit(0))
    return (
        counters.groupBy(*PROOF)
        .agg(
            F.sum("messages").alias("routed"),
            F.sum(internal).alias("internal"),
            F.max("end_offset").alias("end_offset"),
        )
        .where(F.col("end_offset") > 0)
    )


def returned_beyond(session: SparkSession, archive: Archive, period: Period) -> int:
    """Of how many topics more was returned than delivered: none may be."""
    end = F.timestamp_micros(F.lit(period.end_us))
    paths = [*archive.paths(repeating=False), *archive.paths(repeating=True)]
    rows = read_archive(session, paths).where(
        (F.col("kind") == Kind.STORE.value)
        & F.col("action").isin(*(action.value for action in EGRESS))
        & (F.col("window_start") < end)
    )
    place = (*PROOF, "protocol")
    counters = rows.groupBy(*place, "action", "group", "queue_class").agg(
        F.max("cum_messages").alias("messages")
    )
    returned = F.col("action") == Action.RETURN.value
    left = F.sum(F.when(returned, -F.col("messages")).otherwise(F.col("messages")))
    return int(counters.groupBy(*place).agg(left.alias("left")).where(F.col("left") < 0).count())


def apart(proofs: DataFrame) -> int:
    """How many of the proofs fail."""
    return int(proofs.where(F.col("routed") != F.col("end_offset")).count())
