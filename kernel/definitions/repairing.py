"""Mends what is left of changes that were never finished: by the leader of the group that decided
them, when it begins, before it changes anything else there, and once more a little later.

    a topic's queues in other groups   whose topic was never defined, or is deleted: deleted, with
                                       what was told there of its windows
    groups of a topic elsewhere        that its definition does not know: deleted
    routes                             whose end is gone: deleted

What the last leader had sent may still arrive, up to its deadline: therefore the second look.

A group that was added holds queues only. If it has no leader, changes elsewhere do not wait for it
(but for the time in which that shows): what is left there belongs to no topic that can be found,
and goes at a later look. Of a group that names have their home in routes may lead to what is gone;
changes wait until these are known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from ..broker.log_commands import commands
from ..common.errors import Code, KernelError
from ..common.ids import RaftGroup, home_of
from ..common.keyed_lock import KeyedLock
from ..common.placement import home_group
from ..requests.peer_stores import Kind, TopicPart
from ..requests.proposer import Proposer
from ..routing.topology import Topology
from ..store.node import Store
from ..store.replicas.replica import Replica
from .clearing import Clearing
from .definer import end_of

SLICE = 1_000
"""Topics looked at in one turn of the loop: some 0.3 ms."""


class Repairing:
    """Finishes or undoes changes of definitions that were left half done."""

    def __init__(
        self,
        store: Store,
        topology: Topology,
        proposer: Proposer,
        keyed_lock: KeyedLock,
        clearing: Clearing,
    ) -> None:
        self._store = store
        self._topology = topology
        self._propose = proposer.propose
        self._keyed_lock = keyed_lock
        self._clearing = clearing

    async def repair(self, groups: Collection[RaftGroup]) -> bool:
        """Mend what changes that these groups decide have left; whether to look again, since of an
        added group nobody knows. Raises KernelError: it has to be begun again.
        """
        homes = self._store.home_groups
        peer_stores = self._clearing.peer_stores
        if peer_stores is not None:
            await peer_stores.level(homes)
        for group in homes:
            await self._mend_group(group, groups)
        await self._clear_dangling(groups)
        added = [each for each in self._store.data_groups if each not in homes]
        looks = (self._mend_added(each, groups) for each in added)
        return not all(await asyncio.gather(*looks))

    async def _mend_added(self, group: RaftGroup, groups: Collection[RaftGroup]) -> bool:
        """The same in a group that holds queues only; whether that is done."""
        peer_stores = self._clearing.peer_stores
        try:
            if peer_stores is not None:
                await peer_stores.level([group])
            await self._mend_group(group, groups)
        except KernelError:
            return False
        return True

    async def _mend_group(self, group: RaftGroup, groups: Collection[RaftGroup]) -> None:
        peer_stores = self._clearing.peer_stores
        if peer_stores is None or self._store.holds(group):
            await self._mend_queues(self._store.replica(group), groups)
            return
        for part in await peer_stores.parts(group, groups):
            await self._mend(group, part)

    async def _mend_queues(self, replica: Replica, groups: Collection[RaftGroup]) -> None:
        for number, ident in enumerate(list(replica.state.topics)):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            topic = replica.state.topics.get(ident) if home_of(ident) in groups else None
            if topic is not None:
                part = TopicPart(ident, topic.tenant, topic.name, topic.groups.keys())
                await self._mend(replica.group, part)
        for ident in replica.state.only_windows():
            if home_of(ident) in groups:
                await self._mend(replica.group, TopicPart(ident, "", "", ()))

    async def _mend(self, group: RaftGroup, part: TopicPart) -> None:
        if self._excess(part):
            async with self._keyed_lock.of((part.tenant, part.name)):
                for command in self._excess(part):
                    await self._propose(group, command)

    def _excess(self, part: TopicPart) -> list[commands.Control]:
        """What removes that part of a topic in a group which its definition does not know; of what
        is gone meanwhile, nothing. Raises KernelError NOT_LEADER: the definition may be another.
        """
        home = home_of(part.id)
        if self._store.serving(home) is None:
            raise KernelError(Code.NOT_LEADER, f"this node does not serve group {home}")
        known = self._store.replica(home).state.topics.get(part.id)
        if known is None:
            return [commands.DeleteTopic(part.id)]
        return [
            commands.DeleteGroup(part.id, name)
            for name in sorted(set(part.groups) - known.groups.keys())
        ]

    async def _clear_dangling(self, groups: Collection[RaftGroup]) -> None:
        """Of each route the group of its router is asked, and that of its end."""
        found: dict[tuple[str, Kind, str], None] = {}
        for tenant, router, route in self._topology.dangling():
            kind, name = end_of(route)
            homes = (home_group(self._store.home_groups, tenant, each) for each in (router, name))
            if not set(groups).isdisjoint(homes):
                found[tenant, kind, name] = None
        for each in found:
            await self._clearing.everywhere(*each, {})
