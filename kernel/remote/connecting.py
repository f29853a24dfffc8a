"""How a process without a store becomes one that can serve: it finds the cluster, then learns."""

from __future__ import annotations

import asyncio

from ..common.ids import METADATA_GROUP, RaftGroup
from ..common.ports import Clock, Random
from .client import ClusterClient
from .leader_calls.leaders import RemoteLeaders
from .mesh.meeting import MeetingPoint


async def connect(
    leaders: RemoteLeaders, clock: Clock, random: Random, meeting: MeetingPoint | None = None
) -> ClusterClient:
    """Dial the stores; a client, once one of them has told which groups there are and who leads
    them, and these have told what is defined. Waits as long as that takes: cancel it when it is no
    longer wanted.
    """
    news = asyncio.Event()
    leaders.watch(lambda _group: news.set())
    leaders.start()
    try:
        while not leaders.knows_all:
            news.clear()
            await news.wait()
        groups = [RaftGroup(each) for each in leaders.table.groups if each != METADATA_GROUP]
        client = ClusterClient(leaders, groups, clock, random, meeting)
        await client.start()
    except BaseException:
        await leaders.stop()
        raise
    return client
