"""The store of one process: journal, Raft groups, and the loop that turns proposals into commits.

    fill open entries -> flush: close, propose, frame -> writer thread: pwritev + fdatasync
      -> stable -> commit -> (next flush) -> apply -> answers and deliveries

One write is in flight at a time; what arrives meanwhile makes the next one, so that no timer ever
delays a commit. A batch is answered only from `_apply`, which runs only on entries that the
journal has reported as synced. An fdatasync error ends the process at once: after it nobody can
say what the disk holds (raft-store.md 3.5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ..broker import commands
from ..broker.state import GroupState, QueueState, RouterState
from ..broker.tree_state import TreeEvent
from ..ids import VOLATILE_GROUP, LogIndex, RaftGroup
from ..limits import SETTLE_DELAY_MS
from ..log.journal import Journal
from ..log.writer import WriteBatch
from ..model import Route, TopicInfo
from ..origins import Origins
from ..ports import Clock
from ..raft.core import RaftCore
from ..raft.messages import LEADER, HardState, Membership
from ..raft.options import RaftOptions
from .journal_storage import JournalStorage
from .log_clock import LogClock
from .open_entry import Filled
from .replica import Replica
from .room import Room
from .volatile import VolatileLog
from .worker import Workers


class Listener(Protocol):
    """Hears of definitions and of queues that nobody uses: the client in this process."""

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """A definition changed."""

    def router_changed(self, router: RouterState, group: RaftGroup, *, removed: bool) -> None:
        """A router changed."""

    def route_changed(self, router: RouterState, route: Route, *, removed: bool) -> None:
        """A route came or went."""

    def unused(self, queue: QueueState) -> None:
        """The last consumer of a queue has gone."""

    def outbox_grew(self, replica: Replica) -> None:
        """There are dead letters to send."""

    def record_changed(self, key: str, value: bytes | None) -> None:
        """A metadata record changed."""

    def tree_changed(self, replica: Replica, event: TreeEvent) -> None:
        """Something of the topic tree changed."""


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """Figures of a store."""

    commits: int
    """Journal batches synced."""
    entries_applied: int
    applied_index: Mapping[int, int]
    volatile_bytes: int


_UNBOUNDED = 1 << 62
_VOTER = 1
_RAFT = RaftOptions(_VOTER, max_uncommitted_bytes=_UNBOUNDED, max_applying_bytes=_UNBOUNDED)
"""One voter, which nobody else need hear of. What is uncommitted is what one write carries, and
that is bounded where it is gathered (`open_entry`, `room`)."""


class _Durable:
    """A group in the journal: replica and core."""

    __slots__ = ("core", "replica")

    def __init__(self, replica: Replica, core: RaftCore) -> None:
        self.replica = replica
        self.core = core


class Store:
    """All groups of this process. Made by `kernel.store.open_store`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        journal: Journal,
        states: Mapping[RaftGroup, GroupState],
        clock: Clock,
        fatal: Callable[[str, BaseException], None],
        workers: Workers,
        node: str = "local",
    ) -> None:
        self._loop = loop
        self.journal = journal
        self.origins = Origins()
        self._clock = clock
        self._fatal = fatal
        self._node = node
        self._listener: Listener | None = None
        self._writer = workers("weir-journal-writer")
        self._reader = workers("weir-journal-reader")
        self._fetching: dict[tuple[RaftGroup, int], list[Callable[[], None]]] = {}
        self._groups: dict[RaftGroup, _Durable] = {}
        self._dirty: dict[Replica, None] = {}
        self._volatile_dirty = False
        self._writing: WriteBatch | None = None
        self._gathered: list[tuple[_Durable, Filled]] = []
        """Closed entries that wait for room in the journal."""
        self._queued: list[tuple[_Durable, int]] = []
        """Readies whose records the next write takes."""
        self._in_flight: list[tuple[_Durable, int]] = []
        self.room = Room(journal, self._writer, self.call_later, self._start_write, fatal)
        self._flush_scheduled = False
        self._lazy_timer: asyncio.TimerHandle | None = None
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._after_write: Callable[[], None] = lambda: None
        self.commits = 0
        self.entries_applied = 0
        for group, state in states.items():
            replica = Replica(state, self, journal, LogClock(clock, state.time_ms))
            term, vote, _commit = journal.hard_state(group)
            core = RaftCore(
                _RAFT,
                JournalStorage(journal, group, state.applied),
                HardState(term, vote, state.applied),
                Membership((_VOTER,)),
                state.applied,
                lambda _ticks: 0,
            )
            self._groups[group] = _Durable(replica, core)
        self.volatile_log = VolatileLog()
        self.volatile = Replica(
            GroupState(VOLATILE_GROUP), self, self.volatile_log, LogClock(clock, 0)
        )

    # --- Life -------------------------------------------------------------------------------

    def on_written(self, action: Callable[[], None]) -> None:
        """Call `action` after every commit (housekeeping)."""
        self._after_write = action

    async def start(self, listener: Listener, *, clean: bool = False) -> None:
        """Become leader of every group: raise and sync its term, return what had been handed
        out (unless the last run ended in order), then serve.
        """
        self._listener = listener
        started: list[asyncio.Future[object]] = []
        for durable in self._groups.values():
            durable.core.campaign()
            self._take(durable)
            future: asyncio.Future[object] = self._loop.create_future()
            start = commands.LeaderStart(self._node, clean)
            durable.replica.propose(start, (0, 0, 0), future.set_result)
            started.append(future)
        await asyncio.gather(*started)
        for durable in self._groups.values():
            durable.replica.watch()

    async def stop(self) -> None:
        """Write what is pending, then stop the threads."""
        await self.wait_idle()
        self._writer.stop()
        self._reader.stop()

    async def wait_idle(self) -> None:
        """Return once nothing is pending and no write is in flight, or what is pending waits for
        room on a full disk: that may be for ever, and nobody has been told that it is done.
        """
        while not self._idle:
            self._schedule_flush()
            future = self._loop.create_future()
            self._idle_waiters.append(future)
            await future

    @property
    def _idle(self) -> bool:
        if self.room.starved:
            return True
        busy = self._writing is not None or self.room.waiting
        return not (busy or self._dirty or self._volatile_dirty)

    # --- Groups -----------------------------------------------------------------------------

    def replicas(self) -> list[Replica]:
        """Every group, the volatile one last."""
        return [each.replica for each in self._groups.values()] + [self.volatile]

    def replica(self, group: RaftGroup) -> Replica:
        """One group."""
        return self.volatile if group == VOLATILE_GROUP else self._groups[group].replica

    @property
    def data_groups(self) -> list[RaftGroup]:
        """Numbers of the groups that hold topics."""
        return [group for group in self._groups if group != 0]

    # --- Writing ----------------------------------------------------------------------------

    def dirty(self, replica: Replica, *, urgent: bool) -> None:
        """The replica has something to propose."""
        if replica is self.volatile:
            self._volatile_dirty = True
        else:
            self._dirty[replica] = None
        if urgent:
            self._schedule_flush()
        elif self._lazy_timer is None:
            self._lazy_timer = self._loop.call_later(SETTLE_DELAY_MS / 1000, self._lazy_due)

    def write_soon(self) -> None:
        """Housekeeping has queued journal records of its own."""
        self._schedule_flush()

    def _lazy_due(self) -> None:
        self._lazy_timer = None
        self._schedule_flush()

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Propose what has been gathered; start a write unless one is in flight."""
        self._flush_scheduled = False
        if self._volatile_dirty:
            self._volatile_dirty = False
            self._commit_volatile()
        may_write = self._writing is None and not self.room.waiting
        if may_write and (self._dirty or self.journal.pending_records):
            self._start_write()
        self._wake_idle()

    def _start_write(self) -> None:
        if self._lazy_timer is not None and not self._volatile_dirty:
            # This write takes what the timer was for: with publishes flowing, acks ride along and
            # never start a write that the next publish would have to wait for.
            self._lazy_timer.cancel()
            self._lazy_timer = None
        waiting: dict[Replica, None] = {}
        for replica in self._dirty:
            durable = self._groups[replica.group]
            if durable.core.role == LEADER:
                self._gathered += [(durable, filled) for filled in replica.close()]
            else:
                waiting[replica] = None
        self._dirty = waiting
        if not self.room.fits([filled for _, filled in self._gathered]):
            self._wake_idle()
            return
        gathered, self._gathered = self._gathered, []
        touched: dict[_Durable, None] = {}
        for durable, filled in gathered:
            if filled.waiting:
                index = durable.core.propose((filled.body,))
                durable.replica.proposed(LogIndex(index), filled)
                touched[durable] = None
        for durable in touched:
            self._take(durable)
        batch = self.journal.begin()
        if batch is not None:
            self._writing = batch
            self._in_flight, self._queued = self._queued, []
            self._writer.submit(batch.run, self._written)

    def _take(self, durable: _Durable) -> None:
        """Do what the core asks for: queue what is to be written, apply what is committed."""
        ready = durable.core.ready()
        if ready.must_sync:
            group = durable.replica.group
            state = ready.hard_state
            if state is not None:
                self.journal.append_hard_state(group, state.term, state.vote, state.commit)
            for entry in ready.entries:
                self.journal.append(group, entry.term, entry.index, entry.body)
        if ready.number:
            self._queued.append((durable, ready.number))
        if ready.committed:
            for entry in ready.committed:
                durable.replica.apply(entry.index, entry.term, entry.body)
            durable.core.applied(ready.committed[-1].index)
            self.entries_applied += len(ready.committed)

    def _written(self, error: BaseException | None) -> None:
        """The write in flight is on disk: start the next one, then apply."""
        batch, self._writing = self._writing, None
        if batch is None:
            return
        if error is not None:
            self._fatal("the journal could not be written and synced", error)
            return
        self.commits += 1
        self.journal.end(batch)
        stable, self._in_flight = self._in_flight, []
        if self._dirty or self.journal.pending_records:
            self._start_write()
        for durable, number in stable:
            durable.core.stable(number)
            self._take(durable)
        for durable, _ in stable:
            durable.replica.dispatch()
        if self.journal.pending_records:
            self._schedule_flush()  # a new leader's first entry, and what has waited for a leader
        self._after_write()
        self._wake_idle()

    def _commit_volatile(self) -> None:
        replica = self.volatile
        for filled in replica.close():
            index = self.volatile_log.append(filled.body)
            replica.proposed(index, filled)
            replica.apply(index, 1, filled.body)
            self.volatile_log.sweep(index)
        replica.dispatch()

    def _wake_idle(self) -> None:
        if not self._idle:
            return
        waiters, self._idle_waiters = self._idle_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # --- Reading ----------------------------------------------------------------------------

    def entry(self, group: RaftGroup, index: int) -> bytes | None:
        """A log entry, if it is in memory."""
        if group == VOLATILE_GROUP:
            return self.volatile_log.entry(index)
        return self.journal.entry(group, index)

    def fetch(self, group: RaftGroup, index: int, done: Callable[[], None]) -> None:
        """Read a log entry (and what follows it in the segment) into memory, then call `done`."""
        key = (group, index)
        waiting = self._fetching.get(key)
        if waiting is not None:
            waiting.append(done)
            return
        self._fetching[key] = [done]
        job = self.journal.read_ahead(group, index)

        def finished(error: BaseException | None) -> None:
            if error is not None:
                self._fatal(f"entry {index} of group {group} could not be read", error)
                return
            self.journal.end_read(job)
            for each in self._fetching.pop(key):
                each()

        self._reader.submit(job.run, finished)

    # --- replica.Host, the rest -------------------------------------------------------------

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call `action` after so long."""
        self._loop.call_later(delay_ms / 1000, action)

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """A definition changed."""
        if self._listener is not None:
            self._listener.topic_changed(topic, removed=removed)

    def router_changed(
        self, router: RouterState, group: RaftGroup = VOLATILE_GROUP, *, removed: bool
    ) -> None:
        """A router changed."""
        if self._listener is not None:
            self._listener.router_changed(router, group, removed=removed)

    def route_changed(self, router: RouterState, route: Route, *, removed: bool) -> None:
        """A route came or went."""
        if self._listener is not None:
            self._listener.route_changed(router, route, removed=removed)

    def unused(self, queue: QueueState) -> None:
        """The last consumer of a queue has gone."""
        if self._listener is not None:
            self._listener.unused(queue)

    def outbox_grew(self, replica: Replica) -> None:
        """There are dead letters to send."""
        if self._listener is not None:
            self._listener.outbox_grew(replica)

    def record_changed(self, key: str, value: bytes | None) -> None:
        """A metadata record changed."""
        if self._listener is not None:
            self._listener.record_changed(key, value)

    def tree_changed(self, replica: Replica, event: TreeEvent) -> None:
        """Something of the topic tree changed."""
        if self._listener is not None:
            self._listener.tree_changed(replica, event)

    def statistics(self) -> StoreStatistics:
        """Figures of this store."""
        return StoreStatistics(
            self.commits,
            self.entries_applied,
            {group: each.replica.state.applied for group, each in self._groups.items()},
            self.volatile_log.bytes,
        )
