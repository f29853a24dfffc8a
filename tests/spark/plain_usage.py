"""The rules of `spark.usage` in plain Python: what the Spark job must come to, and readable."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from metering.schema import HOUR_US, INTERNAL, Action, Kind, Outcome, Record
from spark.usage import CUMULATIVE_ORDER, DIMENSIONS, EGRESS, SERIES, SUMS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spark.period import Period


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
            sign, record = -1, replace(record, action=Action.DELIVER)
        key = (*(getattr(record, name) for name in DIMENSIONS), hour_us)
        total = sums.setdefault(key, [0] * len(SUMS))
        for position, name in enumerate(SUMS):
            total[position] += sign * getattr(record, name)
    in_order = sorted(sums.items(), key=lambda item: [str(part) for part in item[0]])
    return tuple(Usage._make((*key, *total)) for key, total in in_order)
