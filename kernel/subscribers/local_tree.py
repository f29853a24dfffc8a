"""The topic tree of a process that has a store: the client's half of it (`subscribing`), and what
the store's half needs beside the groups: who wants a name, deadlines, wills, whose connections are
over.

Durability: the awaitables of a durable subscriber return from the apply of entries that are
fdatasynced; a watch, and a subscriber that ends with its connection, live in memory only.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Collection, Sequence
from typing import cast

from ..api.client import ConsumerSink, Destinations, Session
from ..api.model import QueueRef
from ..api.tree import (
    Subscriber,
    SubscriberConsumer,
    SubscriberFacts,
    SubscriberSink,
    SubscriberSpec,
    SubscriptionFacts,
    Watch,
    WatchSink,
    WillJudge,
)
from ..broker.group_state.tree_state import (
    IndexChanged,
    SubscriberChanged,
    SubscriberState,
    TreeEvent,
)
from ..common.errors import Code, KernelError
from ..common.ids import RaftGroup
from ..common.limits import RETAINED_MAX
from ..requests.peer_stores import PeerStores
from ..requests.proposer import Proposer
from ..requests.session import LocalSession
from ..routing.tree_table import check_pattern
from ..store.leading.retained_reading import read, retained_in, too_many
from ..store.node import Store
from ..store.replicas.replica import Replica
from .held_subscriber import HeldSubscriber
from .listing import (
    WaitingCounts,
    first_names,
    no_subscriber,
    readers_of,
    subscribers_named,
    waiting_in,
)
from .local_subscriber import LocalSubscriberConsumer
from .subscriber_keeper import Keeper, TreeHost
from .subscribing import Subscribing
from .tree_owners import Owners

Lost = Callable[[int, int, int], None]

STEPS_TOGETHER = 10_000
"""Names, or levels of them, that are looked at before others have their turn: some milliseconds."""


class LocalTree:
    """`tree.Tree` over a `Store` in this process. `store.name_matching.Names`."""

    def __init__(
        self,
        store: Store,
        host: TreeHost,
        loop: asyncio.AbstractEventLoop,
        proposer: Proposer,
    ) -> None:
        self._store = store
        self._routes = host.topology.tree
        self._soon = loop.call_soon
        self._keeper = Keeper(store, host, proposer)
        self.owners = Owners(store, host, self._keeper)
        """Whose connections are over, when their process is."""
        self._subscribing = Subscribing(
            self.owners, store.home_groups, self._routes, proposer, self._consumer
        )
        self.lost: Lost = lambda _owner, _number, _epoch: None
        """Told of each connection of another process that has lost its subscriber to a newer one,
        as (owner, number, epoch), if its home is led here.
        """
        store.names = self

    # --- Life -------------------------------------------------------------------------------

    def judge_wills(self, judge: WillJudge) -> None:
        """Have wills that are due published only if their user still may."""
        self._keeper.judge = judge

    def join(self, peer_stores: PeerStores) -> None:
        """Other stores lead groups too."""
        self._keeper.peer_stores = peer_stores

    def learn(self, replica: Replica) -> None:
        """Take over what a group holds."""
        for (tenant, pattern), ident in replica.state.indexes.items():
            self._routes.add_index(tenant, pattern, replica.state.topics[ident].refs[0])

    def leads(self, replica: Replica) -> None:
        """A group is served here from now on."""
        self._keeper.leads(replica)
        self.owners.leads(replica)

    async def repair(self, groups: Collection[RaftGroup]) -> bool:
        """Mend what a crash left half done in groups that are led here; whether to look again."""
        return await self._keeper.repair(groups)

    async def stop(self) -> None:
        """Begin nothing more; return when what was begun is done."""
        await self._subscribing.stop()
        await self._keeper.stop()

    def each_second(self) -> None:
        """Look after deadlines."""
        self._keeper.each_second()
        self.owners.each_second()

    def changed(self, replica: Replica, event: TreeEvent) -> None:
        """Something of the tree was applied."""
        if isinstance(event, IndexChanged):
            if event.removed:
                self._routes.remove_index(event.tenant, event.pattern, replica.group)
            else:
                ref = replica.state.topics[event.topic].refs[0]
                self._routes.add_index(event.tenant, event.pattern, ref)
        elif isinstance(event, SubscriberChanged):
            self._fence(event.subscriber, event.lost)
            if event.lost is not None and replica.leading:
                owner, epoch = event.lost
                self.lost(owner, event.subscriber.number, epoch)
            self._keeper.subscriber_changed(replica, event)
        else:
            self._keeper.wills_grew(replica)

    def _fence(self, state: SubscriberState, lost: tuple[int, int] | None) -> None:
        """Tell the connection that had a subscriber until now, if another one has it."""
        if lost is not None and lost[0] in (0, self.owners.identity):
            self._subscribing.lost(state.number, lost[1])

    # --- Publishing -------------------------------------------------------------------------

    def to(self, tenant: str, name: str, *, retain: bool = False) -> Destinations:
        """Destinations of a publish to a name."""
        found = self._routes.to(tenant, name, retain=retain)
        if retain and found.routed_in is None:
            group = self._routes.group_of(tenant, name)
            if self._store.replica(group).state.retained.get(tenant, name) is None:
                self._check_retained(group, tenant)
        return found

    def _check_retained(self, group: RaftGroup, tenant: str) -> None:
        state = self._store.replica(group).state
        if state.retained.count(tenant) >= RETAINED_MAX // len(self._store.home_groups):
            raise KernelError(Code.LIMIT_EXCEEDED, f"a tenant has {RETAINED_MAX} retained messages")
        if self._store.topic_room.stored.is_full(tenant):
            raise KernelError(Code.LIMIT_EXCEEDED, f"tenant {tenant} stores as much as it may")

    def lists_of(
        self, group: RaftGroup, tenant: str, name: str, *, retain: bool
    ) -> Sequence[QueueRef] | None:
        """Reference lists of a group that a name gets into; None: it may not be retained."""
        if self._routes.group_of(tenant, name) != group:
            return ()
        if retain and self._store.replica(group).state.retained.get(tenant, name) is None:
            try:
                self._check_retained(group, tenant)
            except KernelError:
                return None
        return self._routes.lists_of(tenant, name)

    def watch(self, tenant: str, pattern: str, sink: WatchSink, tag: object = None) -> Watch:
        """A live route."""
        return self._routes.watch(tenant, pattern, sink, tag)

    async def watched(self) -> None:
        """Nothing is published elsewhere to live routes of a process that has a store."""

    # --- Retained messages ------------------------------------------------------------------

    async def retained(
        self, tenant: str, pattern: str, messages_max: int
    ) -> Sequence[tuple[int, bytes]]:
        """(age ms, slot) of the retained messages under a pattern."""
        check_pattern(pattern)
        found = [
            (name, replica, kept)
            for group in self._routes.groups_of(tenant, pattern)
            for replica in (self._store.replica(group),)
            for name, kept in retained_in(replica, tenant, pattern, messages_max)
        ]
        if len(found) > messages_max:
            raise too_many(pattern, messages_max)
        found.sort(key=lambda each: each[0])
        messages: list[tuple[int, bytes]] = []
        for name, replica, kept in found:
            slot = await read(self._store, replica, tenant, name, kept)
            if slot:
                messages.append((max(0, replica.log_time_ms() - kept.time_ms), slot))
        return messages

    async def retains(self, tenant: str, patterns: Sequence[str]) -> Sequence[bool]:
        """Whether something may be retained under each pattern."""
        by_group: dict[RaftGroup, list[int]] = {}
        for at, each in enumerate(patterns):
            check_pattern(each)
            for group in self._routes.groups_of(tenant, each):
                by_group.setdefault(group, []).append(at)
        found = [False] * len(patterns)
        for group, places in by_group.items():
            asked = [patterns[at] for at in places]
            for place in await under_which(self._store.replica(group), tenant, asked):
                found[places[place]] = True
        return found

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
        found: list[SubscriberFacts] = []
        for group in self._store.home_groups:
            found += await subscribers_in(self._store.replica(group), tenant, begins, after, limit)
        return sorted(found, key=lambda each: each.name)[:limit]

    async def subscriptions(self, tenant: str, name: str) -> Sequence[SubscriptionFacts]:
        """Of one durable subscriber, with what waits."""
        home = self._store.replica(self._subscribing.home_of(tenant, name))
        readers = readers_of(home, tenant, name)
        if readers is None:
            raise no_subscriber(name)
        counts = WaitingCounts(readers)
        for group, some in counts.asked(self._routes.groups_of).items():
            counts.add(some, waiting_in(self._store.replica(group), some))
        return counts.facts()

    async def forget(self, tenant: str) -> int:
        """A tenant is being removed."""
        return await self._subscribing.forget(tenant)

    def _consumer(
        self, subscriber: HeldSubscriber, session: Session, sink: ConsumerSink
    ) -> SubscriberConsumer:
        return LocalSubscriberConsumer(
            subscriber,
            cast("LocalSession", session),
            sink,
            self._store,
            self._routes.indexes_of,
            self._soon,
        )


async def subscribers_in(
    replica: Replica, tenant: str, begins: str, after: str, limit: int
) -> list[SubscriberFacts]:
    """The first of a group by name. Who comes or goes meanwhile may be missing."""
    names = list(replica.state.subscriber_names)
    found: list[str] = []
    for start in range(0, len(names), STEPS_TOGETHER):
        found += first_names(names[start : start + STEPS_TOGETHER], tenant, begins, after)
        found = heapq.nsmallest(limit, found)
        await asyncio.sleep(0)
    return subscribers_named(replica, tenant, found)


async def under_which(replica: Replica, tenant: str, patterns: Sequence[str]) -> list[int]:
    """Places in `patterns` of those under which a group has something; expired ones count."""
    found: list[int] = []
    steps = 0
    for place, pattern in enumerate(patterns):
        has, more = replica.state.retained.has(tenant, pattern)
        if has:
            found.append(place)
        steps += more
        if steps >= STEPS_TOGETHER:
            steps = 0
            await asyncio.sleep(0)
    return found
