"""The index behind a message that nobody takes: short again, and still right."""

from __future__ import annotations

import asyncio

from kernel.api import message as messages
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicInfo, TopicKind, TopicOptions
from kernel.broker.applying.sweep import carry_out, plan
from kernel.broker.group_state.state import QueueState
from kernel.broker.index.run_page import RUNS_PER_PAGE
from kernel.broker.snapshots.snapshot import dump, load
from kernel.common.ids import Offset
from tests.simulator.peer import Draft, Peer, Recorder
from tests.simulator.world import World, simulated

COUNT = 8 * RUNS_PER_PAGE
STUCK = range(3, COUNT, 200)
"""Offsets that no consumer acks."""

TWO = {DEFAULT_GROUP: GroupOptions(), "reports": GroupOptions()}


async def fill(peer: Peer, topic: TopicInfo, *recorders: Recorder) -> None:
    """One message an entry: the worst case. Everything is acked but STUCK."""
    for number in range(COUNT):
        await peer.publish(topic, Draft(b"%d" % number, priority=number % 3))
    for recorder in recorders:
        recorder.grant(COUNT)
        await recorder.wait_for(COUNT)
        await recorder.ack(*(each for each in range(COUNT) if each not in STUCK))


def queue_of(world: World, topic: TopicInfo) -> QueueState:
    (ref,) = topic.queues
    return world.opened.store.replica(ref.group).state.queues[ref.id]


def runs_of(queue: QueueState) -> int:
    return sum(len(page.first) for page in queue.index.pages())


@simulated()
async def test_an_index_does_not_grow_with_what_was_acked_behind_a_stuck_message(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", groups=TWO)
    recorders = [peer.attach(topic, credit=1, group=name) for name in TWO]
    await fill(peer, topic, recorders[0])
    await asyncio.sleep(5)
    assert runs_of(queue_of(world, topic)) == COUNT  # the other group has not been there
    await fill(peer, topic)
    recorders[0].grant(COUNT)
    await recorders[0].wait_for(2 * COUNT)
    await recorders[0].ack(*range(COUNT, 2 * COUNT))
    recorders[1].grant(2 * COUNT)
    await recorders[1].wait_for(2 * COUNT)
    await recorders[1].ack(*(each for each in range(2 * COUNT) if each not in STUCK))
    await asyncio.sleep(5)
    queue = queue_of(world, topic)
    assert runs_of(queue) <= 2 * len(STUCK) + 2 * RUNS_PER_PAGE
    assert queue.index.page_count <= 3
    records = list(dump(world.opened.store.replica(topic.queues[0].group).state))
    assert list(dump(load(records))) == records

    found = await world.client.peek(topic, 0, Offset(0), COUNT)
    assert [at for at, _ in found] == [*STUCK]
    assert [messages.decode(slot).body for _, slot in found] == [b"%d" % at for at in STUCK]
    await world.crash()
    assert runs_of(queue_of(world, topic)) <= 2 * len(STUCK) + 2 * RUNS_PER_PAGE
    again = world.peer().attach(topic, credit=COUNT)
    await again.wait_for(len(STUCK))
    assert [each.body for each in again.got] == [b"%d" % at for at in STUCK]
    await again.ack(*again.got)
    await world.settle_down()
    assert world.figures(topic, DEFAULT_GROUP).ready == 0


@simulated()
async def test_a_group_that_joins_late_gets_what_is_left_behind_holes(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(priority_max=2))
    await fill(peer, topic)
    recorder = peer.attach(topic, credit=COUNT)
    await recorder.wait_for(COUNT)
    await recorder.ack(*[each for each in recorder.got if each.offset not in STUCK])
    await asyncio.sleep(5)
    assert runs_of(queue_of(world, topic)) < COUNT / 2
    joined = await peer.topic(
        "work", TopicOptions(priority_max=2), groups={**TWO, "third": GroupOptions()}
    )
    late = peer.attach(joined, credit=COUNT, group="third")
    await late.wait_for(len(STUCK))
    assert sorted(each.offset for each in late.got) == [*STUCK]


@simulated()
async def test_a_backlog_and_a_stream_are_left_as_they_are(world: World) -> None:
    peer = world.peer()
    backlog = await peer.topic("work")
    stream = await peer.topic("stream", TopicOptions(kind=TopicKind.STREAM), groups={})
    await fill(peer, backlog)
    await fill(peer, stream)
    await asyncio.sleep(5)
    for topic in (backlog, stream):
        assert runs_of(queue_of(world, topic)) == COUNT
    assert plan(queue_of(world, backlog), 0)[0] is None


@simulated()
async def test_a_sweep_that_names_what_somebody_needs_leaves_it(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    recorder = peer.attach(topic, credit=1)
    await fill(peer, topic, recorder)
    queue = load(dump(world.opened.store.replica(topic.queues[0].group).state)).queues[
        topic.queues[0].id
    ]
    command, _next = plan(queue, 0)
    assert command is not None
    wrong = replace_ranges(command.ranges)
    before = runs_of(queue)
    assert carry_out(queue, type(command)(command.queue, command.start, command.end, wrong)) == 0
    assert runs_of(queue) == before
    assert carry_out(queue, command) == before - runs_of(queue) > RUNS_PER_PAGE


def replace_ranges(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """The same, each one message longer: the stuck one."""
    return tuple((first, end + 1) for first, end in ranges[:-1])
