"""All members as one node sees them: the membership in force, progress of each, votes of a term.

Lists that the hot path walks (the other members, the voters of each half) are made once a change of
membership or leadership and kept.
"""

from __future__ import annotations

from ..messages import Membership
from .inflights import Inflights
from .progress import Progress
from .quorum import VOTE_WON, joint_vote, majority_committed


class Tracker:
    """Members of the group. `node` is this node, which need not be one."""

    __slots__ = (
        "_inflight_bytes",
        "_inflight_messages",
        "incoming",
        "is_alone",
        "members",
        "node",
        "outgoing",
        "own",
        "peers",
        "progress",
        "votes",
    )

    def __init__(self, node: int, inflight_messages: int, inflight_bytes: int) -> None:
        self.node = node
        self.members = Membership()
        self.progress: dict[int, Progress] = {}
        self.votes: dict[int, bool] = {}
        self.own: Progress | None = None
        self.peers: list[Progress] = []
        """Everyone but this node, by number."""
        self.incoming: list[Progress] = []
        self.outgoing: list[Progress] = []
        self.is_alone = False
        """This node is the only voter, and no change is under way."""
        self._inflight_messages = inflight_messages
        self._inflight_bytes = inflight_bytes

    def switch(self, members: Membership, last_index: int) -> None:
        """Another membership is in force. Who stays keeps its progress; who is new is probed from
        `last_index` and counts as heard of, so that it is not held against the leader at once.
        """
        known = self.progress
        self.progress = {}
        learners = frozenset(members.learners)
        nodes = {*members.voters, *members.voters_outgoing, *members.learners}
        for node in sorted(nodes):
            progress = known.get(node)
            if progress is None:
                progress = self._new(node, max(last_index, 1), learner=False)
                progress.recent_active = True
                progress.joined = last_index
            progress.learner = node in learners
            self.progress[node] = progress
        self.members = members
        self._list()

    def reset(self, last_index: int, stable_index: int) -> None:
        """A new term or role: forget what is known of the others. This node itself has what its
        disk has.
        """
        self.votes.clear()
        for node, old in self.progress.items():
            self.progress[node] = self._new(node, last_index + 1, learner=old.learner)
        self._list()
        if self.own is not None:
            self.own.match = stable_index

    def _new(self, node: int, next_index: int, *, learner: bool) -> Progress:
        inflights = Inflights(self._inflight_messages, self._inflight_bytes)
        return Progress(node, next_index, inflights, learner=learner)

    def _list(self) -> None:
        progress = self.progress
        members = self.members
        self.own = progress.get(self.node)
        self.peers = [each for node, each in progress.items() if node != self.node]
        self.incoming = [progress[node] for node in members.voters]
        self.outgoing = [progress[node] for node in members.voters_outgoing]
        self.is_alone = self.is_singleton and self.node in members.voters

    @property
    def is_singleton(self) -> bool:
        """One voter, and no change under way."""
        return len(self.incoming) == 1 and not self.outgoing

    def is_voter(self, node: int) -> bool:
        """Whether the node votes in either half."""
        members = self.members
        return node in members.voters or node in members.voters_outgoing

    def committed(self) -> int:
        """The highest index that the voters have on disk, by majority of each half."""
        incoming = self.incoming
        if len(incoming) == 1 and not self.outgoing:
            return incoming[0].match
        index = majority_committed([each.match for each in incoming])
        if self.outgoing:
            index = min(index, majority_committed([each.match for each in self.outgoing]))
        return index

    def stamp(self, now: int) -> int:
        """The latest of our ticks that a majority of each half has answered by now."""
        own = self.own
        if own is not None:
            own.stamp = now
        index = majority_committed([each.stamp for each in self.incoming])
        if self.outgoing:
            index = min(index, majority_committed([each.stamp for each in self.outgoing]))
        return index

    def quorum_active(self) -> bool:
        """Whether a quorum has been heard of since the last check."""
        active = {node: each.recent_active for node, each in self.progress.items()}
        return self.vote_result(active) == VOTE_WON

    def vote_result(self, votes: dict[int, bool]) -> int:
        """Result of a vote over both halves."""
        members = self.members
        return joint_vote(members.voters, members.voters_outgoing, votes)
