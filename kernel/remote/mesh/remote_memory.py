"""What lives in the memory of other processes, as this one knows it: they tell, look-ups show it.

    ANNOUNCE -> remote process: what it has -> topology: topics, routers, routes, live routes
    publish  -> pseudo-group of the process -> link -> FRAME
    consume  -> pseudo-group of the process -> push streams (`streams`)

Whoever is told can reach the teller by the same connection, so what is known here can be published
to. Each process that tells something, a `RemoteProcess`, gets a pseudo-group; the ids of its topics
are rewritten to that, so that batches, caches and look-ups treat it as one group more.

One whose connection breaks is kept for GONE_MS, as sessions' leases are: what is published to
it waits, in bounded memory. Then, or as soon as stores tell that it is gone, all that it has told
goes, and what was on its way fails with UNAVAILABLE: publishes under way are refused, later ones
find no topic.

Durability: none, on either side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from ...api.changes import (
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
from ...api.model import Route, RouterOptions, TopicInfo
from ...common.errors import Code, KernelError
from ...common.ids import (
    MEMORY_FIRST,
    METADATA_GROUP,
    TRANSIENT_GROUP,
    RaftGroup,
    home_of,
)
from ...common.limits import SESSION_CLAIM_MS
from ...common.ports import Clock, Random
from ...routing.topology import Topology
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import Hello
from .. import things
from ..definitions import administration_wire
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_wire import WireError, decode
from . import mesh_wire as wire
from .link import MeshLink
from .pseudo_groups import PSEUDO_GROUPS, as_here, is_pseudo_group
from .remote_memory_leader import RemoteMemoryLeader
from .remote_process import Key, Process, RemoteMemoryFigures, RemoteProcess, gone_leader

GONE_MS = SESSION_CLAIM_MS
"""As long as leases are kept for a gateway that was cut off
(docs/design/delivery.md#what-a-crash-may-repeat)."""

HELD_MS = 1_000
"""The names of a process that cannot be reached for so long may be taken by others: it has dialled
again by then, unless it is gone. If it does come back, it gives up those that were taken."""

ANNOUNCED_MAX = 500_000
"""Things that one process may tell of: some 200 bytes each, a topic 2 KB. It refuses one more."""

ANNOUNCED_SLACK = 1_000
"""So many more are taken from it, since things come and go while they are told."""


class Arbiter(Protocol):
    """Who says whose a name is."""

    def is_anothers(self, kind: str, tenant: str, name: str, process: Process) -> bool:
        """Whether a name of a "topic" or "router" is for certain another's."""


class MemoryConsumers(Protocol):
    """Who consumes here what lives in other processes (`streams.Streams`)."""

    def reached(self, channel: Channel, memory: RaftGroup) -> None:
        """The process of a pseudo-group can be reached."""

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """It says something. Raises RpcError."""

    def closed(self, channel: Channel) -> None:
        """It cannot be reached any more."""

    def give_up(self, memory: RaftGroup, error: KernelError) -> None:
        """It is gone."""


def _nobody_minds(_tenant: str, _name: str) -> None:
    """Nothing waits for topics."""


class RemoteMemory:
    """See the module's head. `sections.Section`, of the end that is told."""

    methods = calls.MESH

    def __init__(
        self,
        topology: Topology,
        clock: Clock,
        random: Random,
        appeared: Callable[[str, str], None] = _nobody_minds,
        *,
        gone_ms: int = GONE_MS,
        announced_max: int = ANNOUNCED_MAX,
    ) -> None:
        """`appeared` is told of (tenant, name) of each topic that somebody has told of."""
        self._topology = topology
        self._clock = clock
        self._random = random
        self._gone_ms = gone_ms
        self._announced_max = announced_max
        self._remote_processes: dict[Process, RemoteProcess] = {}
        self._by_group: dict[RaftGroup, RemoteProcess] = {}
        self._last_group = -1
        self._by_channel: dict[Channel, RemoteProcess] = {}
        self._routes: dict[tuple[str, str], dict[Route, RemoteProcess]] = {}
        """By (tenant, router), and who has each."""
        self.routers: dict[tuple[str, str], RaftGroup] = {}
        """Routers that look-ups show and that live elsewhere in memory, by (tenant, name)."""
        self.figures = RemoteMemoryFigures()
        self.arbiter: Arbiter | None = None
        self.consumers: MemoryConsumers | None = None
        """A store has none."""
        self._appeared = appeared
        self.given_up: Callable[[Process], None] = lambda _process: None
        """Told of each process that is given up."""
        topology.further_routes = self._routes_from

    # --- Life -------------------------------------------------------------------------------

    @property
    def processes(self) -> list[Process]:
        """Who has told something and is not given up."""
        return list(self._remote_processes)

    def remote_process(self, process: Process) -> RemoteProcess | None:
        """One of them; None: it has told nothing, or is given up."""
        return self._remote_processes.get(process)

    @property
    def waiting_bytes(self) -> int:
        """Of messages on their way to other processes."""
        return sum(each.link.bytes for each in self._remote_processes.values())

    def announced(self, process: Process) -> int:
        """How much a process has told of."""
        remote_process = self._remote_processes.get(process)
        return len(remote_process.known) if remote_process is not None else 0

    def each_second(self) -> None:
        """Give up who was not heard for too long."""
        since_ms = self._clock.monotonic_ms() - self._gone_ms
        for remote_process in list(self._remote_processes.values()):
            if remote_process.lost_ms is not None and remote_process.lost_ms <= since_ms:
                self._give_up(remote_process)

    def is_gone(self, process: Process) -> None:
        """A process has ended, as stores tell; one that is heard here is none."""
        remote_process = self._remote_processes.get(process)
        if remote_process is not None and remote_process.channel is None:
            self._give_up(remote_process)

    def stop(self) -> None:
        """Nothing more is sent; what is on its way fails."""
        for remote_process in self._remote_processes.values():
            remote_process.over()

    def _give_up(self, remote_process: RemoteProcess) -> None:
        del self._remote_processes[remote_process.process]
        del self._by_group[remote_process.group]
        self.figures.gone += 1
        for key in list(remote_process.known):
            self._forget(remote_process, key)
        remote_process.over()
        if self.consumers is not None:
            error = KernelError(Code.UNAVAILABLE, "the gateway of the topic is gone")
            self.consumers.give_up(remote_process.group, error)
        self.given_up(remote_process.process)

    # --- sections.Section -------------------------------------------------------------------

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A process has come; it becomes a remote process when it tells something."""

    def closed(self, channel: Channel) -> None:
        """A connection is over; the process may come back."""
        remote_process = self._by_channel.pop(channel, None)
        if self.consumers is not None:
            self.consumers.closed(channel)
        if remote_process is not None and remote_process.channel is channel:
            remote_process.channel = None
            remote_process.link.broken(channel)
            remote_process.lost_ms = self._clock.monotonic_ms()

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """DONE, and what its streams bring."""
        remote_process = self._by_channel.get(channel)
        if remote_process is None:
            raise RpcError(f"method {method} is not told now")
        if method != wire.DONE:
            if self.consumers is None or not remote_process.serves_streams:
                raise RpcError(f"method {method} is not told")
            self.consumers.told(channel, method, payload)
            return
        try:
            remote_process.link.done(decode(wire.dones, payload))
        except WireError as error:
            raise RpcError(str(error)) from None

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """An ANNOUNCE has come; its answer names the things whose name another process has."""
        if method != wire.ANNOUNCE:
            raise RpcError(f"method {method} is not called")
        try:
            announce = decode(wire.announcements, payload)
            remote_process = self._process_of(channel, begins=bool(announce.flags & wire.BEGINS))
            others = [self._take(remote_process, item) for item in announce.items]
        except WireError as error:
            raise RpcError(str(error)) from None
        if announce.flags & wire.WHOLE:
            for key in list(remote_process.untold or ()):
                self._forget(remote_process, key)
            remote_process.untold = None
        if len(remote_process.known) > self._announced_max + ANNOUNCED_SLACK:
            raise RpcError(f"more than {self._announced_max} things live in one process's memory")
        if not remote_process.link.is_connected:
            remote_process.link.connected(channel)
        reply(wire.encode([each for each in others if each is not None]))

    def _process_of(self, channel: Channel, *, begins: bool) -> RemoteProcess:
        remote_process = self._by_channel.get(channel)
        if remote_process is not None:
            if begins:
                raise RpcError("it has begun before")
            return remote_process
        if not begins:
            raise RpcError("it has not begun")
        process = channel.peer.node, channel.peer.store
        remote_process = self._remote_processes.get(process)
        if remote_process is None:
            remote_process = RemoteProcess(
                process, self._free_group(), MeshLink(self._random.bits(63)), self.figures
            )
            self._remote_processes[process] = self._by_group[remote_process.group] = remote_process
        elif remote_process.channel is not None:
            del self._by_channel[remote_process.channel]
            remote_process.link.broken(remote_process.channel)
        remote_process.channel, remote_process.lost_ms = channel, None
        remote_process.untold = dict.fromkeys(remote_process.known)
        self._by_channel[channel] = remote_process
        remote_process.serves_streams = channel.version >= wire.STREAMS_SINCE
        if self.consumers is not None and remote_process.serves_streams:
            self.consumers.reached(channel, remote_process.group)
        return remote_process

    def _free_group(self) -> RaftGroup:
        """One that nobody has, and that was not used lately: what was cached of a process that is
        gone must not be taken for another's.
        """
        for _ in range(PSEUDO_GROUPS):
            self._last_group = (self._last_group + 1) % PSEUDO_GROUPS
            number = RaftGroup(MEMORY_FIRST + self._last_group)
            if number not in self._by_group:
                return number
        raise RpcError(f"{PSEUDO_GROUPS} processes have told what they have")

    # --- What is told -----------------------------------------------------------------------

    def _take(self, remote_process: RemoteProcess, item: wire.Item) -> tuple[str, str, str] | None:
        """Take in one thing. The key of one whose name is another's."""
        self.figures.announced += 1
        if isinstance(item, things.TopicIs):
            topic = as_here(wire.checked(item.topic), remote_process.group)
            return self._put(remote_process, ("topic", topic.tenant, topic.name), topic)
        if isinstance(item, things.RouterIs):
            if item.options.durable:
                raise WireError("a router that does not live in memory")
            return self._put(remote_process, ("router", item.tenant, item.name), item.options)
        if isinstance(item, wire.RouteIs):
            self._put(remote_process, ("route", item.tenant, item.router, item.route), None)
        elif isinstance(item, wire.WatchIs):
            wire.check_pattern(item.pattern)
            self._put(remote_process, ("watch", item.tenant, item.pattern), None)
        elif isinstance(item, wire.TopicGone):
            self._forget(remote_process, ("topic", item.tenant, item.name))
        elif isinstance(item, things.RouterGone):
            self._forget(remote_process, ("router", item.tenant, item.name))
        elif isinstance(item, things.RouteGone):
            self._forget(remote_process, ("route", item.tenant, item.router, item.route))
        else:
            self._forget(remote_process, ("watch", item.tenant, item.pattern))
        return None

    def _put(
        self, remote_process: RemoteProcess, key: Key, thing: TopicInfo | RouterOptions | None
    ) -> tuple[str, str, str] | None:
        if remote_process.untold is not None:
            remote_process.untold.pop(key, None)
        before = remote_process.known.get(key)
        if key not in remote_process.known or before != thing:
            if isinstance(before, TopicInfo) and before.id != getattr(thing, "id", None):
                self._topology.remove_topic(before)
            remote_process.known[key] = thing
            self._show(remote_process, key)
        arbiter = self.arbiter
        if arbiter is None or len(key) == 4 or key[0] == "watch":
            return None
        return key if arbiter.is_anothers(*key, remote_process.process) else None

    def _show(self, remote_process: RemoteProcess, key: Key) -> None:
        """Have look-ups show a thing, unless one of this process has the name."""
        topology, tenant, name = self._topology, key[1], key[2]
        thing = remote_process.known[key]
        if isinstance(thing, TopicInfo):
            known = topology.topics.get((tenant, name))
            if known is None or home_of(known.id) != TRANSIENT_GROUP:
                topology.put_topic(thing)
                self._appeared(tenant, name)
        elif isinstance(thing, RouterOptions):
            options = topology.router_options(tenant, name)
            if options is None or (tenant, name) in self.routers:
                self.routers[tenant, name] = remote_process.group
                topology.put_router(tenant, name, thing, ())
        elif len(key) == 4:
            self._routes.setdefault((tenant, name), {})[key[3]] = remote_process
            if topology.is_router(tenant, name):
                topology.add_route(tenant, name, key[3])
        else:
            topology.tree.add_forwarder(tenant, name, remote_process)

    def _forget(self, remote_process: RemoteProcess, key: Key) -> None:
        """A thing is gone; one of another process with that name comes to light."""
        if key not in remote_process.known:
            return
        thing = remote_process.known.pop(key)
        if remote_process.untold is not None:
            remote_process.untold.pop(key, None)
        topology, tenant, name = self._topology, key[1], key[2]
        if isinstance(thing, TopicInfo):
            topology.remove_topic(thing)
            self.show_others("topic", tenant, name)
        elif isinstance(thing, RouterOptions):
            if self.routers.get((tenant, name)) == remote_process.group:
                topology.remove_router(tenant, name)
                del self.routers[tenant, name]
                self.show_others("router", tenant, name)
        elif len(key) == 4:
            self._forget_route(remote_process, tenant, name, key[3])
        else:
            topology.tree.remove_forwarder(tenant, name, remote_process)

    def _forget_route(
        self, remote_process: RemoteProcess, tenant: str, router: str, route: Route
    ) -> None:
        routes = self._routes.get((tenant, router), {})
        if routes.get(route) is remote_process:
            del routes[route]
            if not routes:
                del self._routes[tenant, router]
            self._topology.remove_route(tenant, router, route)

    def show_others(self, kind: str, tenant: str, name: str) -> None:
        """A "topic" or "router" has gone from look-ups: show another process's, if there is one."""
        for remote_process in self._remote_processes.values():
            if (kind, tenant, name) in remote_process.known:
                self._show(remote_process, (kind, tenant, name))

    def _routes_from(self, tenant: str, router: str) -> Iterable[Route]:
        return self._routes.get((tenant, router), ())

    def has_holder(self, kind: str, tenant: str, name: str, but: Process) -> bool:
        """Whether another process has told of a "topic" or "router" of this name, and can be
        reached, or could within HELD_MS.
        """
        held = (
            each for each in self._remote_processes.values() if (kind, tenant, name) in each.known
        )
        since_ms = self._clock.monotonic_ms() - HELD_MS
        return any(
            each.process != but and (each.lost_ms is None or each.lost_ms > since_ms)
            for each in held
        )

    # --- Messages ---------------------------------------------------------------------------

    def check_consumer(self, group: RaftGroup) -> None:
        """Raises KernelError if nobody here can consume from a pseudo-group. NOT_FOUND: its process
        is gone; UNAVAILABLE: it is of an older version.
        """
        remote_process = self._by_group.get(group)
        if remote_process is None:
            raise KernelError(Code.NOT_FOUND, "the gateway of the topic is gone, and so is it")
        if not remote_process.serves_streams:
            message = "the gateway of the topic is older than this one: consume from it there"
            raise KernelError(Code.UNAVAILABLE, message)

    def leader(self, group: RaftGroup) -> RemoteMemoryLeader:
        """The leader of a pseudo-group. Of one that is gone: whose publishes fail."""
        remote_process = self._by_group.get(group)
        if remote_process is None:
            return gone_leader(group, self.figures.frame_refused)
        return remote_process.leader

    # --- Changes ----------------------------------------------------------------------------

    def lives_in(self, change: Administration) -> RaftGroup | None:
        """Pseudo-group of the process in whose memory a change is to be made; None: in none."""
        if isinstance(change, PutTopic | DeleteTopic | PurgeTopic | DeleteGroup):
            return self._home_of_topic(change.tenant, change.name)
        if isinstance(change, PutRouter | DeleteRouter):
            return self.routers.get((change.tenant, change.name))
        if isinstance(change, DeleteRoute):
            remote_process = self._routes.get((change.tenant, change.router), {}).get(change.route)
            return remote_process.group if remote_process is not None else None
        if isinstance(change, PutRoute):
            return self._home_of_route(change)
        return None

    def _home_of_topic(self, tenant: str, name: str) -> RaftGroup | None:
        topic = self._topology.topics.get((tenant, name))
        home = home_of(topic.id) if topic is not None else TRANSIENT_GROUP
        return home if is_pseudo_group(home) else None

    def _home_of_route(self, change: PutRoute) -> RaftGroup | None:
        """A route lives with its topic, if that lives in memory, else with its router."""
        tenant, route = change.tenant, change.route
        topic = self._topology.topics.get((tenant, route.topic or ""))
        if topic is not None and not topic.options.durable:
            return self._home_of_topic(tenant, topic.name)
        home = self.routers.get
        return home((tenant, change.router)) or home((tenant, route.router or ""))

    def keeps(self, change: Administration) -> bool:
        """Whether what is to be changed lives in a process that has it to itself. One that could
        not be reached for HELD_MS has lost the name. Raises KernelError BUSY: it may come back.
        """
        group = self.lives_in(change)
        remote_process = self._by_group[group] if group is not None else None
        if remote_process is None or remote_process.lost_ms is None:
            return remote_process is not None
        if remote_process.lost_ms > self._clock.monotonic_ms() - HELD_MS:
            raise KernelError(Code.BUSY, "the process that has the name cannot be reached now")
        if not isinstance(change, PutTopic | PutRouter):
            return True
        kind = "topic" if isinstance(change, PutTopic) else "router"
        self._forget(remote_process, (kind, change.tenant, change.name))
        return False

    async def administer(self, group: RaftGroup, change: Administration) -> object:
        """Have a change made where it lives. Raises KernelError: what it comes to; UNAVAILABLE: not
        answered, and made or not.
        """
        remote_process = self._by_group[group]
        question = administration_wire.encode_question(METADATA_GROUP, (1, 1, 1), change)
        answer = await remote_process.ask(wire.ADMINISTER, question)
        try:
            _, result = administration_wire.decode_answer(answer)
        except WireError as error:
            raise KernelError(Code.UNAVAILABLE, f"an answer is none: {error}") from None
        if isinstance(result, KernelError):
            raise result
        if isinstance(result, TopicInfo):
            known = self._topology.topics.get((result.tenant, result.name))
            result = as_here(result, group)
            return known if known == result else result
        return result
