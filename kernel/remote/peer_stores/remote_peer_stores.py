"""The other stores of a cluster, as the client of a store asks them: `peer_stores.PeerStores` over
the
connections that a gateway has as well (`leaders`).

Durability: what returns here has been answered by a leader from the apply of entries that a
majority has fdatasynced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from ...api.changes import Administration
from ...common.errors import Code, KernelError
from ...common.ids import RaftGroup, TopicId
from ...common.ports import Clock, Random
from ...in_process.opening import LocalStore
from ...requests.leader import Identity, Leader
from ...requests.peer_stores import (
    Gone,
    KeysAnswer,
    KeysQuestion,
    ListReader,
    Moved,
    MoveStep,
    TopicPart,
    TopicUse,
    Used,
)
from ...requests.request_pipeline import RequestPipeline
from ...store.leading.stored_room import Sums
from ..definitions.administering import Administering
from ..leader_calls.call_wire import decode
from ..leader_calls.leaders import RemoteLeaders
from . import peer_stores_wire
from .followed_groups import FollowedGroups
from .keys_service import ask_keys
from .mixed_link import MixedLink
from .stored_elsewhere import StoredElsewhere

_T = TypeVar("_T")

REACHED_SECONDS = 10.0
"""A replica that is so long behind has a snapshot to fetch, or a sick disk; a feed has nobody to
come from. What waits for it fails with UNAVAILABLE."""


class RemotePeerStores:
    """Asks the other stores of the cluster over their connections."""

    def __init__(
        self, local: LocalStore, leaders: RemoteLeaders, clock: Clock, random: Random
    ) -> None:
        """`leaders`: of connections to all stores, this one may be among them."""
        loop = asyncio.get_running_loop()
        self._store = local.store
        self._leaders = leaders
        self._followed = FollowedGroups(local, leaders)
        self._stored_elsewhere = StoredElsewhere(local, self.stored)
        self.request_pipeline = RequestPipeline(
            MixedLink(local.store, leaders.leader, loop.call_soon), clock, loop
        )
        self.send = self.request_pipeline.send
        groups, topics = local.store.home_groups, local.client.topology.topics
        self._administering = Administering(
            leaders,
            self.reached,
            groups,
            random.bits(63) | 1,
            lambda topic: topics.get((topic.tenant, topic.name)),
        )

    def leader(self, group: RaftGroup) -> Leader:
        """The leader of a group, in another store."""
        return self._leaders.leader(group)

    def next_identity(self) -> Identity:
        """Under which a change of this store is made once."""
        return self._administering.next_identity()

    async def administer(self, change: Administration, identity: Identity | None = None) -> object:
        """Make a change at the leader that decides it."""
        return await self._administering.administer(change, identity)

    # --- How far others are -----------------------------------------------------------------

    async def level(self, groups: Iterable[RaftGroup]) -> None:
        """Show what these groups have committed by now."""
        elsewhere = [each for each in groups if self._store.serving(each) is None]
        try:
            async with asyncio.timeout(REACHED_SECONDS):
                await asyncio.gather(*map(self._level, elsewhere))
        except TimeoutError:
            raise _behind() from None

    async def _level(self, group: RaftGroup) -> None:
        if self._store.holds(group):
            await self._store.consensus.awaited.level(group)
        else:
            await self._reached(group, await self.defined(group))

    async def reached(self, indexes: Mapping[RaftGroup, int]) -> None:
        """Return once look-ups show so much."""
        known = self._store.groups
        try:
            async with asyncio.timeout(REACHED_SECONDS):
                for group, index in indexes.items():
                    if group in known:
                        await self._reached(group, index)
        except TimeoutError:
            raise _behind() from None

    async def _reached(self, group: RaftGroup, index: int) -> None:
        if not self._store.holds(group):
            await self._followed.reached({group: index})
        if self._store.holds(group):  # it may have become so meanwhile
            await self._store.consensus.awaited.reached(group, index)

    async def defined(self, group: RaftGroup) -> int:
        """Index of the last entry that has changed a definition of a group."""
        return await self._ask(
            peer_stores_wire.DEFINED, peer_stores_wire.Defined(group), peer_stores_wire.number
        )

    # --- What only a leader can do ----------------------------------------------------------

    async def parts(self, group: RaftGroup, homes: Collection[RaftGroup]) -> Sequence[TopicPart]:
        """What a group has of topics that are defined in others."""
        found: list[TopicPart] = []
        page = None
        while page is None or page:
            after = found[-1].id if found else 0
            question = peer_stores_wire.Parts(group, sorted(homes), after)
            page = await self._ask(peer_stores_wire.PARTS, question, peer_stores_wire.parts)
            found += [
                TopicPart(TopicId(ident), tenant, name, groups)
                for ident, tenant, name, groups in page
            ]
        return found

    async def stored(self, group: RaftGroup) -> Sums:
        """(messages, bytes) that a group holds, by tenant."""
        question = peer_stores_wire.StoredSums(group)
        found = await self._ask(peer_stores_wire.STORED, question, peer_stores_wire.stored)
        return {tenant: (messages, size) for tenant, messages, size in found}

    async def used(self, group: RaftGroup, topics: Collection[TopicId]) -> Used:
        """What a group has stored of topics so far."""
        question = peer_stores_wire.UsedOf(group, list(topics))
        found = await self._ask(peer_stores_wire.USED, question, peer_stores_wire.used)
        return {TopicId(ident): TopicUse(size, tails) for ident, size, tails in found}

    async def clear(self, group: RaftGroup, gone: Gone) -> Mapping[RaftGroup, int]:
        """Have the routes to something that is gone removed from the routers of a group."""
        question = peer_stores_wire.Clear(
            group, gone.tenant, gone.kind, gone.name, gone.home, gone.index
        )
        found = await self._ask(peer_stores_wire.CLEAR, question, peer_stores_wire.cleared)
        return {RaftGroup(each): index for each, index in found.items()}

    async def wanted(self, home: RaftGroup, readers: Collection[ListReader]) -> set[ListReader]:
        """Which readers of lists the subscribers of a home want."""
        question = peer_stores_wire.WantedOf(home, list(readers))
        found = await self._ask(peer_stores_wire.WANTED, question, peer_stores_wire.wanted)
        return set(found)

    async def unsettled_keys(self, group: RaftGroup, question: KeysQuestion) -> KeysAnswer:
        """What the leader of a sealed queue says of its keys."""
        return await ask_keys(self._leaders, group, question)

    async def idle_ms(self, group: RaftGroup, topic: TopicId) -> int:
        """How long nobody has used the queues that a topic has in a group."""
        return await self._ask(
            peer_stores_wire.IDLE, peer_stores_wire.Idle(group, topic), peer_stores_wire.number
        )

    async def move(self, group: RaftGroup, step: MoveStep) -> Moved:
        """Have messages moved from a queue."""
        question = peer_stores_wire.LeaderMove(
            group=group,
            tenant=step.tenant,
            queue=step.queue,
            name=step.group,
            destination=step.destination,
            count=step.count,
            back_to=step.back_to,
        )
        node = self._leaders.table.of(group)
        moved = partial(decode, peer_stores_wire.moved)
        return Moved(
            *await self._leaders.ask_node(
                node, peer_stores_wire.MOVE, peer_stores_wire.encode(question), moved
            )
        )

    async def _ask(
        self, method: int, question: peer_stores_wire.Question, answers: msgspec.msgpack.Decoder[_T]
    ) -> _T:
        group, parts = RaftGroup(question.group), peer_stores_wire.encode(question)
        return await self._leaders.ask(group, method, parts, partial(decode, answers))


def _behind() -> KernelError:
    return KernelError(Code.UNAVAILABLE, "this store is behind the leaders of the cluster")
