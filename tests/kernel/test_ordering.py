"""Ordered groups: one key's messages in order, one holder at a time, across crashes too."""

from __future__ import annotations

import asyncio

import pytest

from kernel.client import PurgeTopic, ReceiveSpec, Settlement
from kernel.model import DEFAULT_GROUP, DEFAULT_TENANT, GroupOptions, TopicOptions
from tests.simulator.peer import Draft
from tests.simulator.world import WRITER, World, simulated

ORDERED = GroupOptions(ordered=True)
STALL_S = 0.5
BOTH = pytest.mark.parametrize("durable", [True, False], ids=["durable", "volatile"])


def of_key(*bodies: bytes, key: bytes = b"k") -> list[Draft]:
    return [Draft(body, key=key) for body in bodies]


@pytest.mark.parametrize("how", [Settlement.ACK, Settlement.DEAD_LETTER])
@simulated()
async def test_a_key_is_free_once_the_settlement_is_on_disk_and_not_before(
    world: World, how: Settlement
) -> None:
    """Otherwise a crash in between hands out 2 again before 1, which its ack had not outlived."""
    peer = world.peer()
    topic = await peer.topic("work", None, ORDERED)
    await peer.publish(topic, *of_key(b"1", b"2"))
    first, second = peer.attach(topic, credit=1), peer.attach(topic, credit=1)
    await asyncio.sleep(0.1)
    holder, other = (first, second) if first.got else (second, first)
    await world.settle_down()
    world.workers.delay_s[WRITER] = STALL_S
    holder.settle_now(how, 0)
    await asyncio.sleep(STALL_S - 0.01)
    assert (holder.bodies, other.bodies) == ([b"1"], [])
    await other.wait_for(1)
    assert other.bodies == [b"2"]


@simulated()
async def test_after_a_crash_a_key_goes_on_with_what_was_not_acked(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", None, ORDERED)
    await peer.publish(topic, *of_key(b"1", b"2", b"3"))
    taker = peer.attach(topic, credit=1)
    await taker.wait_for(1)
    world.workers.hold(WRITER)
    taker.settle_now(Settlement.ACK, 0)
    taker.grant(2)
    await asyncio.sleep(1)
    seen = taker.bodies
    await world.crash()
    again = world.peer().attach(topic, credit=3)
    await again.wait_for(1)
    assert (seen, again.bodies[0]) == ([b"1"], b"1")


@simulated()
async def test_the_last_attempt_keeps_its_key_until_the_dead_letter_is_on_disk(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", None, GroupOptions(ordered=True, attempts_max=1))
    await peer.publish(topic, *of_key(b"1", b"2"))
    taker = peer.attach(topic, credit=1)
    await taker.wait_for(1)
    await world.settle_down()
    world.workers.delay_s[WRITER] = STALL_S
    taker.settle_now(Settlement.RELEASE, 0)
    taker.grant(1)
    await asyncio.sleep(STALL_S - 0.01)
    assert taker.bodies == [b"1"]
    await taker.wait_for(2)


@BOTH
@simulated()
async def test_many_keys_are_settled_in_any_order(world: World, durable: bool) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(durable=durable), ORDERED)
    for number in range(3):
        await peer.publish(topic, *[Draft(b"%d" % number, key=b"%d" % key) for key in range(40)])
    taker = peer.attach(topic, credit=40)
    for number in range(3):
        got = (await taker.wait_for(40 * (number + 1)))[40 * number :]
        assert {each.body for each in got} == {b"%d" % number}
        for each in reversed(got):
            taker.settle_now(Settlement.ACK, each)
        taker.grant(40)
    await asyncio.sleep(0.1)
    assert world.figures(topic, DEFAULT_GROUP).ready == 0


@BOTH
@simulated()
async def test_a_purge_of_what_is_in_flight_frees_the_key(world: World, durable: bool) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(durable=durable), ORDERED)
    await peer.publish(topic, *of_key(b"1", b"2"))
    spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=1, lease_ms=60_000)
    assert len((await world.client.receive(spec)).tokens) == 1
    await world.client.administer(PurgeTopic(DEFAULT_TENANT, "work", DEFAULT_GROUP, in_flight=True))
    await peer.publish(topic, *of_key(b"3"))
    got = await world.client.receive(spec)
    assert got.deliveries is not None
    assert list(got.deliveries.offsets) == [2]
