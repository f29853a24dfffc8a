"""Subscribers that nothing comes for: no dispatcher, two commands, and nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kernel.broker.dispatcher import Dispatcher
from kernel.ids import is_index, topic_of
from kernel.log import entry as entries
from kernel.model import TopicInfo
from kernel.tree import Subscription
from tests.kernel.tree_client import Guest, tell
from tests.simulator.world import World, simulated

LOADS = 16
"""Topics that are written to without a pause: some of them in every group."""

SYNC_S = 0.02
"""A sync of the simulated disk takes no time otherwise."""


def dispatchers(world: World) -> list[Dispatcher]:
    """Those of reference lists."""
    return [
        each
        for replica in world.opened.store.replicas()
        for queue in replica.state.queues
        if is_index(topic_of(queue))
        for each in replica.dispatchers_of(queue)
    ]


def commands(world: World, since: dict[int, int] | None = None) -> list[int]:
    """Types of the commands in the log, of entries behind `since`."""
    store = world.opened.store
    found: list[int] = []
    for group, last in store.statistics().applied_index.items():
        for index in range((since or {}).get(group, 0) + 1, last + 1):
            for batch in entries.batches(store.journal.read(group, index)):
                found += [kind for kind, _version, _body in batch.commands]
    return found


@asynccontextmanager
async def load(world: World) -> AsyncIterator[None]:
    """Publishes without a pause, so that something always waits for its entry."""
    world.workers.delay_s["weir-journal-writer"] = SYNC_S
    topics = [await world.peer().topic(f"load{number}") for number in range(LOADS)]
    assert {each.queues[0].group for each in topics} == set(world.opened.store.data_groups)

    async def publish(topic: TopicInfo) -> None:
        peer = world.peer()
        while True:
            await asyncio.gather(peer.publish(topic, b"x"), asyncio.sleep(SYNC_S / 2))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(publish(each)) for each in topics * 2]
        yield
        for each in tasks:
            each.cancel()


@simulated()
async def test_a_connection_and_its_subscription_are_three_commands(world: World) -> None:
    before = dict(world.opened.store.statistics().applied_index)
    guest = await Guest.open(world, "g", credit=10)
    await guest.subscribe("own/1")
    await asyncio.sleep(1)

    # The subscriber; the reference list, in the group of its name; the subscription.
    assert len(commands(world, before)) == 3
    assert not dispatchers(world)


@simulated()
async def test_the_first_message_reaches_consumers_that_had_no_dispatcher(world: World) -> None:
    guests = [await Guest.open(world, f"g{number}", credit=10) for number in range(3)]
    for guest in guests:
        await guest.subscribe("a/+")
    await guests[0].subscribe("a/1")
    await tell(world, "a/2", b"1", b"2")

    for guest in guests:
        assert [each.body for each in await guest.taker.wait_for(2)] == [b"1", b"2"]
        await guest.taker.ack()
    await tell(world, "a/2", b"3")
    for guest in guests:
        assert (await guest.taker.wait_for(3))[2].body == b"3"
    assert len(dispatchers(world)) == 3


@simulated()
async def test_the_first_message_waits_for_credit(world: World) -> None:
    guest = await Guest.open(world, "g")
    await guest.subscribe("t")
    await tell(world, "t", b"1")
    await asyncio.sleep(0.1)
    assert guest.bodies == []

    guest.consumer.grant(1)
    assert [each.body for each in await guest.taker.wait_for(1)] == [b"1"]


@simulated()
async def test_who_has_left_or_unsubscribed_waits_no_more(world: World) -> None:
    staying = await Guest.open(world, "staying", credit=10)
    leaving = await Guest.open(world, "leaving", credit=10)
    changing = await Guest.open(world, "changing", credit=10)
    for guest in (staying, leaving, changing):
        await guest.subscribe("t")
    await leaving.leave()
    changing.consumer.remove(Subscription("t"))
    await changing.subscriber.unsubscribe(Subscription("t"))
    await tell(world, "t", b"1")

    assert [each.body for each in await staying.taker.wait_for(1)] == [b"1"]
    assert leaving.bodies == []
    assert changing.bodies == []
    back = await Guest.open(world, "leaving", credit=10)
    assert [each.body for each in await back.taker.wait_for(1)] == [b"1"]


@simulated()
async def test_unsubscribing_before_the_consumer_knows_loses_nothing_of_others(
    world: World,
) -> None:
    first = await Guest.open(world, "first", credit=10)
    other = await Guest.open(world, "other", credit=10)
    await first.subscribe("t")
    await other.subscribe("t")
    await first.subscriber.unsubscribe(Subscription("t"))
    await tell(world, "t", b"1")

    assert [each.body for each in await other.taker.wait_for(1)] == [b"1"]
    assert first.bodies == []
    first.consumer.remove(Subscription("t"))


@simulated()
async def test_what_was_never_handed_out_is_fresh_after_a_restart(world: World) -> None:
    guest = await Guest.open(world, "g", credit=10)
    await guest.subscribe("t")
    await guest.leave()
    await world.restart()
    await tell(world, "t", b"1")
    back = await Guest.open(world, "g", credit=10)

    (delivery,) = await back.taker.wait_for(1)
    assert delivery.attempt == 1


@simulated()
async def test_dispatchers_of_lists_are_forgotten_under_constant_load(world: World) -> None:
    async with load(world):
        for number in range(5):
            guest = await Guest.open(world, f"g{number}", credit=10)
            await guest.subscribe("t")
            await tell(world, "t", b"1")
            await guest.taker.wait_for(1)
            await guest.taker.ack()
            await guest.leave()
        assert dispatchers(world)
        await asyncio.sleep(3)

        assert not dispatchers(world)
        back = await Guest.open(world, "g0", credit=10)
        # What came after it had left, and not what it has acked.
        assert len(await back.taker.wait_for(4)) == 4


@simulated()
async def test_a_dispatcher_whose_consumer_came_back_is_kept(world: World) -> None:
    async with load(world):
        guest = await Guest.open(world, "g", credit=1)
        await guest.subscribe("t")
        await tell(world, "t", b"1", b"2")
        await guest.taker.wait_for(1)
        guest.consumer.cancel()
        await asyncio.sleep(2)
        assert len(dispatchers(world)) == 1, "it still holds a message"

        again = await Guest.open(world, "g", credit=5)
        assert [each.body for each in await again.taker.wait_for(1)] == [b"2"]
        await asyncio.sleep(2)

        assert len(dispatchers(world)) == 1
        await guest.taker.ack()
        await again.taker.ack()
