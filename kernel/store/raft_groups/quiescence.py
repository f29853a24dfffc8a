"""Groups in which nothing happens become quiescent: they stop ticking, and say nothing.

    awake ── level for LEVEL_TICKS: the leader asks ── all have answered ──► quiescent (leader)
      ▲                  │ HEARTBEAT with "rest", and its answer
      │                  └── has everything, knows it committed ───────────► quiescent (follower)
      └── any message of the group, anything to do here, a node that is silent

Whoever shares a quiescent group sends its node one beat a tick, however many groups there are: that
stands for the heartbeats of all of them. A leader that misses a node's beats, and a follower that
misses its leader's, wakes the groups concerned with the silence counted, so that an election comes
no later than otherwise. A follower that is woken by anybody else tells its leader, which may be
quiescent: nobody campaigns against a leader that lives. None of this bears on safety: a quiescent
group is one whose members hear nothing for a while, which Raft allows at any time. Its messages go
to stores that a cut leaves out as well (`holding`): they name no entry and commit nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from ...common.ids import RaftGroup
from ...raft.messages import FOLLOWER, HEARTBEAT, HEARTBEAT_ANSWER, RaftMessage
from .member import Member
from .peers import Peers

BEATS = RaftGroup(0xEFFF)
"""Stands for the group in the beats of a node; no group has such a number."""

LEVEL_TICKS = 10
"""A group becomes quiescent when nothing has happened in it for so long, 1.5 s: that and waking up
cost a message each way to each member."""

SILENT_TICKS = 3
"""A node is silent that has sent nothing for more ticks than these."""

_QUIESCE = b"rest"


class Quiescence:
    """The quiescent groups of one node."""

    def __init__(self, node: int, peers: Peers, stirred: Callable[[Member, int], None]) -> None:
        """`stirred(member, ticks)`: a member wakes, after so many ticks of silence."""
        self._node = node
        self._peers = peers
        self._stirred = stirred
        self.quiescent: dict[Member, None] = {}
        self._now = 0
        """In ticks."""
        self._heard: dict[int, int] = {}
        """When each node was heard of last."""
        self._sharing_nodes: dict[int, None] = {}
        """Nodes that share a quiescent group."""
        self._level: dict[Member, tuple[int, int]] = {}
        """Groups led here in which all have everything: since when, and the last index."""
        self._asked: dict[Member, tuple[bytes, set[int]]] = {}
        """Groups that are to become quiescent: the context of the question, and who has not
        answered."""
        self._questions = 0

    def tick(self, elapsed: int) -> None:
        """So many ticks have passed: beat, and wake what misses somebody."""
        self._now += elapsed
        for member in self._asked:  # its followers hear a heartbeat now, which wakes them
            self._level.pop(member, None)
        self._asked.clear()
        if not self.quiescent:
            return
        heard = self._heard
        for node in self._sharing_nodes:
            self._peers.send(BEATS, RaftMessage(HEARTBEAT_ANSWER, self._node, node, 0))
        silent = {node for node in self._sharing_nodes if self._now - heard[node] > SILENT_TICKS}
        for member in list(self.quiescent) if silent else ():
            core = member.core
            awaited = {core.leader} if core.role == FOLLOWER else _others(member)
            missed = awaited & silent
            if missed:
                since = min(heard[node] for node in missed)
                self.wake(member, silence=max(0, self._now - since - elapsed))

    def heard(self, node: int) -> None:
        """A message of a node has come."""
        self._heard[node] = self._now

    # --- Becoming quiescent -----------------------------------------------------------------

    def spares(self, member: Member) -> bool:
        """Whether a member has no tick now: it is quiescent, or is about to ask its followers
        whether they will be. A heartbeat beside the question might come after it, and wake them.
        """
        if member in self.quiescent:
            return True
        core = member.core
        if not core.is_level() or not core.tracker.peers:
            self._level.pop(member, None)
            return False
        last = core.log.last_index
        since, index = self._level.get(member, (self._now, last))
        if index != last:
            since = self._now
        self._level[member] = since, last
        if self._now - since < LEVEL_TICKS:
            return False
        self._questions += 1
        context = _QUIESCE + self._questions.to_bytes(8, "little")
        self._asked[member] = context, _others(member)
        for node in _others(member):
            question = RaftMessage(HEARTBEAT, self._node, node, core.term)
            question.commit, question.context, question.stamp = last, context, core.ticks
            self._peers.send(member.group, question)
        return True

    def note(self, member: Member, message: RaftMessage) -> None:
        """The core has had a message: a question whether to be quiescent, or the answer?"""
        if not message.context.startswith(_QUIESCE):
            return
        core = member.core
        if message.kind == HEARTBEAT_ANSWER:
            context, left = self._asked.get(member, (b"", set()))
            if context == message.context:
                left.discard(message.sender)
                if not left:
                    del self._asked[member]
                    if core.is_level():
                        self._lie_down(member)
        elif message.kind == HEARTBEAT and core.role == FOLLOWER and core.leader == message.sender:
            log = core.log
            if log.last_index == log.committed == log.applied == message.commit:
                self._lie_down(member)

    def _lie_down(self, member: Member) -> None:
        self._level.pop(member, None)
        self.quiescent[member] = None
        for node in _others(member):
            self._sharing_nodes[node] = None
            self._heard[node] = self._now

    # --- To wake ----------------------------------------------------------------------------

    def wake(self, member: Member, *, by: int = 0, silence: int = 0) -> None:
        """A quiescent group has something to do: a message of node `by` has come, or (0) there is
        something here, or a node was silent for so many ticks.
        """
        del self.quiescent[member]
        self._sharing_nodes = {node: None for each in self.quiescent for node in _others(each)}
        core = member.core
        if core.role == FOLLOWER and core.leader and core.leader != by:
            alive = RaftMessage(HEARTBEAT_ANSWER, self._node, core.leader, core.term)
            self._peers.send(member.group, alive)
        self._stirred(member, silence)


def _others(member: Member) -> set[int]:
    return {each.node for each in member.core.tracker.peers}
