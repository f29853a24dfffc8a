"""The topic tree of a gateway without a store: its half of `wire`, and the client's half of
everything else (`subscribing`).

Whoever leads the group of a name looks up its reference lists when something is published to it
(ADR 10), so nothing of them is known here. An open subscriber is this process's until a leader
tells that it is lost: at once, or when the gateway asks after a change of leader or connection.

Durability: the awaitables of a durable subscriber return from a leader's apply of an entry that a
majority of the group's voters has fdatasynced; what ends with its connection lives in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, cast

from ...api.client import ConsumerSink, Destinations, Session
from ...api.tree import (
    Subscriber,
    SubscriberConsumer,
    SubscriberFacts,
    SubscriberSink,
    SubscriberSpec,
    SubscriptionFacts,
    Watch,
    WatchSink,
)
from ...common.errors import Code, KernelError
from ...common.ids import QueueId, RaftGroup
from ...requests.proposer import Proposer
from ...requests.session import LocalSession
from ...routing.topology import Topology
from ...routing.tree_table import check_pattern
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import Hello
from ...store.leading.retained_reading import too_many
from ...subscribers.held_subscriber import HeldSubscriber
from ...subscribers.listing import WaitingCounts, no_subscriber
from ...subscribers.subscribing import Claims, Subscribing
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_wire import WireError, decode
from ..leader_calls.claiming import Claiming
from ..leader_calls.leaders import RemoteLeaders
from ..streams.streams import Streams
from . import tree_wire as wire
from .consumer import FarSubscriberConsumer, IdleStreams
from .list_waits import ListWaits

_T = TypeVar("_T")


class TreeProcess(Protocol):
    """What is asked of the client."""

    topology: Topology
    streams: Streams
    home_groups: list[RaftGroup]

    @property
    def accepting(self) -> bool:
        """False while a store that leads a group has no room for new messages."""

    @property
    def owner(self) -> int:
        """Number of this process."""


class Others(Protocol):
    """How other processes hear of live routes (`mesh`)."""

    def check_room(self) -> None:
        """Raises KernelError LIMIT_EXCEEDED if one more cannot be told of."""

    async def taken(self) -> None:
        """Return once every process that can be reached knows what has changed until now."""


class ClusterTree:
    """`tree.Tree`, and `sections.Section`."""

    methods = calls.TREE

    def __init__(self, process: TreeProcess, leaders: RemoteLeaders, proposer: Proposer) -> None:
        self._process = process
        self._leaders = leaders
        self._loop = asyncio.get_running_loop()
        self._routes = process.topology.tree
        self._routes.leaders_match = True
        self._waits = ListWaits(leaders)
        self._idle = IdleStreams()
        self._subscribing = Subscribing(
            process, process.home_groups, self._routes, proposer, self._consumer
        )
        self._mesh: Others | None = None
        self._claiming = Claiming(self._claim_all)
        leaders.watch(self._leader_changed)

    async def stop(self) -> None:
        """Ask and begin nothing more."""
        await self._claiming.stop()
        self._idle.stop()
        await self._waits.stop()
        await self._subscribing.stop()

    # --- sections.Section -------------------------------------------------------------------

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A store can be reached: it learns whose the subscribers are that are opened by it."""
        channel.cast(wire.OWNER, wire.encode(self._process.owner), control=True)

    def closed(self, channel: Channel) -> None:
        """It cannot be reached any more; what it leads is asked for when it, or another, can."""

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """LOST or FILLED."""
        try:
            if method == wire.LOST:
                lost = decode(wire.losses, payload)
                self._subscribing.lost(lost.number, lost.epoch)
            elif method == wire.FILLED:
                filled = decode(wire.fillings, payload)
                group, queue = RaftGroup(filled.group), QueueId(filled.queue)
                self._waits.filled(group, filled.key, queue)
            else:
                raise RpcError(f"method {method} is not told to gateways")
        except WireError as error:
            raise RpcError(str(error)) from None

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """Nothing of the tree is asked of gateways."""
        raise RpcError(f"method {method} is not called")

    # --- Changes of leaders -----------------------------------------------------------------

    def _leader_changed(self, group: RaftGroup) -> None:
        if self._leaders.channel_to(group) is None:
            return
        self._waits.leader_changed(group)
        if self._subscribing.opened_in(group):
            self._claiming.begin(group)

    async def _claim_all(self, group: RaftGroup) -> None:
        """Find out which subscribers are still this process's."""
        held = self._subscribing.opened_in(group)
        for start in range(0, len(held), wire.CLAIM_MAX):
            some = held[start : start + wire.CLAIM_MAX]
            parts = wire.encode(wire.Claim(group, self._process.owner, some))
            lost = set(await self._leaders.ask(group, wire.CLAIM, parts, _numbers))
            for number, epoch in some:
                if number in lost:
                    self._subscribing.lost(number, epoch)

    # --- Publishing -------------------------------------------------------------------------

    def to(self, tenant: str, name: str, *, retain: bool = False) -> Destinations:
        """Destinations of a publish to a name: at least the leader of its group."""
        return self._routes.to(tenant, name, retain=retain)

    def watch(self, tenant: str, pattern: str, sink: WatchSink, tag: object = None) -> Watch:
        """A live route."""
        if self._mesh is not None and (tenant, pattern) not in self._routes.watched:
            self._mesh.check_room()
        return self._routes.watch(tenant, pattern, sink, tag)

    async def watched(self) -> None:
        """Return once other processes know of the live routes made until now."""
        if self._mesh is not None:
            await self._mesh.taken()

    # --- Retained messages ------------------------------------------------------------------

    async def retained(
        self, tenant: str, pattern: str, messages_max: int
    ) -> Sequence[tuple[int, bytes]]:
        """(age ms, slot) of the retained messages under a pattern. Also raises KernelError
        UNAVAILABLE: a group has no leader.
        """
        check_pattern(pattern)
        groups = self._routes.groups_of(tenant, pattern)
        each = [self._retained_in(group, tenant, pattern, messages_max) for group in groups]
        found = [message for some in await asyncio.gather(*each) for message in some]
        if len(found) > messages_max:
            raise too_many(pattern, messages_max)
        found.sort(key=lambda message: message[0])
        return [(age_ms, slot) for _, age_ms, slot in found]

    async def retains(self, tenant: str, patterns: Sequence[str]) -> Sequence[bool]:
        """Whether something may be retained under each pattern. Also raises KernelError
        UNAVAILABLE.
        """
        by_group: dict[RaftGroup, list[int]] = {}
        for at, each in enumerate(patterns):
            check_pattern(each)
            for group in self._routes.groups_of(tenant, each):
                by_group.setdefault(group, []).append(at)
        found = [False] * len(patterns)

        async def ask(group: RaftGroup, places: Sequence[int]) -> None:
            for start in range(0, len(places), wire.WAIT_MAX):
                some = places[start : start + wire.WAIT_MAX]
                question = wire.Retains(group, tenant, [patterns[at] for at in some])
                parts = wire.encode(question)
                for place in await self._leaders.ask(group, wire.RETAINS, parts, _numbers):
                    if place < len(some):
                        found[some[place]] = True

        await asyncio.gather(*(ask(*each) for each in by_group.items()))
        return found

    async def _retained_in(
        self, group: RaftGroup, tenant: str, pattern: str, messages_max: int
    ) -> list[tuple[str, int, bytes]]:
        found: list[tuple[str, int, bytes]] = []
        after = ""
        while True:
            question = wire.Retained(group, tenant, pattern, after, messages_max)
            page = await self._leaders.ask(group, wire.RETAINED, wire.encode(question), _page)
            found += page.found
            if page.after <= after or len(found) > messages_max:
                return found
            after = page.after

    # --- Subscribers ------------------------------------------------------------------------

    async def open(self, spec: SubscriberSpec, sink: SubscriberSink) -> Subscriber:
        """Open a subscriber."""
        return await self._subscribing.open(spec, sink)

    async def drop(self, tenant: str, name: str) -> bool:
        """End a subscriber, whosever it is."""
        return await self._subscribing.drop(tenant, name)

    async def subscribers(
        self, tenant: str, begins: str = "", after: str = "", limit: int = 100
    ) -> Sequence[SubscriberFacts]:
        """Durable subscribers by name."""

        async def ask(group: RaftGroup) -> list[SubscriberFacts]:
            question = wire.Names(group, tenant, begins, after, limit)
            return await self._ask_listing(group, wire.NAMES, question, _facts)

        each = await asyncio.gather(*map(ask, self._process.home_groups))
        found = [facts for some in each for facts in some]
        return sorted(found, key=lambda each: each.name)[:limit]

    async def subscriptions(self, tenant: str, name: str) -> Sequence[SubscriptionFacts]:
        """Of one durable subscriber, with what waits."""
        home = self._subscribing.home_of(tenant, name)
        question = wire.Readers(home, tenant, name)
        readers = await self._ask_listing(home, wire.READERS, question, _readers)
        if readers is None:
            raise no_subscriber(name)
        counts = WaitingCounts(readers)

        async def ask(group: RaftGroup, some: list[wire.Key]) -> None:
            unacked = wire.Unacked(group, some)
            waiting = await self._ask_listing(group, wire.UNACKED, unacked, _numbers)
            if len(waiting) == len(some):
                counts.add(some, waiting)

        asked = counts.asked(self._routes.groups_of)
        await asyncio.gather(*(ask(*each) for each in asked.items()))
        return counts.facts()

    async def _ask_listing(
        self, group: RaftGroup, method: int, question: object, decoded: Callable[[bytes], _T]
    ) -> _T:
        channel = self._leaders.channel_to(group)
        if channel is not None and channel.version < wire.LISTING_SINCE:
            raise KernelError(Code.UNAVAILABLE, "a store is of a version that does not list them")
        return await self._leaders.ask(group, method, wire.encode(question), decoded)

    async def forget(self, tenant: str) -> int:
        """A tenant is being removed."""
        return await self._subscribing.forget(tenant)

    def join_mesh(self, mesh: Others, claims: Claims) -> None:
        """Have other processes told of live routes, and of each name that is opened here."""
        self._mesh = mesh
        self._subscribing.claims = claims

    def lost_name(self, tenant: str, name: str) -> None:
        """Another process has opened a name: what this one's memory has of it ends."""
        self._subscribing.lost_name(tenant, name)

    def _consumer(
        self, subscriber: HeldSubscriber, session: Session, sink: ConsumerSink
    ) -> SubscriberConsumer:
        return FarSubscriberConsumer(
            subscriber,
            cast("LocalSession", session),
            sink,
            self._waits,
            self._process.streams,
            self._idle,
            self._routes.groups_of,
            self._loop.call_later,
            self._loop.call_soon,
        )


def _numbers(payload: bytes) -> list[int]:
    return decode(wire.numbers, payload)


def _facts(payload: bytes) -> list[SubscriberFacts]:
    return decode(wire.facts, payload)


def _readers(payload: bytes) -> list[wire.Key] | None:
    found: list[wire.Key] | None = decode(wire.readers, payload)
    return found


def _page(payload: bytes) -> wire.RetainedPage:
    return decode(wire.pages, payload)
