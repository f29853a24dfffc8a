"""From metering records to hourly usage: the rules, in plain Python.

The Spark job (jobs/usage_hourly.py) computes the same from files of any size; the tests hold the
two equal. This form is for tests, estimates and reading.

1. A record belongs to the period in which its window starts; windows never cross an hour.
2. Records of the period with one identity (node, epoch, seq) and equal content count once; with
   different content they count not at all and go to quarantine. `emitted_at` is no content.
3. kind=store is cumulative: what a record adds is its value less the highest one before it in its
   series (by log index; earlier periods included), and nothing if it fell. A fall is reported.
   A series is a counter of one Raft group from its `cum_since` on.
4. Usage is the sum by dimension and hour. Cumulative bytes are egress for deliver and return, else
   ingress.
5. What was returned is taken off what was delivered, in the hour in which it was counted: there is
   no usage of the action `return`, and that of an hour may be below zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from metering.schema import HOUR_US, INTERNAL, Action, Kind, Outcome, Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spark.period import Period

DIMENSIONS = (
    "tenant", "account", "kind", "protocol", "action", "api_action", "topic", "queue_class",
    "network", "region", "outcome",
)  # fmt: skip
SUMS = (
    "requests", "units_64k", "units_4k", "messages", "bytes_in", "bytes_out", "gauge_integral",
)  # fmt: skip
# What tells one cumulative counter from another.
SERIES = (
    "raft_group", "cum_since", "tenant", "protocol", "action", "topic", "group", "queue_class",
)  # fmt: skip
# And the order of its records: by log index; the rest only makes the order complete.
CUMULATIVE_ORDER = (
    "log_index", "cum_messages", "cum_bytes", "cum_units_4k", "node", "epoch", "seq",
)  # fmt: skip


EGRESS = (Action.DELIVER, Action.RETURN)

# What one end offset belongs to: a topic's queues in one Raft group, since they were made.
PROOF = ("tenant", "topic", "raft_group", "cum_since")


class Usage(NamedTuple):
    """One key in one hour: DIMENSIONS, the hour's start in microseconds, SUMS."""

    tenant: str
    account: str
    kind: str
    protocol: str
    action: str
    api_action: str
    topic: str
    queue_class: str
    network: str
    region: str
    outcome: str
    hour_us: int
    requests: int
    units_64k: int
    units_4k: int
    messages: int
    bytes_in: int
    bytes_out: int
    gauge_integral: int

    @property
    def billable(self) -> bool:
        """False for the server's own moves and errors, whatever the price book says."""
        return self.protocol != INTERNAL and self.outcome != Outcome.SERVER_ERROR


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Usage in order of its key, and what was left out of it.

    records = billed ones + duplicates + those in quarantine.
    """

    usage: tuple[Usage, ...]
    records: int
    duplicates: int
    conflicts: tuple[tuple[str, int, int], ...]
    conflict_records: int
    falls: int


def aggregate(records: Iterable[Record], period: Period) -> Aggregation:
    """The hourly usage of a period by the rules above."""
    baseline: dict[tuple[object, ...], tuple[int, int, int]] = {}
    copies: dict[tuple[str, int, int], list[Record]] = {}
    count = 0
    for record in records:
        if record.window_start_us >= period.end_us:
            continue
        if record.window_start_us >= period.start_us:
            count += 1
            copies.setdefault((record.node, record.epoch, record.seq), []).append(record)
        elif record.kind == Kind.STORE:
            series = _series(record)
            baseline[series] = _highest(baseline.get(series, (0, 0, 0)), record)
    good: list[Record] = []
    conflicts: list[tuple[str, int, int]] = []
    for identity, same in copies.items():
        if len({replace(record, emitted_at_us=0) for record in same}) == 1:
            good.append(same[0])
        else:
            conflicts.append(identity)
    grown, falls = _differences([r for r in good if r.kind == Kind.STORE], baseline)
    counted = [r for r in good if r.kind != Kind.STORE]
    in_quarantine = sum(len(copies[identity]) for identity in conflicts)
    return Aggregation(
        usage=_sum((*counted, *grown)),
        records=count,
        duplicates=count - in_quarantine - len(good),
        conflicts=tuple(sorted(conflicts)),
        conflict_records=in_quarantine,
        falls=falls,
    )


def _series(record: Record) -> tuple[object, ...]:
    return tuple(getattr(record, name) for name in SERIES)


def _highest(before: tuple[int, int, int], record: Record) -> tuple[int, int, int]:
    messages, size_bytes, units = before
    return (
        max(messages, record.cum_messages),
        max(size_bytes, record.cum_bytes),
        max(units, record.cum_units_4k),
    )


def _differences(
    records: list[Record], highest: dict[tuple[object, ...], tuple[int, int, int]]
) -> tuple[list[Record], int]:
    """The records with what each adds in the place of its counts; and how many fell."""
    grown: list[Record] = []
    falls = 0
    order = sorted(records, key=attrgetter(*CUMULATIVE_ORDER))
    for record in order:
        series = _series(record)
        before = highest.get(series, (0, 0, 0))
        after = highest[series] = _highest(before, record)
        falls += after != (record.cum_messages, record.cum_bytes, record.cum_units_4k)
        messages, size_bytes, units = (b - a for a, b in zip(before, after, strict=True))
        egress = record.action in EGRESS
        grown.append(
            replace(
                record,
                messages=messages,
                units_4k=units,
                bytes_in=0 if egress else size_bytes,
                bytes_out=size_bytes if egress else 0,
                requests=0,
                units_64k=0,
                gauge_integral=0,
            )
        )
    return grown, falls


def _sum(records: Iterable[Record]) -> tuple[Usage, ...]:
    sums: dict[tuple[object, ...], list[int]] = {}
    for record in records:
        hour_us = record.window_start_us - record.window_start_us % HOUR_US
        sign = 1
        if record.action == Action.RETURN:
            sign, record = -1, replace(record, action=Action.DELIVER)  # noqa: PLW2901
        key = (*(getattr(record, name) for name in DIMENSIONS), hour_us)
        total = sums.setdefault(key, [0] * len(SUMS))
        for position, name in enumerate(SUMS):
            total[position] += sign * getattr(record, name)
    in_order = sorted(sums.items(), key=lambda item: [str(part) for part in item[0]])
    return tuple(Usage._make((*key, *total)) for key, total in in_order)
