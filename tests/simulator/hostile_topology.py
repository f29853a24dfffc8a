"""What a gateway behind the hostile network knows of definitions: copies, told of late, in order.

A gateway hears of its own change before it has the answer to it; of what others change, and of what
the store does by itself, it hears when it has happened for some while.
"""

from __future__ import annotations

from collections.abc import Callable

from kernel.api.model import QueueRef, Route, TopicInfo
from kernel.broker.group_state.state import RouterState
from kernel.broker.group_state.tree_state import IndexChanged, TreeEvent
from kernel.broker.snapshots.tree_snapshot import index_queue
from kernel.common.ids import RaftGroup
from kernel.in_process.local_client import LocalClient
from kernel.routing.topology import Topology
from kernel.store.node import Store
from kernel.store.replicas.replica import Replica
from tests.simulator.hostile_link import Late, through_bytes

LANE = "definitions"
"""The lane of what a gateway hears of changes."""


class LateTopology(Topology):
    """`Topology` of a gateway that follows the one of the store."""

    def __init__(self, local: LocalClient, late: Late) -> None:
        store: Store = local._store
        super().__init__(store.home_groups)
        self._late = late
        for topic in local.topology.topics.values():
            self.put_topic(through_bytes(topic))
        for replica in store.replicas():
            self._learn(replica)
        self._follow(local)

    def _learn(self, replica: Replica) -> None:
        for router in replica.state.routers.values():
            self.put_router(router.tenant, router.name, router.options, router.routes)
        for (tenant, pattern), ident in replica.state.indexes.items():
            self.tree.add_index(tenant, pattern, QueueRef(index_queue(ident), replica.group))

    def _follow(self, local: LocalClient) -> None:
        """Hear late of what the local client hears."""
        topic_changed, router_changed = local.topic_changed, local.router_changed
        route_changed, tree_changed = local.route_changed, local.tree_changed

        def on_topic(topic: TopicInfo, *, removed: bool) -> None:
            topic_changed(topic, removed=removed)
            copy = through_bytes(topic)
            self._hear(lambda: self.remove_topic(copy) if removed else self.put_topic(copy))

        def on_router(router: RouterState, group: RaftGroup, *, removed: bool) -> None:
            router_changed(router, group, removed=removed)
            tenant, name = router.tenant, router.name
            if removed:
                self._hear(lambda: self.remove_router(tenant, name))
                return
            options, routes = through_bytes(router.options), tuple(router.routes)
            self._hear(lambda: self.put_router(tenant, name, options, routes))

        def on_route(router: RouterState, route: Route, *, removed: bool) -> None:
            route_changed(router, route, removed=removed)
            tenant, name, copy = router.tenant, router.name, through_bytes(route)
            change = self.remove_route if removed else self.add_route
            self._hear(lambda: change(tenant, name, copy))

        def on_tree(replica: Replica, event: TreeEvent) -> None:
            tree_changed(replica, event)
            if isinstance(event, IndexChanged):
                self._hear(lambda: self._index_changed(replica.group, event))

        local.topic_changed = on_topic  # type: ignore[method-assign]
        local.router_changed = on_router  # type: ignore[method-assign]
        local.route_changed = on_route  # type: ignore[method-assign]
        local.tree_changed = on_tree  # type: ignore[method-assign]

    def _hear(self, action: Callable[[], None]) -> None:
        self._late.call(LANE, action)

    def _index_changed(self, group: RaftGroup, event: IndexChanged) -> None:
        if event.removed:
            self.tree.remove_index(event.tenant, event.pattern, group)
        else:
            ref = QueueRef(index_queue(event.topic), group)
            self.tree.add_index(event.tenant, event.pattern, ref)

    async def heard(self) -> None:
        """Return once the gateway has heard of all that has happened until now."""
        await self._late.turn(LANE)
