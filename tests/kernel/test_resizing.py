"""A topic is resized in a whole store (ADR 31): who published, prepared or has a transaction."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from msgspec import structs

from kernel.api.atomic import Settle, Transaction
from kernel.api.client import DeleteTopic, ReceiveSpec, Settlement
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    DeadLetter,
    GroupOptions,
    QueueRef,
    TopicInfo,
    TopicOptions,
)
from kernel.broker.log_commands.resize_commands import Plan, Resize
from kernel.common import ring as rings
from kernel.common.errors import Code, KernelError
from kernel.common.feature_levels import LATEST, REPLICAS
from kernel.common.ids import NUMBER_BITS, Offset, home_of, queue_id, topic_of
from tests.kernel.test_transact import batch_of, figures
from tests.simulator.peer import Draft
from tests.simulator.resizing import resize, seal
from tests.simulator.world import World, simulated

understanding = simulated(understands=LATEST)


@understanding
async def test_what_is_published_meanwhile_is_in_the_successors_behind_a_restart_too(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(queues=2))
    to = peer.client.to_topic(topic)
    for round_ in range(20):
        await peer.publish(to, *[Draft(b"%d" % round_, key=b"k%d" % each) for each in range(8)])
    publishing = [
        asyncio.ensure_future(
            peer.publish(to, *[Draft(b"late", key=b"k%d" % each) for each in range(8)])
        )
        for _ in range(5)
    ]
    topic = await resize(world, topic, 5)
    await asyncio.gather(*publishing)
    await peer.publish(
        peer.client.to_topic(topic), *[Draft(b"x", key=b"k%d" % n) for n in range(8)]
    )
    total = 0
    for ref in topic.queues:
        first, end = await peer.client.leader_of(ref.group).span(ref.id)
        total += end - first
        is_sealed = ref.id & NUMBER_BITS not in topic.ring
        assert (first == 0) == (ref.id & NUMBER_BITS < 2), (ref, is_sealed)
    assert total == 8 * 26
    await world.restart()
    again = world.client.topic(DEFAULT_TENANT, "work")
    assert again is not None
    assert (again.queues, again.ring) == (topic.queues, topic.ring)


@understanding
async def test_what_cannot_wait_for_the_ring_is_refused_and_never_half_done(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(peer.client.to_topic(topic), b"first")
    await seal(world, topic, [0])
    parts = Draft(b"half").parts((1, 1), 1)
    with pytest.raises(KernelError) as caught:
        await world.client.halves.prepare(topic, "producers", parts)
    assert caught.value.code is Code.BUSY
    recorder = peer.attach(topic, credit=1)
    await world.settle_down()
    ack = Settle(recorder.consumer, Settlement.ACK, [Offset(0)])
    with pytest.raises(KernelError) as caught:
        await peer.client.transact(Transaction(batch_of(peer, [topic], b"second"), [ack]))
    assert caught.value.code is Code.BUSY
    assert figures(world, topic) == (0, 1)


@understanding
async def test_a_transaction_that_may_go_in_steps_waits_until_it_is_known_where_it_goes(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(peer.client.to_topic(topic), b"first")
    await seal(world, topic, [0])
    recorder = peer.attach(topic, credit=1)
    await world.settle_down()
    ack = Settle(recorder.consumer, Settlement.ACK, [Offset(0)])
    asked = Transaction(batch_of(peer, [topic], b"second", b"third"), [ack], whole=False)
    committing = asyncio.ensure_future(peer.client.transact(asked))
    await asyncio.sleep(1)
    assert not committing.done()
    assert figures(world, topic) == (0, 1)
    topic = await resize(world, topic, 2)
    await committing
    found = [await peer.client.leader_of(ref.group).span(ref.id) for ref in topic.queues]
    assert sum(end - first for first, end in found) == 2, "and what was first is settled"


@understanding
async def test_a_dead_letter_goes_to_the_successor_of_the_queue_that_did_not_take_it(
    world: World,
) -> None:
    peer = world.peer()
    dead = await peer.topic("dead")
    topic = await peer.topic("work", group=GroupOptions(dead_letter=DeadLetter(None, "dead")))
    await peer.publish(peer.client.to_topic(topic), b"bad")
    await seal(world, dead, [0])
    recorder = peer.attach(topic, credit=1)
    await world.settle_down()
    assert recorder.consumer is not None
    peer.client.settle(recorder.consumer, Settlement.DEAD_LETTER, [Offset(0)])
    await world.settle_down()
    dead = await resize(world, dead, 2)
    await asyncio.sleep(5)
    await world.settle_down()
    found = [await peer.client.leader_of(ref.group).span(ref.id) for ref in dead.queues]
    assert sum(end - first for first, end in found) == 1


@understanding
async def test_other_queues_are_told_of_whoever_began_and_once(world: World) -> None:
    told: list[tuple[list[int], list[int]]] = []

    def numbers(topic: TopicInfo) -> list[int]:
        return [ref.id & NUMBER_BITS for ref in topic.queues]

    administrator = world.client.administrator
    administrator.queues_changed = lambda *both: told.append((numbers(both[0]), numbers(both[1])))
    topic = await world.peer().topic("work", TopicOptions(queues=2))
    topic = await resize(world, topic, 4)
    await resize(world, topic, 4)
    assert told == [([0, 1], [0, 1, 2, 3, 4, 5])]
    await asyncio.sleep(40)
    assert told[1:] == [([0, 1, 2, 3, 4, 5], [2, 3, 4, 5])]
    after = rings.resized(topic.ring, 5, [6, 7])
    refs = tuple(QueueRef(queue_id(topic.id, each), topic.queues[0].group) for each in (6, 7))
    await world.client.proposer.propose(home_of(topic.id), Plan(topic.id, after, refs))
    await administrator.go_on_resizing([home_of(topic.id)])
    await administrator.go_on_resizing([home_of(topic.id)])
    assert told[2:] == [([2, 3, 4, 5], [2, 3, 4, 5, 6, 7])]


@understanding
async def test_a_resize_that_was_begun_is_finished_by_whoever_leads_next(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(queues=2))
    await peer.publish(peer.client.to_topic(topic), *[Draft(b"x", key=b"%d" % n) for n in range(9)])
    after = rings.resized(rings.first_ring(2), 4, range(2, 256))
    refs = tuple(QueueRef(queue_id(topic.id, each), topic.queues[0].group) for each in range(2, 6))
    await world.client.proposer.propose(home_of(topic.id), Plan(topic.id, after, refs))
    other = Plan(topic.id, rings.first_ring(2), ())
    with pytest.raises(KernelError) as caught:
        await world.client.proposer.propose(home_of(topic.id), other)
    assert caught.value.code is Code.IN_USE
    await seal(world, topic, [0])
    await world.restart()
    found = world.client.topic(DEFAULT_TENANT, "work")
    assert found is not None
    assert found.ring == after
    state = world.opened.store.replica(home_of(topic.id)).state
    assert state.resized[topic.id].plan is None
    assert (await resize(world, found, 4)) == found


@understanding
async def test_resizes_are_finished_although_one_of_the_topics_is_deleted_meanwhile(
    world: World,
) -> None:
    peer = world.peer()
    made = [await peer.topic(f"work{n}", TopicOptions(queues=2)) for n in range(8)]
    home = home_of(made[0].id)
    topics = [each for each in made if home_of(each.id) == home][:2]
    for topic in topics:
        after = rings.resized(rings.first_ring(2), 4, range(2, 256))
        refs = tuple(QueueRef(queue_id(topic.id, each), home) for each in range(2, 6))
        await world.client.proposer.propose(home, Plan(topic.id, after, refs))
    administrator = world.client.administrator
    planned = administrator._resizing.planned([home])
    first = next(planned)
    (other,) = (each for each in topics if each.id != first.id)
    await administrator.administer(DeleteTopic(DEFAULT_TENANT, other.name))
    assert list(planned) == []
    await administrator.go_on_resizing([home])
    found = world.client.topic(DEFAULT_TENANT, first.name)
    assert found is not None
    assert len(found.writable) == 4


@understanding
async def test_a_topic_can_be_changed_and_deleted_after_a_resize(world: World) -> None:
    peer = world.peer()
    topic = await resize(world, await peer.topic("work", TopicOptions(queues=2)), 3)
    await peer.publish(peer.client.to_topic(topic), *[Draft(b"x", key=b"%d" % n) for n in range(9)])
    options = structs.replace(topic.options, message_ttl_ms=60_000)
    changed = await peer.topic("work", options, groups={"more": GroupOptions()})
    assert (changed.queues, changed.ring) == (topic.queues, topic.ring)
    assert set(changed.groups) == {"default", "more"}
    await peer.client.administer(DeleteTopic(DEFAULT_TENANT, "work"))
    for replica in world.opened.store.replicas():
        assert topic.id not in replica.state.resized
        assert not replica.state.sealed
        assert all(topic_of(each) != topic.id for each in replica.state.queues)


@understanding
async def test_what_keeps_its_queues_is_not_resized(world: World) -> None:
    peer = world.peer()
    for number, (options, group) in enumerate(
        (
            (TopicOptions(durable=False), GroupOptions()),
            (TopicOptions(priority_max=5), GroupOptions()),
            (TopicOptions(messages_max=5), GroupOptions()),
            (TopicOptions(deduplication_ms=5_000), GroupOptions()),  # of one queue
            (TopicOptions(), GroupOptions(single_active_consumer=True)),
        )
    ):
        topic = await peer.topic(f"kept{number}", options, group)
        with pytest.raises(KernelError, match="cannot be resized") as caught:
            await resize(world, topic, 2)
        assert caught.value.code is Code.NOT_ALLOWED
    topic = await peer.topic("work")
    for queues in (0, 65):
        with pytest.raises(KernelError, match="1 to 64 queues") as caught:
            await resize(world, topic, queues)
        assert caught.value.code is Code.INVALID_ARGUMENT


@simulated(understands=REPLICAS)
async def test_nothing_is_resized_before_the_level_is_on(world: World) -> None:
    topic = await world.peer().topic("work")
    with pytest.raises(KernelError, match="level"):
        await resize(world, topic, 2)
    assert world.client.topic(DEFAULT_TENANT, "work") == topic


@understanding
async def test_consumers_that_are_attached_get_what_is_in_the_new_queues(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    first = peer.attach(topic, credit=2)
    auto = peer.attach(await peer.topic("other", TopicOptions(queues=2)), credit=100, auto_ack=True)
    topic = await resize(world, topic, 3)
    other = world.client.topic(DEFAULT_TENANT, "other")
    assert other is not None
    other = await resize(world, other, 5)
    await peer.publish(
        peer.client.to_topic(other), *[Draft(b"x", key=b"%d" % n) for n in range(40)]
    )
    await peer.publish(peer.client.to_topic(topic), *[Draft(b"x", key=b"%d" % n) for n in range(9)])
    await asyncio.sleep(3)
    assert len(auto.got) == 40
    assert len(first.got) == 2
    first.grant(4)
    await asyncio.sleep(1)
    assert len(first.got) == 6
    assert first.consumer is not None
    first.consumer.cancel()
    first.grant(100)
    await asyncio.sleep(1)
    assert len(first.got) == 6
    for each in first.got:
        peer.client.settle(each.consumer, Settlement.ACK, [each.offset])
    await asyncio.sleep(1)
    left = world.figures(topic)
    assert left.ready + left.leased == 3


@understanding
async def test_a_sealed_queue_goes_when_everybody_is_done_with_it(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(queues=2))
    consumer = peer.attach(topic, credit=1_000, auto_ack=True)
    for round_ in range(8):
        drafts = [Draft(b"%d" % round_, key=b"%d" % n) for n in range(9)]
        found = world.client.topic(DEFAULT_TENANT, "work")
        assert found is not None
        await peer.publish(peer.client.to_topic(found), *drafts)
        await asyncio.sleep(3)
        topic = await resize(world, found, 2 + (round_ + 1) % 3)
        await asyncio.sleep(40)
    found = world.client.topic(DEFAULT_TENANT, "work")
    assert found is not None
    assert found.queues == found.writable
    assert len(consumer.got) == 72
    assert consumer.error is None
    states = [each.state for each in world.opened.store.replicas()]
    assert not any(each.sealed for each in states)
    queues = {ident for each in states for ident in each.queues if topic_of(ident) == topic.id}
    assert queues == {ref.id for ref in found.queues}
    home = world.opened.store.replica(home_of(topic.id)).state
    assert home.resized[topic.id].offsets_from > 0
    assert not home.resized[topic.id].predecessors


@understanding
async def test_a_repeat_is_known_to_the_successors_until_the_window_is_past(world: World) -> None:
    peer = world.peer()
    found = await peer.topic("work", TopicOptions(queues=2, deduplication_ms=60_000))
    consumer = peer.attach(found, credit=1_000, auto_ack=True)
    drafts = [Draft(b"x", key=b"%d" % n, deduplication_id=b"d%d" % n) for n in range(9)]
    for queues in (4, 2, 5):
        await peer.publish(peer.client.to_topic(found), *drafts)
        found = await resize(world, found, queues)
        await asyncio.sleep(5)
    await peer.publish(peer.client.to_topic(found), *drafts)
    await asyncio.sleep(1)
    assert len(consumer.got) == 9
    await asyncio.sleep(90)
    await peer.publish(peer.client.to_topic(found), *drafts)
    await asyncio.sleep(40)
    assert len(consumer.got) == 18
    again = world.client.topic(DEFAULT_TENANT, "work")
    assert again is not None
    assert again.queues == again.writable  # the windows are past: nothing is kept for them


@understanding
async def test_a_sealed_queue_with_a_window_goes_though_nothing_more_is_written(
    world: World,
) -> None:
    peer = world.peer()
    found = await peer.topic("work", TopicOptions(queues=2, deduplication_ms=60_000))
    peer.attach(found, credit=1_000, auto_ack=True)
    drafts = [Draft(b"x", key=b"%d" % n, deduplication_id=b"d%d" % n) for n in range(9)]
    await peer.publish(peer.client.to_topic(found), *drafts)
    found = await resize(world, found, 4)
    await asyncio.sleep(30)
    during = world.client.topic(DEFAULT_TENANT, "work")
    assert during is not None
    assert len(during.queues) > len(during.writable)  # their windows are not past
    await asyncio.sleep(90)
    after = world.client.topic(DEFAULT_TENANT, "work")
    assert after is not None
    assert after.queues == after.writable
    assert not any(each.state.sealed for each in world.opened.store.replicas())


@understanding
async def test_queues_of_two_raft_groups_are_not_merged(world: World) -> None:
    topic = await world.peer().topic("work", TopicOptions(queues=2))
    with pytest.raises(KernelError, match="in 2 Raft groups") as caught:
        await resize(world, topic, 1)
    assert caught.value.code is Code.INVALID_ARGUMENT


@understanding
async def test_who_pulls_from_a_queue_that_goes_hears_of_nothing(world: World) -> None:
    peer = world.peer()
    old = await peer.topic("work")
    spec = ReceiveSpec(old, DEFAULT_GROUP, 1, wait_ms=100_000, lease_ms=1_000)
    waiting = asyncio.ensure_future(peer.client.receive(spec))
    found = await resize(world, old, 2)
    both = replace(spec, topic=found)
    longer = asyncio.ensure_future(peer.client.receive(both))
    await asyncio.sleep(40)
    assert (await waiting).deliveries is None
    assert not longer.done()
    now = world.client.topic(DEFAULT_TENANT, "work")
    assert now is not None
    await peer.publish(peer.client.to_topic(now), b"late")
    assert (await longer).deliveries is not None
    with pytest.raises(KernelError) as caught:
        await peer.client.receive(spec)
    assert caught.value.code is Code.NOT_LEADER


@understanding
async def test_what_was_left_of_a_resize_does_not_bring_a_deleted_topic_back(world: World) -> None:
    """It did: the leader was deposed while it had sealed queues go, the next one deleted the topic,
    and what was asked for behind that had it again, without its queues.
    """
    peer = world.peer()
    topic = await resize(world, await peer.topic("work"), 2)
    home = home_of(topic.id)
    change = Resize(
        topic.id,
        topic.version + 1,
        topic.tenant,
        topic.name,
        topic.options,
        topic.groups,
        tuple(ref for ref in topic.queues if ref in topic.writable),
        topic.ring,
        Offset(0),
        (),
    )
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "work"))
    with pytest.raises(KernelError) as caught:
        await world.client.proposer.propose(home, change)
    assert caught.value.code is Code.NOT_FOUND
    assert topic.id not in world.opened.store.replica(home).state.topics
    assert world.client.topic(DEFAULT_TENANT, "work") is None
