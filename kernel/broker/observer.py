"""The observer of a state machine: which log entries are needed, and what has changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..api.model import Reason, Route, TopicInfo, TopicKind
from .group_state.progress import GroupProgress, acked_by_all
from .group_state.state import GroupState, QueueState, RouterState, TopicState
from .group_state.tree_state import TreeEvent

_STREAM = TopicKind.STREAM
Release = Callable[[int, int, int], None]
"""`Retention.release`, or what else is to hear (group, index, references) of what is let go."""

ACKED = -1
ACKED_LATE = -2
"""The lease had ended before the ack: the message was ready again."""


class Retention(Protocol):
    """Hears which log entries still hold messages that somebody needs."""

    def retain(self, group: int, index: int, references: int) -> None:
        """So many more queue places refer to slots of the entry."""

    def release(self, group: int, index: int, references: int) -> None:
        """So many of them are gone."""


class Observer(Protocol):
    """The node's transient half, told what an apply changed. Must not change state."""

    def appended(self, queue: QueueState) -> None:
        """Messages were added to the queue."""

    def released(self, queue: QueueState, group: str, ranges: Sequence[tuple[int, int]]) -> None:
        """(first offset, offsets) ranges that a consumer held are ready again."""

    def changed(self, queue: QueueState, group: str, ended: Sequence[tuple[int, int]]) -> None:
        """Timed leases changed: (offset, log time until which it is kept from others) of each; 0:
        ready again, or ACKED, ACKED_LATE.
        """

    def settled(self, queue: QueueState, group: str, ranges: Sequence[tuple[int, int]]) -> None:
        """(first offset, offsets) ranges of an ordered group are done with."""

    def given_up(
        self, queue: QueueState, group: str, reason: Reason, messages: int, *, dead_lettered: bool
    ) -> None:
        """Messages left a group unacked; `dead_lettered`: for somebody who takes dead letters."""

    def marked(self, queue: QueueState, group: str) -> None:
        """The dispatch mark moved ahead."""

    def purged(self, queue: QueueState, group: str) -> None:
        """Everything ready was dropped."""

    def sought(self, queue: QueueState, group: str) -> None:
        """A group goes on from another offset: all that was known of its messages is past."""

    def group_removed(self, queue: QueueState, group: str) -> None:
        """A group is gone from a queue."""

    def queues_changed(self, topic: TopicState) -> None:
        """The topic's queues of this group were made, or its settings changed."""

    def drained(self, queue: QueueState, group: str) -> None:
        """A predecessor of the queue has nothing more for a group."""

    def queues_removed(self, queues: Sequence[QueueState]) -> None:
        """These queues are gone."""

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """A definition whose home is this group changed."""

    def router_changed(self, router: RouterState, *, removed: bool) -> None:
        """A router was made, changed its options, or is gone with its routes."""

    def route_changed(self, router: RouterState, route: Route, *, removed: bool) -> None:
        """One route of a router came or went."""

    def outbox_grew(self) -> None:
        """There is something to send."""

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """A metadata record changed, to (version, value), or (None) was removed."""

    def tree_changed(self, event: TreeEvent) -> None:
        """Something of the topic tree changed."""


def release(
    let_go: Release,
    state: GroupState,
    queue: QueueState,
    progress: GroupProgress,
    ranges: Sequence[tuple[int, int]],
) -> None:
    """Messages in `ranges` were just acked by `progress`: `let_go` of those that all groups have
    acked. A stream keeps them until retention comes.
    """
    if queue.topic.options.kind is _STREAM:
        return
    if queue.pending_acks is not None:
        for start, end in ranges:
            for low, high in queue.pending_acks.settle(start, end):
                release_all(let_go, state, queue, low, high)
        return
    others = [each for each in queue.groups.values() if each is not progress]
    for start, end in ranges:
        for low, high in acked_by_all(others, start, end):
            release_all(let_go, state, queue, low, high)


def release_all(
    let_go: Release, state: GroupState, queue: QueueState, start: int, end: int
) -> None:
    """Nobody needs the messages of [start, end) any more, all of which somebody needed: `let_go` of
    them.
    """
    messages = total = 0
    for index, _slot, count, size in queue.index.stretches(start, end):
        let_go(state.group, index, count)
        messages += count
        total += size
    state.stored.left(queue.topic, messages, total)
