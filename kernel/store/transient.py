"""The transient group: a Raft group of one process, with entries in bounded memory for a log.

Same state machine, same dispatchers as the durable groups; only there is no journal below, so an
entry counts as committed at once (docs/design/model.md#durable-or-transient). Every process that
clients connect to has one, a gateway without a store too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..api.origins import Origins
from ..broker.delivery.delivery_scheduler import DeliveryScheduler
from ..broker.group_state.state import GroupState
from ..common.feature_levels import LATEST
from ..common.ids import TRANSIENT_GROUP, LogIndex, RaftGroup
from ..common.limits import SETTLE_DELAY_MS
from ..common.ports import Clock
from .leading.local_leader import HalfRoom, LocalLeader
from .leading.name_matching import NameMatches
from .leading.topic_room import TopicRoom
from .replicas.listener import Relay
from .replicas.log_clock import LogClock
from .replicas.replica import Replica


class TransientLog:
    """Entries by index, counted by references. `machine.Retention` of the transient group."""

    def __init__(self) -> None:
        self._entries: dict[int, bytes] = {}
        self._references: dict[int, int] = {}
        self.last = 0
        self.bytes = 0

    def append(self, body: bytes) -> int:
        """Keep an entry; its index."""
        self.last += 1
        self._entries[self.last] = body
        self.bytes += len(body)
        return self.last

    def entry(self, index: int) -> bytes | None:
        """An entry; None if nothing refers to it any more."""
        return self._entries.get(index)

    def sweep(self, index: int) -> None:
        """The entry has been applied: let it go if nothing refers to it."""
        if index not in self._references:
            self._drop(index)

    def retain(self, group: int, index: int, references: int) -> None:
        """So many more queue places refer to the entry."""
        self._references[index] = self._references.get(index, 0) + references

    def release(self, group: int, index: int, references: int) -> None:
        """So many of them are gone."""
        left = self._references.get(index, 0) - references
        if left > 0:
            self._references[index] = left
        else:
            self._references.pop(index, None)
            self._drop(index)

    def _drop(self, index: int) -> None:
        body = self._entries.pop(index, None)
        if body is not None:
            self.bytes -= len(body)

    @property
    def count(self) -> int:
        """Entries kept."""
        return len(self._entries)


class TransientGroup:
    """The group, the entries it keeps, and when it takes what was asked for. `host.Host`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, relay: Relay[Replica], origins: Origins
    ) -> None:
        self._loop = loop
        self.origins = origins
        self.scheduler = DeliveryScheduler(loop.call_soon)
        self.awaits_claims = False
        self.log = TransientLog()
        state = GroupState(TRANSIENT_GROUP)
        state.feature_level = LATEST  # no other build ever reads what is in this process's memory
        self.replica = Replica(state, self, relay, self.log, LogClock(clock, 0))
        self.names: NameMatches | None = None
        """No reference list is here."""
        self.half_room: HalfRoom | None = None
        """Nor half messages."""
        self.topic_room = TopicRoom(
            lambda group: self.replica if group == TRANSIENT_GROUP else None
        )
        self.leader = LocalLeader(self.replica, self)
        self._is_due = False
        self._lazy_timer: asyncio.TimerHandle | None = None
        self.replica.lead(alone=True)
        self.replica.watch()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be carried out."""
        return not self._is_due and self._lazy_timer is None

    # --- host.Host --------------------------------------------------------------------------

    def dirty(self, replica: Replica, *, urgent: bool) -> None:
        """There is something to carry out: when this turn is over, or within 5 ms."""
        if urgent and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.flush)
        elif not urgent and self._lazy_timer is None:
            self._lazy_timer = self._loop.call_later(SETTLE_DELAY_MS / 1000, self.flush)

    def entry(self, group: RaftGroup, index: int) -> bytes | None:
        """A log entry: all that are referred to are in memory."""
        return self.log.entry(index)

    def fetch(
        self, group: RaftGroup, index: int, done: Callable[[], None], *, log: bool = False
    ) -> None:
        """It is in memory, or gone."""
        self._loop.call_soon(done)

    async def fetched(self, group: RaftGroup, index: int) -> None:
        """It is in memory, or gone."""

    def is_given_up(self, group: RaftGroup, index: int) -> bool:
        """Memory has no damage."""
        return False

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `action` after so long."""
        return self._loop.call_later(delay_ms / 1000, action)

    # --- Carrying out -----------------------------------------------------------------------

    def flush(self) -> None:
        """Carry out what has been asked for, and hand out what it brings."""
        self._is_due = False
        if self._lazy_timer is not None:
            self._lazy_timer.cancel()
            self._lazy_timer = None
        replica = self.replica
        for filled in replica.close():
            index = self.log.append(filled.body)
            replica.proposed(LogIndex(index), filled)
            replica.apply(index, 1, filled.body)
            self.log.sweep(index)
        replica.dispatch()
