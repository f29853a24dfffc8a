"""What lives in the memory of other processes, as this one knows it: they tell, look-ups show it.

    ANNOUNCE -> guest: what it has -> topology: topics, routers, routes, live routes
    publish  -> pseudo-group of the guest -> link -> FRAME

Whoever is told can reach the teller by the same connection, so what is known here can be published
to. Each process that tells something, a *guest*, gets a pseudo-group; the ids of its topics are
rewritten to that, so that batches, caches and look-ups treat it as one group more.

A guest whose connection breaks is kept for GONE_MS, as sessions' leases are: what is published to
it waits, in bounded memory. Then, or as soon as stores tell that it is gone, all that it has told
goes, and what was on its way fails with UNAVAILABLE: publishes under way are refused, later ones
find no topic.

Durability: none, on either side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    ABROAD_FIRST,
    METADATA_GROUP,
    VOLATILE_GROUP,
    RaftGroup,
    home_of,
    is_abroad,
)
from ...common.limits import SESSION_CLAIM_MS
from ...common.ports import Clock, Random
from ...routing.destinations import Found
from ...routing.topology import Topology
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import Hello
from .. import things
from ..definitions import administration_wire
from ..leader_calls import calls
from ..leader_calls.wire import WireError, decode
from . import wire
from .abroad_leader import AbroadLeader
from .borrowing import Borrowing
from .guest import Guest, Key, Process, as_here, gone_leader
from .lending_wire import LENT
from .link import Link

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


class AbroadFigures:
    """Counters since this process began."""

    __slots__ = ("announced", "gone", "live_dropped", "refused")

    def __init__(self) -> None:
        self.announced = 0
        """Things told."""
        self.refused = 0
        """Frames refused at LINK_BYTES_MAX or LINK_FRAMES_MAX, or for a process that is gone."""
        self.live_dropped = 0
        """Messages for live routes, of these."""
        self.gone = 0
        """Processes given up."""


def _nobody_minds(_tenant: str, _name: str) -> None:
    """Nothing waits for topics."""


class Abroad:
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
        self._guests: dict[Process, Guest] = {}
        self._by_group: dict[RaftGroup, Guest] = {}
        self._last_group = -1
        self._by_channel: dict[Channel, Guest] = {}
        self._routes: dict[tuple[str, str], dict[Route, Guest]] = {}
        """By (tenant, router), and who has each."""
        self.figures = AbroadFigures()
        self.arbiter: Arbiter | None = None
        self.borrowing: Borrowing | None = None
        """Consumers here of topics there; a store has none."""
        self._appeared = appeared
        self.given_up: Callable[[Process], None] = lambda _process: None
        """Told of each process that is given up."""
        topology.routes_abroad = self._routes_from

    # --- Life -------------------------------------------------------------------------------

    @property
    def processes(self) -> list[Process]:
        """Who has told something and is not given up."""
        return list(self._guests)

    @property
    def waiting_bytes(self) -> int:
        """Of messages on their way to other processes."""
        return sum(each.link.bytes for each in self._guests.values())

    def announced(self, process: Process) -> int:
        """How much a process has told of."""
        guest = self._guests.get(process)
        return len(guest.known) if guest is not None else 0

    def each_second(self) -> None:
        """Give up who was not heard for too long."""
        since_ms = self._clock.monotonic_ms() - self._gone_ms
        for guest in list(self._guests.values()):
            if guest.lost_ms is not None and guest.lost_ms <= since_ms:
                self._give_up(guest)

    def is_gone(self, process: Process) -> None:
        """A process has ended, as stores tell; one that is heard here is none."""
        guest = self._guests.get(process)
        if guest is not None and guest.channel is None:
            self._give_up(guest)

    def stop(self) -> None:
        """Nothing more is sent; what is on its way fails."""
        for guest in self._guests.values():
            guest.link.over()

    def _give_up(self, guest: Guest) -> None:
        del self._guests[guest.process]
        del self._by_group[guest.group]
        self.figures.gone += 1
        for key in list(guest.known):
            self._forget(guest, key)
        guest.link.over()
        self.given_up(guest.process)

    # --- sections.Section -------------------------------------------------------------------

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A process has come; it becomes a guest when it tells something."""

    def closed(self, channel: Channel) -> None:
        """A connection is over; the process may come back."""
        guest = self._by_channel.pop(channel, None)
        if self.borrowing is not None:
            self.borrowing.closed(channel)
        if guest is not None and guest.channel is channel:
            guest.channel = None
            guest.link.broken(channel)
            guest.lost_ms = self._clock.monotonic_ms()

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """DONE, LENT."""
        guest = self._by_channel.get(channel)
        if method == LENT and self.borrowing is not None:
            self.borrowing.told(channel, payload)
            return
        if method != wire.DONE or guest is None:
            raise RpcError(f"method {method} is not told now")
        try:
            guest.link.done(decode(wire.dones, payload))
        except WireError as error:
            raise RpcError(str(error)) from None

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """ANNOUNCE."""
        if method != wire.ANNOUNCE:
            raise RpcError(f"method {method} is not called")
        try:
            announce = decode(wire.announcements, payload)
            guest = self._guest(channel, begins=bool(announce.flags & wire.BEGINS))
            others = [self._take(guest, item) for item in announce.items]
        except WireError as error:
            raise RpcError(str(error)) from None
        if announce.flags & wire.WHOLE:
            for key in list(guest.untold or ()):
                self._forget(guest, key)
            guest.untold = None
        if len(guest.known) > self._announced_max + ANNOUNCED_SLACK:
            raise RpcError(f"more than {self._announced_max} things live in one process's memory")
        if not guest.link.is_connected:
            guest.link.connected(channel)
        reply(wire.encode([each for each in others if each is not None]))

    def _guest(self, channel: Channel, *, begins: bool) -> Guest:
        guest = self._by_channel.get(channel)
        if guest is not None:
            if begins:
                raise RpcError("it has begun before")
            return guest
        if not begins:
            raise RpcError("it has not begun")
        process = channel.peer.node, channel.peer.store
        guest = self._guests.get(process)
        if guest is None:
            guest = Guest(process, self._free_group(), Link(self._random.bits(63)), self._refused)
            self._guests[process] = self._by_group[guest.group] = guest
        elif guest.channel is not None:
            del self._by_channel[guest.channel]
            guest.link.broken(guest.channel)
        guest.channel, guest.lost_ms = channel, None
        guest.untold = dict.fromkeys(guest.known)
        self._by_channel[channel] = guest
        return guest

    def _free_group(self) -> RaftGroup:
        """One that nobody has, and that was not used lately: what was cached of a process that is
        gone must not be taken for another's.
        """
        count = VOLATILE_GROUP - ABROAD_FIRST
        for _ in range(count):
            self._last_group = (self._last_group + 1) % count
            number = RaftGroup(ABROAD_FIRST + self._last_group)
            if number not in self._by_group:
                return number
        raise RpcError(f"{count} processes have told what they have")

    # --- What is told -----------------------------------------------------------------------

    def _take(self, guest: Guest, item: wire.Item) -> tuple[str, str, str] | None:
        """Take in one thing. The key of one whose name is another's."""
        self.figures.announced += 1
        if isinstance(item, things.TopicIs):
            topic = as_here(wire.checked(item.topic), guest.group)
            return self._put(guest, ("topic", topic.tenant, topic.name), topic)
        if isinstance(item, things.RouterIs):
            if item.options.durable:
                raise WireError("a router that does not live in memory")
            return self._put(guest, ("router", item.tenant, item.name), item.options)
        if isinstance(item, wire.RouteIs):
            self._put(guest, ("route", item.tenant, item.router, item.route), None)
        elif isinstance(item, wire.WatchIs):
            wire.check_pattern(item.pattern)
            self._put(guest, ("watch", item.tenant, item.pattern), None)
        elif isinstance(item, wire.TopicGone):
            self._forget(guest, ("topic", item.tenant, item.name))
        elif isinstance(item, things.RouterGone):
            self._forget(guest, ("router", item.tenant, item.name))
        elif isinstance(item, things.RouteGone):
            self._forget(guest, ("route", item.tenant, item.router, item.route))
        else:
            self._forget(guest, ("watch", item.tenant, item.pattern))
        return None

    def _put(
        self, guest: Guest, key: Key, thing: TopicInfo | RouterOptions | None
    ) -> tuple[str, str, str] | None:
        if guest.untold is not None:
            guest.untold.pop(key, None)
        before = guest.known.get(key)
        if key not in guest.known or before != thing:
            if isinstance(before, TopicInfo) and before.id != getattr(thing, "id", None):
                self._topology.remove_topic(before)
            guest.known[key] = thing
            self._show(guest, key)
        arbiter = self.arbiter
        if arbiter is None or len(key) == 4 or key[0] == "watch":
            return None
        return key if arbiter.is_anothers(*key, guest.process) else None

    def _show(self, guest: Guest, key: Key) -> None:
        """Have look-ups show a thing, unless one of this process has the name."""
        topology, tenant, name = self._topology, key[1], key[2]
        thing = guest.known[key]
        if isinstance(thing, TopicInfo):
            known = topology.topics.get((tenant, name))
            if known is None or home_of(known.id) != VOLATILE_GROUP:
                topology.put_topic(thing)
                self._appeared(tenant, name)
        elif isinstance(thing, RouterOptions):
            options = topology.router_options(tenant, name)
            if options is None or (tenant, name) in topology.routers_abroad:
                topology.routers_abroad[tenant, name] = guest.group
                topology.put_router(tenant, name, thing, ())
        elif len(key) == 4:
            self._routes.setdefault((tenant, name), {})[key[3]] = guest
            if topology.is_router(tenant, name):
                topology.add_route(tenant, name, key[3])
        else:
            topology.tree.add_abroad(tenant, name, guest.group)

    def _forget(self, guest: Guest, key: Key) -> None:
        """A thing is gone; one of another guest with that name comes to light."""
        if key not in guest.known:
            return
        thing = guest.known.pop(key)
        if guest.untold is not None:
            guest.untold.pop(key, None)
        topology, tenant, name = self._topology, key[1], key[2]
        if isinstance(thing, TopicInfo):
            topology.remove_topic(thing)
            self.show_others("topic", tenant, name)
        elif isinstance(thing, RouterOptions):
            if topology.routers_abroad.get((tenant, name)) == guest.group:
                topology.remove_router(tenant, name)
                del topology.routers_abroad[tenant, name]
                self.show_others("router", tenant, name)
        elif len(key) == 4:
            self._forget_route(guest, tenant, name, key[3])
        else:
            topology.tree.remove_abroad(tenant, name, guest.group)

    def _forget_route(self, guest: Guest, tenant: str, router: str, route: Route) -> None:
        routes = self._routes.get((tenant, router), {})
        if routes.get(route) is guest:
            del routes[route]
            if not routes:
                del self._routes[tenant, router]
            self._topology.remove_route(tenant, router, route)

    def show_others(self, kind: str, tenant: str, name: str) -> None:
        """A "topic" or "router" has gone from look-ups: show another process's, if there is one."""
        for guest in self._guests.values():
            if (kind, tenant, name) in guest.known:
                self._show(guest, (kind, tenant, name))

    def _routes_from(self, tenant: str, router: str) -> Iterable[Route]:
        return self._routes.get((tenant, router), ())

    def has_holder(self, kind: str, tenant: str, name: str, but: Process) -> bool:
        """Whether another process has told of a "topic" or "router" of this name, and can be
        reached, or could within HELD_MS.
        """
        held = (each for each in self._guests.values() if (kind, tenant, name) in each.known)
        since_ms = self._clock.monotonic_ms() - HELD_MS
        return any(
            each.process != but and (each.lost_ms is None or each.lost_ms > since_ms)
            for each in held
        )

    # --- Messages ---------------------------------------------------------------------------

    def guest(self, group: RaftGroup) -> Guest:
        """The process of a pseudo-group. Raises KernelError NOT_FOUND: it is gone."""
        guest = self._by_group.get(group)
        if guest is None:
            raise KernelError(Code.NOT_FOUND, "the gateway of the topic is gone, and so is it")
        return guest

    def leader(self, group: RaftGroup) -> AbroadLeader:
        """The leader of a pseudo-group. Of one that is gone: whose publishes fail."""
        guest = self._by_group.get(group)
        if guest is None:
            return gone_leader(group, self._refused)
        return guest.leader

    def publish_live(self, group: RaftGroup, messages: Sequence[tuple[Found, bytes]]) -> None:
        """Have another process hand slots to its live routes; nobody waits for that. What finds no
        room on the way is dropped, as for any subscriber of memory that cannot keep up.
        """
        guest = self._by_group.get(group)
        if guest is None:
            return
        live: list[tuple[str, str, int, int]] = []
        lengths: list[int] = []
        last: Found | None = None
        for found, slot in messages:
            if found is last:
                tenant, name, first, count = live[-1]
                live[-1] = tenant, name, first, count + 1
            else:
                live.append((found.tenant, found.tree_name, len(lengths), 1))
                last = found
            lengths.append(len(slot))
        size = sum(lengths)
        if guest.link.refusal(size) is not None:
            self._refused()
            self.figures.live_dropped += len(lengths)
            return
        head = wire.encode_messages((), live, lengths, 0)
        guest.link.send(head, [slot for _, slot in messages], size, _nobody_waits)

    def _refused(self) -> None:
        self.figures.refused += 1

    # --- Changes ----------------------------------------------------------------------------

    def lives_in(self, change: Administration) -> RaftGroup | None:
        """Pseudo-group of the process in whose memory a change is to be made; None: not abroad."""
        if isinstance(change, PutTopic | DeleteTopic | PurgeTopic | DeleteGroup):
            return self._home_of_topic(change.tenant, change.name)
        if isinstance(change, PutRouter | DeleteRouter):
            return self._topology.routers_abroad.get((change.tenant, change.name))
        if isinstance(change, DeleteRoute):
            guest = self._routes.get((change.tenant, change.router), {}).get(change.route)
            return guest.group if guest is not None else None
        if isinstance(change, PutRoute):
            return self._home_of_route(change)
        return None

    def _home_of_topic(self, tenant: str, name: str) -> RaftGroup | None:
        topic = self._topology.topics.get((tenant, name))
        home = home_of(topic.id) if topic is not None else VOLATILE_GROUP
        return home if is_abroad(home) else None

    def _home_of_route(self, change: PutRoute) -> RaftGroup | None:
        """A route lives with its topic, if that lives in memory, else with its router."""
        tenant, route = change.tenant, change.route
        topic = self._topology.topics.get((tenant, route.topic or ""))
        if topic is not None and not topic.options.durable:
            return self._home_of_topic(tenant, topic.name)
        abroad = self._topology.routers_abroad
        return abroad.get((tenant, change.router)) or abroad.get((tenant, route.router or ""))

    def keeps(self, change: Administration) -> bool:
        """Whether what is to be changed lives in a process that has it to itself. One that could
        not be reached for HELD_MS has lost the name. Raises KernelError BUSY: it may come back.
        """
        group = self.lives_in(change)
        guest = self._by_group[group] if group is not None else None
        if guest is None or guest.lost_ms is None:
            return guest is not None
        if guest.lost_ms > self._clock.monotonic_ms() - HELD_MS:
            raise KernelError(Code.BUSY, "the process that has the name cannot be reached now")
        if not isinstance(change, PutTopic | PutRouter):
            return True
        kind = "topic" if isinstance(change, PutTopic) else "router"
        self._forget(guest, (kind, change.tenant, change.name))
        return False

    async def administer(self, group: RaftGroup, change: Administration) -> object:
        """Have a change made where it lives. Raises KernelError: what it comes to; UNAVAILABLE: not
        answered, and made or not.
        """
        guest = self._by_group[group]
        question = administration_wire.encode_question(METADATA_GROUP, (1, 1, 1), change)
        answer = await guest.ask(wire.ADMINISTER, question)
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


def _nobody_waits(_error: KernelError | None) -> None:
    """What a frame for live routes came to."""
