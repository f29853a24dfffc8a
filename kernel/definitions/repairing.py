"""Mends what is left of changes that were never finished: by the leader of the group that decided
them, when it begins, before it changes anything else there, and once more a little later.

    a topic's queues in other groups   whose topic was never defined, or is deleted: deleted
    groups of a topic elsewhere        that its definition does not know: deleted
    routes                             whose end is gone: deleted

What the last leader had sent may still arrive, up to its deadline: therefore the second look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from ..broker.log_commands import commands
from ..common.ids import TRANSIENT_GROUP, RaftGroup, TopicId, home_of
from ..common.keyed_lock import KeyedLock
from ..common.placement import home_group
from ..requests.peer_stores import Kind
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

    async def repair(self, groups: Collection[RaftGroup]) -> None:
        """Mend what changes that these groups decide have left. Raises KernelError: it has to be
        begun again.
        """
        peer_stores = self._clearing.peer_stores
        if peer_stores is not None:
            await peer_stores.level(self._store.data_groups)
        for replica in self._store.replicas():
            if replica.group != TRANSIENT_GROUP:
                await self._mend_queues(replica, groups)
        await self._clear_dangling(groups)

    async def _mend_queues(self, replica: Replica, groups: Collection[RaftGroup]) -> None:
        for number, ident in enumerate(list(replica.state.topics)):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            if home_of(ident) not in groups or not self._excess(replica, ident):
                continue
            topic = replica.state.topics.get(ident)
            if topic is not None:
                async with self._keyed_lock.of((topic.tenant, topic.name)):
                    for command in self._excess(replica, ident):
                        await self._propose(replica.group, command)

    def _excess(self, replica: Replica, ident: TopicId) -> list[commands.Control]:
        """What removes that part of a topic in a group which its definition does not know."""
        topic = replica.state.topics.get(ident)
        if topic is None:
            return []
        home = self._store.replica(home_of(ident)).state.topics.get(ident)
        if home is None:
            return [commands.DeleteTopic(ident)]
        return [
            commands.DeleteGroup(ident, name)
            for name in sorted(topic.groups.keys() - home.groups.keys())
        ]

    async def _clear_dangling(self, groups: Collection[RaftGroup]) -> None:
        """Of each route the group of its router is asked, and that of its end."""
        found: dict[tuple[str, Kind, str], None] = {}
        for tenant, router, route in self._topology.dangling():
            kind, name = end_of(route)
            homes = (home_group(self._store.data_groups, tenant, each) for each in (router, name))
            if not set(groups).isdisjoint(homes):
                found[tenant, kind, name] = None
        for each in found:
            await self._clearing.everywhere(*each, {})
