r"""The store of one process: journal, Raft groups, and the loop that turns proposals into commits.

    fill open entries -> flush: close, propose, frame -> writer thread: one synced write
                                                \-> other members, who write it meanwhile
      -> on a majority of disks -> commit -> apply -> answers and deliveries

One write is in flight at a time, for all groups; what arrives meanwhile makes the next one, so that
no timer ever delays a commit. A batch is answered only from `_apply`, which runs only on entries
that a majority of the members, this node among them, has synced. Votes and answers to a leader
leave only when what they promise is on this disk; a leader's entries leave at once. An fdatasync
error ends the process: after it nobody can say what the disk holds (docs/design/storage.md#write).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ..api.origins import Origins
from ..broker.delivery.delivery_scheduler import DeliveryScheduler
from ..common.errors import Code, KernelError
from ..common.feature_levels import LATEST
from ..common.ids import METADATA_GROUP, TRANSIENT_GROUP, RaftGroup
from ..common.limits import SETTLE_DELAY_MS
from ..common.placement import home_groups
from ..common.ports import Clock
from ..log.journal import Journal
from ..log.writer import WriteBatch
from ..raft.errors import RaftError
from ..raft.messages import LEADER, RaftMessage, Ready, Snapshot
from .drivers.worker import Workers
from .entry_reader import Reader
from .leading.local_leader import HalfRoom, LocalLeader
from .leading.name_matching import NameMatches
from .leading.topic_room import TopicRoom
from .raft_groups.consensus import Consensus, Origin, RaftTiming
from .raft_groups.leaving import LeaveGroup
from .raft_groups.member import Member
from .raft_groups.peers import Alone, Peers
from .raft_groups.ticker import Ticker
from .recovery.losses import Losses
from .recovery.unreadable import Unreadable
from .replicas.listener import Relay, ReplicaListener
from .replicas.open_entry import Filled
from .replicas.replica import Replica
from .space.room import Room
from .store_statistics import StoreStatistics
from .transient import TransientGroup

AHEAD_BYTES = 256 * 1024
"""So many bytes of messages become entries while another write is in flight, so that the next one
can begin at once; to join and frame them takes as long as half a write of theirs. With fewer, what
comes until that write is over had better go into the same entry: each costs some 20 us."""

_NOT_LEADER = KernelError(Code.NOT_LEADER, "this node does not lead the group")


class _Written:
    """What waits for a write: a Ready of a member's core, and messages that may leave then."""

    __slots__ = ("member", "messages", "number")

    def __init__(self, member: Member, number: int, messages: Sequence[RaftMessage]) -> None:
        self.member = member
        self.number = number
        self.messages = messages


class Store:
    """All groups of this process. Made by `kernel.store.open_store`."""

    leaving: Callable[[RaftGroup], Awaitable[None]]
    """Has a checkpoint say that a group was left. Set by housekeeping."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        journal: Journal,
        origin: Origin,
        clock: Clock,
        fatal: Callable[[str, BaseException], None],
        workers: Workers,
        losses: Losses,
        *,
        node: int = 1,
        peers: Peers | None = None,
        timing: RaftTiming | None = None,
        jitter: Callable[[int], int] = lambda _ticks: 0,
        understands: int = LATEST,
    ) -> None:
        """`node`: this store's number in its cluster; `jitter(n)`: 0 to n - 1 by chance, spreads
        elections; `understands`: the level up to which this build does (`feature_levels`).
        """
        self.understands = understands
        self._loop = loop
        self.journal = journal
        self.origins = Origins()
        self.awaits_claims = False
        self._clock = clock
        self._fatal = fatal
        self.node = node
        self._peers = peers or Alone()
        self._relay: Relay[Replica] = Relay()
        self._writer = workers("weir-journal-writer")
        reading = workers("weir-journal-reader")
        self.unreadable = Unreadable(loop, self, journal, losses, clock, reading, fatal)
        self._reader = Reader(loop, journal, reading, self.unreadable.failed)
        self.unreadable.reader = self._reader
        self._dirty: dict[Replica, None] = {}
        self._writing: WriteBatch | None = None
        self._gathered: list[tuple[Member, Filled]] = []
        """Closed entries that wait for room in the journal, or for a transfer of leadership."""
        self._queued: list[_Written] = []
        """Who waits for the next write."""
        self._in_flight: list[_Written] = []
        """Who waits for the one in flight."""
        self._flushed: list[asyncio.Future[None]] = []
        self.room = Room(journal, self._writer, self.call_later, self._start_write, fatal)
        self._flush_scheduled = False
        self._lazy_timer: asyncio.TimerHandle | None = None
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._after_write: Callable[[], None] = lambda: None
        self._when_written: list[Callable[[], None]] = []
        self.commits = 0
        timing = timing or RaftTiming()
        self.consensus = Consensus(
            node,
            origin,
            self,
            self._relay,
            journal,
            clock,
            self._peers,
            timing,
            jitter,
            understands,
        )
        self._groups = self.consensus.members
        self._ticker = Ticker(loop, clock, timing.tick_ms, self._tick)
        self.transient_group = TransientGroup(loop, clock, self._relay, self.origins)
        self.transient = self.transient_group.replica
        self.transient_log = self.transient_group.log
        self.names: NameMatches | None = None
        """Who knows which reference lists a tree name leads to."""
        self.half_room: HalfRoom | None = None
        """Who keeps half messages from being too many."""
        self.topic_room = TopicRoom(self._replica_of)

    # --- Life -------------------------------------------------------------------------------

    def on_written(self, action: Callable[[], None]) -> None:
        """Call `action` after every commit (housekeeping)."""
        self._after_write = action

    def when_written(self, action: Callable[[], None]) -> None:
        """Call `action` once, after the commit that is on its way."""
        self._when_written.append(action)

    @property
    def is_writing(self) -> bool:
        """Whether a commit is on its way to the disk."""
        return self._writing is not None

    def also_tell(self, listener: ReplicaListener[Replica]) -> None:
        """Have somebody beside this process's client hear of what groups apply; before `start`."""
        self._relay.add(listener)

    async def start(self, listener: ReplicaListener[Replica], *, clean: bool = False) -> None:
        """Take part. Of a group without other members this node becomes the leader at once: raises
        and syncs its term, takes back what had been handed out (unless the last run ended in order,
        `clean`), serves. Returns once it leads all of these.
        """
        self._relay.put_first(listener)
        started: list[asyncio.Future[None]] = []
        for member in self._groups.values():
            if self.consensus.is_alone(member):
                future: asyncio.Future[None] = self._loop.create_future()
                self.consensus.starting[member] = (future, clean)
                started.append(future)
                member.core.campaign()
                self.consensus.take(member)
        self.consensus.members_changed()
        self._turn_over()
        await asyncio.gather(*started)

    async def stop(self) -> None:
        """Write what is pending, then stop the threads."""
        self.consensus.holding.stop()
        self.consensus.wall_clocks.stop()
        self.consensus.healing.stop()
        self.unreadable.stop()
        self._ticker.stop()
        await self.wait_idle()
        self._writer.stop()
        self._reader.stop()

    async def wait_idle(self) -> None:
        """Return once nothing is pending and no write is in flight, or what is pending waits for
        room on a full disk: that may be for ever, and nobody has been told that it is done.
        """
        while not self.is_idle:
            if self.transient_group.is_idle:
                self._schedule_flush()
                future = self._loop.create_future()
                self._idle_waiters.append(future)
                await future
            else:
                self.transient_group.flush()
                await asyncio.sleep(0)

    @property
    def is_idle(self) -> bool:
        """Whether `wait_idle` would return at once."""
        return self._idle and self.transient_group.is_idle

    @property
    def _idle(self) -> bool:
        busy = self._writing is not None or self.room.waiting or self._dirty
        return self.room.starved or not busy

    # --- Groups -----------------------------------------------------------------------------

    def replicas(self) -> list[Replica]:
        """Every group, the transient one last."""
        return [each.replica for each in self._groups.values()] + [self.transient]

    def replica(self, group: RaftGroup) -> Replica:
        """One group."""
        return self.transient if group == TRANSIENT_GROUP else self._groups[group].replica

    def _replica_of(self, group: RaftGroup) -> Replica | None:
        member = self._groups.get(group)
        return member.replica if member is not None else None

    def leader(self, group: RaftGroup) -> LocalLeader:
        """What serves a group here, while this node leads it."""
        if group == TRANSIENT_GROUP:
            return self.transient_group.leader
        return self._groups[group].leader

    def member(self, group: RaftGroup) -> Member:
        """The part that this node has in a group of the journal."""
        return self._groups[group]

    def serving(self, group: RaftGroup) -> LocalLeader | None:
        """What serves a group of the journal to other processes, if this node leads it."""
        member = self._groups.get(group)
        return member.leader if member is not None and member.serves else None

    def standing(self, group: RaftGroup) -> tuple[int, int]:
        """(term, number of the node that leads a group in it, or 0), as this node knows."""
        core = self._groups[group].core
        return core.term, core.leader

    def holds(self, group: RaftGroup) -> bool:
        """Whether this node has a replica of a group; of others it hears as a gateway does."""
        return self.consensus.holds(group)

    def has_nothing_of(self, group: RaftGroup) -> bool:
        """Whether this node has left a group, or has never been a member of it, and is not being
        sent its snapshot. One that it may have had, and lost, it has to be told to leave: else it
        would wait to be healed of it.
        """
        receiver = self.consensus.receiver
        if receiver is not None and receiver.is_receiving(group):
            return False
        if group in self.consensus.healing.patients:
            return group in self.consensus.healing.left
        member = self._groups[group]
        return not (self.holds(group) or member.core.log.last_index or member.state.applied)

    @property
    def groups(self) -> list[RaftGroup]:
        """Numbers of all groups of the cluster."""
        return list(self._groups)

    @property
    def leads_all(self) -> bool:
        """Whether this node leads every group."""
        return all(each.leads for each in self._groups.values())

    @property
    def is_alone(self) -> bool:
        """Whether no group has a voter elsewhere."""
        return all(each.core.tracker.is_alone for each in self._groups.values())

    @property
    def feature_level(self) -> int:
        """The level that is decided on, as far as it is known here; each group follows."""
        return self._groups[METADATA_GROUP].state.feature_level

    @property
    def data_groups(self) -> list[RaftGroup]:
        """Numbers of the groups that hold queues."""
        return [group for group in self._groups if group != 0]

    @property
    def home_groups(self) -> list[RaftGroup]:
        """Of these the ones that names, subscribers and what is published to the tree have their
        home in.
        """
        return home_groups(self._groups)

    def add_group(self, group: RaftGroup, *, born: bool) -> None:
        """A data group comes while this node runs, after `start`. `born`: it begins here, and is
        served once its first entry is on this disk; else it is one that others have.
        """
        member = self.consensus.add(group, born=born)
        if born:
            member.core.campaign()
            self.consensus.take(member)
        self.consensus.members_changed()
        self.consensus.leaders_changed()
        self._schedule_flush()

    # --- Writing ----------------------------------------------------------------------------

    def dirty(self, replica: Replica, *, urgent: bool) -> None:
        """The replica has something to propose."""
        if replica is self.transient:
            self.transient_group.dirty(replica, urgent=urgent)
            return
        self._dirty[replica] = None
        if urgent:
            self._schedule_flush()
        elif self._lazy_timer is None:
            self._lazy_timer = self._loop.call_later(SETTLE_DELAY_MS / 1000, self._lazy_due)

    def write_soon(self) -> None:
        """Something may be queued for the journal, or for other nodes."""
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
        self._turn_over()
        self._wake_idle()

    def _turn_over(self) -> None:
        """What this turn has brought: to the disk, to other members, to consumers."""
        has_room = not self.room.waiting
        if has_room and self._writing is None:
            if self._dirty or self._gathered or self.journal.pending_records:
                self._start_write()
        elif has_room and sum([each.open.bytes for each in self._dirty]) >= AHEAD_BYTES:
            self._propose_gathered()
        self.consensus.dispatch()
        self._peers.flush()

    def _start_write(self) -> None:
        if self._lazy_timer is not None:
            # This write takes what the timer was for: with publishes flowing, acks ride along and
            # never start a write that the next publish would have to wait for.
            self._lazy_timer.cancel()
            self._lazy_timer = None
        if not self._propose_gathered():
            self._wake_idle()
            return
        batch = self.journal.begin()
        if batch is not None:
            self._writing = batch
            queued, self._queued = self._queued, []
            if batch.waiting:
                self._queued = [each for each in queued if each.member.group in batch.waiting]
                queued = [each for each in queued if each.member.group not in batch.waiting]
            self._in_flight = queued
            if not batch.start(self._written):
                self._writer.submit(batch.run, self._written)

    def _propose_gathered(self) -> bool:
        """Make entries of what has been gathered, and queue them for the journal. False: the disk
        has to make room first.
        """
        self._gather()
        if not self.room.fits([filled for _, filled in self._gathered]):
            return False
        gathered, self._gathered = self._gathered, []
        touched: dict[Member, None] = {}
        for member, filled in gathered:
            if member.core.transferee and member.core.role == LEADER:
                # It may come to nothing: settlements in here are heard of by nobody, so that they
                # must not be lost while this node leads.
                self._gathered.append((member, filled))
            elif filled.waiting:
                self._propose(member, filled)
                touched[member] = None
        for member in touched:
            self.consensus.take(member)
        return True

    def _gather(self) -> None:
        """Close the entries that have been filled; those of a group that this node is about to
        lead wait for it, and until log time is known there; those of one that it does not lead are
        refused.
        """
        waiting: dict[Replica, None] = {}
        for replica in self._dirty:
            member = self._groups[replica.group]
            if member.core.role == LEADER and not replica.may_stamp:
                waiting[replica] = None
            elif member.core.role == LEADER:
                self._gathered += [(member, filled) for filled in replica.close()]
            elif member in self.consensus.starting:
                waiting[replica] = None
            else:
                replica.refuse(_NOT_LEADER)
        self._dirty = waiting

    def _propose(self, member: Member, filled: Filled) -> None:
        try:
            member.proposed(filled)
        except RaftError as error:  # it leads no more
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
            # Before what is on disk is applied: the disk never waits for that.
            self._start_write()
        for each in written:
            self._stable(each)
        self._turn_over()
        self._after_write()
        self._wake_idle()
        if self._when_written:
            waiting, self._when_written = self._when_written, []
            for action in waiting:
                action()
        if self._writing is None:
            flushed, self._flushed = self._flushed, []
            for future in flushed:
                if not future.done():
                    future.set_result(None)

    async def leave(self, word: LeaveGroup) -> None:
        """Give up the replica of a group that this node is no member of. Returns once a checkpoint
        says so, and its room is free. Raises KernelError (`Consensus.begin_to_leave`).
        """
        group = word.group
        if group in self.consensus.healing.left & self.consensus.healing.silent:
            return
        self.consensus.begin_to_leave(word)
        member = self._groups[group]
        try:
            while any(each.member is member for each in (*self._queued, *self._in_flight)):
                await self.flushed()
        except BaseException:
            self.consensus.unseal(group)
            raise
        self.journal.feature_level = max(self.journal.feature_level, word.level)
        await self.leaving(group)

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
            self.consensus.send(member.group, message)
        member.core.stable(written.number)
        self.consensus.take(member)

    def await_disk(self, member: Member, ready: Ready) -> None:
        """Once what this Ready and those before it bring is on disk, it is stable."""
        written = _Written(member, ready.number, ready.messages_after_sync)
        # A core hears of its Readys in their order: one that brings nothing for the disk itself
        # waits for the write that has what those before it bring.
        if ready.must_sync or any(each.member is member for each in self._queued):
            self._queued.append(written)
        elif any(each.member is member for each in self._in_flight):
            self._in_flight.append(written)
        else:
            for message in written.messages:
                self.consensus.send(member.group, message)
            member.core.stable(written.number)

    def _wake_idle(self) -> None:
        if not self._idle:
            return
        waiters, self._idle_waiters = self._idle_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def seal(self, group: RaftGroup, snapshot: Snapshot) -> bool:
        """Have nothing happen to a group until `unseal` (`Consensus.seal`)."""
        return self.consensus.seal(group, snapshot)

    def unseal(self, group: RaftGroup) -> None:
        """Let a sealed group go on."""
        self.consensus.unseal(group)

    def known_leader(self, group: RaftGroup) -> int:
        """Number of the store that leads a group, as far as is known here (`Consensus`), or 0."""
        return self.consensus.known_leader(group)

    def takes(self, body_bytes: Sequence[int]) -> bool:
        """Whether entries of another leader fit on the disk now."""
        return self.room.takes(body_bytes)

    def end(self, sentence: str, error: BaseException) -> None:
        """End the process: nothing more may be answered."""
        self._fatal(sentence, error)

    def log_is_lost(self, group: RaftGroup, error: BaseException) -> None:
        """Have the process end once the disk knows that a group's log lacks what others know."""
        self.unreadable.lost(group, error)

    def _tick(self, elapsed: int) -> None:
        self.consensus.tick(elapsed)
        self._turn_over()

    def time_passes(self, *, wanted: bool) -> None:
        """Raft's time passes from now on, or no more."""
        self._ticker.run(wanted=wanted)

    # --- Reading ----------------------------------------------------------------------------

    def entry(self, group: RaftGroup, index: int) -> bytes | None:
        """A log entry, if it is in memory."""
        if group == TRANSIENT_GROUP:
            return self.transient_log.entry(index)
        return self.journal.entry(group, index)

    def fetch(
        self, group: RaftGroup, index: int, done: Callable[[], None], *, log: bool = False
    ) -> None:
        """Read a log entry (and what follows it in the segment) into memory, then call `done`."""
        self._reader.fetch(group, index, done, log=log)

    @property
    def read_errors(self) -> tuple[int, int]:
        """(reads that failed with EIO, entries that do not read and are asked for again now)."""
        return self._reader.errors, self._reader.failing

    async def fetched(self, group: RaftGroup, index: int) -> None:
        """Return once a log entry that something refers to has been read into memory."""
        await self._reader.fetched(group, index)

    def is_given_up(self, group: RaftGroup, index: int) -> bool:
        """Whether nobody will ever read a log entry."""
        return self.unreadable.is_given_up(group, index)

    def applied(self, group: RaftGroup) -> int:
        """The last entry that a group's state has applied."""
        return self._groups[group].state.applied

    @property
    def scheduler(self) -> DeliveryScheduler:
        """How much may be handed out at once: durable and transient topics share a loop."""
        return self.transient_group.scheduler

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `action` after so long."""
        return self._loop.call_later(delay_ms / 1000, action)

    def clock_gap_ms(self) -> int:
        """How far the wall clock is ahead of log time (negative: behind it), in the group led here
        where it is furthest off.
        """
        gaps = [each.replica.clock.gap_ms() for each in self._groups.values() if each.leads]
        return max(gaps, key=abs, default=0)

    def statistics(self) -> StoreStatistics:
        """Figures of this store."""
        held_back = [each.gates.held_back for each in self.replicas() if each.gates.is_busy]
        return StoreStatistics(
            self.commits,
            self.consensus.entries_applied,
            {group: each.state.applied for group, each in self._groups.items()},
            self.transient_log.bytes,
            sum(each.state.expired for each in self.replicas()),
            sum(whole for whole, _ in held_back),
            sum(keys for _, keys in held_back),
        )
