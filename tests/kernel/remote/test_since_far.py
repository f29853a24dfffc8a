"""Finding where a time begins in a queue, from gateways without a store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernel.api.model import DEFAULT_GROUP, MessageStanding, Standing, TopicInfo, TopicOptions
from kernel.common.errors import Code, KernelError
from kernel.common.ids import Offset
from kernel.remote.client import ClusterClient
from tests.kernel.remote.cluster import Pair, gateway_of, running_stores, serving
from tests.kernel.remote.gateway import GROUP
from tests.kernel.remote.local import peer_of
from tests.kernel.three_stores import CLOCK, until
from tests.simulator.peer import Peer

APART_SECONDS = 0.03
FAR_MS = 1 << 70


async def marks(peer: Peer, topic: TopicInfo, batches: int) -> list[int]:
    """Publish two messages a batch; a time before each batch and one behind the last."""
    times = []
    for _ in range(batches):
        times.append(CLOCK.wall_ms())
        await asyncio.sleep(APART_SECONDS)
        await peer.publish(topic, b"1", b"2")
        await asyncio.sleep(APART_SECONDS)
    return [*times, CLOCK.wall_ms()]


async def found(client: ClusterClient, topic: TopicInfo, times: list[int]) -> list[int]:
    return [await client.offset_since(topic, 0, each) for each in times]


async def test_every_replica_answers_alike_once_it_leads(tmp_path: Path) -> None:
    async with running_stores(tmp_path, 3, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        topic = await peer.topic("work")
        assert await found(client, topic, [-1, 0, FAR_MS]) == [0, 0, 0]
        times = await marks(peer, topic, 3)
        expected = [0, 2, 4, 6]
        assert await found(client, topic, times) == expected
        assert await found(client, topic, [-FAR_MS, 0, FAR_MS]) == [0, 0, 6]
        standing = await client.standing(topic, 0, DEFAULT_GROUP, Offset(2))
        assert standing == MessageStanding(Standing.WAITING)
        leader = await serving(nodes, GROUP)
        assert await leader.opened.client.offset_since(topic, 0, times[1]) == 2
        await leader.kill()
        assert await found(client, topic, times) == expected
        later = await marks(peer, topic, 1)
        assert await found(client, topic, [*times, *later]) == [*expected, 6, 8]


async def test_what_lives_in_memory_answers_at_home_and_is_refused_elsewhere(pair: Pair) -> None:
    _, one, other = pair
    peer = peer_of(one)
    topic = await peer.topic("v", TopicOptions(durable=False))
    times = await marks(peer, topic, 2)
    assert await found(one, topic, times) == [0, 2, 4]
    await until(lambda: other.topic("default", "v"))
    remote_memory = other.topic("default", "v")
    assert remote_memory is not None
    with pytest.raises(KernelError) as failure:
        await other.offset_since(remote_memory, 0, times[0])
    assert failure.value.code is Code.NOT_ALLOWED
