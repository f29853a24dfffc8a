"""Groups that lost synced data on this store come back by themselves, from those who have it.

    SILENT   takes no message of the group and sends none: no vote, no answer. After a while it
             pleads with the leader, who makes it a learner, forgets what it had, and offers a
             snapshot taken after that. Nobody else gets its vote in any term heard of; then it
             installs the snapshot
    LEARNER  follows; pleads to be a voter again. The leader takes it in by a joint step once it
             is level
    healed   it has applied that step; the next checkpoint no longer calls the group damaged. Who
             restarts before that begins anew

A group that this store has left goes the same way once it is made a member again: as a learner, by
a snapshot, never from what it had. Until then nobody leads it as far as is known here, so that it
pleads with nobody. With the snapshot it is a learner like any other, also after a restart, for it
has lost nothing; whether it is to vote is for others to say (`cluster.membership_steps`).

Why no vote is given twice: an entry makes it a learner, committed by a majority without it. Who
campaigns with a shorter log is refused by one of that majority, so that whatever vote was forgotten
here elects nobody; and what the snapshot holds includes that entry, so that this node is no help to
such a log either. A leader that was deposed meanwhile commits no such entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from ...common.errors import Code, KernelError
from ...common.ids import RaftGroup
from ...common.ports import Clock
from ...raft import election
from ...raft.leader import replica_lost
from ...raft.members.configuration import (
    ADD_LEARNER,
    ADD_VOTER,
    AUTO,
    JOINT_IMPLICIT,
    Change,
    ConfigurationChange,
)
from ...raft.members.progress import REPLICATE, Progress
from ...raft.messages import (
    APPEND,
    HEARTBEAT,
    LEADER,
    PREVOTE,
    PREVOTE_ANSWER,
    SNAPSHOT,
    RaftMessage,
    Snapshot,
)
from ..snapshots.transfer import Ask, Plea, PleaPart, SnapshotReceiver, plead
from .member import Member

FIRST_PLEA_MS = 2_000
"""A store that has just started lets its disk and its connections settle."""

PLEA_MS = 1_000
"""Between two pleas: what the leader does meanwhile takes a round trip, or a checkpoint."""

LEVEL_ENTRIES = 256
"""A learner so few entries behind has the rest within a round trip: it may vote."""

_OF_LEADERS = frozenset((APPEND, HEARTBEAT, SNAPSHOT))
_OF_PRE_VOTES = frozenset((PREVOTE, PREVOTE_ANSWER))


def may_vote(progress: Progress, last_index: int) -> bool:
    """Whether a learner may be made a voter: it is level but for a few entries, and has the one
    that made it a learner. Without that, an old word that it is no member could have it leave.
    """
    return (
        progress.state == REPLICATE
        and progress.match >= progress.joined
        and last_index - progress.match <= LEVEL_ENTRIES
    )


class Groups(Protocol):
    """What is asked of the store's members: `consensus.Consensus`."""

    receiver: SnapshotReceiver | None
    members: dict[RaftGroup, Member]

    def change_members(self, group: RaftGroup, change: ConfigurationChange) -> None:
        """Propose a change. Raises KernelError."""

    def take(self, member: Member) -> None:
        """Do what a core asks for."""

    def healed(self, group: RaftGroup) -> None:
        """A group has lost nothing any more."""


class _Patient:
    """A damaged group."""

    __slots__ = ("due_ms", "leader", "leader_term", "silent", "task", "term")

    def __init__(self, due_ms: int) -> None:
        self.silent = True
        self.due_ms = due_ms
        self.leader = 0
        self.leader_term = 0
        """Who leads the highest term of which a leader is heard."""
        self.term = 0
        """The highest one in which it may have voted."""
        self.task: asyncio.Task[None] | None = None


class Healing:
    """Both sides: of a store that has lost something, and of a leader that is pleaded with."""

    def __init__(
        self,
        node: int,
        damaged: Iterable[RaftGroup],
        left: Iterable[RaftGroup],
        clock: Clock,
        ask: Ask,
        groups: Groups,
    ) -> None:
        """`left`: those of the damaged groups that have lost nothing."""
        self._node = node
        self._clock = clock
        self._ask = ask
        self._groups = groups
        due_ms = clock.monotonic_ms() + FIRST_PLEA_MS
        self.patients = {group: _Patient(due_ms) for group in damaged}
        """Damaged groups that are not healed."""
        self.silent = set(self.patients)
        """Those whose messages are for nobody."""
        self.left = set(left)
        self._since: dict[tuple[RaftGroup, int], tuple[int, int]] = {}
        """By group and node: the term in which it was found to be a learner that lost its data, and
        the end of the log then. A snapshot from before may know it as a voter."""
        self.checkpoint_wanted: Callable[[], None] = lambda: None
        """Called for a checkpoint before it is due; set by housekeeping."""

    @property
    def lost(self) -> list[RaftGroup]:
        """Groups that have lost something here."""
        return sorted(self.patients.keys() - self.left)

    def may_leave(self, group: RaftGroup) -> bool:
        """Whether no plea for a group is under way, which could bring it back; of what is silent
        none is made before a leader is heard of again.
        """
        patient = self.patients.get(group)
        if patient is None or patient.task is not None:
            return patient is None
        patient.leader = 0
        return True

    def left_group(self, group: RaftGroup) -> None:
        """Nothing of a group counts here any more, and others have it."""
        self.patients[group] = _Patient(self._clock.monotonic_ms())
        self.silent.add(group)
        self.left.add(group)

    def lost_with_the_others(self, group: RaftGroup) -> None:
        """A group is heard of that this store may have had before it lost what it had."""
        self.patients[group] = _Patient(self._clock.monotonic_ms())
        self.silent.add(group)

    def stop(self) -> None:
        """Plead no more."""
        for patient in self.patients.values():
            if patient.task is not None:
                patient.task.cancel()

    # --- The patient ------------------------------------------------------------------------

    def heard(self, group: RaftGroup, message: RaftMessage) -> None:
        """A message of a silent group: of interest is who leads it, and up to which term this node
        may have voted. In that of a pre-vote nobody has yet, and a candidate may lose.
        """
        patient = self.patients[group]
        if message.kind not in _OF_PRE_VOTES:
            patient.term = max(patient.term, message.term)
        if message.kind in _OF_LEADERS and message.term >= patient.leader_term:
            patient.leader, patient.leader_term = message.sender, message.term

    def tick(self) -> None:
        """Plead where it is due."""
        now = self._clock.monotonic_ms()
        receiver = self._groups.receiver
        for group, patient in self.patients.items():
            if now < patient.due_ms or patient.task is not None or receiver is None:
                continue
            core = self._groups.members[group].core
            leader = patient.leader if patient.silent else core.leader
            if leader in (0, self._node) or receiver.is_receiving(group):
                continue
            patient.due_ms = now + PLEA_MS
            work = self._plead(group, patient, leader)
            patient.task = asyncio.get_running_loop().create_task(work)

    async def _plead(self, group: RaftGroup, patient: _Patient, leader: int) -> None:
        try:
            answer = await plead(self._ask, leader, Plea(group, self._node, patient.silent))
        except KernelError:
            if group in self.left:
                patient.leader = 0  # it may be no member: then it hears of none
            return  # it leads no more, or is gone: the next one is heard of
        finally:
            patient.task = None
        receiver = self._groups.receiver
        if not patient.silent or receiver is None:
            return
        patient.term = max(patient.term, answer.term)
        snapshot = answer.snapshot
        if snapshot is None or group not in self.patients:
            return
        # On disk before the snapshot is installed: its checkpoint comes after all of these writes.
        member = self._groups.members[group]
        election.abstain(member.core, patient.term)
        self._groups.take(member)
        offer = RaftMessage(SNAPSHOT, leader, self._node, answer.term, snapshot=snapshot)
        receiver.offered(group, offer)

    def installed(self, group: RaftGroup) -> None:
        """A snapshot has taken the place of what was lost. It knows this node as a learner; a later
        one may know it as a voter again, if the change that made it one was too far behind.
        """
        patient = self.patients.get(group)
        if patient is None:
            return
        if group in self.left:
            # It has lost nothing, and its checkpoint says so: a learner like any other. If it were
            # void again after a restart, it might have been made a voter for what it had by then.
            del self.patients[group]
            self.silent.discard(group)
            self._groups.healed(group)
            self.left.discard(group)
        elif patient.silent:
            patient.silent = False
            self.silent.discard(group)
        else:
            self.members_changed()

    def members_changed(self) -> None:
        """Healed are the groups in which this node is a voter again."""
        for group in list(self.patients):
            members = self._groups.members[group].core.tracker.members
            if group not in self.silent and self._node in members.voters:
                del self.patients[group]
                self._groups.healed(group)
                self.checkpoint_wanted()

    # --- The leader -------------------------------------------------------------------------

    def hear(self, plea: Plea) -> PleaPart:
        """A member has lost what it had of a group, or wants to vote again. Raises KernelError
        NOT_LEADER; NOT_FOUND if it is no member.
        """
        group = RaftGroup(plea.group)
        member = self._groups.members.get(group)
        if member is None or member.core.role != LEADER or not member.serves:
            raise KernelError(Code.NOT_LEADER, "this store does not lead the group")
        progress = member.core.tracker.progress.get(plea.node)
        if progress is None or plea.node == self._node:
            raise KernelError(Code.NOT_FOUND, f"store {plea.node} is no member of the group")
        snapshot = None
        members = member.core.tracker.members
        if members.voters_outgoing:
            pass  # a change of members is under way
        elif plea.lost:
            snapshot = self._begin_anew(member, plea.node)
        elif plea.node in members.learners and may_vote(progress, member.core.log.last_index):
            self._propose(group, ADD_VOTER, plea.node)
        return PleaPart(member.core.term, snapshot)

    def _begin_anew(self, member: Member, node: int) -> Snapshot | None:
        """What it has acknowledged is gone; the snapshot that it may begin anew with, if there is
        one yet.
        """
        core = member.core
        key = (member.group, node)
        if node in core.tracker.members.voters:
            self._since.pop(key, None)
            replica_lost(core, node)
            self._propose(member.group, ADD_LEARNER, node)
            return None
        term, since = self._since.get(key, (0, 0))
        if term != core.term:
            term, since = self._since[key] = (core.term, core.log.last_index)
        snapshot = member.log.snapshot()
        if snapshot is None or snapshot.index < since:
            replica_lost(core, node)
            self.checkpoint_wanted()
            return None
        replica_lost(core, node, snapshot.index)
        return snapshot

    def _propose(self, group: RaftGroup, kind: int, node: int) -> None:
        transition = JOINT_IMPLICIT if kind == ADD_VOTER else AUTO
        try:
            change = ConfigurationChange((Change(kind, node),), transition)
            self._groups.change_members(group, change)
        except KernelError:
            return  # another change is in the log: the next plea finds it done
