r"""The store of one process: journal, Raft groups, and the loop that turns proposals into commits.

    fill open entries -> flush: close, propose, frame -> writer thread: pwritev + fdatasync
                                                \-> other members, who write it meanwhile
      -> on a majority of disks -> commit -> apply -> answers and deliveries

One write is in flight at a time, for all groups; what arrives meanwhile makes the next one, so that
no timer ever delays a commit. A batch is answered only from `_apply`, which runs only on entries
that a majority of the members, this node among them, has synced. Votes and answers to a leader
leave only when what they promise is on this disk; a leader's entries leave at once. An fdatasync
error ends the process: after it nobody can say what the disk holds (raft-store.md 3.5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ..broker.state import GroupState
from ..errors import Code, KernelError
from ..ids import VOLATILE_GROUP, LogIndex, RaftGroup
from ..limits import SETTLE_DELAY_MS
from ..log.journal import Journal
from ..log.writer import WriteBatch
from ..origins import Origins
from ..ports import Clock
from ..raft.configuration import ConfigurationChange
from ..raft.core import RaftCore
from ..raft.errors import ConfigurationRefused, RaftError
from ..raft.messages import (
    APPEND,
    APPEND_ANSWER,
    LEADER,
    SNAPSHOT,
    TIMEOUT_NOW,
    HardState,
    Membership,
    Message,
    ReadWanted,
    Ready,
)
from ..raft.options import RaftOptions
from ..raft.progress import SNAPSHOTTING
from .group_log import RECENT_BYTES_MAX, GroupLog
from .listener import Listener, Relay
from .local_leader import LocalLeader
from .log_clock import LogClock
from .member import Member
from .open_entry import Filled
from .peers import Alone, Peers
from .reader import Reader
from .replica import Replica
from .room import Room
from .ticker import Ticker
from .transfer import PATIENCE_MS, Received, SnapshotReceiver
from .volatile import VolatileLog
from .worker import Workers

_UNBOUNDED = 1 << 62
"""What is uncommitted or to be applied is what a few writes carry, and that is bounded where it is
gathered (`open_entry`, `room`)."""

_NOT_LEADER = KernelError(Code.NOT_LEADER, "this node does not lead the group")


@dataclass(frozen=True, slots=True)
class RaftTiming:
    """Of elections. Syncs of 300 ms were seen, and are no failure (raft-store.md 3.6)."""

    tick_ms: int = 150
    election_ticks: int = 10
    """A follower that has heard nothing for so long, and up to twice as long, campaigns."""


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """Figures of a store."""

    commits: int
    """Journal batches synced."""
    entries_applied: int
    applied_index: Mapping[int, int]
    volatile_bytes: int


class _Written:
    """What waits for a write: a Ready of a member's core, and messages that may leave then."""

    __slots__ = ("member", "messages", "number")

    def __init__(self, member: Member, number: int, messages: Sequence[Message]) -> None:
        self.member = member
        self.number = number
        self.messages = messages


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
        *,
        node: int = 1,
        peers: Peers | None = None,
        timing: RaftTiming | None = None,
        jitter: Callable[[int], int] = lambda _ticks: 0,
        born_alone: bool = True,
        configurations: Mapping[RaftGroup, Sequence[int]] | None = None,
    ) -> None:
        """`node`: this store's number in its cluster; `jitter(n)`: 0 to n - 1 by chance, spreads
        elections; `born_alone`: its groups began with one member; `configurations`: per group the
        indexes of changes of membership that are in the log and not applied.
        """
        self._loop = loop
        self.journal = journal
        self.origins = Origins()
        self._clock = clock
        self._fatal = fatal
        self.node = node
        self._peers = peers or Alone()
        self._relay = Relay()
        self._writer = workers("weir-journal-writer")
        self._reader = Reader(loop, journal, workers("weir-journal-reader"), fatal)
        self._dirty: dict[Replica, None] = {}
        self._volatile_dirty = False
        self._writing: WriteBatch | None = None
        self._gathered: list[tuple[Member, Filled]] = []
        """Closed entries that wait for room in the journal."""
        self._queued: list[_Written] = []
        """Who waits for the next write."""
        self._in_flight: list[_Written] = []
        """Who waits for the one in flight."""
        self.receiver: SnapshotReceiver | None = None
        """Fetches snapshots of other stores; set by whoever opens the store."""
        self._offered: dict[tuple[RaftGroup, int], int] = {}
        """When a snapshot was offered to, or last asked for by, a member."""
        self._flushed: list[asyncio.Future[None]] = []
        self._applied: dict[Member, None] = {}
        """Members that have applied something in this turn."""
        self._starting: dict[Member, tuple[asyncio.Future[None], bool]] = {}
        self.room = Room(journal, self._writer, self.call_later, self._start_write, fatal)
        self._flush_scheduled = False
        self._lazy_timer: asyncio.TimerHandle | None = None
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._after_write: Callable[[], None] = lambda: None
        self.commits = 0
        self.entries_applied = 0
        timing = timing or RaftTiming()
        self._options = RaftOptions(
            node,
            election_ticks=timing.election_ticks,
            max_uncommitted_bytes=_UNBOUNDED,
            max_applying_bytes=_UNBOUNDED,
        )
        self._jitter = jitter
        self._born_alone = born_alone
        self._recent_bytes_max = RECENT_BYTES_MAX // max(len(states), 1)
        self._groups = {
            group: self._member(group, state, (configurations or {}).get(group, ()))
            for group, state in states.items()
        }
        self._ticker = Ticker(loop, clock, timing.tick_ms, self._tick)
        self.volatile_log = VolatileLog()
        self.volatile = Replica(
            GroupState(VOLATILE_GROUP), self, self._relay, self.volatile_log, LogClock(clock, 0)
        )
        self.volatile.lead()
        self._volatile_leader = LocalLeader(self.volatile, self)

    def _member(self, group: RaftGroup, state: GroupState, configurations: Sequence[int]) -> Member:
        index, term, name = self.journal.snapshot_of(group)
        membership = state.membership or Membership((self.node,))
        log = GroupLog(
            *(self.journal, group, index, term),
            born_alone=self._born_alone,
            recent_bytes_max=self._recent_bytes_max,
        )
        log.has_snapshot(index, term, name, membership)
        hard = self.journal.hard_state(group)
        core = RaftCore(
            self._options,
            log,
            HardState(hard.term, hard.vote, max(hard.commit, state.applied)),
            membership,
            state.applied,
            self._jitter,
            configurations,
        )
        clock = LogClock(self._clock, state.time_ms)
        replica = Replica(state, self, self._relay, self.journal, clock)
        return Member(core, log, replica, LocalLeader(replica, self))

    # --- Life -------------------------------------------------------------------------------

    def on_written(self, action: Callable[[], None]) -> None:
        """Call `action` after every commit (housekeeping)."""
        self._after_write = action

    async def start(self, listener: Listener, *, clean: bool = False) -> None:
        """Take part. Of a group without other members this node becomes the leader at once: raises
        and syncs its term, takes back what had been handed out (unless the last run ended in order,
        `clean`), serves. Returns once it leads all of these.
        """
        self._relay.listener = listener
        started: list[asyncio.Future[None]] = []
        for member in self._groups.values():
            if self._is_alone(member):
                future: asyncio.Future[None] = self._loop.create_future()
                self._starting[member] = (future, clean)
                started.append(future)
                member.core.campaign()
                self._take(member)
        self._members_changed()
        self._turn_over()
        await asyncio.gather(*started)

    async def stop(self) -> None:
        """Write what is pending, then stop the threads."""
        self._ticker.stop()
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

    def leader(self, group: RaftGroup) -> LocalLeader:
        """What serves a group here, while this node leads it."""
        return self._volatile_leader if group == VOLATILE_GROUP else self._groups[group].leader

    def member(self, group: RaftGroup) -> Member:
        """The part that this node has in a group of the journal."""
        return self._groups[group]

    @property
    def groups(self) -> list[RaftGroup]:
        """Numbers of all groups of the journal."""
        return list(self._groups)

    @property
    def leads_all(self) -> bool:
        """Whether this node leads every group."""
        return all(each.leads for each in self._groups.values())

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
        self._turn_over()
        self._wake_idle()

    def _turn_over(self) -> None:
        """What this turn has brought: to the disk, to other members, to consumers."""
        may_write = self._writing is None and not self.room.waiting
        if may_write and (self._dirty or self.journal.pending_records):
            self._start_write()
        self._dispatch()
        self._peers.flush()

    def _start_write(self) -> None:
        if self._lazy_timer is not None and not self._volatile_dirty:
            # This write takes what the timer was for: with publishes flowing, acks ride along and
            # never start a write that the next publish would have to wait for.
            self._lazy_timer.cancel()
            self._lazy_timer = None
        self._gather()
        if not self.room.fits([filled for _, filled in self._gathered]):
            self._wake_idle()
            return
        gathered, self._gathered = self._gathered, []
        touched: dict[Member, None] = {}
        for member, filled in gathered:
            if filled.waiting:
                self._propose(member, filled)
                touched[member] = None
        for member in touched:
            self._take(member)
        batch = self.journal.begin()
        if batch is not None:
            self._writing = batch
            self._in_flight, self._queued = self._queued, []
            self._writer.submit(batch.run, self._written)

    def _gather(self) -> None:
        """Close the entries that have been filled; those of a group that this node is about to
        lead wait for it, those of one that it does not lead are refused.
        """
        waiting: dict[Replica, None] = {}
        for replica in self._dirty:
            member = self._groups[replica.group]
            if member.core.role == LEADER:
                self._gathered += [(member, filled) for filled in replica.close()]
            elif member in self._starting:
                waiting[replica] = None
            else:
                replica.refuse(_NOT_LEADER)
        self._dirty = waiting

    def _propose(self, member: Member, filled: Filled) -> None:
        try:
            member.proposed(filled)
        except RaftError as error:  # leadership is on its way to another node
            refusal = KernelError(Code.NOT_LEADER, str(error))
            for done in filled.waiting:
                if done is not None:
                    done(refusal)

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
        written, self._in_flight = self._in_flight, []
        if self._dirty or self.journal.pending_records:
            self._start_write()
        for each in written:
            self._stable(each)
        self._turn_over()
        self._after_write()
        self._wake_idle()
        if self._writing is None:
            flushed, self._flushed = self._flushed, []
            for future in flushed:
                if not future.done():
                    future.set_result(None)

    async def flushed(self) -> None:
        """Return once everything that is queued for the journal is synced."""
        if self._writing is not None or self.journal.pending_records:
            future: asyncio.Future[None] = self._loop.create_future()
            self._flushed.append(future)
            self._schedule_flush()
            await future

    def _stable(self, written: _Written) -> None:
        """A Ready is on disk."""
        member = written.member
        for message in written.messages:
            self._peers.send(member.group, message)
        member.core.stable(written.number)
        self._take(member)

    # --- Consensus --------------------------------------------------------------------------

    def receive(self, group: RaftGroup, message: Message) -> None:
        """A message of another member. What does not fit on the disk is as good as lost: the leader
        sends it again.
        """
        member = self._groups.get(group)
        if member is None or message.to != self.node:
            return
        if self.receiver is not None and not self._may_step(member, message, self.receiver):
            return
        if message.kind == APPEND and message.entries:
            sizes = [len(entry.body) for entry in message.entries]
            if not self.room.takes(sizes):
                return
        try:
            member.core.step(message)
        except RaftError:
            return  # of somebody who is no member, or for a leader
        self._take(member)
        self._schedule_flush()

    def _may_step(self, member: Member, message: Message, receiver: SnapshotReceiver) -> bool:
        """Whether a message is for the core: not if a snapshot has to be fetched first, or is on
        its way, for nothing may change the log under it.
        """
        if receiver.is_receiving(member.group):
            return message.kind not in {APPEND, SNAPSHOT, TIMEOUT_NOW}
        offered = message.snapshot
        if offered is None or offered.index <= member.core.log.committed:
            return True
        if message.term >= member.core.term:
            receiver.offered(member.group, message)
        return False

    def install(self, received: Received) -> None:
        """A snapshot of a group from another store is durable, and the checkpoint names it: state
        and log are what it says.
        """
        group, snapshot = received.group, received.snapshot
        member = self._groups[group]
        self.journal.installed(received.job, received.references)
        clock = LogClock(self._clock, received.state.time_ms)
        replica = Replica(received.state, self, self._relay, self.journal, clock)
        member.replace(replica, LocalLeader(replica, self))
        members = received.state.membership or snapshot.membership
        member.log.has_snapshot(snapshot.index, snapshot.term, received.name, members)
        member.log.forget_recent()
        member.core.install(snapshot)
        self._relay.replaced(replica)
        answer = Message(APPEND_ANSWER, self.node, received.sender, member.core.term)
        answer.index = snapshot.index
        self._peers.send(group, answer)
        self._take(member)
        self._schedule_flush()

    def change_members(self, group: RaftGroup, change: ConfigurationChange) -> None:
        """Propose a change of a group's members; it is in force once applied. Raises KernelError
        NOT_LEADER; INVALID_ARGUMENT if it does not fit or another one is under way.
        """
        member = self._groups[group]
        try:
            member.core.propose_configuration(change)
        except ConfigurationRefused as error:
            raise KernelError(Code.INVALID_ARGUMENT, str(error)) from None
        except RaftError as error:
            raise KernelError(Code.NOT_LEADER, str(error)) from None
        self._take(member)
        self._schedule_flush()

    def transfer(self, group: RaftGroup, to: int) -> None:
        """Hand a group's leadership to another voter. Raises KernelError NOT_LEADER."""
        member = self._groups[group]
        if member.core.role != LEADER:
            raise KernelError(Code.NOT_LEADER, "this node does not lead the group")
        member.core.transfer(to)
        self._take(member)
        self._schedule_flush()

    def has_snapshot(
        self, group: RaftGroup, index: int, term: int, name: str, members: Membership | None
    ) -> None:
        """A snapshot of a group is on disk, and named by the checkpoint."""
        members = members or Membership((self.node,))
        self._groups[group].log.has_snapshot(index, term, name, members)

    def unreachable(self, node: int) -> None:
        """Messages to a node were lost."""
        for member in self._groups.values():
            member.core.report_unreachable(node)

    def _tick(self, elapsed: int) -> None:
        for member in self._groups.values():
            member.core.tick(elapsed)
            if member.core.has_ready():
                self._take(member)
            self._look_at_peers(member)
        self._turn_over()

    def _look_at_peers(self, member: Member) -> None:
        """Let go of what everybody has; notice snapshots that nobody fetches."""
        if not member.leads:
            return
        peers = member.core.tracker.peers
        member.log.everybody_has(min((each.match for each in peers), default=0))
        now = self._clock.monotonic_ms()
        for progress in peers:
            key = (member.group, progress.node)
            if progress.state != SNAPSHOTTING:
                self._offered.pop(key, None)
            elif now - self._offered.setdefault(key, now) > PATIENCE_MS:
                del self._offered[key]
                member.core.report_snapshot(progress.node, installed=False)

    def fetches(self, group: RaftGroup, node: int) -> None:
        """A node is fetching a snapshot of a group."""
        self._offered[group, node] = self._clock.monotonic_ms()

    def _take(self, member: Member) -> None:
        """Do what the core asks for."""
        core = member.core
        self._do(member, core.ready())
        while core.has_ready():
            self._do(member, core.ready())

    def _do(self, member: Member, ready: Ready) -> None:
        if ready.soft_state is not None:
            self._role_changed(member)
        if ready.must_sync:
            hard = ready.hard_state
            if hard is not None:
                self.journal.append_hard_state(member.group, hard.term, hard.vote, hard.commit)
            if ready.entries:
                member.log.appended(ready.entries)
        for message in ready.messages_now:
            self._peers.send(member.group, message)
        if ready.number:
            self._await_disk(_Written(member, ready.number, ready.messages_after_sync), ready)
        if ready.committed:
            self._apply(member, ready)
        for wanted in ready.reads_wanted:
            self.fetch(member.group, wanted.low, partial(self._loaded, member, wanted))

    def _await_disk(self, written: _Written, ready: Ready) -> None:
        """Once what this Ready and those before it bring is on disk, it is stable."""
        member = written.member
        if ready.must_sync or any(each.member is member for each in self._queued):
            self._queued.append(written)
        elif any(each.member is member for each in self._in_flight):
            self._in_flight.append(written)
        else:
            for message in written.messages:
                self._peers.send(member.group, message)
            member.core.stable(written.number)

    def _apply(self, member: Member, ready: Ready) -> None:
        members = member.state.membership
        for entry in ready.committed:
            member.apply(entry)
        member.core.applied(ready.committed[-1].index)
        self.entries_applied += len(ready.committed)
        self._applied[member] = None
        if member.state.membership is not members:
            self._members_changed()

    def _dispatch(self) -> None:
        while self._applied:
            applied, self._applied = self._applied, {}
            for member in applied:
                member.replica.dispatch()

    def _loaded(self, member: Member, wanted: ReadWanted) -> None:
        member.core.loaded(wanted)
        if member.core.has_ready():
            self._take(member)
            self._schedule_flush()

    def has(self, group: RaftGroup, index: int) -> bool:
        """Whether the journal has an entry."""
        return self.journal.has(group, index)

    def term_of(self, group: RaftGroup, index: int) -> int:
        """Term of an entry that is not above the log's end; 0 if that is known no more."""
        return self.journal.term(group, index)

    def _role_changed(self, member: Member) -> None:
        leads = member.core.role == LEADER
        if leads and not member.leads:
            future, clean = self._starting.pop(member, (None, False))
            started = partial(self._serves, member, future)
            member.lead(str(self.node), clean=clean, started=started)
        elif member.leads and not leads:
            member.follow()

    def _serves(self, member: Member, future: asyncio.Future[None] | None) -> None:
        self._relay.leads(member.replica)
        if future is not None and not future.done():
            future.set_result(None)

    def _members_changed(self) -> None:
        """Time passes only for groups that have other members."""
        alone = True
        for member in self._groups.values():
            single = self._is_alone(member)
            member.log.keeps_recent = not single
            alone = alone and single
        self._ticker.run(wanted=not alone)

    def _is_alone(self, member: Member) -> bool:
        tracker = member.core.tracker
        return tracker.is_singleton and tracker.is_voter(self.node)

    def _commit_volatile(self) -> None:
        replica = self.volatile
        for filled in replica.close():
            index = self.volatile_log.append(filled.body)
            replica.proposed(LogIndex(index), filled)
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
        self._reader.fetch(group, index, done)

    async def fetched(self, group: RaftGroup, index: int) -> None:
        """Return once a log entry that something refers to has been read into memory."""
        await self._reader.fetched(group, index)

    # --- The rest -----------------------------------------------------------------------------

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call `action` after so long."""
        self._loop.call_later(delay_ms / 1000, action)

    def statistics(self) -> StoreStatistics:
        """Figures of this store."""
        return StoreStatistics(
            self.commits,
            self.entries_applied,
            {group: each.state.applied for group, each in self._groups.items()},
            self.volatile_log.bytes,
        )
