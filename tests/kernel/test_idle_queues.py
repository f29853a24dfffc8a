"""Idle queues are kept as their snapshot record, and nobody can tell."""

from __future__ import annotations

import asyncio
import random

import pytest

from kernel.api.client import DeleteTopic, LeaseChange, LeaseVerb, ReceiveSpec
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    GroupOptions,
    QueueRef,
    TopicInfo,
    TopicOptions,
)
from kernel.broker.group_state.idle_queue import is_plain, is_short, record_at, record_of
from kernel.broker.group_state.idle_record import IdleQueue
from kernel.broker.group_state.queues import Queues
from kernel.broker.group_state.state import GroupState, QueueState, TopicState
from kernel.broker.group_state.usage import counts
from kernel.broker.snapshots.cut import QueueCut, SnapshotCut
from kernel.broker.snapshots.snapshot import dump, load, state_hash
from kernel.broker.snapshots.snapshot_records import encode
from kernel.common.ids import QueueId, RaftGroup, TopicId
from tests.simulator.peer import Draft
from tests.simulator.world import World, simulated

ANY = GroupOptions()


@pytest.fixture(autouse=True)
def _few_are_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel.broker.group_state.queues.LIVE_MAX", 0)


def state_of(world: World, topic: TopicInfo) -> GroupState:
    return world.opened.store.replica(topic.queues[0].group).state


def queues_of(world: World, topic: TopicInfo) -> Queues:
    return state_of(world, topic).queues


def rests(world: World, topic: TopicInfo) -> bool:
    return isinstance(queues_of(world, topic).raw(topic.queues[0].id), IdleQueue)


def lay_down(queues: Queues) -> None:
    """All that can be."""
    for _ in range(3):
        queues._come = len(queues._candidates)
        queues.pack_idle(lambda _: False)


@simulated()
async def test_a_queue_that_nobody_uses_is_a_record_and_wakes_on_its_first_use(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, b"1", b"2")
    assert rests(world, topic)
    await peer.publish(topic, b"3")
    recorder = peer.attach(topic, credit=10)
    assert [each.body for each in await recorder.wait_for(3)] == [b"1", b"2", b"3"]
    assert not rests(world, topic), "somebody consumes from it"
    await recorder.ack(0, 1, 2)
    await asyncio.sleep(0.1)
    assert world.figures(topic, DEFAULT_GROUP).ready == 0


@simulated()
async def test_queues_that_wait_for_a_moment_in_time_stay_awake(world: World) -> None:
    peer = world.peer()
    delayed, brief, seen, leased = [
        await peer.topic(name, options)
        for name, options in (
            ("delayed", TopicOptions()),
            ("brief", TopicOptions(message_ttl_ms=1_000)),
            ("seen", TopicOptions(deduplication_ms=60_000)),
            ("leased", TopicOptions()),
        )
    ]
    await peer.publish(delayed, Draft(b"1", delay_ms=1_000))
    await peer.publish(brief, b"1")
    await peer.publish(seen, Draft(b"1", deduplication_id=b"d"))
    await peer.publish(leased, b"1")
    spec = ReceiveSpec(leased, DEFAULT_GROUP, messages=1, lease_ms=1_000)
    got = await world.client.receive(spec)
    for topic in (delayed, brief, seen, leased):
        lay_down_but_used(world, topic)
        assert not rests(world, topic), topic.name
    await asyncio.sleep(2)
    assert world.figures(delayed, DEFAULT_GROUP).ready == 1
    assert world.figures(brief, DEFAULT_GROUP).expired == 1
    assert world.figures(leased, DEFAULT_GROUP).ready == 1
    assert len(got.tokens) == 1


def lay_down_but_used(world: World, topic: TopicInfo) -> None:
    replica = world.opened.store.replica(topic.queues[0].group)
    for _ in range(3):
        replica.state.queues.pack_idle(lambda ident: bool(replica.dispatchers_of(ident)))


@simulated()
async def test_retention_reaches_a_queue_that_rests(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(retention_ms=60_000))
    await peer.publish(topic, b"1", b"2")
    assert rests(world, topic)
    await asyncio.sleep(50)
    await peer.publish(topic, b"3")
    await asyncio.sleep(15)
    assert rests(world, topic)
    queue = queues_of(world, topic).peek(topic.queues[0].id)
    assert queue is not None
    assert (queue.trimmed, queue.groups[DEFAULT_GROUP].expired) == (2, 2)
    await asyncio.sleep(50)
    assert not world.opened.store.journal.statistics().live_entries


@simulated()
async def test_a_lease_taken_from_a_queue_that_rested_holds(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, b"1")
    assert rests(world, topic)
    spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=1, lease_ms=30_000)
    got = await world.client.receive(spec)
    changes = [LeaseChange(got.tokens[0], LeaseVerb.ACK)]
    assert not any(await world.client.settle_leases(topic, DEFAULT_GROUP, changes))
    assert world.figures(topic, DEFAULT_GROUP).ready == 0


@simulated()
async def test_a_deleted_queue_that_rested_lets_go_of_its_messages_and_is_billed(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, b"1", b"2")
    state = state_of(world, topic)
    state.cut = cut = SnapshotCut(state)
    expected = list(dump(state))
    assert rests(world, topic)
    assert world.opened.store.journal.statistics().live_entries
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "work"))
    assert list(cut) == expected
    state.cut = None
    assert not world.opened.store.journal.statistics().live_entries
    (routed,) = {each.end_offset for each in counts(state) if each.topic == "work"}
    assert routed == 2


@simulated()
async def test_after_a_crash_idle_queues_are_what_they_were(world: World) -> None:
    peer = world.peer()
    topics = [await peer.topic(f"t{number}", None, GroupOptions()) for number in range(30)]
    for number, topic in enumerate(topics):
        await peer.publish(topic, *[b"%d" % number] * (1 + number % 3))
    recorder = peer.attach(topics[3], credit=1)
    await recorder.wait_for(1)
    await asyncio.sleep(11)  # a checkpoint
    for number, topic in enumerate(topics):
        await peer.publish(topic, b"late %d" % number)
    live = world.opened.store.journal.statistics().live_entries
    await world.crash()
    assert world.opened.store.journal.statistics().live_entries == live
    peer = world.peer()
    for number, topic in enumerate(topics):
        recorder = peer.attach(topic, credit=10)
        found = await recorder.wait_for(2 + number % 3)
        wanted = [*[b"%d" % number] * (1 + number % 3), b"late %d" % number]
        assert [each.body for each in found] == wanted
        assert [each.attempt > 1 for each in found][:1] == [number == 3]


@simulated()
async def test_resting_changes_neither_snapshot_nor_hash(world: World) -> None:
    peer = world.peer()
    chance = random.Random(7)
    topics = [
        await peer.topic(f"t{n}", groups=dict.fromkeys(("default", "more")[: 1 + n % 2], ANY))
        for n in range(12)
    ]
    for _ in range(60):
        topic = chance.choice(topics)
        await peer.publish(topic, *[b"x"] * chance.randrange(1, 4))
        if chance.random() < 0.4:
            recorder = peer.attach(chance.choice(topics), credit=2)
            await asyncio.sleep(0.05)
            await recorder.ack(*[each.offset for each in recorder.got][:1])
            recorder.cancel()
    await asyncio.sleep(1)
    for replica in world.opened.store.replicas():
        state = load(dump(replica.state))
        awake = load(dump(replica.state))
        for ident in list(awake.queues):
            awake.queues.get(ident)
        lay_down(state.queues)
        for ident, queue in awake.queues.live.items():
            if is_short(queue):
                assert list(QueueCut(queue)) == [encode(record_of(queue))]
            if is_plain(queue):
                pack_idle = state.queues.raw(ident)
                assert isinstance(pack_idle, IdleQueue)
                record = encode(record_at(pack_idle, ident, queue.topic))
                assert list(QueueCut(queue)) == [encode(record_of(queue))] == [record]
        assert state_hash(state) == state_hash(awake) == state_hash(replica.state)


def test_laying_down_keeps_up_with_what_comes_and_returns_to_what_could_not_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kernel.broker.group_state.queues.LIVE_MAX", 10)
    topics: dict[TopicId, TopicState] = {}
    queues = Queues(topics)
    used = {QueueId(number << 8) for number in range(100)}
    for number in range(300):
        ident = QueueId(number << 8)
        ref = QueueRef(ident, RaftGroup(1))
        topics[TopicId(number)] = topic = TopicState(
            TopicId(number), DEFAULT_TENANT, f"t{number}", 1, TopicOptions(), (ref,), {"g": ANY}
        )
        queues[ident] = QueueState(ident, topic)
        queues.pack_idle(used.__contains__)
        assert len(queues.live) < 10 + 1.5 * len(used)
    assert len(queues) == 300
    assert set(queues.idle_ids()).isdisjoint(used)
    used.clear()
    for _ in range(300):
        queues.pack_idle(used.__contains__)
    assert len(queues.live) == 10
    assert sorted(queues) == [number << 8 for number in range(300)]
    assert queues[QueueId(0)] is queues.live[QueueId(0)]
    with pytest.raises(KeyError):
        queues[QueueId(300 << 8)]
