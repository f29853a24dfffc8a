"""One group's way to other members or another leader: taken by its leader, a step at a time.

    LEARNER: not a member -> learner -> has everything
    VOTER:   a learner that is level -> voter (and who is replaced leaves in the same, joint, step)
    NO_LEARNER: the same of a learner; a voter stays
    OBSERVER: leader -> follower -> learner; who is no member stays none
    GONE:    leader -> follower -> not a member

A step that would leave fewer voters alive than a majority of the new members is refused: the group
could not commit anything more, the way back included.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..common.errors import Code, KernelError
from ..common.ids import RaftGroup
from ..raft.members.configuration import ADD_LEARNER, ADD_VOTER, REMOVE, Change, ConfigurationChange
from ..store.raft_groups.consensus import Consensus
from ..store.raft_groups.healing import may_vote
from ..store.raft_groups.member import Member
from .messages import Goal, StepProgress, Towards


class MembershipSteps:
    """Takes them, for the groups that this store leads."""

    def __init__(
        self,
        consensus: Consensus,
        connected: Callable[[], Collection[int]],
        wants_snapshot: Callable[[], None],
    ) -> None:
        """`connected()`: numbers of the stores that answer now; `wants_snapshot()` has snapshots of
        this store's groups made soon.
        """
        self._consensus = consensus
        self._wants_snapshot = wants_snapshot
        self._connected = connected

    def towards(self, asked: Towards) -> StepProgress:
        """The next step, if one can be taken now. Raises KernelError: UNAVAILABLE if too few would
        be left, NOT_ALLOWED for the last member, NOT_LEADER.
        """
        member = self._consensus.members[RaftGroup(asked.group)]
        members = member.core.tracker.members
        if members.voters_outgoing:
            return StepProgress(False, "members are changing")
        if asked.goal is Goal.NO_LEARNER and asked.node not in members.learners:
            return StepProgress(True, "no learner")
        if asked.goal in (Goal.GONE, Goal.NO_LEARNER):
            return self._gone(member, asked.node)
        if asked.goal is Goal.OBSERVER:
            return self._observe(member, asked.node)
        if asked.node in members.voters:
            gone = asked.replaces not in {*members.voters, *members.learners}
            return StepProgress(True, "voter") if gone else self._gone(member, asked.replaces)
        if asked.node not in members.learners:
            return self._change(member, "becomes a learner", Change(ADD_LEARNER, asked.node))
        progress = member.core.tracker.progress[asked.node]
        lag = max(0, member.core.log.last_index - progress.match)
        if not may_vote(progress, member.core.log.last_index):
            snapshot = member.log.snapshot()
            if snapshot is None or not snapshot.membership.has(asked.node):
                self._wants_snapshot()
            return StepProgress(False, "is catching up", lag)
        if asked.goal is Goal.LEARNER:
            return StepProgress(True, "learner", lag)
        return self._vote(member, asked)

    def _vote(self, member: Member, asked: Towards) -> StepProgress:
        node, replaced = asked.node, asked.replaces
        voters = member.core.tracker.members.voters
        changes = [Change(ADD_VOTER, node)]
        if replaced == self._consensus.node and len(voters) > 1:
            return self.hand_over(member.group, 0, but=replaced)
        if replaced in voters and replaced != self._consensus.node:
            changes.append(Change(REMOVE, replaced))  # else nobody else could lead: it goes next
        self._check(member, {*voters, node} - {replaced})
        return self._change(member, "becomes a voter", *changes)

    def _gone(self, member: Member, node: int) -> StepProgress:
        members = member.core.tracker.members
        if not members.has(node):
            return StepProgress(True, "gone")
        if node in members.voters:
            self._check(member, set(members.voters) - {node})
        if node == self._consensus.node:
            return self.hand_over(member.group, 0, but=node)
        return self._change(member, "leaves", Change(REMOVE, node))

    def _observe(self, member: Member, node: int) -> StepProgress:
        voters = member.core.tracker.members.voters
        if node not in voters:
            return StepProgress(True, "votes no more")
        self._check(member, set(voters) - {node})
        if node == self._consensus.node:
            return self.hand_over(member.group, 0, but=node)
        return self._change(member, "votes no more", Change(ADD_LEARNER, node))

    def _check(self, member: Member, voters: set[int]) -> None:
        if not voters:
            raise KernelError(Code.NOT_ALLOWED, "it is the only store that has the data")
        alive = voters & {self._consensus.node, *self._connected()}
        if len(alive) <= len(voters) // 2:
            dead = ", ".join(map(str, sorted(voters - alive)))
            raise KernelError(
                Code.UNAVAILABLE,
                f"group {member.group} would lose its majority: of stores {sorted(voters)} these "
                f"do not answer: {dead}",
            )

    def _change(self, member: Member, what: str, *changes: Change) -> StepProgress:
        try:
            self._consensus.change_members(member.group, ConfigurationChange(changes))
        except KernelError as error:
            if error.code is Code.INVALID_ARGUMENT:  # another change is in the log already
                return StepProgress(False, error.message)
            raise
        return StepProgress(False, what)

    def hand_over(self, group: RaftGroup, to: int, *, but: int = 0) -> StepProgress:
        """Hand leadership to a voter that answers; `to` 0: to whoever is furthest, but not `but`.
        Raises KernelError UNAVAILABLE if there is none; INVALID_ARGUMENT if `to` is none.
        """
        member = self._consensus.members[group]
        own = self._consensus.node
        if to == own:
            return StepProgress(True, f"store {own} leads")
        tracker = member.core.tracker
        connected = self._connected()
        able = {
            each.node: each.match
            for each in tracker.peers
            if each.node in tracker.members.voters and each.node in connected and each.node != but
        }
        if to and to not in able:
            message = f"store {to} is no voter of group {group} that answers"
            raise KernelError(Code.INVALID_ARGUMENT, message)
        if not able:
            message = f"no other store can lead group {group} now"
            raise KernelError(Code.UNAVAILABLE, message)
        to = to or max(able, key=lambda node: (able[node], -node))
        if member.core.transferee != to:
            self._consensus.transfer(group, to)
        return StepProgress(False, f"goes to store {to}")
