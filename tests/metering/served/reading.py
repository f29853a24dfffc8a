"""The archive and the queues of a node, read side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from metering.schema import (
    Action,
    Kind,
    ManifestEntry,
    Outcome,
    Record,
    parse_manifest,
)
from metering.schema.manifest import MANIFEST_NAME
from spark.period import Period
from tests.metering.served.drivers import Tally
from tests.spark.plain_usage import Usage, aggregate
from tests.spark.reconcile import OffsetGrowth

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.serving import Process


def entries_of(archive: Path) -> list[ManifestEntry]:
    return parse_manifest((archive / MANIFEST_NAME).read_bytes())


def records_of(archive: Path) -> list[Record]:
    """Every record that the manifest answers for."""
    found: list[Record] = []
    for entry in entries_of(archive):
        for row in pq.read_table(archive / entry.name).to_pylist():
            for name in ("emitted_at", "window_start", "window_end"):
                moment = row[name]
                row[f"{name}_us"] = int(moment.timestamp()) * 1_000_000 + moment.microsecond
            row.setdefault("incarnation", 0)
            found.append(Record(**{field.name: row[field.name] for field in fields(Record)}))
    return found


def growth_of(node: Process, tenant: str = "default") -> list[OffsetGrowth]:
    """The end offset of every durable topic, as the admin API tells it: read from the queues."""
    topics = node.api("GET", f"/topics?limit=1000&tenant={tenant}").json["topics"]
    found = []
    for name in [each["name"] for each in topics if each["durable"]]:
        queues = node.api("GET", f"/topics/{name}?tenant={tenant}").json["queues"]
        found.append(OffsetGrowth(tenant, name, 0, sum(each["next_offset"] for each in queues)))
    return found


def periods_of(records: list[Record]) -> list[Period]:
    """The months that the records lie in: one, unless the test ran over the end of one."""
    times = {record.window_start_us // 1_000_000 for record in records}
    months = {datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m") for time_s in times}
    return [Period.parse(month) for month in sorted(months)]


def usage_of(records: list[Record]) -> list[Usage]:
    """What the records add up to, by the billing rules in plain Python."""
    return [row for period in periods_of(records) for row in aggregate(records, period).usage]


def tally_of(usage: list[Usage], *, without: str) -> Tally:
    """The usage of all topics but one, as the drivers' tallies have it."""
    found: Tally = Counter()
    for row in usage:
        if row.kind == Kind.GAUGE or row.topic == without:
            continue
        if row.outcome == Outcome.EMPTY:
            what = "empty" if row.action == Action.RECEIVE else "unroutable"
            found[row.protocol, what, row.kind] += row.messages or row.requests
        elif row.messages:
            found[row.protocol, row.action, row.kind] += row.messages
    return found
