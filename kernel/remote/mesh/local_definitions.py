"""Transient topics, routers and routes of a gateway without a store, from their making to their
end.

    administer -> one change of a name at a time -> name reserved -> transient group
                                                        |  topic_changed, route_changed ...
                                                        v
                                     look-ups (topology), owners, expiry, dead letters

The transient group is the only one that lives in this process; what it applies is heard here. A
transient topic ends with its owner's session, with its last consumer or after its time unused, as
its options say. What is durable lives elsewhere and may go at any time; then the routes that are
kept here with an end there go too. All of it is in memory, and gone with the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from ...api.client import (
    Administration,
    DeleteRoute,
    DeleteRouter,
    DeleteTopic,
    PurgeTopic,
    PutRecord,
    PutRoute,
    PutRouter,
    PutTopic,
)
from ...api.model import Route, TopicInfo
from ...broker.group_state.state import QueueState, RouterState
from ...broker.group_state.tree_state import TreeEvent
from ...common.errors import Code, KernelError
from ...common.ids import RaftGroup, SessionId, TopicId
from ...common.keyed_lock import KeyedLock
from ...common.ports import Clock
from ...definitions import definition_checks as checks
from ...definitions.definer import Asked
from ...definitions.transient_definitions import TransientDefinitions
from ...leader_tasks.unused_topics import UnusedTopics
from ...requests.proposer import Proposer
from ...routing.topology import Topology
from ...store.leading.dead_letters import DeadLetterSender, Outboxes, Surroundings
from ...store.replicas.replica import Replica
from ...store.transient import TransientGroup
from .remote_process import Key

TOPICS_MAX = 100_000
"""Transient topics of one process: each takes some 2 KB here and in every process that knows of it.
One more is refused with LIMIT_EXCEEDED."""

Reserve = Callable[[str, str, str], AbstractAsyncContextManager[None]]
"""Has a name for this process alone while the block runs, and beyond it if the thing then exists:
(tenant, "topic" or "router", name). Raises KernelError LOCKED, ALREADY_EXISTS, UNAVAILABLE."""


class DefinitionsHost(Surroundings, Protocol):
    """What is asked of the client in this process."""

    async def administer(self, change: Administration) -> object:
        """Make a change of anything, wherever it is."""

    def has_session(self, ident: SessionId) -> bool:
        """Whether a session of this process is open."""


class Heard(Protocol):
    """Who else wants to know what changes here (`mesh`)."""

    def changed(self, *keys: Key) -> None:
        """Transient topics, routers that are kept here, or halves of some, or routes from them have
        come, changed or gone.
        """

    async def taken(self) -> None:
        """Return once every process that can be reached knows what has changed until now."""

    def route_count_changed(self, by: int) -> None:
        """So many more routes are kept here."""

    def check_room(self) -> None:
        """Raises KernelError LIMIT_EXCEEDED if one more cannot be told of."""

    def has_router(self, tenant: str, name: str) -> bool:
        """Whether a router lives in the memory of another process, which has told of it."""


class _TransientOutboxes:
    """`dead_letters.Outboxes` of a process that has no other group."""

    def __init__(self, transient: TransientGroup) -> None:
        self._transient = transient
        self.entry = transient.entry
        self.fetch = transient.fetch
        self.call_later = transient.call_later

    def replica(self, group: RaftGroup) -> Replica:
        """The one that there is."""
        return self._transient.replica


class LocalDefinitions:
    """See the module's head. Also `listener.Listener` of the transient group."""

    def __init__(
        self,
        host: DefinitionsHost,
        transient: TransientGroup,
        topology: Topology,
        proposer: Proposer,
        clock: Clock,
    ) -> None:
        self._host = host
        self._replica = transient.replica
        self._topology = topology
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._definitions = TransientDefinitions(transient, topology, proposer, host.administer)
        self._keyed_lock = KeyedLock()
        self._unused = UnusedTopics(self._has_consumers)
        self._owned: dict[SessionId, dict[tuple[str, str], None]] = {}
        self._background: set[asyncio.Task[None]] = set()
        outboxes: Outboxes = _TransientOutboxes(transient)
        self.dead_letters = DeadLetterSender(outboxes, host)
        self.reserve: Reserve | None = None
        """None: nobody else can have the name."""
        self.heard: Heard | None = None
        topology.gone = self._gone

    async def stop(self) -> None:
        """Begin nothing more; return when what was begun is done."""
        await self.dead_letters.stop()
        if self._background:
            await asyncio.gather(*self._background)

    def each_second(self) -> None:
        """Delete what nobody has used for long enough."""
        for topic in self._unused.expired(self._clock.monotonic_ms()):
            self._unused.remove(topic)
            self._in_background(DeleteTopic(topic.tenant, topic.name, if_unused=True))

    def _has_consumers(self, topic: TopicInfo) -> bool:
        return any(
            dispatcher.consumer_count
            for ref in topic.queues
            for dispatcher in self._replica.dispatchers_of(ref.id)
        )

    def used(self, topic: TopicId) -> None:
        """Somebody consumes from a topic: it is not unused."""
        self._unused.used(topic, self._clock.monotonic_ms())

    # --- Changes ----------------------------------------------------------------------------

    def is_local(self, change: Administration) -> bool:
        """Whether a change is one of what lives here, or is to live here."""
        return self._definitions.is_local(change)

    async def administer(self, change: Administration) -> object:
        """Make a change that `is_local` (see its docstring for the result and the errors)."""
        assert not isinstance(change, PutRecord)
        name = change.router if isinstance(change, PutRoute | DeleteRoute) else change.name
        checks.check_name(change.tenant, name)
        async with self._keyed_lock.of(change.tenant, name):
            if isinstance(change, PutTopic | PutRouter) and self._is_new(change):
                return await self._make(change)
            if isinstance(change, PutRoute) and self.heard is not None:
                self.heard.check_room()
            return await self._carry_out(change)

    async def _carry_out(self, change: Administration) -> object:
        """Make a change; all processes that can be reached know of it when it returns."""
        result = await self._definitions.carry_out(change, Asked())
        if self.heard is not None and not isinstance(change, PurgeTopic):
            await self.heard.taken()
        return result

    def _is_new(self, change: PutTopic | PutRouter) -> bool:
        if isinstance(change, PutTopic):
            return (change.tenant, change.name) not in self._topology.topics
        return self._topology.router_options(change.tenant, change.name) is None

    async def _make(self, change: PutTopic | PutRouter) -> object:
        """Something new, whose name must be free everywhere."""
        if isinstance(change, PutTopic):
            kind = "topic"
            checks.check_topic(change, None)
            if len(self._replica.state.topic_names) >= TOPICS_MAX:
                message = f"this process has {TOPICS_MAX} transient topics (topics_max)"
                raise KernelError(Code.LIMIT_EXCEEDED, message)
        else:
            kind = "router"
            checks.check_router(change, None)
        if self.heard is not None:
            self.heard.check_room()
        if self.reserve is None:
            return await self._carry_out(change)
        async with self.reserve(change.tenant, kind, change.name):
            return await self._carry_out(change)

    def give_up(self, kind: str, tenant: str, name: str) -> None:
        """Another process has the name of a "topic" or "router": it goes here."""
        delete = DeleteTopic(tenant, name) if kind == "topic" else DeleteRouter(tenant, name)
        if self._definitions.is_local(delete):
            self._in_background(delete)

    def end_session(self, session: SessionId) -> None:
        """Delete what a session owns."""
        for tenant, name in self._owned.pop(session, {}):
            self._in_background(DeleteTopic(tenant, name))

    def _gone(self, tenant: str, kind: str, name: str) -> None:
        """A "topic" or "router" that does not live here is gone."""
        if kind == "router" and (tenant, name) in self._replica.state.routers:
            self._run(self._definitions.router_gone(tenant, name))
        if self._topology.routes_to(tenant, kind, name):
            self._run(self._definitions.target_gone(tenant, kind, name))

    def _in_background(self, change: Administration) -> None:
        self._run(self.administer(change))

    def _run(self, work: Awaitable[object]) -> None:
        """Do what nobody waits for; a thing that is gone already is fine."""

        async def run() -> None:
            try:
                await work
            except KernelError:
                return

        task = self._loop.create_task(run())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # --- listener.Listener ------------------------------------------------------------------

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """A definition changed."""
        owner = topic.options.owner
        if removed:
            self._topology.remove_topic(topic)
            self._unused.remove(topic)
            if owner is not None:
                owned = self._owned.get(owner, {})
                owned.pop((topic.tenant, topic.name), None)
                if not owned:
                    self._owned.pop(owner, None)
        else:
            self._topology.put_topic(topic)
            self.dead_letters.topic_appeared(topic.tenant, topic.name)
            self._unused.put(topic, self._clock.monotonic_ms())
            if owner is not None:
                self._owned.setdefault(owner, {})[topic.tenant, topic.name] = None
                if not self._host.has_session(owner):  # it has ended while this was on its way
                    self.end_session(owner)
        if self.heard is not None:
            self.heard.changed(("topic", topic.tenant, topic.name))

    def router_changed(self, router: RouterState, group: RaftGroup, *, removed: bool) -> None:
        """A router changed, or the half of one that lives elsewhere: then only its routes go."""
        tenant, name = router.tenant, router.name
        if not removed:
            self._topology.put_router(tenant, name, router.options, router.routes)
        elif router.options.durable or self._is_elsewhere(tenant, name):
            for route in router.routes:
                self._topology.remove_route(tenant, name, route)
        else:
            self._topology.remove_router(tenant, name, was_here=True)
        if self.heard is not None:
            routes: list[Key] = [("route", tenant, name, each) for each in router.routes]
            self.heard.changed(("router", tenant, name), *(routes if removed else ()))
            if removed:
                self.heard.route_count_changed(-len(routes))

    def _is_elsewhere(self, tenant: str, name: str) -> bool:
        return self.heard is not None and self.heard.has_router(tenant, name)

    def route_changed(self, router: RouterState, route: Route, *, removed: bool) -> None:
        """A route came or went."""
        if removed:
            self._topology.remove_route(router.tenant, router.name, route)
        else:
            self._topology.add_route(router.tenant, router.name, route)
        if self.heard is not None:
            self.heard.changed(("route", router.tenant, router.name, route))
            self.heard.route_count_changed(-1 if removed else 1)

    def unused(self, queue: QueueState) -> None:
        """The last consumer of a queue has gone."""
        topic = queue.topic
        self._unused.used(topic.id, self._clock.monotonic_ms())
        if topic.options.delete_when_unused:
            self._in_background(DeleteTopic(topic.tenant, topic.name, if_unused=True))

    def outbox_grew(self, replica: Replica) -> None:
        """There are dead letters to send."""
        self.dead_letters.outbox_grew(replica)

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """The transient group has no records."""

    def tree_changed(self, replica: Replica, event: TreeEvent) -> None:
        """The transient group has no subscribers."""

    def leads(self, replica: Replica) -> None:
        """The transient group always leads."""

    def follows(self, replica: Replica) -> None:
        """The transient group always leads."""

    def replaced(self, replica: Replica) -> None:
        """The transient group never gets a snapshot."""
