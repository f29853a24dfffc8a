"""Limits on what waits in a topic: messages and bytes, and what a full topic does with one more."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from kernel.api import message as messages
from kernel.api.client import PurgeTopic, Settlement
from kernel.api.message import Ext
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    DeadLetter,
    GroupOptions,
    Overflow,
    TopicInfo,
    TopicKind,
    TopicOptions,
)
from kernel.common.errors import Code
from tests.simulator.peer import Draft
from tests.simulator.world import World, simulated

TO_DEAD = GroupOptions(dead_letter=DeadLetter(None, "dead"))
BOTH = pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
KB = b"." * 1_000


def ready(world: World, topic: TopicInfo) -> int:
    return world.figures(topic, DEFAULT_GROUP).ready


def ready_bytes(world: World, topic: TopicInfo) -> int:
    """As the limit counts them, and as they are."""
    ref = topic.queues[0]
    dispatcher = world.opened.store.replica(ref.group).dispatcher(ref.id, DEFAULT_GROUP)
    dispatcher.ready.measure()
    counted = dispatcher.ready.bytes
    dispatcher.ready._measured_to = None
    dispatcher.ready.measure()
    assert dispatcher.ready.bytes == counted
    return counted


def kept(world: World, topic: TopicInfo) -> tuple[int, int]:
    """Offsets [first, end) of a stream that retention has left."""
    ref = topic.queues[0]
    queue = world.opened.store.replica(ref.group).state.queues[ref.id]
    return queue.trimmed, queue.index.tail


@BOTH
@simulated()
async def test_the_oldest_go_when_there_are_too_many_bytes(world: World, durable: bool) -> None:
    peer = world.peer()
    dead = await peer.topic("dead")
    options = TopicOptions(durable=durable, bytes_max=3_500)
    topic = await peer.topic("work", options, TO_DEAD)
    await peer.publish(topic, *[b"%d" % n + KB for n in range(5)])
    await world.settle_down()
    assert (ready(world, topic), ready(world, dead)) == (3, 2)
    await peer.publish(topic, KB * 4)  # larger than all that may wait: it goes too
    await world.settle_down()
    assert (ready(world, topic), ready(world, dead)) == (0, 6)


@simulated()
async def test_what_consumers_hold_does_not_count_and_counts_when_given_back(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(bytes_max=3_000, overflow=Overflow.REJECT))
    await peer.publish(topic, *[KB] * 3)
    recorder = peer.attach(topic, credit=2)
    await recorder.wait_for(2)
    assert ready_bytes(world, topic) == 1_000
    sent = await peer.publish(topic, *[KB] * 3)
    assert {at: error.code for at, error in sent.failures.items()} == {2: Code.REJECTED}
    recorder.cancel()
    await recorder.settle(Settlement.RELEASE, *list(recorder.held.values()))
    assert ready_bytes(world, topic) == 5_000
    sent = await peer.publish(topic, b"")
    assert sent.failures
    await world.client.administer(PurgeTopic(DEFAULT_TENANT, "work", DEFAULT_GROUP))
    assert ready_bytes(world, topic) == 0
    assert not (await peer.publish(topic, KB * 3)).failures
    await world.crash()
    assert ready_bytes(world, topic) == 3_000
    assert (await world.peer().publish(topic, b"x")).failures


@simulated()
async def test_delayed_messages_and_priorities_are_measured_too(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(bytes_max=2_000, priority_max=3))
    await peer.publish(topic, *[Draft(KB, delay_ms=5_000)] * 3, Draft(b"high" + KB, priority=3))
    await world.settle_down()
    assert (ready(world, topic), ready_bytes(world, topic)) == (1, 1_004)
    await asyncio.sleep(6)
    await peer.publish(topic, Draft(b"low"))
    await world.settle_down()
    assert ready_bytes(world, topic) <= 2_000
    recorder = peer.attach(topic, credit=10)
    await world.settle_down()
    # The head goes first, and that is what would be delivered first.
    assert recorder.bodies == [KB, b"low"]


@BOTH
@simulated()
async def test_a_full_topic_may_dead_letter_what_it_refuses(world: World, durable: bool) -> None:
    peer = world.peer()
    dead = await peer.topic("dead")
    options = TopicOptions(durable=durable, messages_max=1, overflow=Overflow.REJECT_DEAD_LETTER)
    topic = await peer.topic("work", options, TO_DEAD)
    sent = await peer.publish(topic, b"kept", b"refused")
    assert [error.code for error in sent.failures.values()] == [Code.REJECTED]
    await world.settle_down()
    assert (ready(world, topic), ready(world, dead)) == (1, 1)
    (dead_letter,) = await peer.attach(dead, credit=5).wait_for(1)
    history = msgspec.msgpack.decode(messages.decode(dead_letter.slot).ext[Ext.DEAD_LETTER])
    assert (dead_letter.body, dead_letter.uid) == (b"refused", sent.uids[1])
    assert (history[0]["reason"], history[0]["topic"]) == ("overflow", "work")


@simulated()
async def test_a_refusal_that_was_dead_lettered_is_in_the_log_and_keeps_nothing_there(
    world: World,
) -> None:
    """So that whoever leads next refuses a repeat too, without another dead letter."""
    peer = world.peer()
    dead = await peer.topic("dead")
    options = TopicOptions(messages_max=0, overflow=Overflow.REJECT_DEAD_LETTER)
    topic = await peer.topic("work", options, TO_DEAD)
    for number in range(3):
        sent = await peer.publish(topic, b"%d" % number + KB, b"more")
        assert [error.code for error in sent.failures.values()] == [Code.REJECTED] * 2
    await world.settle_down()
    await world.crash()
    assert (ready(world, topic), ready(world, dead)) == (0, 6)
    assert await world.client.span(topic, 0) == (0, 0)
    recorder = world.peer().attach(dead, credit=10)
    await recorder.wait_for(6)
    await recorder.ack()
    await asyncio.sleep(1)
    assert not world.opened.store.journal.statistics().live_entries


@simulated()
async def test_full_topics_that_dead_letter_to_each_other_do_not_send_a_message_for_ever(
    world: World,
) -> None:
    peer = world.peer()
    full = TopicOptions(messages_max=0, overflow=Overflow.REJECT_DEAD_LETTER)
    await peer.topic("b", full, GroupOptions(dead_letter=DeadLetter(None, "a")))
    topic = await peer.topic("a", full, GroupOptions(dead_letter=DeadLetter(None, "b")))
    sent = await peer.publish(topic, b"x")
    assert list(sent.failures) == [0]


@simulated()
async def test_a_stream_keeps_its_newest_bytes(world: World) -> None:
    peer = world.peer()
    options = TopicOptions(kind=TopicKind.STREAM, retention_bytes=5_000)
    topic = await peer.topic("events", options, GroupOptions())
    for number in range(10):
        await peer.publish(topic, b"%d" % number + KB)
    await asyncio.sleep(2)
    assert kept(world, topic) == (6, 10)
    await world.crash()
    await world.peer().publish(topic, KB, KB * 9)
    await asyncio.sleep(2)
    assert kept(world, topic) == (11, 12)  # the newest alone is too large, and stays


@simulated()
async def test_a_limit_set_later_counts_from_then_on(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, *[KB] * 5)
    topic = await peer.topic("work", TopicOptions(bytes_max=1_500))
    await peer.publish(topic, KB, KB)
    await world.settle_down()
    assert ready_bytes(world, topic) <= 1_500
    topic = await peer.topic("work", TopicOptions())
    await peer.publish(topic, *[KB] * 5)
    await world.settle_down()
    assert ready(world, topic) >= 5


@simulated()
async def test_a_committed_half_message_counts(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(bytes_max=1_500, overflow=Overflow.REJECT))
    uid = world.client.batch(peer.session, peer).uid()
    token = await world.client.halves.prepare(topic, "g", Draft(KB).parts(uid, 0))
    assert ready_bytes(world, topic) == 0
    await world.client.halves.end(topic, token, commit=True)
    assert ready_bytes(world, topic) == 1_000
    assert (await peer.publish(topic, KB)).failures
