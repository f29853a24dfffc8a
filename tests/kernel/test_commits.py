"""How many writes and syncs what clients do costs."""

from __future__ import annotations

import asyncio

from kernel.client import Settlement
from kernel.limits import SETTLE_DELAY_MS
from tests.simulator.world import World, simulated


@simulated()
async def test_acks_ride_along_with_publishes_and_start_no_write_of_their_own(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    taker = peer.attach(topic, credit=1_000)
    await peer.publish(topic, b"first")
    await taker.wait_for(1)
    await asyncio.sleep(1)
    before = world.opened.store.commits
    for number in range(100):
        await peer.publish(topic, b"%d" % number)
        await taker.wait_for(number + 2)
        taker.settle_now(Settlement.ACK, number + 1)
        await asyncio.sleep(SETTLE_DELAY_MS / 4000)
    assert world.opened.store.commits - before == 100


@simulated()
async def test_acks_without_publishes_are_on_disk_after_the_settle_delay(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    taker = peer.attach(topic, credit=1_000)
    await peer.publish(topic, *[b"x"] * 10)
    await taker.wait_for(10)
    await asyncio.sleep(1)
    before = world.opened.store.commits
    for offset in range(10):
        taker.settle_now(Settlement.ACK, offset)
    await asyncio.sleep(2 * SETTLE_DELAY_MS / 1000)
    assert world.opened.store.commits - before == 1
    await world.crash()
    assert world.figures(topic, "default").ready == 0
