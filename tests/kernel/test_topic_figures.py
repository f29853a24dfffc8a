"""Figures of topics and groups, as the leader of their queues has them."""

from __future__ import annotations

import asyncio

import pytest

from kernel.api.client import DeleteGroup, DeleteTopic, Settlement
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    DeadLetter,
    GroupOptions,
    Overflow,
    Reason,
    TopicOptions,
)
from kernel.broker.delivery import group_counts
from kernel.broker.group_state import queues
from kernel.store.replicas.idle_dispatchers import QUEUE_LOOKS
from kernel.store.topic_figures import TopicFigures, survey
from tests.simulator.world import World, simulated


def figures_of(world: World) -> dict[str, TopicFigures]:
    found = list(survey(world.opened.store.replicas()))
    assert len({each.info.id for each in found}) == len(found)
    return {each.info.name: each for each in found}


def lay_down(world: World) -> None:
    """Pack every queue that nobody uses."""
    for replica in world.opened.store.replicas():
        for _ in range(3):
            replica.state.queues.pack_idle(
                lambda ident, own=replica: bool(own.dispatchers_of(ident))
            )


@simulated()
async def test_a_group_is_shown_with_what_waits_what_is_in_flight_and_what_it_has_done(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("orders", group=GroupOptions(attempts_max=5))
    await peer.publish(topic, *[b"x" * 100] * 10)
    consumer = peer.attach(topic, credit=4)
    await consumer.wait_for(4)
    await consumer.ack(0)
    await consumer.settle(Settlement.RELEASE, 1)

    found = figures_of(world)["orders"]
    group = found.groups[DEFAULT_GROUP]
    assert (found.messages, found.published, found.published_bytes) == (9, 10, 1_000)
    assert (group.lag, group.ready, group.leased, group.delayed) == (9, 7, 2, 0)
    assert (group.consumers, group.acked, group.counts.delivered, group.counts.redelivered) == (
        1,
        1,
        4,
        0,
    )
    assert group.counts.delivered_bytes == 400
    assert group.oldest_ms is not None

    consumer.grant(1)
    await consumer.wait_for(5)
    assert figures_of(world)["orders"].groups[DEFAULT_GROUP].counts.redelivered == 1


@simulated()
async def test_figures_outlive_the_dispatcher_and_the_object_of_an_idle_queue(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "LIVE_MAX", 0)
    peer = world.peer()
    topic = await peer.topic("idle")
    await peer.publish(topic, b"a", b"b")
    consumer = peer.attach(topic, credit=2)
    await consumer.wait_for(2)
    await consumer.ack()
    consumer.cancel()
    await asyncio.sleep(QUEUE_LOOKS + 2)
    lay_down(world)
    found = figures_of(world)["idle"]
    group = found.groups[DEFAULT_GROUP]
    assert (found.published, found.messages, found.acked) == (2, 0, 2)
    assert (group.counts.delivered, group.acked, group.lag, group.consumers) == (2, 2, 0, 0)
    live = world.opened.store.replica(topic.queues[0].group).state.queues.live
    assert topic.queues[0].id not in live, "it was only looked at"


@simulated()
async def test_what_an_idle_queue_still_holds_is_shown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "LIVE_MAX", 0)
    peer = world.peer()
    topic = await peer.topic("kept")
    await peer.publish(topic, b"a", b"b")
    await world.settle_down()
    lay_down(world)
    group = figures_of(world)["kept"].groups[DEFAULT_GROUP]
    assert (group.lag, group.ready, group.oldest_ms is not None) == (2, 2, True)


@simulated()
async def test_a_topic_of_several_queues_is_shown_once_with_all_of_them(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("spread", TopicOptions(queues=4))
    await peer.publish(topic, *[b"x"] * 40)
    found = figures_of(world)["spread"]
    assert [number for number, _, _ in found.queues] == [0, 1, 2, 3]
    assert sum(following for _, _, following in found.queues) == 40
    assert found.published == 40
    assert found.groups[DEFAULT_GROUP].lag == 40


@simulated()
async def test_dead_letters_and_what_nobody_takes_as_such_are_counted_by_reason(
    world: World,
) -> None:
    peer = world.peer()
    await peer.topic("dead")
    letters = await peer.topic("letters", group=GroupOptions(dead_letter=DeadLetter(None, "dead")))
    dropped = await peer.topic("dropped")
    for topic in (letters, dropped):
        await peer.publish(topic, b"a", b"b", b"c")
        consumer = peer.attach(topic, credit=3)
        await consumer.wait_for(3)
        await consumer.settle(Settlement.DEAD_LETTER, 0, 1)
        await consumer.settle(Settlement.DEAD_LETTER, 2, reason=Reason.EXPIRED)
    await world.settle_down()

    found = figures_of(world)
    group = found["letters"].groups[DEFAULT_GROUP]
    assert group.counts.dead_letters == {Reason.REJECTED: 2, Reason.EXPIRED: 1}
    assert (group.counts.discarded, group.expired) == (None, 0)
    group = found["dropped"].groups[DEFAULT_GROUP]
    assert (group.counts.dead_letters, group.counts.discarded) == (
        None,
        {Reason.REJECTED: 2, Reason.EXPIRED: 1},
    )
    assert group.expired == 1
    assert found["dead"].messages == 3


@simulated()
async def test_what_a_full_topic_refuses_is_counted_of_it(world: World) -> None:
    peer = world.peer()
    options = TopicOptions(messages_max=2, overflow=Overflow.REJECT)
    sent = await peer.publish(await peer.topic("full", options), b"a", b"b", b"c")
    assert len(sent.failures) == 1
    assert figures_of(world)["full"].refused == 1


@simulated()
async def test_time_in_queue_is_counted_of_wanted_topics_only(world: World) -> None:
    peer = world.peer()
    for replica in world.opened.store.replicas():
        peek = replica.state.queues.peek
        replica.counts.wants_waits = lambda queue, peek=peek: peek(queue).topic.name == "wanted"
    for name in ("wanted", "other"):
        topic = await peer.topic(name)
        await peer.publish(topic, b"a", b"b")
        await asyncio.sleep(3)
        await peer.publish(topic, b"c")
        await peer.attach(topic, credit=3).wait_for(3)
    found = figures_of(world)
    assert found["other"].groups[DEFAULT_GROUP].counts.waits is None
    waits = found["wanted"].groups[DEFAULT_GROUP].counts.waits
    assert waits is not None
    bounds = dict(zip(group_counts.WAIT_BOUNDS_MS, waits.buckets, strict=False))
    assert (sum(waits.buckets), bounds[5_000]) == (3, 2)
    assert 6_000 <= waits.sum_ms < 8_000


@simulated()
async def test_counts_of_what_is_deleted_stay_with_the_tenant(world: World) -> None:
    peer = world.peer()
    for number, change in enumerate(
        (
            DeleteTopic(DEFAULT_TENANT, "gone0"),
            DeleteGroup(DEFAULT_TENANT, "gone1", "own"),
        )
    ):
        groups = {DEFAULT_GROUP: GroupOptions(), "own": GroupOptions()}
        topic = await peer.topic(f"gone{number}", groups=groups)
        await peer.publish(topic, b"a", b"b")
        consumer = peer.attach(topic, credit=2, group="own")
        await consumer.wait_for(2)
        await consumer.ack()
        await world.client.administer(change)
    gone = [each.counts.gone.get(DEFAULT_TENANT) for each in world.opened.store.replicas()]
    assert sum(each.delivered for each in gone if each is not None) == 4
    assert sum(each.published for each in gone if each is not None) == 2
    assert sum(each.acked for each in gone if each is not None) == 2


@simulated()
async def test_only_so_many_groups_are_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_counts, "COUNTS_MAX", 3)
    peer = world.peer()
    for number in range(32):
        topic = await peer.topic(f"t{number}")
        await peer.publish(topic, b"a")
        consumer = peer.attach(topic, credit=1)
        await consumer.wait_for(1)
        await consumer.ack()
        consumer.cancel()
        if number == 15:
            await asyncio.sleep(QUEUE_LOOKS + 2)
    replicas = world.opened.store.replicas()
    assert sum(each.counts.forgotten for each in replicas) > 0
    found = figures_of(world)
    kept = sum(found[f"t{number}"].groups[DEFAULT_GROUP].counts.delivered for number in range(32))
    gone = sum(each.counts.gone_of(DEFAULT_TENANT).delivered for each in replicas)
    assert kept + gone == 32
