"""Single receives: when they end, and with what."""

from __future__ import annotations

import asyncio

import pytest

from kernel.client import Received, ReceiveSpec
from kernel.model import DEFAULT_GROUP, GroupOptions, TopicOptions
from tests.simulator.world import World, simulated

VOLATILE = TopicOptions(durable=False)
BOTH = pytest.mark.parametrize("options", [TopicOptions(), VOLATILE], ids=["durable", "volatile"])


def _offsets(received: Received) -> list[int]:
    return list(received.deliveries.offsets) if received.deliveries is not None else []


@BOTH
@simulated()
async def test_a_pull_ends_at_its_time_although_messages_are_ready_that_it_may_not_have(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options, GroupOptions(in_flight_max=1))
    taker = peer.attach(topic, credit=1, priority=1)
    spec = ReceiveSpec(topic, DEFAULT_GROUP, wait_ms=1_000, lease_ms=60_000)
    pull = asyncio.create_task(world.client.receive(spec))
    await asyncio.sleep(0.1)
    await peer.publish(topic, b"1", b"2")
    await taker.wait_for(1)
    async with asyncio.timeout(1.5):
        assert (await pull).deliveries is None
    found = world.figures(topic, DEFAULT_GROUP)
    assert (found.ready, found.leased) == (1, 1)


@pytest.mark.parametrize("lease_ms", [None, 60_000], ids=["session", "timed"])
@simulated()
async def test_a_pull_that_does_not_wait_brings_what_must_be_read_from_disk_first(
    world: World, lease_ms: int | None
) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, b"1")
    await world.restart()
    peer = world.peer()
    session = peer.session if lease_ms is None else None
    spec = ReceiveSpec(topic, DEFAULT_GROUP, session=session, lease_ms=lease_ms)
    assert _offsets(await world.client.receive(spec)) == [0]
    assert _offsets(await world.client.receive(spec)) == []
