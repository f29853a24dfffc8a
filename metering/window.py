"""What was counted in one window of time, and how windows become fewer.

A window is a table from a row's key to its values. Two windows of one hour merge into one without
losing anything that a bill reads: counted values add, a level keeps its peak and adds its
integral, a cumulative counter keeps its later state. Windows of different hours never merge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from metering.schema import (
    HOUR_US,
    OTHER,
    Action,
    Kind,
    Network,
    Outcome,
    QueueClass,
)
from metering.schema.record import NUMBER_COLUMNS, TEXT_COLUMNS, Batch


class RowKey(NamedTuple):
    """What one row counts. The fields are the columns of the record of the same names."""

    kind: str = Kind.API
    tenant: str = ""
    account: str = ""
    protocol: str = ""
    action: str = Action.PUBLISH
    api_action: str = ""
    topic: str = ""
    group: str = ""
    queue_class: str = QueueClass.STANDARD
    network: str = Network.INTERNAL
    region: str = ""
    outcome: str = Outcome.OK
    raft_group: int = -1
    cum_since: int = 0


class RowValues(NamedTuple):
    """The values of one row. The fields are the columns of the record of the same names."""

    requests: int = 0
    units_64k: int = 0
    units_4k: int = 0
    messages: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    log_index: int = 0
    cum_messages: int = 0
    cum_bytes: int = 0
    cum_units_4k: int = 0
    gauge_max: int = 0
    gauge_integral: int = 0


@dataclass(slots=True)
class Window:
    """Rows counted in [start_us, end_us), which lies in one hour."""

    start_us: int
    end_us: int
    rows: dict[RowKey, RowValues]
    folded: bool = False

    @property
    def hour(self) -> int:
        """The hour's number since 1970 UTC."""
        return self.start_us // HOUR_US

    def absorb(self, later: Window) -> None:
        """Take in a window of the same hour; its cumulative counters are the later state."""
        assert self.hour == later.hour, "windows of two hours never merge"
        self.start_us = min(self.start_us, later.start_us)
        self.end_us = max(self.end_us, later.end_us)
        self.folded = self.folded and later.folded
        rows = self.rows
        for key, values in later.rows.items():
            present = rows.get(key)
            rows[key] = values if present is None else combine(key, present, values)

    def fold(self) -> bool:
        """Give up which topic and group was counted, for the rows where that only adds up.

        Every total by tenant, protocol and action stays exact. Levels and cumulative counters
        keep their names: neither a peak nor a series can be folded. False if done before.
        """
        if self.folded:
            return False
        folded: dict[RowKey, RowValues] = {}
        for key, values in self.rows.items():
            target = fold_key(key) if key.kind == Kind.API else key
            present = folded.get(target)
            folded[target] = values if present is None else combine(target, present, values)
        self.rows = folded
        self.folded = True
        return True

    def take(self, rows_max: int) -> dict[RowKey, RowValues]:
        """Remove and return at most rows_max rows, the oldest first; some more only if the rows of
        one topic's `route` would be parted, which prove one another (store_meter.py).
        """
        if len(self.rows) <= rows_max:
            taken, self.rows = self.rows, {}
            return taken
        keys = list(self.rows)
        end = rows_max
        while end < len(keys) and _is_one_proof(keys[end - 1], keys[end]):
            end += 1
        keys = keys[:end]
        return {key: self.rows.pop(key) for key in keys}


def _is_one_proof(one: RowKey, other: RowKey) -> bool:
    """Whether both rows count what was routed to one topic in one Raft group."""
    return one.action == Action.ROUTE and one[:3] == other[:3] and _place(one) == _place(other)


def _place(key: RowKey) -> tuple[str, str, int, int]:
    return key.action, key.topic, key.raft_group, key.cum_since


def fold_key(key: RowKey) -> RowKey:
    """The key that stands for all topics and groups of the same tenant, protocol and action."""
    return key._replace(topic=OTHER if key.topic else "", group=OTHER if key.group else "")


def combine(key: RowKey, earlier: RowValues, later: RowValues) -> RowValues:
    """The values of one key over two spans of time."""
    if key.kind == Kind.STORE:
        return later if later.log_index >= earlier.log_index else earlier
    if key.kind == Kind.GAUGE:
        return RowValues(
            gauge_max=max(earlier.gauge_max, later.gauge_max),
            gauge_integral=earlier.gauge_integral + later.gauge_integral,
        )
    return RowValues(*map(int.__add__, earlier, later))


def to_batch(
    window: Window,
    rows: dict[RowKey, RowValues],
    *,
    node: str,
    epoch: int,
    first_seq: int,
    emitted_at_us: int,
    incarnation: int = 0,
) -> Batch:
    """Rows of a window as a batch, with seq first_seq onwards in the order of the rows."""
    count = len(rows)
    columns: dict[str, tuple[Any, ...]] = {}
    columns.update(zip(RowKey._fields, zip(*rows, strict=True), strict=True))
    columns.update(zip(RowValues._fields, zip(*rows.values(), strict=True), strict=True))
    columns["window_start_us"] = (window.start_us,) * count
    columns["window_end_us"] = (window.end_us,) * count
    return Batch(
        node=node,
        epoch=epoch,
        first_seq=first_seq,
        emitted_at_us=emitted_at_us,
        rows=count,
        text={name: columns[name] for name in TEXT_COLUMNS},
        numbers={name: columns[name] for name in NUMBER_COLUMNS},
        incarnation=incarnation,
    )
