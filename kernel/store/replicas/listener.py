"""Listeners to what groups apply: the client in the process of the store, and others beside it."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from ...api.model import Route, TopicInfo
from ...broker.group_state.state import QueueState, RouterState
from ...broker.group_state.tree_state import TreeEvent
from ...common.ids import RaftGroup

ReplicaT = TypeVar("ReplicaT")
HeardT_contra = TypeVar("HeardT_contra", contravariant=True)
"""Of whom is heard: the replica, which knows who listens and not the other way round."""


class ReplicaListener(Protocol[HeardT_contra]):
    """Hears of definitions, of queues that nobody uses, and of who leads."""

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """A definition changed."""

    def router_changed(self, router: RouterState, group: RaftGroup, *, removed: bool) -> None:
        """A router changed."""

    def route_changed(self, router: RouterState, route: Route, *, removed: bool) -> None:
        """A route came or went."""

    def unused(self, queue: QueueState) -> None:
        """The last consumer of a queue has gone."""

    def outbox_grew(self, replica: HeardT_contra) -> None:
        """There are dead letters to send."""

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """A metadata record changed."""

    def tree_changed(self, replica: HeardT_contra, event: TreeEvent) -> None:
        """Something of the topic tree changed."""

    def leads(self, replica: HeardT_contra) -> None:
        """A group is served here from now on."""

    def follows(self, replica: HeardT_contra) -> None:
        """A group is not served here any more."""

    def replaced(self, replica: HeardT_contra) -> None:
        """A snapshot from another store has taken the place of a group's state."""


class Relay(Generic[ReplicaT]):
    """Tells all who want to hear: the client of this process first, once there is one."""

    def __init__(self) -> None:
        self._listeners: list[ReplicaListener[ReplicaT]] = []

    def put_first(self, listener: ReplicaListener[ReplicaT]) -> None:
        """The client of this process: it hears of everything before all others."""
        self._listeners.insert(0, listener)

    def add(self, listener: ReplicaListener[ReplicaT]) -> None:
        """One more, who hears of everything after those before it."""
        self._listeners.append(listener)

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """A definition changed."""
        for each in self._listeners:
            each.topic_changed(topic, removed=removed)

    def router_changed(self, router: RouterState, group: RaftGroup, *, removed: bool) -> None:
        """A router changed."""
        for each in self._listeners:
            each.router_changed(router, group, removed=removed)

    def route_changed(self, router: RouterState, route: Route, *, removed: bool) -> None:
        """A route came or went."""
        for each in self._listeners:
            each.route_changed(router, route, removed=removed)

    def unused(self, queue: QueueState) -> None:
        """The last consumer of a queue has gone."""
        for each in self._listeners:
            each.unused(queue)

    def outbox_grew(self, replica: ReplicaT) -> None:
        """There are dead letters to send."""
        for each in self._listeners:
            each.outbox_grew(replica)

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """A metadata record changed."""
        for each in self._listeners:
            each.record_changed(key, record)

    def tree_changed(self, replica: ReplicaT, event: TreeEvent) -> None:
        """Something of the topic tree changed."""
        for each in self._listeners:
            each.tree_changed(replica, event)

    def leads(self, replica: ReplicaT) -> None:
        """A group is served here from now on."""
        for each in self._listeners:
            each.leads(replica)

    def follows(self, replica: ReplicaT) -> None:
        """A group is not served here any more."""
        for each in self._listeners:
            each.follows(replica)

    def replaced(self, replica: ReplicaT) -> None:
        """A snapshot from another store has taken the place of a group's state."""
        for each in self._listeners:
            each.replaced(replica)
