"""A topic gets queues in other Raft groups than it had (ADR 31)."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any

import pytest
from msgspec import structs

from kernel.api import message as messages
from kernel.api.changes import PurgeTopic, ResizeTopic
from kernel.api.client import (
    DeleteGroup,
    DeleteTopic,
    LeaseChange,
    LeaseVerb,
    ReceiveSpec,
    Settlement,
)
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    DeadLetter,
    GroupOptions,
    TopicInfo,
    TopicOptions,
)
from kernel.broker.log_commands.resize_commands import AddWindow
from kernel.broker.snapshots.snapshot import dump, load, state_hash
from kernel.common.errors import Code, KernelError
from kernel.common.feature_levels import GONE, RESIZE
from kernel.common.ids import NUMBER_BITS, Offset, home_of, topic_of
from kernel.definitions import window_hand_over
from kernel.definitions.resizing import Resizing
from kernel.leader_tasks.leader_tasks import LOOK_AGAIN_SECONDS
from tests.simulator.peer import Draft, Peer
from tests.simulator.resizing import resize
from tests.simulator.world import World, simulated

KEYS = 12


async def spread(world: World, name: str, queues: int) -> TopicInfo:
    """Have so many queues of a topic in all Raft groups."""
    change = ResizeTopic(DEFAULT_TENANT, name, queues, by_key=True, spread=True)
    topic = await world.client.administer(change)
    assert isinstance(topic, TopicInfo)
    return topic


def places(topic: TopicInfo) -> Counter[int]:
    return Counter(int(ref.group) for ref in topic.regular)


async def publish(peer: Peer, name: str, *bodies: bytes) -> None:
    """A message of each body and key."""
    topic = peer.client.topic(DEFAULT_TENANT, name)
    assert topic is not None
    drafts = [
        Draft(b"%d %s" % (key, body), key=b"%d" % key) for body in bodies for key in range(KEYS)
    ]
    await peer.publish(peer.client.to_topic(topic), *drafts)


class Deaf:
    def published(self, batch: object) -> None:
        """Nobody is told."""


async def publish_once(world: World, peer: Peer, sequence: int) -> None:
    """A message of each key, as a subscriber's, which may come again."""
    topic = world.client.topic(DEFAULT_TENANT, "work")
    assert topic is not None
    for key in range(KEYS):
        batch = world.client.batch(peer.session, Deaf())
        batch.once(7, (sequence + 1) << 8 | key)
        draft = Draft(b"once", key=b"%d" % key)
        parts = draft.parts(batch.uid(), 0)
        batch.add(world.client.to_topic(topic), parts, sum(map(len, parts)))
        world.client.submit(batch)
    await asyncio.sleep(1)


@simulated()
async def test_a_topic_is_spread_and_merged_while_it_is_used_and_keeps_the_order_of_its_keys(
    world: World,
) -> None:
    peer = world.peer()
    found = await peer.topic("work", group=GroupOptions(ordered=True))
    consumer = peer.attach(found, credit=10_000, auto_ack=True)
    for round_, queues in enumerate((1, 4, 6, 8, 2, 2)):
        await publish(peer, "work", b"%d a" % round_, b"%d b" % round_)
        late = asyncio.ensure_future(publish(peer, "work", b"%d c" % round_))
        found = await spread(world, "work", queues)
        await late
        assert sum(places(found).values()) == queues
        assert max(places(found).values()) == -(-queues // 4)
        await asyncio.sleep(20)
    await asyncio.sleep(60)
    bodies: dict[bytes, list[bytes]] = defaultdict(list)
    for each in consumer.got:
        bodies[each.body.split()[0]].append(each.body)
    assert consumer.error is None
    assert len(bodies) == KEYS
    assert all(len(each) == 18 and each == sorted(each) for each in bodies.values())
    topic = world.client.topic(DEFAULT_TENANT, "work")
    assert topic is not None
    assert topic.queues == topic.writable
    assert len(topic.queues) == 3  # of them one for what is published exactly once


@simulated()
async def test_a_stuck_lease_holds_back_its_key_in_other_groups_and_no_other(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", group=GroupOptions(ordered=True))
    await publish(peer, "work", b"a")
    spec = ReceiveSpec(topic, DEFAULT_GROUP, 1, lease_ms=12 * 3_600_000)
    stuck = await world.client.receive(spec)
    topic = await spread(world, "work", 8)
    assert len(places(topic)) > 2
    await publish(peer, "work", b"b")
    bodies = await take_all(world, 2 * KEYS - 2)
    (body,) = [b"%d" % key for key in range(KEYS) if b"%d b" % key not in bodies]
    assert stuck.deliveries is not None
    assert stuck.deliveries.slots[0].endswith(body + b" a")
    assert len(bodies) == len(set(bodies)) == 2 * KEYS - 2
    assert all(
        bodies.index(each[:-1] + b"a") < at for at, each in enumerate(bodies) if each[-1:] == b"b"
    )
    (token,) = stuck.tokens
    await world.client.settle_leases(topic, DEFAULT_GROUP, [LeaseChange(token, LeaseVerb.ACK)])
    assert await take_all(world, 1) == [body + b" b"]


async def take_all(world: World, count: int) -> list[bytes]:
    """Receive and settle so many messages, and see that no more are to be had."""
    found: list[bytes] = []
    empty = 0
    while empty < 20:
        topic = world.client.topic(DEFAULT_TENANT, "work")
        assert topic is not None
        received = await world.client.receive(ReceiveSpec(topic, DEFAULT_GROUP, 4, lease_ms=60_000))
        if received.deliveries is None:
            empty += len(found) >= count
            await asyncio.sleep(0.1)
            continue
        found += [messages.decode(each).body for each in received.deliveries.slots]
        acks = [LeaseChange(each, LeaseVerb.ACK) for each in received.tokens]
        await world.client.settle_leases(topic, DEFAULT_GROUP, acks)
    return found


@simulated()
async def test_a_repeat_by_another_process_is_known_however_often_a_topic_was_spread(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(queues=2))
    born = {ref.group for ref in topic.queues}
    consumer = peer.attach(topic, credit=10_000, auto_ack=True)
    for sequence, queues in enumerate((5, 3, 8)):
        await publish_once(world, peer, sequence)
        topic = await spread(world, "work", queues)
        assert {ref.group for ref in topic.writable if ref not in topic.regular} == born
        await asyncio.sleep(20)
        for again in range(sequence + 1):
            await publish_once(world, peer, again)
    assert len(consumer.got) == 3 * KEYS
    await world.restart()
    peer = world.peer()
    known = world.client.topic(DEFAULT_TENANT, "work")
    assert known is not None
    consumer = peer.attach(known, credit=10_000, auto_ack=True)
    for again in range(3):
        await publish_once(world, peer, again)
    assert not consumer.got


@simulated()
async def test_a_dead_letter_goes_where_repeats_are_known(world: World) -> None:
    peer = world.peer()
    await peer.topic("dead")
    topic = await peer.topic("work", group=GroupOptions(dead_letter=DeadLetter(None, "dead")))
    dead = await spread(world, "dead", 4)
    await publish(peer, "work", b"bad")
    recorder = peer.attach(topic, credit=100)
    recorder.settle_now(Settlement.DEAD_LETTER, *await recorder.wait_for(KEYS))
    await asyncio.sleep(1)
    (only,) = [ref for ref in dead.writable if ref not in dead.regular]
    first, end = await world.client.leader_of(only.group).span(only.id)
    assert end - first == KEYS


@simulated()
async def test_nothing_of_a_topic_that_was_spread_is_left_in_groups_that_it_has_left(
    world: World,
) -> None:
    peer = world.peer()
    await peer.topic("work")
    topic = await peer.topic("work", groups={"more": GroupOptions()})
    consumers = [
        peer.attach(topic, credit=10_000, auto_ack=True, group=each) for each in topic.groups
    ]
    await spread(world, "work", 8)
    await publish(peer, "work", b"x")
    await resize(world, topic, 1)
    await asyncio.sleep(60)
    assert [len(each.got) for each in consumers] == [KEYS, KEYS]
    for each in consumers:
        each.cancel()
    await world.client.administer(DeleteGroup(DEFAULT_TENANT, "work", "more"))
    grown = await spread(world, "work", 8)
    for replica in world.opened.store.replicas():
        for ident, queue in replica.state.queues.live.items():
            assert topic_of(ident) != topic.id or set(queue.groups) == {"default"}
        for known in replica.state.topics.values():
            assert known.id != topic.id or set(known.groups) == set(grown.groups)
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "work"))
    for replica in world.opened.store.replicas():
        assert topic.id not in replica.state.topics
        assert topic.id not in replica.state.resized
        assert all(topic_of(each) != topic.id for each in replica.state.queues)


@simulated()
async def test_what_does_not_come_out_even_goes_to_the_groups_that_have_least_to_do(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    (home,) = {ref.group for ref in topic.queues}
    groups = world.opened.store.data_groups
    assert len(groups) > 3
    busy = next(each for each in groups if each != home)
    names = (f"other-{number}" for number in range(1_000))
    homes = world.client.administrator
    other = await peer.topic(next(each for each in names if homes._home("default", each) == busy))
    await peer.publish(other, *[bytes(10_000)] * 10)
    await publish(peer, "work", b"a")
    grown = await spread(world, "work", len(groups) - 2)
    assert set(places(grown)) == set(groups) - {home, busy}
    assert set(places(grown).values()) == {1}


@simulated()
async def test_a_deletion_that_nobody_waits_for_any_more_leaves_nothing_in_other_groups(
    world: World,
) -> None:
    peer = world.peer()
    await peer.topic("work")
    topic = await spread(world, "work", 6)
    deletion = asyncio.ensure_future(world.client.administer(DeleteTopic(DEFAULT_TENANT, "work")))
    while world.client.administrator.is_changing(DEFAULT_TENANT, "work") is False:
        await asyncio.sleep(0)
    for _ in range(3):
        await asyncio.sleep(0)  # it is on its way into the log of the home
    deletion.cancel()
    await asyncio.sleep(1)
    assert world.client.topic(DEFAULT_TENANT, "work") is None, "it was decided all the same"
    await asyncio.sleep(LOOK_AGAIN_SECONDS)
    for replica in world.opened.store.replicas():
        assert topic.id not in replica.state.topics
        assert all(topic_of(each) != topic.id for each in replica.state.queues)


@simulated()
async def test_a_spread_topic_is_the_same_behind_a_snapshot(world: World) -> None:
    peer = world.peer()
    await peer.topic("work", TopicOptions(queues=2))
    topic = await spread(world, "work", 5)
    for replica in world.opened.store.replicas():
        state = replica.state
        again = load(dump(state))
        assert state_hash(again) == state_hash(state)
        if topic.id in again.topics:
            known = again.topics[topic.id].info()
            assert (known.ring, known.once) == (topic.ring, topic.once)


WINDOW = TopicOptions(queues=2, deduplication_ms=60_000)


def drafts(*numbers: int) -> list[Draft]:
    """A message of each number, with an id of its own that belongs to its key."""
    return [
        Draft(b"%d" % each, key=b"%d" % (each % KEYS), deduplication_id=b"id %d" % each)
        for each in numbers
    ]


async def publish_ids(world: World, peer: Peer, *numbers: int) -> None:
    topic = world.client.topic(DEFAULT_TENANT, "work")
    assert topic is not None
    await peer.publish(world.client.to_topic(topic), *drafts(*numbers))


@simulated()
async def test_a_window_goes_with_the_keys_however_often_a_topic_is_spread(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", WINDOW)
    consumer = peer.attach(topic, credit=100_000, auto_ack=True)
    for round_, queues in enumerate((5, 8, 3, 2)):
        await publish_ids(world, peer, *range(100 * round_, 100 * round_ + 90))
        late = asyncio.ensure_future(
            publish_ids(world, peer, *range(100 * round_ + 50, 100 * round_ + 100))
        )
        topic = await spread(world, "work", queues)
        await late
        # Of all rounds, for none of them is past: 4 of 2 s and less.
        await publish_ids(world, peer, *range(100 * round_ + 100))
        await asyncio.sleep(1)
    assert len(consumer.got) == 400
    assert {each.body for each in consumer.got} == {b"%d" % each for each in range(400)}
    await world.restart()
    peer = world.peer()
    await publish_ids(world, peer, *range(400))
    known = world.client.topic(DEFAULT_TENANT, "work")
    assert known is not None
    assert not peer.attach(known, credit=100_000, auto_ack=True).got


@simulated()
async def test_what_comes_before_a_queue_is_sealed_is_told_behind_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", WINDOW)
    consumer = peer.attach(topic, credit=100_000, auto_ack=True)
    await publish_ids(world, peer, *range(50))
    inner = Resizing._seal

    async def seal(resizing: Resizing, *what: Any) -> dict[int, int]:
        await publish_ids(world, peer, *range(100))
        return await inner(resizing, *what)

    monkeypatch.setattr(Resizing, "_seal", seal)
    await spread(world, "work", 8)
    monkeypatch.undo()
    await publish_ids(world, peer, *range(100))
    await asyncio.sleep(20)
    known = {each.body for each in consumer.got}
    assert known == {b"%d" % each for each in range(100)}
    assert len(consumer.got) == 100


@simulated()
async def test_a_window_that_is_past_is_past_in_other_groups_too(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", WINDOW)
    consumer = peer.attach(topic, credit=100_000, auto_ack=True)
    await publish_ids(world, peer, *range(50))
    await spread(world, "work", 8)
    states = [each.state for each in world.opened.store.replicas()]
    assert any(each.windows for each in states)
    await asyncio.sleep(61)
    await publish_ids(world, peer, *range(50))
    await asyncio.sleep(30)
    assert len(consumer.got) == 100
    assert not any(window.since(0)[0] for each in states for window in each.windows.values())
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "work"))
    assert not any(each.windows for each in states)


@simulated()
async def test_what_a_deposed_leader_tells_of_a_window_behind_a_deletion_is_forgotten(
    world: World,
) -> None:
    peer = world.peer()
    await peer.topic("work", WINDOW)
    topic = await spread(world, "work", 8)
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "work"))
    late = AddWindow(topic.queues[0].id, [(b"id", Offset(0), bytes(16), 1)])
    elsewhere = next(each for each in world.opened.store.home_groups if each != home_of(topic.id))
    for group in (elsewhere, home_of(topic.id)):
        await world.client.proposer.propose(group, late)
    states = [each.state for each in world.opened.store.replicas()]
    assert sum(len(each.windows) for each in states) == 2
    await world.client.administrator.repair([home_of(topic.id)])
    assert not any(each.windows for each in states)
    kept = await peer.topic("kept", WINDOW)
    await world.client.proposer.propose(
        elsewhere, AddWindow(kept.queues[0].id, [(b"id", Offset(0), bytes(16), 1)])
    )
    await world.client.administrator.repair(world.opened.store.home_groups)
    assert any(each.windows for each in states), "its topic is there: a resize may be under way"


@simulated()
async def test_a_purge_forgets_what_was_told_of_other_groups(world: World) -> None:
    peer = world.peer()
    await peer.topic("work", WINDOW)
    await publish_ids(world, peer, *range(50))
    topic = await spread(world, "work", 8)
    purge = PurgeTopic(DEFAULT_TENANT, "work", DEFAULT_GROUP, in_flight=True)
    assert await world.client.administer(purge) == 50
    await publish_ids(world, peer, *range(50))
    assert await world.client.administer(purge) == 50
    assert topic.queues


@simulated()
async def test_a_window_is_the_same_behind_a_snapshot(world: World) -> None:
    peer = world.peer()
    await peer.topic("work", WINDOW)
    for some in range(0, 4_000, 1_000):
        await publish_ids(world, peer, *range(some, some + 1_000))
    await spread(world, "work", 8)
    found = 0
    for replica in world.opened.store.replicas():
        state = replica.state
        again = load(dump(state))
        assert state_hash(again) == state_hash(state)
        assert again.windows.keys() == state.windows.keys()
        for ident, window in state.windows.items():
            assert list(again.windows[ident].since(0)[1]) == list(window.since(0)[1])
            found += window.since(0)[0]
    assert found >= 3 * 4_000


@simulated()
async def test_a_window_with_too_many_ids_stays_where_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_hand_over, "IDS_MAX", 149)
    peer = world.peer()
    topic = await peer.topic("work", WINDOW)
    await publish_ids(world, peer, *range(50))
    with pytest.raises(KernelError, match="149 are copied at most") as caught:
        await spread(world, "work", 8)
    assert caught.value.code is Code.LIMIT_EXCEEDED
    assert world.client.topic(DEFAULT_TENANT, "work") == topic


@simulated()
async def test_a_topic_that_was_spread_gets_a_window(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    topic = await spread(world, "work", 2)
    consumer = peer.attach(topic, credit=100_000, auto_ack=True)
    await peer.topic("work", structs.replace(topic.options, deduplication_ms=60_000))
    await publish_ids(world, peer, *range(50))
    await spread(world, "work", 8)
    await publish_ids(world, peer, *range(60))
    await asyncio.sleep(20)
    assert len(consumer.got) == 60
    with pytest.raises(KernelError, match="1 to 64 queues"):
        await spread(world, "work", 65)


@simulated(understands=GONE)
async def test_a_topic_with_a_window_is_not_spread_before_the_level_is_on(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", WINDOW)
    with pytest.raises(KernelError, match="level 10"):
        await spread(world, "work", 4)
    assert world.client.topic(DEFAULT_TENANT, "work") == topic
    assert {ref.id & NUMBER_BITS for ref in (await resize(world, topic, 4)).writable} != {0, 1}


@simulated(understands=RESIZE)
async def test_nothing_is_spread_before_its_level_is_on(world: World) -> None:
    topic = await world.peer().topic("work")
    with pytest.raises(KernelError, match="level 7"):
        await spread(world, "work", 2)
    assert world.client.topic(DEFAULT_TENANT, "work") == topic
    assert {ref.id & NUMBER_BITS for ref in (await resize(world, topic, 2)).writable} == {1, 2}
