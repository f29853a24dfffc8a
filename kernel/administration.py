"""Changes of topics, routers and routes, carried out over the Raft groups they touch.

Each change returns once every command it needed is on disk. A name is changed by one change at a
time, so that a check and the command that follows it see the same state.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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
from .filters import compile_filter
from .ids import (
    METADATA_GROUP,
    QUEUES_PER_TOPIC_MAX,
    VOLATILE_GROUP,
    QueueId,
    RaftGroup,
    TopicId,
    home_of,
    queue_id,
)
from .leader import Done, Identity, Leader
from .limits import GROUP_NAME_BYTES_MAX, NAME_BYTES_MAX, RESERVED_PREFIXES, UNUSED_MS_MIN
from .message import BODY_BYTES_MAX
from .model import (
    DEFAULT_GROUP,
    TOPICS_ROUTER,
    QueueRef,
    RouterOptions,
    TopicInfo,
    TopicKind,
    TopicOptions,
)
from .placement import home_group
from .proposer import Proposer
from .store.node import Store
from .topology import Topology
from .turns import Turns


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

    async def administer(self, change: Administration) -> object:
        """Make a change (see its docstring for the result and the errors)."""
        if isinstance(change, PutRecord):
            put = commands.PutRecord(change.key, change.value, change.expected)
            return await self._propose(METADATA_GROUP, put)
        name = change.router if isinstance(change, PutRoute | DeleteRoute) else change.name
        _check_name(change.tenant, NAME_BYTES_MAX, "tenant")
        _check_name(name, NAME_BYTES_MAX, "name")
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
        if not 1 <= options.queues <= QUEUES_PER_TOPIC_MAX:
            raise KernelError(Code.INVALID_ARGUMENT, f"queues must be 1 to {QUEUES_PER_TOPIC_MAX}")
        for name, group in change.groups.items():
            _check_name(name, GROUP_NAME_BYTES_MAX, "group")
            compile_filter(group.filter)
            if group.unused_ms is not None and group.unused_ms < UNUSED_MS_MIN:
                raise KernelError(
                    Code.INVALID_ARGUMENT, f"unused_ms must be at least {UNUSED_MS_MIN}"
                )
        _check_limits(options)
        known = self._topology.topics.get((change.tenant, change.name))
        if known is None and not change.reserved_name:
            _check_not_reserved(change.name)
        if known is not None:
            fixed = known.options
            if change.must_be_new:
                raise KernelError(Code.ALREADY_EXISTS, f"topic {change.name} exists")
            if (fixed.kind, fixed.durable, fixed.queues) != (
                options.kind,
                options.durable,
                options.queues,
            ):
                raise KernelError(
                    Code.ALREADY_EXISTS,
                    f"topic {change.name} exists with another kind, durability or number of queues",
                )
            home = home_of(known.id)
            placement = tuple(int(ref.group) for ref in known.queues)
        elif options.durable:
            groups = self._store.data_groups
            home = home_group(groups, change.tenant, change.name)
            first = groups.index(home)
            placement = tuple(
                int(groups[(first + number) % len(groups)]) for number in range(options.queues)
            )
        else:
            home = VOLATILE_GROUP
            placement = (int(VOLATILE_GROUP),) * options.queues
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
            attempt = partial(_purge, ref.id, change, identity)
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

    def _router_group(self, tenant: str, name: str, options: RouterOptions) -> RaftGroup:
        if not options.durable:
            return VOLATILE_GROUP
        return home_group(self._store.data_groups, tenant, name)

    async def _put_router(self, change: PutRouter) -> object:
        _check_not_built_in(change.name)
        known = self._topology.router_options(change.tenant, change.name)
        if known is not None and known.durable != change.options.durable:
            raise KernelError(
                Code.ALREADY_EXISTS, f"router {change.name} exists with another durability"
            )
        if known is not None and change.must_be_new:
            raise KernelError(Code.ALREADY_EXISTS, f"router {change.name} exists")
        if known is None and not change.reserved_name:
            _check_not_reserved(change.name)
        group = self._router_group(change.tenant, change.name, change.options)
        return await self._propose(
            group,
            commands.PutRouter(change.tenant, change.name, change.options, change.must_be_new),
        )

    def _router(self, tenant: str, name: str) -> RouterOptions:
        options = self._topology.router_options(tenant, name)
        if options is None:
            raise KernelError(Code.NOT_FOUND, f"no router {name}")
        return options

    async def _delete_router(self, change: DeleteRouter) -> None:
        _check_not_built_in(change.name)
        options = self._router(change.tenant, change.name)
        if change.if_unused and self._topology.route_count(change.tenant, change.name):
            raise KernelError(Code.IN_USE, f"router {change.name} has routes")
        await self._propose(
            self._router_group(change.tenant, change.name, options),
            commands.DeleteRouter(change.tenant, change.name, False),
        )
        if options.durable:
            await self._drop_volatile_half(change.tenant, change.name)
        await self._remove_routes_to(change.tenant, "router", change.name)

    async def _drop_volatile_half(self, tenant: str, name: str) -> None:
        if (tenant, name) in self._store.volatile.state.routers:
            await self._propose(VOLATILE_GROUP, commands.DeleteRouter(tenant, name, False))

    # --- Routes -----------------------------------------------------------------------------

    def _route_group(self, change: PutRoute | DeleteRoute, options: RouterOptions) -> RaftGroup:
        """A route lives as long as its shorter-lived end: to something volatile, in memory."""
        route = change.route
        durable = options.durable
        if route.topic is not None:
            topic = self._topology.topics.get((change.tenant, route.topic))
            if topic is not None:
                durable = durable and topic.options.durable
        elif route.router is not None:
            target = self._topology.router_options(change.tenant, route.router)
            if target is not None:
                durable = durable and target.durable
        if not durable:
            return VOLATILE_GROUP
        return home_group(self._store.data_groups, change.tenant, change.router)

    async def _put_route(self, change: PutRoute) -> None:
        options = self._router(change.tenant, change.router)
        route = change.route
        if (route.topic is None) == (route.router is None):
            raise KernelError(Code.INVALID_ARGUMENT, "a route leads to one topic or one router")
        if route.router is not None and TOPICS_ROUTER in {route.router, change.router}:
            raise KernelError(Code.NOT_ALLOWED, f"{TOPICS_ROUTER} copies to topics only")
        if route.topic is not None:
            self._topic(change.tenant, route.topic)
        if route.router is not None:
            self._router(change.tenant, route.router)
        if self._topology.has_route(change.tenant, change.router, route):
            return
        group = self._route_group(change, options)
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
        groups = [home_group(self._store.data_groups, change.tenant, change.router)]
        for group in (*groups, VOLATILE_GROUP):
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


def _purge(
    queue: QueueId, change: PurgeTopic, identity: Identity, leader: Leader, done: Done
) -> None:
    leader.purge(queue, change.group, identity, done, in_flight=change.in_flight)


def _check_name(name: str, bytes_max: int, what: str) -> None:
    if not name or len(name.encode()) > bytes_max:
        raise KernelError(Code.INVALID_ARGUMENT, f"{what} must have 1 to {bytes_max} bytes")


def _check_not_reserved(name: str) -> None:
    for prefix in RESERVED_PREFIXES:
        if name.startswith(prefix):
            raise KernelError(
                Code.INVALID_ARGUMENT, f"a name may not begin with {prefix}: that is reserved"
            )


def _check_not_built_in(name: str) -> None:
    if name == TOPICS_ROUTER:
        raise KernelError(Code.NOT_ALLOWED, f"router {name} is built in")


def _check_limits(options: TopicOptions) -> None:
    """Refuse limits out of bounds, and those that a topic of this kind does not have."""
    if not 1 <= options.message_bytes_max <= BODY_BYTES_MAX:
        raise KernelError(Code.INVALID_ARGUMENT, f"message_bytes_max must be 1 to {BODY_BYTES_MAX}")
    stream = options.kind is TopicKind.STREAM
    wrong = "bytes_max" if stream and options.bytes_max is not None else None
    if not stream and options.retention_bytes is not None:
        wrong = "retention_bytes"
    if wrong is not None:
        raise KernelError(
            Code.INVALID_ARGUMENT,
            f"a {options.kind.value} topic has no {wrong}: bytes_max is for work topics, "
            "retention_bytes for streams",
        )
    for name, value in (
        ("bytes_max", options.bytes_max),
        ("retention_bytes", options.retention_bytes),
    ):
        if value is not None and value < 0:
            raise KernelError(Code.INVALID_ARGUMENT, f"{name} must not be negative")
