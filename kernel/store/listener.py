"""Who hears of what groups apply: the client in the process of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..broker.state import QueueState, RouterState
from ..broker.tree_state import TreeEvent
from ..ids import RaftGroup
from ..model import Route, TopicInfo

if TYPE_CHECKING:
    from .replica import Replica


class Listener(Protocol):
    """Hears of definitions and of queues that nobody uses: the client in this process."""

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """A definition changed."""

    def router_changed(self, router: RouterState, group: RaftGroup, *, removed: bool) -> None:
        """A router changed."""

    def route_changed(self, router: RouterState, route: Route, *, removed: bool) -> None:
        """A route came or went."""

    def unused(self, queue: QueueState) -> None:
        """The last consumer of a queue has gone."""

    def outbox_grew(self, replica: Replica) -> None:
        """There are dead letters to send."""

    def record_changed(self, key: str, value: bytes | None) -> None:
        """A metadata record changed."""

    def tree_changed(self, replica: Replica, event: TreeEvent) -> None:
        """Something of the topic tree changed."""

    def leads(self, replica: Replica) -> None:
        """A group is served here from now on."""

    def replaced(self, replica: Replica) -> None:
        """A snapshot from another store has taken the place of a group's state."""


class Relay:
    """Tells the listener, once there is one."""

    def __init__(self) -> None:
        self.listener: Listener | None = None

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """A definition changed."""
        if self.listener is not None:
            self.listener.topic_changed(topic, removed=removed)

    def router_changed(self, router: RouterState, group: RaftGroup, *, removed: bool) -> None:
        """A router changed."""
        if self.listener is not None:
            self.listener.router_changed(router, group, removed=removed)

    def route_changed(self, router: RouterState, route: Route, *, removed: bool) -> None:
        """A route came or went."""
        if self.listener is not None:
            self.listener.route_changed(router, route, removed=removed)

    def unused(self, queue: QueueState) -> None:
        """The last consumer of a queue has gone."""
        if self.listener is not None:
            self.listener.unused(queue)

    def outbox_grew(self, replica: Replica) -> None:
        """There are dead letters to send."""
        if self.listener is not None:
            self.listener.outbox_grew(replica)

    def record_changed(self, key: str, value: bytes | None) -> None:
        """A metadata record changed."""
        if self.listener is not None:
            self.listener.record_changed(key, value)

    def tree_changed(self, replica: Replica, event: TreeEvent) -> None:
        """Something of the topic tree changed."""
        if self.listener is not None:
            self.listener.tree_changed(replica, event)

    def leads(self, replica: Replica) -> None:
        """A group is served here from now on."""
        if self.listener is not None:
            self.listener.leads(replica)

    def replaced(self, replica: Replica) -> None:
        """A snapshot from another store has taken the place of a group's state."""
        if self.listener is not None:
            self.listener.replaced(replica)
