"""What is passed on to a sole consumer, and the acks of many queues in one command."""

from __future__ import annotations

import asyncio

import pytest

from kernel.api.client import Settlement
from kernel.api.model import DEFAULT_GROUP, GroupOptions, Overflow, TopicInfo, TopicOptions
from kernel.broker.log_commands import commands
from kernel.common.ids import QueueId
from kernel.common.limits import MARK_AHEAD
from kernel.store.replicas.open_entry import encode_acks
from tests.simulator.world import World, simulated


def ready(world: World, topic: TopicInfo) -> int:
    return world.figures(topic, DEFAULT_GROUP).ready


def test_acks_of_many_queues_are_one_command() -> None:
    acked = {QueueId(7): [3], QueueId(1 << 40): [9, 1, 2, 4], QueueId(8): [5, 6, 7]}
    group, ranges = commands.decode_ack(encode_acks("grüppe", acked))
    assert group == "grüppe"
    assert list(ranges) == [
        (7, 3, 1),
        (1 << 40, 1, 2),
        (1 << 40, 4, 1),
        (1 << 40, 9, 1),
        (8, 5, 3),
    ]


@simulated()
async def test_a_sole_consumer_gets_more_than_the_dispatch_mark_runs_ahead(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    recorder = peer.attach(topic, credit=10 * MARK_AHEAD)
    for first in range(0, 3 * MARK_AHEAD, 100):
        await peer.publish(topic, *[b"%d" % number for number in range(first, first + 100)])
    await recorder.wait_for(3 * MARK_AHEAD)
    assert recorder.offsets == list(range(3 * MARK_AHEAD))
    assert recorder.bodies == [b"%d" % offset for offset in recorder.offsets]


@simulated()
async def test_a_sole_consumer_stops_at_the_in_flight_limit(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", groups={"default": GroupOptions(in_flight_max=5)})
    recorder = peer.attach(topic, credit=1)
    for number in range(20):
        await peer.publish(topic, b"%d" % number)
        recorder.grant(1)
    await asyncio.sleep(1)
    assert recorder.offsets == [0, 1, 2, 3, 4]
    recorder.settle_now(Settlement.ACK, 0, 1)
    recorder.grant(1)
    await asyncio.sleep(1)
    assert len(recorder.got) > 5


@pytest.mark.parametrize("options", [TopicOptions(), TopicOptions(priority_max=3)])
@simulated()
async def test_acks_out_of_order_leave_the_others_to_a_later_consumer(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options)
    recorder = peer.attach(topic, credit=100)
    await peer.publish(topic, *[b"%d" % number for number in range(40)])
    await recorder.wait_for(40)
    kept = [offset for offset in range(40) if offset % 3 == 0]
    recorder.settle_now(Settlement.ACK, *[each for each in range(40) if each % 3])
    await asyncio.sleep(1)
    peer.close()

    later = world.peer()
    recorder = later.attach(topic, credit=100)
    await later.publish(topic, b"new")
    await recorder.wait_for(len(kept) + 1)
    assert recorder.offsets == [*kept, 40]


@pytest.mark.parametrize(
    ("options", "group"),
    [
        (TopicOptions(message_ttl_ms=60_000), GroupOptions()),
        (TopicOptions(messages_max=3, overflow=Overflow.DROP_OLDEST), GroupOptions()),
        (TopicOptions(), GroupOptions(in_flight_max=2)),
    ],
)
@simulated()
async def test_new_settings_count_for_what_comes_next(
    world: World, options: TopicOptions, group: GroupOptions
) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    recorder = peer.attach(topic, credit=4)
    await peer.publish(topic, b"0", b"1")
    await recorder.wait_for(2)
    await peer.topic("work", options, groups={"default": group})
    for number in range(2, 12):
        await peer.publish(topic, b"%d" % number)
    await asyncio.sleep(1)
    if options.message_ttl_ms is not None:
        await asyncio.sleep(120)
        assert (len(recorder.got), ready(world, topic)) == (4, 0)
    elif options.messages_max is not None:
        assert (len(recorder.got), ready(world, topic)) == (4, 3)
    else:
        assert (len(recorder.got), ready(world, topic)) == (2, 10)


@simulated()
async def test_acks_of_many_consumers_in_one_call_leave_alone_what_is_not_theirs(
    world: World,
) -> None:
    peer = world.peer()
    topics = [await peer.topic(f"work{number}") for number in range(3)]
    recorders = [peer.attach(topic, credit=10) for topic in topics]
    for topic, recorder in zip(topics, recorders, strict=True):
        await peer.publish(topic, b"0", b"1", b"2")
        await recorder.wait_for(3)
    first, second, third = (recorder.consumer for recorder in recorders)
    assert first is not None
    assert second is not None
    assert third is not None
    world.client.acknowledge({first: [0], second: [2, 0, 7], third: [9]})
    world.client.acknowledge({first: [0]})
    await asyncio.sleep(1)
    left = [world.figures(topic, DEFAULT_GROUP).leased for topic in topics]
    assert left == [2, 1, 3]
    peer.close()
    await asyncio.sleep(1)
    later = world.peer()
    again = [later.attach(topic, credit=10) for topic in topics]
    for recorder, expected in zip(again, ([1, 2], [1], [0, 1, 2]), strict=True):
        await recorder.wait_for(len(expected))
        assert recorder.offsets == expected
