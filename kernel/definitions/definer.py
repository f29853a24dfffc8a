"""How topics, routers and routes are made, changed and removed, wherever they live.

    check against what is known -> what other groups need first -> the command that decides
                                -> what follows from it elsewhere

What is durable (`administration`) and what lives in a process's memory (`transient_definitions`)
keep to the same rules; they differ in which group defines a name, how its deciding command gets
there, and who clears away what led to a thing that is gone.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

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
from ..api.model import DEFAULT_GROUP, QueueRef, Route, RouterOptions, TopicInfo, TopicKind
from ..broker.group_state.state import GroupState
from ..broker.log_commands import commands
from ..common.errors import Code, KernelError
from ..common.ids import QueueId, RaftGroup, TopicId, home_of, queue_id
from ..quotas.limits import LimitSet
from ..requests.leader import Done, Identity, Leader
from ..requests.peer_stores import Kind
from ..requests.proposer import Proposer
from ..routing.topology import Topology
from . import definition_checks as checks
from .clearing import Touched

_NO_LIMITS = LimitSet()


@dataclass(slots=True)
class Asked:
    """Who asks for a change, and what it has touched."""

    identity: Identity | None = None
    """Under which its deciding command is carried out once; None: of this process."""
    touched: Touched = field(default_factory=dict)

    def following(self) -> Asked:
        """For what follows from the change, and is decided by itself."""
        return Asked(touched=self.touched)


class Definer(ABC):
    """See the module's head. The caller sees to it that a name is changed by one at a time."""

    def __init__(self, topology: Topology, proposer: Proposer) -> None:
        self._topology = topology
        self._proposer = proposer
        self.allowed: Callable[[str], LimitSet] = lambda _tenant: _NO_LIMITS
        """How many topics and groups a tenant may have."""

    # --- What differs -----------------------------------------------------------------------

    @abstractmethod
    def _home(self, tenant: str, name: str) -> RaftGroup:
        """The group that defines a name."""

    @abstractmethod
    def _check_free(self, kind: Kind, tenant: str, name: str) -> None:
        """Raise KernelError LOCKED for a new name that somebody else is just taking."""

    @abstractmethod
    def _placement(self, home: RaftGroup, queues: int) -> Sequence[RaftGroup]:
        """Where the queues of a new topic are to be."""

    def _known_in(self, topic: TopicInfo) -> set[RaftGroup]:
        """Groups that know of a topic: it has queues there, or has had."""
        return {ref.group for ref in topic.queues}

    @abstractmethod
    def _new_ident(self, home: RaftGroup, *, spread: bool) -> TopicId:
        """An id that no topic of this home has, and that no other change under way has taken;
        `spread`: it will have queues in other groups.
        """

    @abstractmethod
    def _state(self, home: RaftGroup) -> GroupState:
        """The state of the group that defines a name."""

    @abstractmethod
    def _leader_of(self, group: RaftGroup) -> Leader:
        """Who leads a group."""

    @abstractmethod
    async def _decide(self, group: RaftGroup, command: commands.Control, asked: Asked) -> object:
        """Have the command that decides a change carried out; its result. Raises it if it is a
        KernelError.
        """

    @abstractmethod
    async def _level(self, tenant: str, name: str) -> None:
        """Learn whether a name is defined, if others may know more."""

    @abstractmethod
    async def _clear(self, tenant: str, kind: Kind, name: str, asked: Asked) -> None:
        """Remove what leads to a topic or router that is gone."""

    @abstractmethod
    async def _last_route_gone(
        self, change: DeleteRouter, options: RouterOptions, asked: Asked
    ) -> None:
        """Delete a router that goes with its last route."""

    # --- Changes ----------------------------------------------------------------------------

    async def carry_out(self, change: Administration, asked: Asked) -> object:
        """Make a change. Errors: see its docstring."""
        if isinstance(change, PutTopic):
            return await self._put_topic(change, asked)
        if isinstance(change, DeleteTopic):
            return await self._delete_topic(change, asked)
        if isinstance(change, PurgeTopic):
            return await self._purge(change)
        if isinstance(change, DeleteGroup):
            await self._delete_group(change, asked)
            return None
        if isinstance(change, PutRouter):
            return await self._put_router(change, asked)
        if isinstance(change, DeleteRouter):
            await self.delete_router(change, asked)
            return None
        if isinstance(change, PutRoute):
            await self._put_route(change, asked)
            return None
        assert isinstance(change, DeleteRoute)
        return await self.delete_route(change, asked)

    async def _propose(self, group: RaftGroup, command: commands.Control) -> object:
        return await self._proposer.propose(group, command)

    async def _propose_to(self, groups: set[RaftGroup], command: commands.Control) -> None:
        """Have a command carried out in several groups."""
        for result in await asyncio.gather(
            *(self._proposer.begin(each, command) for each in sorted(groups))
        ):
            if isinstance(result, KernelError):
                raise result

    # --- Topics -----------------------------------------------------------------------------

    async def _put_topic(self, change: PutTopic, asked: Asked) -> TopicInfo:
        options = change.options
        known = self._topology.topics.get((change.tenant, change.name))
        checks.check_topic(change, known)
        if options.durable and not change.reserved_name:
            own = self._topology.topics
            checks.check_room(change, known, self.allowed(change.tenant), own)
        if known is not None:
            ident, home = known.id, home_of(known.id)
            groups: Sequence[RaftGroup] = [ref.group for ref in known.queues]
        else:
            self._check_free("topic", change.tenant, change.name)
            home = self._home(change.tenant, change.name)
            groups = self._placement(home, options.queues)
            ident = self._new_ident(home, spread=set(groups) != {home})
        # The queues elsewhere first: once the topic can be found, a publish must not miss one.
        queues = commands.PutQueues(
            topic=ident,
            version=known.version + 1 if known is not None else 1,
            tenant=change.tenant,
            name=change.name,
            options=options,
            queues=known.queues
            if known is not None
            else tuple(QueueRef(queue_id(ident, each), group) for each, group in enumerate(groups)),
            groups={**(known.groups if known is not None else {}), **change.groups},
        )
        await self._propose_to(set(groups) - {home}, queues)
        put = commands.PutTopic(
            tenant=change.tenant,
            name=change.name,
            options=options,
            groups=dict(change.groups),
            must_be_new=change.must_be_new,
            ident=ident,
            placement=tuple(map(int, groups)),
        )
        info = await self._decide(home, put, asked)
        assert isinstance(info, TopicInfo)
        return info

    def _topic(self, tenant: str, name: str) -> TopicInfo:
        topic = self._topology.topics.get((tenant, name))
        if topic is None:
            raise KernelError(Code.NOT_FOUND, f"no topic {name}")
        return topic

    async def _delete_topic(self, change: DeleteTopic, asked: Asked) -> int:
        topic = self._topic(change.tenant, change.name)
        asking = [
            self._leader_of(ref.group).figures(ref.id, name)
            for ref in topic.queues
            for name in topic.groups
        ]
        figures = await asyncio.gather(*asking)
        ready = sum(each.ready for each in figures)
        if change.if_unused and any(each.consumers for each in figures):
            raise KernelError(Code.IN_USE, f"topic {change.name} has consumers")
        if change.if_empty and ready:
            raise KernelError(Code.IN_USE, f"topic {change.name} is not empty")
        home = home_of(topic.id)
        await self._decide(home, commands.DeleteTopic(topic.id), asked)
        others = self._known_in(topic) - {home}
        await self._propose_to(others, commands.DeleteTopic(topic.id))
        await self._clear(change.tenant, "topic", change.name, asked)
        return ready

    async def _purge(self, change: PurgeTopic) -> int:
        if change.in_flight and change.before_ms is not None:
            text = "what consumers hold is dropped whatever its age, or not at all"
            raise KernelError(Code.INVALID_ARGUMENT, text)
        topic = self._topic(change.tenant, change.name)
        purged = 0
        for ref in topic.queues:
            identity = self._proposer.next_identity()
            attempt = partial(_purge, ref.id, change, identity)
            if change.before_ms is not None:
                end = await self._leader_of(ref.group).offset_since(ref.id, change.before_ms)
                below = commands.Purge(ref.id, change.group, end, (), forget=False)
                attempt = partial(_propose, below, identity)
            result = await self._proposer.outcome(ref.group, attempt)
            purged += result if isinstance(result, int) else 0
        return purged

    async def _delete_group(self, change: DeleteGroup, asked: Asked) -> None:
        topic = self._topic(change.tenant, change.name)
        if change.group not in topic.groups:
            raise KernelError(Code.NOT_FOUND, f"no group {change.group} on {change.name}")
        if change.group == DEFAULT_GROUP and topic.options.kind is TopicKind.WORK:
            raise KernelError(Code.IN_USE, "the built-in group of a work topic stays")
        command = commands.DeleteGroup(topic.id, change.group)
        await self._decide(home_of(topic.id), command, asked)
        await self._forget_group(topic, change.group)

    async def _forget_group(self, topic: TopicInfo, name: str) -> None:
        """Have the queues away from home forget a group that has been deleted."""
        others = self._known_in(topic) - {home_of(topic.id)}
        await self._propose_to(others, commands.DeleteGroup(topic.id, name))

    # --- Routers ----------------------------------------------------------------------------

    async def _put_router(self, change: PutRouter, asked: Asked) -> object:
        known = self._topology.router_options(change.tenant, change.name)
        checks.check_router(change, known)
        if known is None:
            self._check_free("router", change.tenant, change.name)
        return await self._decide(
            self._home(change.tenant, change.name),
            commands.PutRouter(change.tenant, change.name, change.options, change.must_be_new),
            asked,
        )

    def _router(self, tenant: str, name: str) -> RouterOptions:
        options = self._topology.router_options(tenant, name)
        if options is None:
            raise KernelError(Code.NOT_FOUND, f"no router {name}")
        return options

    async def delete_router(self, change: DeleteRouter, asked: Asked) -> None:
        """Delete a router."""
        checks.check_not_built_in(change.name)
        self._router(change.tenant, change.name)
        if change.if_unused and self._topology.route_count(change.tenant, change.name):
            raise KernelError(Code.IN_USE, f"router {change.name} has routes")
        command = commands.DeleteRouter(change.tenant, change.name, False)
        await self._decide(self._home(change.tenant, change.name), command, asked)
        await self._clear(change.tenant, "router", change.name, asked)

    # --- Routes -----------------------------------------------------------------------------

    async def _put_route(self, change: PutRoute, asked: Asked) -> None:
        options = self._router(change.tenant, change.router)
        checks.check_route(change)
        kind, name = end_of(change.route)
        if not self.exists(change.tenant, kind, name):
            await self._level(change.tenant, name)
        self._check_end(change.tenant, kind, name)
        if self._topology.has_route(change.tenant, change.router, change.route):
            return
        group = self._home(change.tenant, change.router)
        if (change.tenant, change.router) not in self._state(group).routers:
            put = commands.PutRouter(change.tenant, change.router, options, False)
            await self._propose(group, put)
        command = commands.PutRoute(change.tenant, change.router, change.route)
        await self._decide(group, command, asked)
        if not self.exists(change.tenant, kind, name):  # it has just gone
            gone = DeleteRoute(change.tenant, change.router, change.route)
            await self.delete_route(gone, asked.following())
            self._check_end(change.tenant, kind, name)

    def exists(self, tenant: str, kind: Kind, name: str) -> bool:
        """Whether a topic or router is known here."""
        if kind == "topic":
            return (tenant, name) in self._topology.topics
        return self._topology.router_options(tenant, name) is not None

    def _check_end(self, tenant: str, kind: Kind, name: str) -> None:
        """NOT_FOUND unless the end of a route is known here."""
        if not self.exists(tenant, kind, name):
            raise KernelError(Code.NOT_FOUND, f"no {kind} {name}")

    async def delete_route(self, change: DeleteRoute, asked: Asked) -> bool:
        """Remove a route; whether it was there."""
        self._router(change.tenant, change.router)
        group = self._home(change.tenant, change.router)
        router = self._state(group).routers.get((change.tenant, change.router))
        if router is None or change.route not in router.routes:
            return False
        command = commands.DeleteRoute(change.tenant, change.router, change.route)
        await self._decide(group, command, asked)
        await self._let_go(change, asked)
        return True

    async def _let_go(self, change: DeleteRoute, asked: Asked) -> None:
        """A route has gone: its router may go with it."""
        options = self._topology.router_options(change.tenant, change.router)
        used = self._topology.route_count(change.tenant, change.router)
        if options is not None and options.delete_when_unused and not used:
            unused = DeleteRouter(change.tenant, change.router)
            await self._last_route_gone(unused, options, asked.following())


def end_of(route: Route) -> tuple[Kind, str]:
    """What a route leads to."""
    return ("topic", route.topic) if route.topic is not None else ("router", route.router or "")


def _purge(
    queue: QueueId, change: PurgeTopic, identity: Identity, leader: Leader, done: Done
) -> None:
    """An attempt to purge one queue."""
    leader.purge(queue, change.group, identity, done, in_flight=change.in_flight)


def _propose(command: commands.Control, identity: Identity, leader: Leader, done: Done) -> None:
    """An attempt to have one command carried out."""
    leader.propose(command, identity, done)
