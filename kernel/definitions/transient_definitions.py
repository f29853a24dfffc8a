"""Definitions in the memory of this process: its transient topics and routers, and their routes.

A route lives as long as its shorter-lived end (ADR 5): one that comes from a durable router and
leads to something transient is kept here, in the *half* of that router that the transient group
has. The same rules serve the client that has the store beside it (`administration`) and one without
(`remote.local_definitions`). Nothing here is on any disk; what returns is in memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ..api.client import (
    Administration,
    DeleteGroup,
    DeleteRoute,
    DeleteRouter,
    DeleteTopic,
    PurgeTopic,
    PutRoute,
    PutRouter,
    PutTopic,
)
from ..api.model import Route, RouterOptions, TopicInfo
from ..broker.group_state.state import GroupState
from ..broker.log_commands import commands
from ..common.ids import TRANSIENT_GROUP, RaftGroup, TopicId, home_of
from ..requests.leader import Leader
from ..requests.peer_stores import Kind
from ..requests.proposer import Proposer
from ..routing.topology import Topology
from ..store.transient import TransientGroup
from .definer import Asked, Definer


class TransientDefinitions(Definer):
    """Changes what the transient group defines."""

    def __init__(
        self,
        transient: TransientGroup,
        topology: Topology,
        proposer: Proposer,
        delete_router: Callable[[DeleteRouter], Awaitable[object]],
    ) -> None:
        """`delete_router` deletes a durable router that nothing uses any more."""
        super().__init__(topology, proposer)
        self._transient = transient
        self._own = transient.replica.state
        self._delete_durable_router = delete_router
        self._last_ident = 0

    # --- What lives here --------------------------------------------------------------------

    def is_local(self, change: Administration) -> bool:
        """Whether a change is one of what lives here, or is to live here."""
        if isinstance(change, PutTopic):
            known = self._topology.topics.get((change.tenant, change.name))
            return self._has(known) if known is not None else not change.options.durable
        if isinstance(change, DeleteTopic | PurgeTopic | DeleteGroup):
            return self._has(self._topology.topics.get((change.tenant, change.name)))
        if isinstance(change, PutRouter):
            options = self._topology.router_options(change.tenant, change.name) or change.options
            return not options.durable
        if isinstance(change, DeleteRouter):
            known_options = self._topology.router_options(change.tenant, change.name)
            return known_options is not None and not known_options.durable
        if isinstance(change, PutRoute):
            return self._is_short_lived(change)
        if isinstance(change, DeleteRoute):
            return self.has_route(change.tenant, change.router, change.route)
        return False

    def _has(self, topic: TopicInfo | None) -> bool:
        return topic is not None and home_of(topic.id) == TRANSIENT_GROUP

    def _is_short_lived(self, change: PutRoute) -> bool:
        """Whether one end of a route is transient."""
        route = change.route
        routers = [change.router, *((route.router,) if route.router is not None else ())]
        for name in routers:
            options = self._topology.router_options(change.tenant, name)
            if options is not None and not options.durable:
                return True
        topic = self._topology.topics.get((change.tenant, route.topic or ""))
        return topic is not None and not topic.options.durable

    def has_route(self, tenant: str, router: str, route: Route) -> bool:
        """Whether a route is kept here."""
        known = self._own.routers.get((tenant, router))
        return known is not None and route in known.routes

    # --- Changes ----------------------------------------------------------------------------

    def _home(self, tenant: str, name: str) -> RaftGroup:
        return TRANSIENT_GROUP

    def _check_free(self, kind: Kind, tenant: str, name: str) -> None:
        """Who makes a change has reserved the name."""

    def _placement(self, home: RaftGroup, queues: int) -> Sequence[RaftGroup]:
        return [TRANSIENT_GROUP] * queues

    def _new_ident(self, home: RaftGroup, *, spread: bool) -> TopicId:
        self._last_ident = max(self._own.next_topic, self._last_ident + 1)
        return TopicId(TRANSIENT_GROUP << 32 | self._last_ident)

    def _state(self, home: RaftGroup) -> GroupState:
        return self._own

    def _leader_of(self, group: RaftGroup) -> Leader:
        return self._transient.leader

    async def _decide(self, group: RaftGroup, command: commands.Control, asked: Asked) -> object:
        return await self._propose(group, command)

    async def _level(self, tenant: str, name: str) -> None:
        """What this process has heard of is what it can use."""

    async def _clear(self, tenant: str, kind: Kind, name: str, asked: Asked) -> None:
        await self.target_gone(tenant, kind, name)

    async def _last_route_gone(
        self, change: DeleteRouter, options: RouterOptions, asked: Asked
    ) -> None:
        if options.durable:
            await self._delete_durable_router(change)
        else:
            await self.delete_router(change, asked)

    async def router_gone(self, tenant: str, name: str) -> None:
        """A router that lives elsewhere is gone: what is kept here of it goes too."""
        if (tenant, name) in self._own.routers:
            await self._propose(TRANSIENT_GROUP, commands.DeleteRouter(tenant, name, False))

    async def target_gone(self, tenant: str, kind: str, name: str) -> None:
        """A "topic" or "router" is gone, wherever it was: so are the routes kept here to it."""
        for router, route in self._topology.routes_to(tenant, kind, name):
            if self.has_route(tenant, router, route):
                await self.delete_route(DeleteRoute(tenant, router, route), Asked())
