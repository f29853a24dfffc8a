"""What time does to messages: expiry and its dead letters, with the log clock in between."""

from __future__ import annotations

import asyncio

import pytest

from kernel.api.client import Settlement
from kernel.api.model import DEFAULT_GROUP, DeadLetter, GroupOptions, TopicInfo, TopicOptions
from tests.simulator.peer import Draft
from tests.simulator.world import World, simulated

BOTH = pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])


def ready(world: World, topic: TopicInfo) -> int:
    return world.figures(topic, DEFAULT_GROUP).ready


@BOTH
@simulated()
async def test_a_topics_ttl_drops_messages_without_any_consumer(
    world: World, durable: bool
) -> None:
    peer = world.peer()
    topic = await peer.topic("fading", TopicOptions(durable=durable, message_ttl_ms=1_000))
    await peer.publish(topic, b"1")
    await asyncio.sleep(0.5)
    await peer.publish(topic, b"2")
    assert ready(world, topic) == 2
    await asyncio.sleep(0.6)
    assert ready(world, topic) == 1
    await asyncio.sleep(0.5)
    assert ready(world, topic) == 0


@BOTH
@simulated()
async def test_a_ttl_in_front_of_a_plain_message_still_runs_out(
    world: World, durable: bool
) -> None:
    peer = world.peer()
    dead = await peer.topic("dead")
    topic = await peer.topic(
        "work",
        TopicOptions(durable=durable),
        GroupOptions(dead_letter=DeadLetter(None, "dead")),
    )
    await peer.publish(topic, Draft(b"brief", ttl_ms=1_000), b"plain")
    await asyncio.sleep(2)
    assert (ready(world, topic), ready(world, dead)) == (1, 1)


@BOTH
@pytest.mark.parametrize("offset_ms", [-60_000, 60_000], ids=["behind", "ahead"])
@simulated()
async def test_messages_expire_also_while_log_time_is_slewed(
    world: World, durable: bool, offset_ms: int
) -> None:
    """With the wall clock behind, log time is later than the timer that was asked for."""
    peer = world.peer()
    topic = await peer.topic("fading", TopicOptions(durable=durable, message_ttl_ms=1_000))
    world.clock.wall_offset_ms = offset_ms
    await peer.publish(topic, b"1")
    await asyncio.sleep(0.9)
    assert ready(world, topic) == 1
    await asyncio.sleep(0.3)
    assert ready(world, topic) == 0


@simulated()
async def test_the_shorter_of_two_ttls_counts(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("fading", TopicOptions(message_ttl_ms=2_000))
    await peer.publish(topic, Draft(b"short", ttl_ms=500))
    await peer.publish(topic, Draft(b"long", ttl_ms=10_000))
    await asyncio.sleep(1)
    assert ready(world, topic) == 1
    await asyncio.sleep(1.5)
    assert ready(world, topic) == 0


@BOTH
@simulated()
async def test_an_expired_message_behind_others_is_never_delivered(
    world: World, durable: bool
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(durable=durable))
    await peer.publish(topic, b"first", Draft(b"brief", ttl_ms=1_000), b"last")
    await asyncio.sleep(2)
    recorder = peer.attach(topic, credit=5)
    await recorder.wait_for(2)
    await asyncio.sleep(1)
    assert recorder.bodies == [b"first", b"last"]


@simulated()
async def test_what_is_held_does_not_expire(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(message_ttl_ms=1_000))
    await peer.publish(topic, b"1", b"2")
    recorder = peer.attach(topic, credit=2)
    await recorder.wait_for(2)
    await asyncio.sleep(5)
    assert await recorder.ack(0) == {}
    await recorder.settle(Settlement.RELEASE, 1)
    await asyncio.sleep(0.1)
    assert ready(world, topic) == 0
    assert len(recorder.got) == 2


@simulated()
async def test_ttls_hold_over_a_restart(world: World) -> None:
    peer = world.peer()
    await peer.topic("dead")
    topic = await peer.topic("work", group=GroupOptions(dead_letter=DeadLetter(None, "dead")))
    await peer.publish(topic, Draft(b"brief", ttl_ms=10_000), b"plain")
    await world.crash()
    await asyncio.sleep(5)
    assert ready(world, topic) == 2
    await world.restart()
    await asyncio.sleep(6)
    dead = world.client.topic("default", "dead")
    assert dead is not None
    assert (ready(world, topic), ready(world, dead)) == (1, 1)


@BOTH
@simulated()
async def test_delayed_messages_come_when_they_are_due(world: World, durable: bool) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(durable=durable))
    await peer.publish(topic, Draft(b"late", delay_ms=2_000), Draft(b"soon", delay_ms=500), b"now")
    recorder = peer.attach(topic, credit=5)
    await asyncio.sleep(0.3)
    assert recorder.bodies == [b"now"]
    assert world.figures(topic, DEFAULT_GROUP).delayed == 2
    await asyncio.sleep(0.4)
    assert recorder.bodies == [b"now", b"soon"]
    await asyncio.sleep(1.5)
    assert recorder.bodies == [b"now", b"soon", b"late"]
    assert set(recorder.attempts) == {1}


@simulated()
async def test_delays_hold_over_a_crash(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    day_ms = 24 * 3600 * 1000
    await peer.publish(
        topic, Draft(b"minute", delay_ms=60_000), Draft(b"40 days", delay_ms=40 * day_ms)
    )
    await world.crash()
    recorder = world.peer().attach(topic, credit=5)
    await asyncio.sleep(59)
    assert recorder.bodies == []
    await asyncio.sleep(2)
    assert recorder.bodies == [b"minute"]
    assert world.figures(topic, DEFAULT_GROUP).delayed == 1


@BOTH
@simulated()
async def test_what_a_delivery_brings_to_the_front_too_old_is_dropped(
    world: World, durable: bool
) -> None:
    """Nobody has credit for it, and nothing else happens: it still counts as ready no more."""
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(durable=durable))
    await peer.publish(topic, b"plain", Draft(b"brief", ttl_ms=1_000))
    await asyncio.sleep(1.1)
    recorder = peer.attach(topic, credit=1)
    await recorder.wait_for(1)
    await asyncio.sleep(0.01)
    assert (recorder.bodies, ready(world, topic)) == ([b"plain"], 0)


@BOTH
@simulated()
async def test_what_is_given_back_too_old_is_dropped_though_nobody_takes(
    world: World, durable: bool
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(durable=durable))
    await peer.publish(topic, Draft(b"brief", ttl_ms=1_000))
    recorder = peer.attach(topic, credit=1)
    await recorder.wait_for(1)
    recorder.cancel()
    await asyncio.sleep(1.1)
    recorder.settle_now(Settlement.RETURN, 0)
    await asyncio.sleep(0.01)
    assert ready(world, topic) == 0


@BOTH
@simulated()
async def test_what_an_overflow_brings_to_the_front_expires(world: World, durable: bool) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(durable=durable, messages_max=2))
    await peer.publish(topic, b"plain", Draft(b"brief", ttl_ms=1_000), b"plain")
    await asyncio.sleep(1.1)
    assert ready(world, topic) == 1
