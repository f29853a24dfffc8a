"""Dispatchers of queues that nobody consumes from are forgotten, and nobody can tell."""

from __future__ import annotations

import asyncio

import pytest

from kernel.api.client import LeaseChange, LeaseVerb, ReceiveSpec, Settlement
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicInfo, TopicOptions
from kernel.broker.group_state.idle_record import IdleQueue
from kernel.store.replicas.idle_dispatchers import QUEUE_LOOKS
from tests.simulator.peer import Draft
from tests.simulator.world import World, simulated

A_WHILE_S = QUEUE_LOOKS + 2


def has_dispatcher(world: World, topic: TopicInfo) -> bool:
    (ref,) = topic.queues
    return bool(world.opened.store.replica(ref.group).dispatchers_of(ref.id))


@simulated()
async def test_a_queue_rests_a_minute_after_its_last_consumer_went(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel.broker.group_state.queues.LIVE_MAX", 0)
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, b"1")
    recorder = peer.attach(topic, credit=10)
    await recorder.wait_for(1)
    await recorder.ack()
    recorder.cancel()
    await asyncio.sleep(QUEUE_LOOKS - 5)
    assert has_dispatcher(world, topic)
    await asyncio.sleep(7)
    assert not has_dispatcher(world, topic)
    await peer.publish(topic, b"2")
    (ref,) = topic.queues
    assert isinstance(world.opened.store.replica(ref.group).state.queues.raw(ref.id), IdleQueue)
    again = peer.attach(topic, credit=10)
    assert [each.body for each in await again.wait_for(1)] == [b"2"]


@simulated()
async def test_the_next_consumer_hears_of_earlier_attempts(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, b"1", b"2", b"3")
    recorder = peer.attach(topic, credit=2)
    await recorder.wait_for(2)
    recorder.settle_now(Settlement.RELEASE, recorder.got[1])
    await recorder.ack(0)
    recorder.cancel()
    await asyncio.sleep(A_WHILE_S)
    assert not has_dispatcher(world, topic)
    again = peer.attach(topic, credit=10)
    await again.wait_for(2)
    assert [(each.body, each.attempt) for each in again.got] == [(b"2", 2), (b"3", 1)]


@simulated()
async def test_whoever_consumes_or_waits_keeps_it(world: World) -> None:
    peer = world.peer()
    pushed, polled, back = [await peer.topic(name) for name in ("pushed", "polled", "back")]
    peer.attach(pushed, credit=1)
    waiting = asyncio.ensure_future(
        world.opened.client.receive(ReceiveSpec(polled, DEFAULT_GROUP, wait_ms=200_000))
    )
    peer.attach(back, credit=1).cancel()
    await asyncio.sleep(QUEUE_LOOKS - 5)
    peer.attach(back, credit=1).cancel()
    await asyncio.sleep(QUEUE_LOOKS - 5)
    assert has_dispatcher(world, back)
    for topic in (pushed, polled):
        assert has_dispatcher(world, topic)
    await peer.publish(polled, b"1")
    assert (await waiting).deliveries is not None


@simulated()
async def test_what_has_to_be_looked_after_keeps_it(world: World) -> None:
    peer = world.peer()
    topics = [
        await peer.topic("brief", TopicOptions(message_ttl_ms=10 * A_WHILE_S * 1_000)),
        await peer.topic("few", TopicOptions(messages_max=10)),
        await peer.topic("later"),
    ]
    for topic in topics:
        await peer.publish(topic, b"1")
    await peer.publish(topics[2], Draft(b"2", delay_ms=10 * A_WHILE_S * 1_000))
    for topic in topics:
        recorder = peer.attach(topic, credit=1)
        await recorder.wait_for(1)
        await recorder.ack(0)
        recorder.cancel()
    await asyncio.sleep(A_WHILE_S)
    assert [has_dispatcher(world, each) for each in topics] == [True] * 3


@simulated()
async def test_a_lease_is_remembered_and_ends_on_time(world: World) -> None:
    peer = world.peer()
    lease_ms = 2 * A_WHILE_S * 1_000
    topic = await peer.topic("leased", group=GroupOptions(lease_ms=lease_ms))
    await peer.publish(topic, b"1", b"2")
    spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=2)
    first = await world.opened.client.receive(spec)
    assert len(first.tokens) == 2
    await asyncio.sleep(A_WHILE_S)
    change = LeaseChange(first.tokens[0], LeaseVerb.ACK)
    assert await world.opened.client.settle_leases(topic, DEFAULT_GROUP, [change]) == [None]
    again = await world.opened.client.receive(
        ReceiveSpec(topic, DEFAULT_GROUP, wait_ms=2 * lease_ms)
    )
    assert again.deliveries is not None
    assert again.deliveries.attempts == [2]
