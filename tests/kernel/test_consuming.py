"""Consumers of one topic: who gets what, how often, and what becomes of it when they go."""

from __future__ import annotations

import asyncio

import pytest

from kernel.api.client import PurgeTopic, ReceiveSpec, Settlement
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, GroupOptions, TopicInfo, TopicOptions
from kernel.common.errors import Code, KernelError
from kernel.common.ids import TRANSIENT_GROUP
from tests.simulator.peer import Draft, Recorder
from tests.simulator.world import World, simulated

TRANSIENT = TopicOptions(durable=False)
BOTH = pytest.mark.parametrize("options", [TopicOptions(), TRANSIENT], ids=["durable", "transient"])


def statistics(world: World, topic: TopicInfo, group: str = DEFAULT_GROUP) -> tuple[int, int]:
    found = world.figures(topic, group)
    return found.ready, found.leased


@BOTH
@simulated()
async def test_messages_come_in_the_order_they_were_published(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options)
    await peer.publish(topic, *[b"%d" % number for number in range(50)])
    await peer.publish(topic, b"50", b"51")
    recorder = peer.attach(topic, credit=100)

    await recorder.wait_for(52)

    assert recorder.bodies == [b"%d" % number for number in range(52)]
    assert recorder.offsets == list(range(52))
    assert set(recorder.attempts) == {1}
    assert statistics(world, topic) == (0, 52)


@BOTH
@simulated()
async def test_a_consumer_gets_no_more_than_its_credit(world: World, options: TopicOptions) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options)
    await peer.publish(topic, *[b"x"] * 10)
    recorder = peer.attach(topic, credit=3)
    await asyncio.sleep(1)
    assert recorder.offsets == [0, 1, 2]

    recorder.grant(2)
    recorder.grant(-1)
    await asyncio.sleep(1)
    assert recorder.offsets == [0, 1, 2, 3, 4]
    recorder.grant(1)
    await asyncio.sleep(1)
    assert len(recorder.got) == 5, "credit was taken back"
    recorder.grant(1)
    await recorder.wait_for(6)


@BOTH
@simulated()
async def test_equal_consumers_are_served_in_turn(world: World, options: TopicOptions) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options)
    recorders = [peer.attach(topic, credit=100) for _ in range(3)]
    await world.settle_down()
    await peer.publish(topic, *[b"%d" % number for number in range(30)])
    await asyncio.sleep(1)

    assert [len(each.got) for each in recorders] == [10, 10, 10]
    everything = sorted(offset for each in recorders for offset in each.offsets)
    assert everything == list(range(30))


@BOTH
@simulated()
async def test_higher_consumers_are_served_first_while_they_have_credit(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options)
    low = peer.attach(topic, credit=10)
    high = peer.attach(topic, credit=4, priority=5)
    await world.settle_down()
    await peer.publish(topic, *[b"%d" % number for number in range(6)])
    await asyncio.sleep(1)

    assert high.offsets == [0, 1, 2, 3]
    assert low.offsets == [4, 5]


@BOTH
@simulated()
async def test_an_exclusive_consumer_keeps_others_out(world: World, options: TopicOptions) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options)
    recorder = peer.attach(topic, exclusive=True)
    for exclusive in (False, True):
        with pytest.raises(KernelError) as caught:
            peer.attach(topic, exclusive=exclusive)
        assert caught.value.code is Code.LOCKED
    recorder.cancel()
    peer.attach(topic)
    with pytest.raises(KernelError) as caught:
        peer.attach(topic, exclusive=True)
    assert caught.value.code is Code.LOCKED


@BOTH
@simulated()
async def test_one_single_active_consumer_at_a_time(world: World, options: TopicOptions) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options, GroupOptions(single_active_consumer=True))
    first = peer.attach(topic, credit=2)
    second = peer.attach(topic, credit=10, priority=9)
    await world.settle_down()
    await peer.publish(topic, *[b"%d" % number for number in range(5)])
    await asyncio.sleep(1)
    assert (first.offsets, second.offsets) == ([0, 1], [])

    first.cancel()
    await asyncio.sleep(1)
    assert second.offsets == [2, 3, 4]


@BOTH
@simulated()
async def test_released_messages_come_back_in_their_old_place(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options)
    await peer.publish(topic, *[b"%d" % number for number in range(6)])
    recorder = peer.attach(topic, credit=4)
    await recorder.wait_for(4)
    await recorder.settle(Settlement.RELEASE, 3, 1)
    assert statistics(world, topic) == (4, 2)
    recorder.grant(10)
    await recorder.wait_for(8)

    assert recorder.offsets[4:] == [1, 3, 4, 5]
    assert recorder.attempts[4:] == [2, 2, 1, 1]


@BOTH
@simulated()
async def test_returned_messages_count_no_attempt(world: World, options: TopicOptions) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options)
    await peer.publish(topic, b"a", b"b", b"c")
    recorder = peer.attach(topic, credit=2)
    await recorder.wait_for(2)
    recorder.settle_now(Settlement.RETURN, 0, 1)
    recorder.grant(3)
    await recorder.wait_for(5)

    assert recorder.bodies[2:] == [b"a", b"b", b"c"]
    assert recorder.attempts == [1] * 5


@BOTH
@simulated()
async def test_the_last_attempt_that_fails_ends_a_message(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options, GroupOptions(attempts_max=3))
    await peer.publish(topic, b"poison", b"good")
    recorder = peer.attach(topic, credit=1)
    for attempt in (1, 2, 3):
        await recorder.wait_for(attempt)
        assert (recorder.bodies[-1], recorder.attempts[-1]) == (b"poison", attempt)
        await recorder.settle(Settlement.RELEASE, 0)
        recorder.grant(1)
    await recorder.wait_for(4)
    assert recorder.bodies[-1] == b"good"
    assert statistics(world, topic) == (0, 1)


@BOTH
@simulated()
async def test_a_settlement_of_what_is_not_held_fails_by_offset(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options)
    await peer.publish(topic, *[b"x"] * 4)
    first, second = peer.attach(topic, credit=2), peer.attach(topic)
    await first.wait_for(2)
    second.grant(2)
    await second.wait_for(2)

    failures = await first.settle(Settlement.ACK, 0, 1, 2, 9)

    assert {offset: error.code for offset, error in failures.items()} == {
        2: Code.LEASE_LOST,
        9: Code.LEASE_LOST,
    }
    assert (await first.settle(Settlement.ACK, 0))[0].code is Code.LEASE_LOST
    assert statistics(world, topic) == (0, 2)


@BOTH
@simulated()
async def test_an_offset_named_twice_is_settled_once(world: World, options: TopicOptions) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options)
    await peer.publish(topic, b"a")
    recorder = peer.attach(topic, credit=1)
    await recorder.wait_for(1)
    await recorder.settle(Settlement.RELEASE, 0, 0)
    assert statistics(world, topic) == (1, 0)
    recorder.grant(5)
    await asyncio.sleep(1)
    assert recorder.attempts == [1, 2]


@BOTH
@simulated()
async def test_the_end_of_a_session_returns_its_leases(world: World, options: TopicOptions) -> None:
    peer, other = world.peer(), world.peer()
    topic = await peer.topic("work", options)
    await peer.publish(topic, *[b"%d" % number for number in range(4)])
    cancelled = peer.attach(topic, credit=1)
    await cancelled.wait_for(1)
    cancelled.cancel()
    recorder = peer.attach(topic, credit=2)
    await recorder.wait_for(2)
    recorder.settle_now(Settlement.ACK, 1)

    peer.close()
    peer.close()
    await world.settle_down()

    rest = other.attach(topic, credit=10)
    await rest.wait_for(3)
    assert rest.offsets == [0, 2, 3]
    assert rest.attempts == [2, 2, 1]
    assert statistics(world, topic) == (0, 3)


@BOTH
@simulated()
async def test_a_cancelled_consumer_may_still_settle_what_it_holds(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options)
    await peer.publish(topic, b"a", b"b", b"c")
    recorder = peer.attach(topic, credit=2)
    await recorder.wait_for(2)
    recorder.cancel()
    recorder.grant(5)
    assert await recorder.ack(0) == {}
    await recorder.settle(Settlement.RELEASE, 1)
    await asyncio.sleep(1)
    assert len(recorder.got) == 2
    assert statistics(world, topic) == (2, 0)


@simulated()
async def test_who_is_cancelled_while_others_hear_gets_nothing_more(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TRANSIENT)
    first, second = peer.attach(topic, credit=5), peer.attach(topic, credit=5)
    await world.settle_down()
    _cancels_on_delivery(first, second)
    _cancels_on_delivery(second, first)

    await peer.publish(topic, *[b"x"] * 4)
    await asyncio.sleep(1)

    assert not (first.got and second.got)
    assert sorted(first.offsets + second.offsets) == [0, 1, 2, 3]
    assert set(first.attempts + second.attempts) == {1}


def _cancels_on_delivery(recorder: Recorder, other: Recorder) -> None:
    hear = recorder.deliver

    def deliver(consumer: object, deliveries: object) -> None:
        hear(consumer, deliveries)  # type: ignore[arg-type]
        other.cancel()

    recorder.__dict__["deliver"] = deliver


@simulated()
async def test_a_long_session_forgets_its_cancelled_consumers(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    for _ in range(1_000):
        peer.attach(topic).cancel()
    assert len(peer.session.consumers) < 200  # type: ignore[attr-defined]


@simulated()
async def test_an_auto_ack_consumer_holds_nothing(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, *[b"x"] * 5)
    recorder = peer.attach(topic, credit=3, auto_ack=True)
    await recorder.wait_for(3)
    assert statistics(world, topic) == (2, 0)
    peer.close()
    await asyncio.sleep(1)
    assert statistics(world, topic) == (2, 0)


@BOTH
@simulated()
async def test_a_purge_drops_what_is_ready_and_leaves_what_is_held(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options)
    await peer.publish(topic, *[b"%d" % number for number in range(5)])
    recorder, cancelled = peer.attach(topic, credit=1), peer.attach(topic)
    await recorder.wait_for(1)
    cancelled.grant(1)
    await cancelled.wait_for(1)
    cancelled.cancel()

    assert await world.client.administer(PurgeTopic(DEFAULT_TENANT, "work", DEFAULT_GROUP)) == 3

    assert statistics(world, topic) == (0, 2)
    await cancelled.settle(Settlement.RELEASE, 1)
    assert statistics(world, topic) == (1, 1)
    await peer.publish(topic, b"new")
    recorder.grant(5)
    await recorder.wait_for(3)
    assert recorder.bodies == [b"0", b"1", b"new"]


@BOTH
@simulated()
async def test_a_purge_of_what_is_older_leaves_what_is_held_and_what_came_later(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options)
    await peer.publish(topic, b"held", b"old 1", b"old 2")
    recorder = peer.attach(topic, credit=1)
    await recorder.wait_for(1)
    await asyncio.sleep(1)
    before_ms = world.clock.wall_ms()
    await asyncio.sleep(1)
    await peer.publish(topic, b"young")
    change = PurgeTopic(DEFAULT_TENANT, "work", DEFAULT_GROUP, before_ms=before_ms)

    assert await world.client.administer(change) == 2

    assert statistics(world, topic) == (1, 1)
    recorder.grant(5)
    await recorder.wait_for(2)
    assert recorder.bodies == [b"held", b"young"]
    assert await world.client.administer(change) == 0
    both = PurgeTopic(DEFAULT_TENANT, "work", DEFAULT_GROUP, in_flight=True, before_ms=before_ms)
    with pytest.raises(KernelError) as refused:
        await world.client.administer(both)
    assert refused.value.code is Code.INVALID_ARGUMENT


@BOTH
@simulated()
async def test_consumers_of_a_topic_with_several_queues_get_everything(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    wanted = TopicOptions(durable=options.durable, queues=5)
    topic = await peer.topic("spread", wanted)
    await peer.publish(topic, *[b"%d" % number for number in range(40)])
    recorder = peer.attach(topic, credit=12)
    await recorder.wait_for(12)
    await asyncio.sleep(1)
    assert len(recorder.got) == 12, "the queues share one credit"
    recorder.grant(100)
    await recorder.wait_for(40)

    assert sorted(recorder.bodies) == sorted(b"%d" % number for number in range(40))
    assert statistics(world, topic) == (0, 40)
    for ref in topic.queues:
        numbers = [int(each.body) for each in recorder.got if each.queue == ref.id]
        assert numbers == sorted(numbers)
        assert numbers
    recorder.settle_now(Settlement.ACK, *recorder.got[:25])
    await asyncio.sleep(1)
    assert statistics(world, topic) == (0, 15)


# --- Pulls ----------------------------------------------------------------------------------


@BOTH
@simulated()
async def test_a_pull_that_waits_loses_nothing_that_comes_at_once(
    world: World, options: TopicOptions
) -> None:
    """Two commits before the pull's task runs again: what it does not return is not leased."""
    peer = world.peer()
    topic = await peer.topic("work", options)
    spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=5, wait_ms=1_000, session=peer.session)
    pull = asyncio.create_task(world.client.receive(spec))
    await asyncio.sleep(0.1)
    for body in (b"1", b"2", b"3"):
        peer.submit(topic, body)
        await asyncio.sleep(0)

    got = len((await pull).tokens or _offsets(await pull))
    while more := _offsets(await world.client.receive(spec)):
        got += len(more)

    assert got == 3


def _offsets(received: object) -> list[int]:
    deliveries = received.deliveries  # type: ignore[attr-defined]
    return list(deliveries.offsets) if deliveries is not None else []


@BOTH
@simulated()
async def test_a_pull_that_was_cancelled_takes_nothing(world: World, options: TopicOptions) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options)
    spec = ReceiveSpec(topic, DEFAULT_GROUP, wait_ms=1_000, session=peer.session)
    pull = asyncio.create_task(world.client.receive(spec))
    await asyncio.sleep(0.1)
    pull.cancel()
    await asyncio.sleep(0.1)
    await peer.publish(topic, b"1")
    await asyncio.sleep(0.1)
    assert statistics(world, topic) == (1, 0)


@BOTH
@simulated()
async def test_two_pulls_of_one_session_each_get_their_message(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options)
    spec = ReceiveSpec(topic, DEFAULT_GROUP, wait_ms=5_000, session=peer.session)
    pulls = [asyncio.create_task(world.client.receive(spec)) for _ in range(2)]
    await asyncio.sleep(0.1)
    await peer.publish(topic, b"1", b"2")
    got = [_offsets(await pull) for pull in pulls]
    assert sorted(got) == [[0], [1]]


@BOTH
@simulated()
async def test_a_pull_is_no_consumer_in_anyones_way(world: World, options: TopicOptions) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options)
    await peer.publish(topic, b"1", b"2")
    spec = ReceiveSpec(topic, DEFAULT_GROUP, session=peer.session)
    assert _offsets(await world.client.receive(spec)) == [0]
    assert world.figures(topic, DEFAULT_GROUP).consumers == 0
    recorder = peer.attach(topic, exclusive=True, credit=1)
    await recorder.wait_for(1)


@BOTH
@simulated()
async def test_a_pull_and_a_single_active_consumer_do_not_block_each_other(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options, GroupOptions(single_active_consumer=True))
    await peer.publish(topic, b"1", b"2", b"3")
    spec = ReceiveSpec(topic, DEFAULT_GROUP, session=peer.session)
    assert _offsets(await world.client.receive(spec)) == [0]
    recorder = peer.attach(topic, credit=1)
    await recorder.wait_for(1)
    async with asyncio.timeout(10):
        assert _offsets(await world.client.receive(spec)) == [2]


@simulated()
async def test_a_pull_returns_when_its_time_is_up(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    before = world.clock.monotonic_ms()
    spec = ReceiveSpec(topic, DEFAULT_GROUP, wait_ms=3_000, session=peer.session)
    assert _offsets(await world.client.receive(spec)) == []
    assert 3_000 <= world.clock.monotonic_ms() - before <= 3_100


# --- Priorities -----------------------------------------------------------------------------


@BOTH
@simulated()
async def test_higher_priorities_go_first_whatever_waits_before_them(
    world: World, options: TopicOptions
) -> None:
    """Also behind more low ones than the dispatch mark runs ahead."""
    peer = world.peer()
    topic = await peer.topic("ranks", TopicOptions(durable=options.durable, priority_max=5))
    for _ in range(30):
        await peer.publish(topic, *[Draft(b"low")] * 50)
    await peer.publish(topic, Draft(b"high", priority=5), Draft(b"middle", priority=3))
    recorder = peer.attach(topic, credit=3)
    await recorder.wait_for(3)
    assert recorder.bodies == [b"high", b"middle", b"low"]


@BOTH
@simulated()
async def test_a_priority_above_the_highest_counts_as_the_highest(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    topic = await peer.topic("ranks", TopicOptions(durable=options.durable, priority_max=5))
    await peer.publish(topic, Draft(b"9", priority=9), Draft(b"5", priority=5), Draft(b"0"))
    assert statistics(world, topic) == (3, 0)
    recorder = peer.attach(topic, credit=1)
    await recorder.wait_for(1)
    await recorder.settle(Settlement.RELEASE, 0)
    recorder.grant(3)
    await recorder.wait_for(4)
    assert recorder.bodies == [b"9", b"9", b"5", b"0"]


# --- Transient ------------------------------------------------------------------------------


@simulated()
async def test_the_transient_log_keeps_only_what_somebody_needs(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("v", TRANSIENT)
    log = world.opened.store.transient_log
    recorder = peer.attach(topic, credit=100)
    for _ in range(20):
        await peer.publish(topic, b"x" * 1_000, b"y")
    await recorder.wait_for(40)
    assert (log.count, log.bytes > 20_000) == (20, True)
    await recorder.ack(*range(39))
    assert log.count == 1
    await recorder.ack(39)
    assert (log.count, log.bytes) == (0, 0)
    assert world.opened.store.replica(TRANSIENT_GROUP).state.queues
