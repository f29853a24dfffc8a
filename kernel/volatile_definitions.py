"""Definitions in the memory of this process: its volatile topics and routers, and their routes.

A route lives as long as its shorter-lived end (ADR 5): one that comes from a durable router and
leads to something volatile is kept here, in the *half* of that router that the volatile group has.
The same rules serve the client that has the store beside it (`administration`) and one without
(`remote.local_definitions`). Nothing here is on any disk; what returns is in memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from . import definition_checks as checks
from .broker import commands
from .client import (
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
from .errors import Code, KernelError
from .ids import VOLATILE_GROUP, QueueId, TopicId, home_of
from .leader import Done, Identity, Leader
from .model import DEFAULT_GROUP, Route, RouterOptions, TopicInfo, TopicKind
from .proposer import Proposer
from .store.volatile import VolatileGroup
from .topology import Topology


class VolatileDefinitions:
    """Changes what the volatile group defines."""

    def __init__(
        self,
        volatile: VolatileGroup,
        topology: Topology,
        proposer: Proposer,
        delete_router: Callable[[DeleteRouter], Awaitable[object]],
    ) -> None:
        """`delete_router` deletes a durable router that nothing uses any more."""
        self._volatile = volatile
        self._state = volatile.replica.state
        self._topology = topology
        self._proposer = proposer
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
        return topic is not None and home_of(topic.id) == VOLATILE_GROUP

    def _is_short_lived(self, change: PutRoute) -> bool:
        """Whether one end of a route is volatile."""
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
        known = self._state.routers.get((tenant, router))
        return known is not None and route in known.routes

    # --- Changes ----------------------------------------------------------------------------

    async def carry_out(self, change: Administration) -> object:
        """Make a change that `is_local`; the caller sees to it that a name is changed by one at a
        time. Errors: see the change's docstring.
        """
        if isinstance(change, PutTopic):
            return await self._put_topic(change)
        if isinstance(change, DeleteTopic):
            return await self._delete_topic(change)
        if isinstance(change, PurgeTopic):
            return await self._purge(change)
        if isinstance(change, DeleteGroup):
            await self._delete_group(change)
            return None
        if isinstance(change, PutRouter):
            return await self._put_router(change)
        if isinstance(change, DeleteRouter):
            await self._delete_router(change)
            return None
        if isinstance(change, PutRoute):
            await self._put_route(change)
            return None
        assert isinstance(change, DeleteRoute)
        return await self.delete_route(change)

    async def _propose(self, change: commands.Control) -> object:
        return await self._proposer.propose(VOLATILE_GROUP, change)

    async def _put_topic(self, change: PutTopic) -> object:
        known = self._topology.topics.get((change.tenant, change.name))
        checks.check_topic(change, known)
        placement = (int(VOLATILE_GROUP),) * change.options.queues
        ident = known.id if known is not None else self._new_ident()
        return await self._propose(
            commands.PutTopic(
                *(change.tenant, change.name, change.options, dict(change.groups)),
                *(change.must_be_new, ident, placement),
            )
        )

    def _new_ident(self) -> TopicId:
        """An id that no topic here has, and that no other change under way has taken."""
        self._last_ident = max(self._state.next_topic, self._last_ident + 1)
        return TopicId(VOLATILE_GROUP << 32 | self._last_ident)

    def _topic(self, tenant: str, name: str) -> TopicInfo:
        topic = self._topology.topics.get((tenant, name))
        if topic is None:
            raise KernelError(Code.NOT_FOUND, f"no topic {name}")
        return topic

    async def _delete_topic(self, change: DeleteTopic) -> int:
        topic = self._topic(change.tenant, change.name)
        ready = consumers = 0
        for ref in topic.queues:
            for name in topic.groups:
                figures = await self._volatile.leader.figures(ref.id, name)
                ready += figures.ready
                consumers += figures.consumers
        if change.if_unused and consumers:
            raise KernelError(Code.IN_USE, f"topic {change.name} has consumers")
        if change.if_empty and ready:
            raise KernelError(Code.IN_USE, f"topic {change.name} is not empty")
        await self._propose(commands.DeleteTopic(topic.id))
        await self.target_gone(change.tenant, "topic", change.name)
        return ready

    async def _purge(self, change: PurgeTopic) -> int:
        purged = 0
        for ref in self._topic(change.tenant, change.name).queues:
            attempt = partial(purge, ref.id, change, self._proposer.next_identity())
            result = await self._proposer.outcome(VOLATILE_GROUP, attempt)
            purged += result if isinstance(result, int) else 0
        return purged

    async def _delete_group(self, change: DeleteGroup) -> None:
        topic = self._topic(change.tenant, change.name)
        if change.group not in topic.groups:
            raise KernelError(Code.NOT_FOUND, f"no group {change.group} on {change.name}")
        if change.group == DEFAULT_GROUP and topic.options.kind is TopicKind.WORK:
            raise KernelError(Code.IN_USE, "the built-in group of a work topic stays")
        await self._propose(commands.DeleteGroup(topic.id, change.group))

    # --- Routers ----------------------------------------------------------------------------

    async def _put_router(self, change: PutRouter) -> object:
        known = self._topology.router_options(change.tenant, change.name)
        checks.check_router(change, known)
        return await self._propose(
            commands.PutRouter(change.tenant, change.name, change.options, change.must_be_new)
        )

    def _router(self, tenant: str, name: str) -> RouterOptions:
        options = self._topology.router_options(tenant, name)
        if options is None:
            raise KernelError(Code.NOT_FOUND, f"no router {name}")
        return options

    async def _delete_router(self, change: DeleteRouter) -> None:
        checks.check_not_built_in(change.name)
        self._router(change.tenant, change.name)
        if change.if_unused and self._topology.route_count(change.tenant, change.name):
            raise KernelError(Code.IN_USE, f"router {change.name} has routes")
        await self._propose(commands.DeleteRouter(change.tenant, change.name, False))
        await self.target_gone(change.tenant, "router", change.name)

    async def router_gone(self, tenant: str, name: str) -> None:
        """A router that lives elsewhere is gone: what is kept here of it goes too."""
        if (tenant, name) in self._state.routers:
            await self._propose(commands.DeleteRouter(tenant, name, False))

    # --- Routes -----------------------------------------------------------------------------

    async def _put_route(self, change: PutRoute) -> None:
        options = self._router(change.tenant, change.router)
        checks.check_route(change)
        if change.route.topic is not None:
            self._topic(change.tenant, change.route.topic)
        if change.route.router is not None:
            self._router(change.tenant, change.route.router)
        if self._topology.has_route(change.tenant, change.router, change.route):
            return
        if (change.tenant, change.router) not in self._state.routers:
            await self._propose(commands.PutRouter(change.tenant, change.router, options, False))
        await self._propose(commands.PutRoute(change.tenant, change.router, change.route))

    async def delete_route(self, change: DeleteRoute) -> bool:
        """Remove a route, if it is kept here; whether it was."""
        options = self._router(change.tenant, change.router)
        if not self.has_route(change.tenant, change.router, change.route):
            return False
        await self._propose(commands.DeleteRoute(change.tenant, change.router, change.route))
        used = self._topology.route_count(change.tenant, change.router)
        if options.delete_when_unused and not used:
            unused = DeleteRouter(change.tenant, change.router)
            if options.durable:
                await self._delete_durable_router(unused)
            else:
                await self._delete_router(unused)
        return True

    async def target_gone(self, tenant: str, kind: str, name: str) -> None:
        """A "topic" or "router" is gone, wherever it was: so are the routes kept here to it."""
        for router, route in self._topology.routes_to(tenant, kind, name):
            if self.has_route(tenant, router, route):
                await self.delete_route(DeleteRoute(tenant, router, route))


def purge(
    queue: QueueId, change: PurgeTopic, identity: Identity, leader: Leader, done: Done
) -> None:
    """An attempt to purge one queue."""
    leader.purge(queue, change.group, identity, done, in_flight=change.in_flight)
