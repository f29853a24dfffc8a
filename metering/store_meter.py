"""The store's meter: cumulative counters of a state machine as rows.

Apply adds; this module only looks. Every window the leader of a Raft group hands over its
counters, each with the log index that it is as of, and the rows are those that grew since the last
time. The index orders what several leaders have told, so it is never one before. A window that
is lost is made good by the next one, because the values are cumulative; the bill is the
difference of two of them (docs/design/billing.md).

What the state machine promises:
- a counter never falls. One that is forgotten and begun again has another `cum_since`: the log
  index of the entry that began it.
- `messages`, `size_bytes` and `units_4k` are those of the action (docs/design/billing.md): publish
  and route count at append, deliver at a timed lease, ack when a group is done with a message.
- `route` of all protocols together is the growth of a topic's end offsets.

The end offset itself goes with each row of `route`, as the row's gauge_max: it is read from the
queues, not counted, so that the archive alone proves the counts (spark/jobs/routed.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from metering.schema import Action, Kind, QueueClass
from metering.window import RowKey, RowValues, Window

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class StoreCounter:
    """One cumulative counter of a state machine, as of a log index."""

    tenant: str
    topic: str
    # The origin: the name an adapter registered, or `internal` for the server's own moves.
    protocol: str
    action: str
    messages: int
    size_bytes: int
    units_4k: int
    group: str = ""
    queue_class: str = QueueClass.STANDARD
    account: str = ""
    cum_since: int = 0
    # Of the topic's queues in this Raft group together.
    end_offset: int = 0


class StoreMeter:
    """Turns the counters of one Raft group into windows of the rows that grew.

    Memory: the last value of each counter, hence bounded by the state machine's own table.
    """

    def __init__(self, raft_group: int, *, region: str = "") -> None:
        self._raft_group = raft_group
        self._region = region
        self._last: dict[RowKey, int] = {}

    def observe(
        self, start_us: int, end_us: int, log_index: int, counters: Iterable[StoreCounter]
    ) -> Window | None:
        """The rows of the window [start_us, end_us) with the counters as of `log_index`.

        None if no counter grew. The window lies in one hour; counters that are missing are
        forgotten here as well.
        """
        observation = self.begin()
        observation.add(log_index, counters)
        return observation.end(start_us, end_us)

    def begin(self) -> Observation:
        """The same, some counters at a time. One that does not come to its end leaves everything to
        the next.
        """
        before, self._last = self._last, {}
        return Observation(self, self._raft_group, self._region, before)

    def ended(self, values: dict[RowKey, int]) -> None:
        """These were told."""
        self._last = values


class Observation:
    """One look at all counters of a Raft group."""

    def __init__(
        self,
        meter: StoreMeter,
        raft_group: int,
        region: str,
        before: dict[RowKey, int],
    ) -> None:
        """`before`: the last values, which are taken out of it."""
        self._meter = meter
        self._raft_group = raft_group
        self._region = region
        self._before = before
        self._now: dict[RowKey, int] = {}
        self._rows: dict[RowKey, RowValues] = {}

    def add(self, log_index: int, counters: Iterable[StoreCounter]) -> None:
        """Some counters more, as of `log_index`; all of one topic at once, since its end offset is
        that of all.
        """
        for counter in counters:
            key = RowKey(
                kind=Kind.STORE,
                tenant=counter.tenant,
                account=counter.account,
                protocol=counter.protocol,
                action=counter.action,
                topic=counter.topic,
                group=counter.group,
                queue_class=counter.queue_class,
                region=self._region,
                raft_group=self._raft_group,
                cum_since=counter.cum_since,
            )
            self._now[key] = counter.messages
            if self._before.pop(key, None) != counter.messages:
                self._rows[key] = RowValues(
                    log_index=log_index,
                    cum_messages=counter.messages,
                    cum_bytes=counter.size_bytes,
                    cum_units_4k=counter.units_4k,
                    gauge_max=counter.end_offset if counter.action == Action.ROUTE else 0,
                )

    def forget(self, count: int) -> bool:
        """Forget so many of the counters that are missing, once all were added; whether there are
        more.
        """
        for _ in range(min(count, len(self._before))):
            self._before.popitem()
        return bool(self._before)

    def end(self, start_us: int, end_us: int) -> Window | None:
        """All were added."""
        self._meter.ended(self._now)
        return Window(start_us, end_us, self._rows) if self._rows else None
