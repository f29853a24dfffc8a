"""Applies to the states of snapshots what stands behind them in the log, as far as committed.

What is on this disk is committed if the group has no other member; else if the hard state says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...api.model import Reason, Route, TopicInfo
from ...broker.group_state.state import GroupState, QueueState, RouterState, TopicState
from ...broker.group_state.tree_state import TreeEvent
from ...broker.machine import Machine
from ...broker.observer import Observer, Retention
from ...common.feature_levels import LATEST
from ...common.ids import LogIndex, QueueId, RaftGroup
from ...raft.members.configuration import changed, decode
from ...raft.messages import CONFIGURATION, Membership
from ..raft_groups.group_log import entry_of


class Silent(Observer):
    """Observer of a replay: nobody is listening yet."""

    def appended(self, queue: QueueState) -> None:
        """Ignored: nobody consumes, and nobody listens, during a replay."""

    def released(self, queue: QueueState, group: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Ignored: nobody consumes, and nobody listens, during a replay."""

    def changed(self, queue: QueueState, group: str, ended: Sequence[tuple[int, int]]) -> None:
        """Ignored: nobody consumes, and nobody listens, during a replay."""

    def settled(self, queue: QueueState, group: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Ignored: nobody consumes, and nobody listens, during a replay."""

    def given_up(
        self, queue: QueueState, group: str, reason: Reason, messages: int, *, dead_lettered: bool
    ) -> None:
        """Ignored: nobody consumes, and nobody listens, during a replay."""

    def marked(self, queue: QueueState, group: str) -> None:
        """Ignored: nobody consumes, and nobody listens, during a replay."""

    def sought(self, queue: QueueState, group: str) -> None:
        """Ignored: nobody consumes, and nobody listens, during a replay."""

    def purged(self, queue: QueueState, group: str) -> None:
        """Ignored: nobody consumes, and nobody listens, during a replay."""

    def group_removed(self, queue: QueueState, group: str) -> None:
        """Ignored: nobody consumes, and nobody listens, during a replay."""

    def queues_changed(self, topic: TopicState) -> None:
        """Ignored: nobody consumes, and nobody listens, during a replay."""

    def drained(self, queue: QueueState, group: str) -> None:
        """Ignored: nobody consumes, and nobody listens, during a replay."""

    def queues_removed(self, queues: Sequence[QueueState]) -> None:
        """Ignored: nobody consumes, and nobody listens, during a replay."""

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """Ignored: nobody consumes, and nobody listens, during a replay."""

    def router_changed(self, router: RouterState, *, removed: bool) -> None:
        """Ignored: nobody consumes, and nobody listens, during a replay."""

    def route_changed(self, router: RouterState, route: Route, *, removed: bool) -> None:
        """Ignored: nobody consumes, and nobody listens, during a replay."""

    def outbox_grew(self) -> None:
        """Ignored: nobody consumes, and nobody listens, during a replay."""

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """Ignored: nobody consumes, and nobody listens, during a replay."""

    def tree_changed(self, event: TreeEvent) -> None:
        """Ignored: nobody consumes, and nobody listens, during a replay."""


def _nobody_has_one(_ident: QueueId) -> bool:
    return False


class Replay:
    """Applies committed entries to the states of snapshots, at a start."""

    def __init__(
        self,
        retention: Retention,
        states: Mapping[RaftGroup, GroupState],
        commits: Mapping[RaftGroup, int],
        node: int,
        understands: int = LATEST,
    ) -> None:
        """`commits`: by group what was known to be committed; none of it: nothing."""
        silent = Silent()
        self._machines = {
            group: Machine(each, retention, silent, understands) for group, each in states.items()
        }
        self._alone = Membership((node,))
        self._commits = commits
        self.configurations: dict[RaftGroup, list[int]] = {}
        self.applied = 0

    @property
    def feature_level(self) -> int:
        """The highest level that is on in a group, as far as it has come."""
        return max((each.state.feature_level for each in self._machines.values()), default=0)

    def is_alone(self, group: RaftGroup) -> bool:
        """Whether this node is the group's only member: then all of its log is applied."""
        membership = self._machines[group].state.membership
        return membership is None or membership == self._alone

    def take(self, group: RaftGroup, index: int, term: int, stored: bytes) -> None:
        """The next entry of a group. Raises NotUnderstood."""
        entry = entry_of(term, index, stored)
        machine = self._machines[group]
        state = machine.state
        if not self.is_alone(group) and index > self._commits.get(group, 0):
            if entry.kind == CONFIGURATION:
                self.configurations.setdefault(group, []).append(index)
            return
        self.applied += 1
        if entry.kind == CONFIGURATION:
            state.membership = changed(state.membership or self._alone, decode(entry.body))
            state.applied, state.term = LogIndex(index), term
        else:
            machine.apply(LogIndex(index), term, stored)
            state.queues.pack_idle(_nobody_has_one)
