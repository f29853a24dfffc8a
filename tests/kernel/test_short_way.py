"""The dispatcher's short way and the columnar ACK give what the general steps give."""

from __future__ import annotations

import asyncio
import random

import pytest

from kernel.broker import commands
from kernel.broker.runs import DEAD_RUNS_KEPT, RunIndex
from kernel.client import Settlement
from kernel.ids import QueueId
from kernel.limits import MARK_AHEAD
from kernel.model import GroupOptions, TopicOptions
from kernel.store.open_entry import encode_acks
from tests.simulator.world import World, simulated


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


def test_plain_from_agrees_with_find() -> None:
    index = RunIndex()
    source = random.Random(4)
    while index.tail < 5_000:
        index.append(index.tail // 3 + 1, source.randrange(50), source.randrange(1, 6), 0)
    index.drop_below(2_000)
    for offset in range(index.head, index.tail):
        run = index.find(offset)
        assert index.plain_from(offset) == (run.index, run.slot, run.end)


def test_a_drained_queue_keeps_one_short_page_at_most() -> None:
    index = RunIndex()
    for number in range(10 * DEAD_RUNS_KEPT):
        index.append(number + 1, 0, 1, 0)
        index.drop_below(index.tail)
        assert sum(len(page.first) for page in index.pages()) < DEAD_RUNS_KEPT
    assert index.tail == 10 * DEAD_RUNS_KEPT


@simulated()
async def test_a_lone_consumer_gets_more_than_the_dispatch_mark_runs_ahead(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    taker = peer.attach(topic, credit=10 * MARK_AHEAD)
    for first in range(0, 3 * MARK_AHEAD, 100):
        await peer.publish(topic, *[b"%d" % number for number in range(first, first + 100)])
    await taker.wait_for(3 * MARK_AHEAD)
    assert taker.offsets == list(range(3 * MARK_AHEAD))
    assert taker.bodies == [b"%d" % offset for offset in taker.offsets]


@simulated()
async def test_a_lone_consumer_stops_at_the_in_flight_limit(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", groups={"default": GroupOptions(in_flight_max=5)})
    taker = peer.attach(topic, credit=1)
    for number in range(20):
        await peer.publish(topic, b"%d" % number)
        taker.grant(1)
    await asyncio.sleep(1)
    assert taker.offsets == [0, 1, 2, 3, 4]
    taker.settle_now(Settlement.ACK, 0, 1)
    taker.grant(1)
    await asyncio.sleep(1)
    assert len(taker.got) > 5


@pytest.mark.parametrize("options", [TopicOptions(), TopicOptions(priority_max=3)])
@simulated()
async def test_acks_out_of_order_leave_the_others_to_a_later_consumer(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options)
    taker = peer.attach(topic, credit=100)
    await peer.publish(topic, *[b"%d" % number for number in range(40)])
    await taker.wait_for(40)
    kept = [offset for offset in range(40) if offset % 3 == 0]
    taker.settle_now(Settlement.ACK, *[each for each in range(40) if each % 3])
    await asyncio.sleep(1)
    peer.close()

    later = world.peer()
    taker = later.attach(topic, credit=100)
    await later.publish(topic, b"new")
    await taker.wait_for(len(kept) + 1)
    assert taker.offsets == [*kept, 40]
