"""Three stores of which each leads some of the groups, and a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from kernel.api.changes import PutTopic
from kernel.api.client import Client
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, GroupOptions, TopicOptions
from kernel.common.errors import KernelError
from kernel.common.ids import RaftGroup
from kernel.common.placement import home_group
from kernel.raft.members.configuration import REMOVE, Change, ConfigurationChange
from kernel.remote.client import ClusterClient
from tests.kernel.remote.cluster import gateway_of, running_stores
from tests.kernel.three_stores import Node, leader_of

T = DEFAULT_TENANT
GROUPS = {DEFAULT_GROUP: GroupOptions()}
DATA_GROUPS = 3

Spread = tuple[list[Node], ClusterClient]


async def lead(nodes: list[Node], group: RaftGroup, number: int) -> None:
    """Have a store lead a group."""
    node = next(each for each in nodes if each.number == number)
    while not node.serves(group):
        leader = leader_of(nodes, group)
        if leader is not None and leader is not node:
            try:
                leader.opened.store.consensus.transfer(group, number)
            except KernelError:
                continue
        await asyncio.sleep(0.02)


async def spread(nodes: list[Node]) -> None:
    """Each data group is led by another store."""
    for group in range(1, DATA_GROUPS + 1):
        await lead(nodes, RaftGroup(group), (group - 1) % len(nodes) + 1)


async def thin_out(nodes: list[Node]) -> None:
    """Each data group leaves one of three stores, not the one that leads it."""
    for group in map(RaftGroup, range(1, DATA_GROUPS + 1)):
        leader, gone = leader_of(nodes, group), nodes[group % len(nodes)]
        assert leader is not None
        assert leader is not gone
        change = ConfigurationChange((Change(REMOVE, gone.number),))
        leader.opened.store.consensus.change_members(group, change)
        while gone.opened.store.holds(group):
            await asyncio.sleep(0.01)


@asynccontextmanager
async def spread_cluster(path: Path, *, thin: bool = False) -> AsyncIterator[Spread]:
    """`thin`: no store has a replica of every group."""
    async with running_stores(path, 3, DATA_GROUPS) as nodes:
        await spread(nodes)
        if thin:
            await thin_out(nodes)
        async with gateway_of(nodes) as client:
            yield nodes, client


def put_topic(name: str, queues: int = 1, **options: object) -> PutTopic:
    wanted = TopicOptions(queues=queues, **options)  # type: ignore[arg-type]
    return PutTopic(T, name, wanted, GROUPS)


def name_in(group: RaftGroup, what: str = "n") -> str:
    """A name whose home is that group."""
    groups = [RaftGroup(each) for each in range(1, DATA_GROUPS + 1)]
    names = (f"{what}{number}" for number in range(1_000))
    return next(each for each in names if home_group(groups, T, each) == group)


def names(what: str) -> list[str]:
    """One name at home in each group."""
    return [name_in(RaftGroup(each), what) for each in range(1, DATA_GROUPS + 1)]


def clients(cluster: Spread) -> list[Client]:
    """The gateway, and the stores' own clients."""
    nodes, client = cluster
    found = [client, *(node.opened.client for node in nodes if node.runs)]
    return [cast("Client", each) for each in found]
