"""The members that a node has of Raft groups: their messages, time, roles, and what they want.

The store moves bytes: it writes what is queued here, says when it is on disk, carries messages.
What is applied is handed out once a turn (`dispatch`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ...broker.group_state.state import GroupState
from ...common.errors import Code, KernelError
from ...common.feature_levels import LATEST
from ...common.ids import ADDED_FIRST, METADATA_GROUP, RaftGroup
from ...common.ports import Clock
from ...log.errors import NotUnderstood
from ...log.format import entry as entries
from ...log.journal import Journal
from ...raft import election
from ...raft.core import RaftCore
from ...raft.errors import ConfigurationRefused, LogDamaged, RaftError
from ...raft.members.configuration import ConfigurationChange
from ...raft.members.progress import SNAPSHOTTING
from ...raft.messages import (
    APPEND,
    APPEND_ANSWER,
    FOLLOWER,
    HEARTBEAT_ANSWER,
    LEADER,
    NORMAL,
    SNAPSHOT,
    TIMEOUT_NOW,
    Entry,
    HardState,
    Membership,
    RaftMessage,
    ReadWanted,
    Ready,
    Snapshot,
)
from ...raft.options import RaftOptions
from ..leading.local_leader import LeaderHost, LocalLeader
from ..replicas.host import ReplicaHost
from ..replicas.listener import Relay
from ..replicas.log_clock import LogClock
from ..replicas.replica import Replica
from ..snapshots.transfer import PATIENCE_MS, Received, SnapshotReceiver
from .awaited import Awaited
from .group_log import RECENT_BYTES_MAX, GroupLog
from .healing import Healing
from .holding import Holding
from .leaving import LeaveGroup
from .member import Member
from .peers import Peers
from .quiescence import Quiescence
from .vanished import tell_vanished
from .wall_clocks import WallClocks

LEASE_TICKS = 2
"""A look at a lease is good for so long: as much as the lease ends early (`LEASE_MARGIN_TICKS`)."""

_UNBOUNDED = 1 << 62
"""What is uncommitted or to be applied is what a few writes carry, and that is bounded where it is
gathered (`open_entry`, `room`)."""


@dataclass(frozen=True, slots=True)
class RaftTiming:
    """Of elections. Syncs of 300 ms were seen, and are no failure
    (docs/design/replication.md#elections).
    """

    tick_ms: int = 150
    election_ticks: int = 10
    """A follower that has heard nothing for so long, and up to twice as long, campaigns."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the members of a store come from."""

    states: Mapping[RaftGroup, GroupState]
    configurations: Mapping[RaftGroup, Sequence[int]]
    """Per group the indexes of changes of membership that are in the log and not applied."""
    snapshot_members: Mapping[RaftGroup, Membership | None]
    """Per group that has a snapshot its members there: they may be others by now."""
    damaged: Mapping[RaftGroup, str]
    """Groups of which nothing here counts, and why."""
    left: Collection[RaftGroup]
    """Those of them that this store has left."""
    born_alone: bool
    """Its groups began with one member."""


class ConsensusHost(ReplicaHost[Replica], LeaderHost, Protocol):
    """What is asked of the store."""

    def await_disk(self, member: Member, ready: Ready) -> None:
        """Once what this Ready and those before it bring is on disk, send what waits for that, and
        call `stable`.
        """

    def write_soon(self) -> None:
        """Something may be queued for the journal, or for other nodes."""

    def takes(self, body_bytes: Sequence[int]) -> bool:
        """Whether entries with bodies of so many bytes fit on the disk now."""

    def time_passes(self, *, wanted: bool) -> None:
        """Call `tick` from now on, or no more."""

    def end(self, sentence: str, error: BaseException) -> None:
        """End the process: nothing more may be answered."""

    def log_is_lost(self, group: RaftGroup, error: BaseException) -> None:
        """Have the process end once the disk knows that the group's log lacks what others know to
        be there.
        """


class Consensus:
    """The Raft groups that this node is a member of."""

    def __init__(
        self,
        node: int,
        origin: Origin,
        host: ConsensusHost,
        relay: Relay[Replica],
        journal: Journal,
        clock: Clock,
        peers: Peers,
        timing: RaftTiming,
        jitter: Callable[[int], int],
        understands: int = LATEST,
    ) -> None:
        """`node`: this node's number; `jitter(n)`: 0 to n - 1 by chance, spreads elections;
        `understands`: the level up to which this build does.
        """
        self.node = node
        self._understands = understands
        self._host = host
        self._relay = relay
        self._journal = journal
        self._clock = clock
        self._peers = peers
        self._jitter = jitter
        self._tick_ms = timing.tick_ms
        self._options = RaftOptions(
            node,
            election_ticks=timing.election_ticks,
            silent_start=True,
            max_uncommitted_bytes=_UNBOUNDED,
            max_applying_bytes=_UNBOUNDED,
        )
        self._origin = origin
        self.wall_clocks = WallClocks(node, clock, peers)
        self.receiver: SnapshotReceiver | None = None
        """Fetches snapshots of other stores; set by whoever opens the store."""
        self._offered: dict[tuple[RaftGroup, int], int] = {}
        """When a snapshot was offered to, or last asked for by, a member."""
        self._sealed: set[RaftGroup] = set()
        self._applied: dict[Member, None] = {}
        """Who has applied something in this turn."""
        self.starting: dict[Member, tuple[asyncio.Future[None], bool]] = {}
        """Who is about to lead, since nobody else can; and whether the last run ended in order."""
        self.entries_applied = 0
        self.leaders_changed: Callable[[], None] = lambda: None
        """Called when this node has learnt who leads a group, or serves one from now on."""
        self.snapshot_wanted: Callable[[], None] = lambda: None
        """Called when members have changed: should this disk be damaged, its last snapshot says who
        can heal it. Set by housekeeping."""
        self.checkpoint_wanted: Callable[[], None] = lambda: None
        """Has a checkpoint made before it is due. Set by housekeeping."""
        self.membership_watchers: list[Callable[[], None]] = []
        """Each is called when `holds` of a group may be another."""
        self.holding = Holding(host.call_later, self._apply_kept)
        """For the cut of a cluster."""
        self.holding.released = host.write_soon
        self.quiescence = Quiescence(node, peers, self._stirred)
        self.members: dict[RaftGroup, Member] = {}
        for group, state in origin.states.items():
            self.members[group] = self._member(state, origin.configurations.get(group, ()))
        self.awaited = Awaited(node, clock.wall_ms(), self.ask_index, self._applied_index)
        """Who waits for a group to have come so far."""
        self.healing = Healing(node, origin.damaged, origin.left, clock, peers, self)

    def _applied_index(self, group: RaftGroup) -> int:
        return self.members[group].state.applied

    def _member(self, state: GroupState, configurations: Sequence[int]) -> Member:
        log, core = self._log_and_core(state, configurations)
        replica = self._replica(state)
        return Member(core, log, replica, LocalLeader(replica, self._host))

    def _log_and_core(
        self, state: GroupState, configurations: Sequence[int] = ()
    ) -> tuple[GroupLog, RaftCore]:
        """As the journal and the state are now."""
        group = state.group
        index, term, name = self._journal.snapshot_of(group)
        membership = state.membership or Membership((self.node,))
        log = GroupLog(
            self._journal,
            group,
            index,
            term,
            born_alone=self._origin.born_alone or group >= ADDED_FIRST,
            recent_bytes_max=self._recent_bytes_max,
        )
        at_snapshot = self._origin.snapshot_members.get(group) or Membership((self.node,))
        log.has_snapshot(index, term, name, at_snapshot)
        hard = self._journal.hard_state(group)
        core = RaftCore(
            self._options,
            log,
            # A torn write may have kept the commit and lost the entries behind it.
            HardState(hard.term, hard.vote, max(min(hard.commit, log.last_index()), state.applied)),
            membership,
            state.applied,
            self._jitter,
            configurations,
        )
        return log, core

    @property
    def _recent_bytes_max(self) -> int:
        return RECENT_BYTES_MAX // max(len(self._origin.states), len(self.members))

    def add(self, group: RaftGroup, *, born: bool) -> Member:
        """A group comes while this node runs. `born`: it begins here, with this node as its only
        member; else it waits to be made one. A node that has lost group 0, and so knew not which
        groups it had, may have had this one: it counts as lost with it, and is silent (`healing`).
        """
        state = GroupState(group)
        state.membership = Membership((self.node,)) if born else Membership()
        if born:
            state.time_ms = self.members[METADATA_GROUP].state.time_ms
        if METADATA_GROUP in self.healing.patients and group not in self.healing.patients:
            self._journal.mark_damaged(group)
            self.healing.lost_with_the_others(group)
        member = self.members[group] = self._member(state, ())
        for each in self.members.values():
            each.log.recent_bytes_max = self._recent_bytes_max
        return member

    def _replica(self, state: GroupState) -> Replica:
        clock = LogClock(self._clock, state.time_ms)
        return Replica(state, self._host, self._relay, self._journal, clock, self._understands)

    def receive(self, group: RaftGroup, message: RaftMessage) -> None:
        """A message of another member. What does not fit on the disk is as good as lost: the leader
        sends it again.
        """
        self.quiescence.heard(message.sender)
        member = self.members.get(group)
        if member is None or message.to != self.node:
            return
        if group in self._sealed:
            return
        if self.holding.is_held and message.sender not in self.holding.stores:
            return
        if group in self.healing.silent:
            self.healing.heard(group, message)
            return
        if self.receiver is not None and not self._may_step(member, message, self.receiver):
            return
        if message.kind == APPEND and message.entries:
            sizes = [len(entry.body) for entry in message.entries]
            if not self._host.takes(sizes):
                return
        if member in self.quiescence.quiescent:
            self.quiescence.wake(member, by=message.sender)
        try:
            member.core.step(message)
        except LogDamaged as error:
            # An older copy of the directory, perhaps: as long as it goes on it may elect somebody
            # who has as little.
            self._sealed.add(group)
            self._host.log_is_lost(group, error)
            return
        except RaftError:
            return  # of somebody who is no member, or for a leader
        self.take(member)
        if message.kind == HEARTBEAT_ANSWER:
            self._look_at_lease(member)
        self.quiescence.note(member, message)
        self._host.write_soon()

    def send(self, group: RaftGroup, message: RaftMessage) -> None:
        """A message to another member; while a cut is made, to those who hold as well."""
        if not self.holding.is_held or message.to in self.holding.stores:
            self._peers.send(group, message)

    def _may_step(self, member: Member, message: RaftMessage, receiver: SnapshotReceiver) -> bool:
        """Whether a message is for the core: not if a snapshot has to be fetched first, or is on
        its way, for nothing may change the log under it.
        """
        if receiver.is_receiving(member.group):
            return message.kind not in {APPEND, SNAPSHOT, TIMEOUT_NOW}
        offered = message.snapshot
        if offered is None or not self._lacks(member, offered):
            return True
        if message.term >= member.core.term:
            receiver.offered(member.group, message)
        return False

    def _lacks(self, member: Member, snapshot: Snapshot) -> bool:
        """Whether a snapshot has to take the place of the log. If the log has the entry it ends
        with, it has all before it, and what follows may have been acknowledged: it must stay.
        """
        log = member.core.log
        index = snapshot.index
        return (
            index > log.committed
            and log.term(index) != snapshot.term
            and snapshot.membership.has(self.node)
        )

    def seal(self, group: RaftGroup, snapshot: Snapshot) -> bool:
        """Have nothing happen to a group until `unseal`: a snapshot takes the place of its log.
        False if that has come so far by itself, or the member does not follow.
        """
        member = self.members[group]
        if member.core.role != FOLLOWER or not self._lacks(member, snapshot):
            return False
        self._sealed.add(group)
        return True

    def unseal(self, group: RaftGroup) -> None:
        """Let a sealed group go on."""
        self._sealed.discard(group)

    def known_leader(self, group: RaftGroup) -> int:
        """Who leads a group as far as is known here, 0: nobody is known to. One that is silent
        since it has lost what it had knows by what it hears of leaders (`healing`).
        """
        patient = self.healing.patients.get(group)
        if patient is not None and patient.silent:
            return patient.leader
        return self.members[group].core.leader

    def install(self, received: Received) -> None:
        """A snapshot of a group from another store is durable, and the checkpoint names it: state
        and log are what it says.
        """
        group, snapshot = received.group, received.snapshot
        member = self.members[group]
        self._journal.installed(received.job, received.references)
        replica = self._replica(received.state)
        old = member.state
        member.replace(replica, LocalLeader(replica, self._host))
        members = snapshot.membership
        member.log.has_snapshot(snapshot.index, snapshot.term, received.name, members)
        member.log.forget_recent()
        member.core.install(snapshot)
        tell_vanished(self._relay, old, replica)
        self._relay.replaced(replica)
        self._tell_membership()
        self.healing.installed(group)
        answer = RaftMessage(APPEND_ANSWER, self.node, received.sender, member.core.term)
        answer.index = snapshot.index
        self.send(group, answer)
        self.take(member)
        self._host.write_soon()

    def begin_to_leave(self, word: LeaveGroup) -> None:
        """Have nothing happen to a group of which this node is no member any more, until `leave`.
        Raises KernelError: NOT_LEADER, if this node leads it; BUSY: a snapshot is on its way; and
        as `LeaveGroup.check`.
        """
        group = word.group
        member = self.members[group]
        word.check(member.core.log, self._understands)
        if member.core.role == LEADER:
            raise KernelError(Code.NOT_LEADER, "this node leads the group")
        receives = self.receiver is not None and self.receiver.is_receiving(group)
        if self.receiver is not None:
            self.receiver.give_up(group)
        if group in self._sealed or receives or not self.healing.may_leave(group):
            raise KernelError(Code.BUSY, "the group's log is being replaced")
        if member in self.quiescence.quiescent:
            self.quiescence.wake(member)
        self._sealed.add(group)

    def leave(self, group: RaftGroup) -> None:
        """The checkpoint says that nothing of a group counts here any more: it is as if this node
        had never been a member, but for its term and vote; and it is silent until it has a snapshot
        by which it is a member again.
        """
        member = self.members[group]
        state = GroupState(group)
        state.membership = Membership()
        member.log, member.core = self._log_and_core(state)
        self.healing.left_group(group)
        self._tell_membership()  # look-ups go on with what the old state defined
        replica = self._replica(state)
        member.replace(replica, LocalLeader(replica, self._host))
        self._sealed.discard(group)
        self.members_changed()
        self.leaders_changed()

    def change_members(self, group: RaftGroup, change: ConfigurationChange) -> None:
        """Propose a change of a group's members; it is in force once applied. Raises KernelError
        NOT_LEADER; INVALID_ARGUMENT if it does not fit or another one is under way.
        """
        member = self.members[group]
        try:
            member.core.propose_configuration(change)
        except ConfigurationRefused as error:
            raise KernelError(Code.INVALID_ARGUMENT, str(error)) from None
        except RaftError as error:
            raise KernelError(Code.NOT_LEADER, str(error)) from None
        self.take(member)
        self._host.write_soon()

    def transfer(self, group: RaftGroup, to: int) -> None:
        """Hand a group's leadership to another voter. Raises KernelError NOT_LEADER."""
        member = self.members[group]
        if member.core.role != LEADER:
            raise KernelError(Code.NOT_LEADER, "this node does not lead the group")
        member.core.transfer(to)
        self.take(member)
        self._host.write_soon()

    def healed(self, group: RaftGroup) -> None:
        """A group that lost something here votes again."""
        self._journal.healed(group)

    def has_snapshot(
        self, group: RaftGroup, index: int, term: int, name: str, members: Membership | None
    ) -> None:
        """A snapshot of a group is on disk, and named by the checkpoint."""
        members = members or Membership((self.node,))
        self.members[group].log.has_snapshot(index, term, name, members)

    def unreachable(self, node: int) -> None:
        """Messages to a node were lost."""
        for member in self.members.values():
            member.core.report_unreachable(node)

    def tick(self, elapsed: int) -> None:
        """So many ticks have passed."""
        if self.healing.patients:
            self.healing.tick()
        self.quiescence.tick(elapsed)
        good_ms = self._clock.monotonic_ms() + LEASE_TICKS * self._tick_ms
        for member in self.members.values():
            member.replica.leased_until_ms = good_ms
            if member.group in self._sealed or self.quiescence.spares(member):
                if member in self.quiescence.quiescent and member.replica.serving:
                    member.replica.holds_lease(True)  # all others are heard, or it would wake
                continue
            core = member.core
            if core.lease_void and not core.transferee:
                # A transfer came to nothing a tick ago; what has waited for it is in the log.
                election.renew(core)
            core.tick(elapsed)
            if core.has_ready():
                self.take(member)
            self._look_at_lease(member)
            self._look_at_peers(member)

    def _look_at_lease(self, member: Member) -> None:
        """Only who cannot have been followed by another leader hands messages out."""
        if member.replica.serving:
            member.replica.holds_lease(member.core.holds_lease())

    def _stirred(self, member: Member, silence: int) -> None:
        """A member wakes: ticks go on, those of a silence that has woken it included."""
        member.core.wake()
        if silence:
            member.core.tick(silence)

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

    def fetches(self, node: int) -> None:
        """A node is fetching a snapshot."""
        now = self._clock.monotonic_ms()
        for key in self._offered:
            if key[1] == node:
                self._offered[key] = now

    def take(self, member: Member) -> None:
        """Do what a core asks for."""
        if member in self.quiescence.quiescent:
            self.quiescence.wake(member)
        core = member.core
        self._do(member, core.ready())
        while core.has_ready():
            self._do(member, core.ready())

    def _do(self, member: Member, ready: Ready) -> None:
        if ready.soft_state is not None:
            self._role_changed(member)
        if ready.must_sync:
            hard, core = ready.hard_state, member.core
            if hard is None and core.log.configurations:
                # Before a change of membership is on this disk, so is that the one before it is
                # committed: whoever forgot two of them could win an election among too few.
                hard = HardState(core.term, core.vote, core.log.committed)
            if hard is not None:
                self._journal.append_hard_state(member.group, hard.term, hard.vote, hard.commit)
            if ready.entries:
                member.log.appended(ready.entries)
        for message in ready.messages_now:
            self.send(member.group, message)
        if ready.number:
            self._host.await_disk(member, ready)
        for read in ready.read_states:
            self.awaited.answered(read.context, read.index)
        if ready.committed:
            if self.holding.is_held:
                self.holding.keep(member, ready.committed)
            else:
                self._apply(member, ready.committed)
        for wanted in ready.reads_wanted:
            loaded = partial(self._loaded, member, member.core, wanted)
            self._host.fetch(member.group, wanted.low, loaded, log=True)

    def _apply(self, member: Member, committed: Sequence[Entry]) -> None:
        members = member.state.membership
        for entry in committed:
            try:
                member.apply(entry)
            except NotUnderstood as error:
                self._sealed.add(member.group)
                self._host.end("the log cannot be applied", error)
                return
            if entry.kind == NORMAL and not entries.has_slots(entry.body):
                self._journal.forget(member.group, entry.index)
        member.core.applied(committed[-1].index)
        self.entries_applied += len(committed)
        self._applied[member] = None
        if member.state.feature_level > self._journal.feature_level:
            # `ckpt` is what a build that does not understand it looks at first.
            self._journal.feature_level = member.state.feature_level
            self.checkpoint_wanted()
        if member.state.membership is not members:
            # Who forgets that the change is committed would look for votes among the members
            # before it, who may be gone for good.
            core = member.core
            hard = (core.term, core.vote, core.log.committed)
            self._journal.append_hard_state(member.group, *hard)
            self.members_changed()
            self.snapshot_wanted()

    def _apply_kept(self, member: Member, committed: Sequence[Entry]) -> None:
        self._apply(member, committed)
        if member.core.has_ready():
            self.take(member)

    def dispatch(self) -> None:
        """Hand out what was applied in this turn."""
        while self._applied:
            applied, self._applied = self._applied, {}
            for member in applied:
                member.replica.dispatch()
        self.awaited.look()

    def ask_index(self, group: RaftGroup, context: bytes) -> None:
        """Ask a group's leader what is committed; the answer goes to `awaited`. Raises RaftError if
        nobody can be asked.
        """
        member = self.members[group]
        member.core.read_index(context)
        self.take(member)
        self._host.write_soon()

    def _loaded(self, member: Member, core: RaftCore, wanted: ReadWanted) -> None:
        if core is not member.core:
            return  # the group was left meanwhile
        core.loaded(wanted)
        if member.core.has_ready():
            self.take(member)
            self._host.write_soon()

    def _role_changed(self, member: Member) -> None:
        leads = member.core.role == LEADER
        if leads and not member.leads:
            future, clean = self.starting.pop(member, (None, False))
            started = partial(self._serves, member, future)
            alone = self.is_alone(self._knows_the_time(member))
            if not member.lead(str(self.node), alone=alone, clean=clean, started=started):
                self._ask_the_time(member)
        elif member.leads and not leads:
            member.follow()
            self._relay.follows(member.replica)
        self.leaders_changed()

    def _knows_the_time(self, member: Member) -> Member:
        """The group whose voters know what time it is. One that was added has begun with one store
        of a cluster: others will go on with the time that this one gives it.
        """
        added = member.group >= ADDED_FIRST and self.is_alone(member)
        return self.members[METADATA_GROUP] if added else member

    def _ask_the_time(self, member: Member) -> None:
        """Its wall clock is not to be believed by itself."""
        term, core = member.core.term, member.core
        members = self._knows_the_time(member).core.tracker.members
        halves = [half for half in (members.voters, members.voters_outgoing) if half]
        self.wall_clocks.ask(
            halves, lambda: member.leads and core.term == term, member.replica.stamps
        )

    def _serves(self, member: Member, future: asyncio.Future[None] | None) -> None:
        self.leaders_changed()
        self._relay.leads(member.replica)
        if future is not None and not future.done():
            future.set_result(None)

    def members_changed(self) -> None:
        """Time passes only for groups that have other members."""
        if self.healing.patients:
            self.healing.members_changed()
        alone = True
        for member in self.members.values():
            # Learners need heartbeats too: who misses a message is helped on by the next one.
            single = self.is_alone(member) and not member.core.tracker.peers
            member.log.keeps_recent = not single
            alone = alone and single
            if single:
                member.log.forget_recent()  # what is not kept up is not a part of the log
                member.replica.leased_until_ms = math.inf
        self._host.time_passes(wanted=not alone)
        self._tell_membership()

    def _tell_membership(self) -> None:
        for tell in self.membership_watchers:
            tell()

    def holds(self, group: RaftGroup) -> bool:
        """Whether this node is a member of a group, a learner perhaps, with a state that counts."""
        return self.members[group].core.tracker.own is not None

    def is_alone(self, member: Member) -> bool:
        """Whether its group has no other voter."""
        return member.core.tracker.is_alone
