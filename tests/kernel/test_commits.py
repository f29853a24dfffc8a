"""How many writes and syncs what clients do costs."""

from __future__ import annotations

import asyncio

import pytest

from kernel.api.client import Settlement
from kernel.common.limits import SETTLE_DELAY_MS
from tests.simulator.world import WRITER, World, simulated


@simulated()
async def test_acks_ride_along_with_publishes_and_start_no_write_of_their_own(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    recorder = peer.attach(topic, credit=1_000)
    await peer.publish(topic, b"first")
    await recorder.wait_for(1)
    await asyncio.sleep(1)
    before = world.opened.store.commits
    for number in range(100):
        await peer.publish(topic, b"%d" % number)
        await recorder.wait_for(number + 2)
        recorder.settle_now(Settlement.ACK, number + 1)
        await asyncio.sleep(SETTLE_DELAY_MS / 4000)
    assert world.opened.store.commits - before == 100


@simulated()
async def test_acks_without_publishes_are_on_disk_after_the_settle_delay(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    recorder = peer.attach(topic, credit=1_000)
    await peer.publish(topic, *[b"x"] * 10)
    await recorder.wait_for(10)
    await asyncio.sleep(1)
    before = world.opened.store.commits
    for offset in range(10):
        recorder.settle_now(Settlement.ACK, offset)
    await asyncio.sleep(2 * SETTLE_DELAY_MS / 1000)
    assert world.opened.store.commits - before == 1
    await world.crash()
    assert world.figures(topic, "default").ready == 0


@simulated()
async def test_much_that_comes_during_a_write_is_made_ready_for_the_next_little_is_gathered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel.store.node.AHEAD_BYTES", 10_000)
    peer = world.peer()
    topic = await peer.topic("work")
    store = world.opened.store
    world.workers.hold(WRITER)
    answers = [asyncio.ensure_future(peer.publish(topic, b"in flight"))]
    await asyncio.sleep(0.01)
    for body in (b"little", b"some more", bytes(10_000)):
        assert not store.journal.pending_records
        answers.append(asyncio.ensure_future(peer.publish(topic, body)))
        await asyncio.sleep(0.01)
    assert store.journal.pending_records == 1, "one entry of all that came during the write"
    before = store.commits
    world.workers.release(WRITER)
    await asyncio.gather(*answers)
    assert store.commits - before == 2
    recorder = peer.attach(topic, credit=10)
    assert len(await recorder.wait_for(4)) == 4
