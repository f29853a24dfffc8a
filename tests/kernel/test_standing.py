"""What has become of a message for a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.api.client import LeaseChange, LeaseVerb, ReceiveSpec
from kernel.api.model import DEFAULT_GROUP, Standing
from kernel.common.ids import Offset
from tests.simulator.world import World, simulated

if TYPE_CHECKING:
    from kernel.api.model import MessageStanding, TopicInfo


async def standing(world: World, topic: TopicInfo, offset: int) -> MessageStanding:
    found = await world.client.standing(topic, 0, DEFAULT_GROUP, Offset(offset))
    assert found is not None
    return found


@simulated()
async def test_a_message_waits_is_leased_fails_and_is_done_with(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, b"first", b"second")
    assert (await standing(world, topic, 0)).state is Standing.WAITING
    assert (await standing(world, topic, 2)).state is Standing.GONE

    spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=1, lease_ms=30_000)
    (token,) = (await world.client.receive(spec)).tokens
    leased = await standing(world, topic, 0)
    assert (leased.state, leased.failures) == (Standing.LEASED, 0)
    assert leased.until_ms is not None
    assert 29_000 < leased.until_ms - world.clock.wall_ms() <= 30_000
    assert (await standing(world, topic, 1)).state is Standing.WAITING

    change = LeaseChange(token, LeaseVerb.RETURN, 60_000)
    await world.client.settle_leases(topic, DEFAULT_GROUP, [change])
    delayed = await standing(world, topic, 0)
    assert delayed.state is Standing.DELAYED
    assert delayed.until_ms is not None

    (token,) = (await world.client.receive(spec)).tokens
    ack = LeaseChange(token, LeaseVerb.ACK)
    await world.client.settle_leases(topic, DEFAULT_GROUP, [ack])
    # Above the floor: its predecessor is not done with.
    assert (await standing(world, topic, 1)).state is Standing.DONE
    assert (await standing(world, topic, 0)).state is Standing.DELAYED
    assert world.figures(topic).message is None


@simulated()
async def test_what_a_consumer_holds_is_held_until_it_leaves(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, b"first", b"second")
    consumer = peer.attach(topic, credit=1)
    await consumer.wait_for(1)
    assert (await standing(world, topic, 0)).state is Standing.HELD
    assert (await standing(world, topic, 1)).state is Standing.WAITING
    peer.close()
    await world.settle_down()
    back = await standing(world, topic, 0)
    assert (back.state, back.failures) == (Standing.WAITING, 1)
