"""What deadlines cost: as much as messages are leased or delayed now, and not since they began."""

from __future__ import annotations

import asyncio
import gc

from kernel.api.client import LeaseChange, LeaseVerb, PurgeTopic, ReceiveSpec
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicInfo
from kernel.broker.delivery.delays import Timekeeper
from kernel.broker.delivery.due_times import SLACK, SWEEP_ENTRIES
from kernel.store.replicas.idle_dispatchers import QUEUE_LOOKS
from tests.simulator.loop import VirtualLoop
from tests.simulator.peer import Draft
from tests.simulator.world import World, simulated

HALF_A_DAY_MS = 12 * 3_600_000
ROUNDS = 400
BATCH = 10
DEADLINES_MAX = 2 * SLACK + SWEEP_ENTRIES


def deadlines() -> int:
    """Deadlines that are kept, in this whole process."""
    gc.collect()
    keepers = [each for each in gc.get_objects() if isinstance(each, Timekeeper)]
    return sum(each.deadline_count for each in keepers)


def timers() -> int:
    """What the event loop has been asked to call at some time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.timers_left


async def lease(world: World, topic: TopicInfo, lease_ms: int) -> list[bytes]:
    spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=BATCH, lease_ms=lease_ms)
    return list((await world.client.receive(spec)).tokens)


@simulated()
async def test_messages_that_are_acked_leave_no_deadline_of_their_lease(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    for _ in range(ROUNDS):
        await peer.publish(topic, *[b"x"] * BATCH)
        changes = [
            LeaseChange(token, LeaseVerb.ACK) for token in await lease(world, topic, HALF_A_DAY_MS)
        ]
        assert len(changes) == BATCH
        await world.client.settle_leases(topic, DEFAULT_GROUP, changes)

    assert ROUNDS * BATCH > DEADLINES_MAX
    assert deadlines() <= DEADLINES_MAX


@simulated()
async def test_a_lease_that_is_extended_for_ever_is_kept_once(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, *[b"x"] * BATCH)
    tokens = await lease(world, topic, 30_000)
    for _ in range(ROUNDS):
        changes = [LeaseChange(each, LeaseVerb.EXTEND, HALF_A_DAY_MS) for each in tokens]
        assert await world.client.settle_leases(topic, DEFAULT_GROUP, changes) == [None] * BATCH
        await asyncio.sleep(0.1)

    assert deadlines() <= DEADLINES_MAX
    changes = [LeaseChange(each, LeaseVerb.EXTEND, 5_000) for each in tokens]
    await world.client.settle_leases(topic, DEFAULT_GROUP, changes)
    spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=BATCH, wait_ms=60_000)
    before_s = asyncio.get_running_loop().time()
    received = await world.client.receive(spec)
    assert received.deliveries is not None
    assert len(received.tokens) == BATCH
    assert 4.9 < asyncio.get_running_loop().time() - before_s < 5.2


@simulated()
async def test_short_leases_beside_long_ones_leave_no_wake_ups_behind(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", group=GroupOptions(attempts_max=None))
    await peer.publish(topic, *[b"x"] * 2 * BATCH)
    await lease(world, topic, HALF_A_DAY_MS)
    counts = []
    for _ in range(50):
        await lease(world, topic, 1_000)
        await asyncio.sleep(2)
        counts.append(timers())

    assert max(counts) <= counts[0] + 2


@simulated()
async def test_a_queue_that_nobody_uses_any_more_is_not_kept_by_a_lease_it_had(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, b"x")
    before = timers()
    (token,) = await lease(world, topic, HALF_A_DAY_MS)
    await world.client.settle_leases(topic, DEFAULT_GROUP, [LeaseChange(token, LeaseVerb.ACK)])
    assert deadlines() == 1
    await asyncio.sleep(QUEUE_LOOKS + 2)

    assert deadlines() == 0
    assert timers() <= before


@simulated()
async def test_delays_that_were_purged_leave_no_deadline(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    for _ in range(ROUNDS):
        await peer.publish(topic, *[Draft(b"x", delay_ms=HALF_A_DAY_MS)] * BATCH)
        await world.client.administer(PurgeTopic(topic.tenant, topic.name, DEFAULT_GROUP))
    peer.attach(topic, credit=1)
    await peer.publish(topic, Draft(b"y", delay_ms=HALF_A_DAY_MS))

    assert deadlines() <= DEADLINES_MAX
