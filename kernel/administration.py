"""Changes of topics, routers and routes, carried out over the Raft groups they touch.

Each change returns once every command it needed is on disk. A name is changed by one change at a
time, so that a check and the command that follows it see the same state.
"""

from __future__ import annotations

from collections.abc import Callable
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
    PutRecord,
    PutRoute,
    PutRouter,
    PutTopic,
)
from .errors import Code, KernelError
from .ids import METADATA_GROUP, RaftGroup, TopicId, home_of, queue_id
from .leader import Leader
from .model import DEFAULT_GROUP, QueueRef, RouterOptions, TopicInfo, TopicKind
from .placement import home_group
from .proposer import Proposer
from .store.node import Store
from .topology import Topology
from .turns import Turns
from .volatile_definitions import VolatileDefinitions, purge


class Administrator:
    """Carries out `client.Administration`."""

    def __init__(
        self,
        store: Store,
        topology: Topology,
        proposer: Proposer,
        leader_of: Callable[[RaftGroup], Leader],
    ) -> None:
        self._store = store
        self._topology = topology
        self._leader_of = leader_of
        self._proposer = proposer
        self._propose = proposer.propose
        self._turns = Turns()
        self._last_ident: dict[RaftGroup, int] = {}
        self._volatile = VolatileDefinitions(
            store.volatile_group, topology, proposer, self._delete_router
        )

    async def administer(self, change: Administration) -> object:
        """Make a change (see its docstring for the result and the errors)."""
        if isinstance(change, PutRecord):
            put = commands.PutRecord(change.key, change.value, change.expected)
            return await self._propose(METADATA_GROUP, put)
        name = change.router if isinstance(change, PutRoute | DeleteRoute) else change.name
        checks.check_name(change.tenant, name)
        async with self._turns.of((change.tenant, name)):
            return await self._carry_out(change)

    async def repair(self) -> None:
        """Undo what a crash left half done: queues of topics that were never defined or are
        deleted, groups that the definition does not know, routes whose end is gone.
        """
        for replica in self._store.replicas():
            for ident in list(replica.state.topics):
                home = self._store.replica(home_of(ident)).state
                if ident not in home.topics:
                    await self._propose(replica.group, commands.DeleteTopic(ident))
                    continue
                unknown = set(replica.state.topics[ident].groups) - set(home.topics[ident].groups)
                for name in sorted(unknown):
                    await self._propose(replica.group, commands.DeleteGroup(ident, name))
        for tenant, router, route in self._topology.dangling():
            await self._delete_route(DeleteRoute(tenant, router, route))

    async def _carry_out(self, change: Administration) -> object:
        if self._volatile.is_local(change):
            return await self._volatile.carry_out(change)
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
        return await self._delete_route(change)

    # --- Topics -----------------------------------------------------------------------------

    async def _put_topic(self, change: PutTopic) -> TopicInfo:
        options = change.options
        known = self._topology.topics.get((change.tenant, change.name))
        checks.check_topic(change, known)
        if known is not None:
            home = home_of(known.id)
            placement = tuple(int(ref.group) for ref in known.queues)
        else:
            groups = self._store.data_groups
            home = home_group(groups, change.tenant, change.name)
            first = groups.index(home)
            placement = tuple(
                int(groups[(first + number) % len(groups)]) for number in range(options.queues)
            )
        ident = known.id if known is not None else self._new_ident(home)
        consumer_groups = {**(known.groups if known is not None else {}), **change.groups}
        refs = tuple(
            QueueRef(queue_id(ident, number), RaftGroup(group))
            for number, group in enumerate(placement)
        )
        # The queues elsewhere first: once the topic can be found, a publish must not miss one.
        version = known.version + 1 if known is not None else 1
        queues = commands.PutQueues(
            ident, version, change.tenant, change.name, options, refs, consumer_groups
        )
        for other in {ref.group for ref in refs} - {home}:
            await self._propose(other, queues)
        info = await self._propose(
            home,
            commands.PutTopic(
                change.tenant,
                change.name,
                options,
                dict(change.groups),
                change.must_be_new,
                ident,
                placement,
            ),
        )
        assert isinstance(info, TopicInfo)
        return info

    def _new_ident(self, home: RaftGroup) -> TopicId:
        """An id that no topic of this home has, and that no other change under way has taken."""
        number = max(self._store.replica(home).state.next_topic, self._last_ident.get(home, 0) + 1)
        self._last_ident[home] = number
        return TopicId(home << 32 | number)

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
                figures = await self._leader_of(ref.group).figures(ref.id, name)
                ready += figures.ready
                consumers += figures.consumers
        if change.if_unused and consumers:
            raise KernelError(Code.IN_USE, f"topic {change.name} has consumers")
        if change.if_empty and ready:
            raise KernelError(Code.IN_USE, f"topic {change.name} is not empty")
        home = home_of(topic.id)
        await self._propose(home, commands.DeleteTopic(topic.id))
        for group in {ref.group for ref in topic.queues} - {home}:
            await self._propose(group, commands.DeleteTopic(topic.id))
        await self._remove_routes_to(change.tenant, "topic", change.name)
        return ready

    async def _remove_routes_to(self, tenant: str, kind: str, name: str) -> None:
        """Remove the routes to something that is gone."""
        for router, route in self._topology.routes_to(tenant, kind, name):
            await self._delete_route(DeleteRoute(tenant, router, route))

    async def _purge(self, change: PurgeTopic) -> int:
        topic = self._topic(change.tenant, change.name)
        purged = 0
        for ref in topic.queues:
            identity = self._proposer.next_identity()
            attempt = partial(purge, ref.id, change, identity)
            result = await self._proposer.outcome(ref.group, attempt)
            purged += result if isinstance(result, int) else 0
        return purged

    async def _delete_group(self, change: DeleteGroup) -> None:
        topic = self._topic(change.tenant, change.name)
        if change.group not in topic.groups:
            raise KernelError(Code.NOT_FOUND, f"no group {change.group} on {change.name}")
        if change.group == DEFAULT_GROUP and topic.options.kind is TopicKind.WORK:
            raise KernelError(Code.IN_USE, "the built-in group of a work topic stays")
        home = home_of(topic.id)
        for group in {home, *(ref.group for ref in topic.queues)}:
            await self._propose(group, commands.DeleteGroup(topic.id, change.group))

    # --- Routers ----------------------------------------------------------------------------

    def _home(self, tenant: str, name: str) -> RaftGroup:
        return home_group(self._store.data_groups, tenant, name)

    async def _put_router(self, change: PutRouter) -> object:
        checks.check_router(change, self._topology.router_options(change.tenant, change.name))
        return await self._propose(
            self._home(change.tenant, change.name),
            commands.PutRouter(change.tenant, change.name, change.options, change.must_be_new),
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
        await self._propose(
            self._home(change.tenant, change.name),
            commands.DeleteRouter(change.tenant, change.name, False),
        )
        await self._volatile.router_gone(change.tenant, change.name)
        await self._remove_routes_to(change.tenant, "router", change.name)

    # --- Routes -----------------------------------------------------------------------------

    async def _put_route(self, change: PutRoute) -> None:
        options = self._router(change.tenant, change.router)
        route = change.route
        checks.check_route(change)
        if route.topic is not None:
            self._topic(change.tenant, route.topic)
        if route.router is not None:
            self._router(change.tenant, route.router)
        if self._topology.has_route(change.tenant, change.router, route):
            return
        group = self._home(change.tenant, change.router)
        state = self._store.replica(group).state
        if (change.tenant, change.router) not in state.routers:
            await self._propose(
                group, commands.PutRouter(change.tenant, change.router, options, False)
            )
        await self._propose(group, commands.PutRoute(change.tenant, change.router, route))

    async def _delete_route(self, change: DeleteRoute) -> bool:
        options = self._router(change.tenant, change.router)
        if not self._topology.has_route(change.tenant, change.router, change.route):
            return False
        if self._volatile.has_route(change.tenant, change.router, change.route):
            return await self._volatile.delete_route(change)
        group = self._home(change.tenant, change.router)
        router = self._store.replica(group).state.routers.get((change.tenant, change.router))
        if router is not None and change.route in router.routes:
            await self._propose(
                group, commands.DeleteRoute(change.tenant, change.router, change.route)
            )
        if options.delete_when_unused and not self._topology.route_count(
            change.tenant, change.router
        ):
            await self._delete_router(DeleteRouter(change.tenant, change.router))
        return True
