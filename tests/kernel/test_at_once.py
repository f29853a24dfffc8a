"""A TTL of 0: whoever waits gets the message, however long the log takes; else it expires."""

from __future__ import annotations

import asyncio

import pytest

from kernel.api.client import Settlement
from kernel.api.message import TTL_AT_ONCE
from kernel.api.model import DEFAULT_GROUP, DeadLetter, GroupOptions, TopicInfo, TopicOptions
from kernel.broker.delivery.delays import AT_ONCE_WAIT_MS
from tests.simulator.peer import Draft, Peer
from tests.simulator.world import World, simulated

BOTH = pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
OF = pytest.mark.parametrize("of_topic", [True, False], ids=["topic", "message"])
DEAD = GroupOptions(dead_letter=DeadLetter(None, "dead"))
SETTLED_S = 0.5
"""Commits of the simulated disk take far less."""


def now(body: bytes, *, of_topic: bool = False) -> Draft:
    return Draft(body, ttl_ms=0 if of_topic else TTL_AT_ONCE)


async def topic_of(peer: Peer, *, durable: bool, of_topic: bool) -> TopicInfo:
    await peer.topic("dead")
    ttl_ms = 0 if of_topic else None
    return await peer.topic("work", TopicOptions(durable=durable, message_ttl_ms=ttl_ms), DEAD)


async def ready(world: World, peer: Peer, topic: TopicInfo) -> tuple[int, int]:
    """In the topic, and among the dead letters."""
    await asyncio.sleep(SETTLED_S)
    dead = peer.client.topic("default", "dead")
    assert dead is not None
    return world.figures(topic, DEFAULT_GROUP).ready, world.figures(dead, DEFAULT_GROUP).ready


@BOTH
@OF
@simulated()
async def test_a_consumer_that_waits_gets_it(world: World, durable: bool, of_topic: bool) -> None:
    """The first ones wait for a dispatch mark in the log, for which time passes."""
    peer = world.peer()
    topic = await topic_of(peer, durable=durable, of_topic=of_topic)
    for number in range(20):
        recorder = peer.attach(topic, credit=2)
        await peer.publish(topic, now(b"%d" % number, of_topic=of_topic))
        await recorder.wait_for(1)
        recorder.settle_now(Settlement.ACK, 0)
        recorder.cancel()
    assert await ready(world, peer, topic) == (0, 0)


@BOTH
@OF
@simulated()
async def test_without_consumers_it_expires(world: World, durable: bool, of_topic: bool) -> None:
    peer = world.peer()
    topic = await topic_of(peer, durable=durable, of_topic=of_topic)
    await peer.publish(topic, now(b"x", of_topic=of_topic))
    assert await ready(world, peer, topic) == (0, 1)
    recorder = peer.attach(topic, credit=1)
    await asyncio.sleep(SETTLED_S)
    assert recorder.bodies == []


@BOTH
@OF
@simulated()
async def test_a_consumer_that_is_busy_does_not_keep_it(
    world: World, durable: bool, of_topic: bool
) -> None:
    peer = world.peer()
    topic = await topic_of(peer, durable=durable, of_topic=of_topic)
    recorder = peer.attach(topic, credit=1)
    await peer.publish(topic, *[now(b"%d" % each, of_topic=of_topic) for each in range(3)])
    await recorder.wait_for(1)
    assert await ready(world, peer, topic) == (0, 2)
    recorder.grant(5)
    await asyncio.sleep(SETTLED_S)
    assert recorder.bodies == [b"0"]


@BOTH
@simulated()
async def test_a_consumer_that_asks_for_more_in_its_turn_gets_more(
    world: World, durable: bool
) -> None:
    peer = world.peer()
    topic = await topic_of(peer, durable=durable, of_topic=False)
    recorder = peer.attach(topic, credit=2)
    await peer.publish(topic, *[now(b"%d" % each) for each in range(6)])
    for count in (2, 4, 6):
        await recorder.wait_for(count)
        await asyncio.sleep(AT_ONCE_WAIT_MS / 4_000)
        recorder.grant(2)
    assert await ready(world, peer, topic) == (0, 0)


@BOTH
@simulated()
async def test_behind_others_it_does_not_wait(world: World, durable: bool) -> None:
    peer = world.peer()
    topic = await topic_of(peer, durable=durable, of_topic=False)
    await peer.publish(topic, b"first", now(b"brief"), b"last")
    recorder = peer.attach(topic, credit=5)
    await recorder.wait_for(2)
    assert await ready(world, peer, topic) == (0, 1)
    assert recorder.bodies == [b"first", b"last"]


@BOTH
@OF
@simulated()
async def test_given_back_it_expires(world: World, durable: bool, of_topic: bool) -> None:
    peer = world.peer()
    topic = await topic_of(peer, durable=durable, of_topic=of_topic)
    recorder = peer.attach(topic, credit=5)
    await peer.publish(topic, now(b"x", of_topic=of_topic))
    await recorder.wait_for(1)
    recorder.settle_now(Settlement.RELEASE, 0)
    assert await ready(world, peer, topic) == (0, 1)
    assert recorder.bodies == [b"x"]


@simulated()
async def test_the_shorter_ttl_counts(world: World) -> None:
    peer = world.peer()
    await peer.topic("dead")
    topic = await peer.topic("work", TopicOptions(message_ttl_ms=60_000), DEAD)
    await peer.publish(topic, now(b"x"), Draft(b"long", ttl_ms=315_360_000_000))
    assert await ready(world, peer, topic) == (1, 1)
    await asyncio.sleep(61)
    assert await ready(world, peer, topic) == (0, 2)


@simulated()
async def test_nothing_wakes_for_ever_while_a_consumer_is_busy(world: World) -> None:
    peer = world.peer()
    topic = await topic_of(peer, durable=True, of_topic=False)
    recorder = peer.attach(topic, credit=1)
    await peer.publish(topic, now(b"x"), b"plain", now(b"y"))
    await recorder.wait_for(1)
    assert await ready(world, peer, topic) == (2, 0)
    recorder.grant(5)
    assert await ready(world, peer, topic) == (0, 1)
    assert recorder.bodies == [b"x", b"plain"]
