"""A successor hands out what its predecessor is done with, for each consumer group (ADR 31)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from random import Random

import pytest

from kernel.api.client import LeaseChange, LeaseVerb, ReceiveSpec
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, GroupOptions, TopicInfo, TopicOptions
from kernel.common.feature_levels import LATEST
from kernel.common.ids import NUMBER_BITS
from kernel.store.replicas import unsettled_keys
from kernel.store.replicas.gates import Gates
from kernel.store.replicas.replica import Replica
from tests.simulator.peer import Draft, Peer
from tests.simulator.resizing import resize
from tests.simulator.world import World, simulated

ORDERED = GroupOptions(ordered=True)
understanding = simulated(understands=LATEST, data_groups=1)


async def receive(peer: Peer, topic: TopicInfo, count: int = 10, lease_ms: int = 60_000):
    spec = ReceiveSpec(topic, DEFAULT_GROUP, count, lease_ms=lease_ms)
    return await peer.client.receive(spec)


async def put(peer: Peer, topic: TopicInfo, *texts: str) -> None:
    """Publish texts, each of which begins with its key."""
    drafts = [Draft(each.encode(), key=each[:1].encode()) for each in texts]
    await peer.publish(peer.client.to_topic(topic), *drafts)


def waits_for(world: World, topic: TopicInfo) -> dict[int, set[int]]:
    """Of each successor, for whom it waits."""
    state = world.opened.store.replica(topic.queues[0].group).state
    successors = state.resized[topic.id].successors
    return {
        number: set(each.waits_for(DEFAULT_GROUP))
        for number, each in successors.items()
        if each.waits_for(DEFAULT_GROUP)
    }


class Reader:
    """Receives by lease and settles by token, as clients of queues do."""

    def __init__(self, world: World, peer: Peer, topic: TopicInfo) -> None:
        self.world = world
        self.peer = peer
        self.topic = topic
        self.tokens: dict[str, bytes] = {}

    async def take(self, count: int = 10) -> list[str]:
        """All that is to be had now, sorted."""
        found: list[str] = []
        empty = 0
        while empty < 2 * len(self.topic.queues) and len(found) < count:
            self.topic = self.world.client.topic(DEFAULT_TENANT, "work") or self.topic
            got = await receive(self.peer, self.topic, count - len(found))
            texts = [slot[-2:].decode() for slot in got.deliveries.slots] if got.deliveries else []
            self.tokens.update(zip(texts, got.tokens, strict=True))
            found += texts
            empty = 0 if texts else empty + 1
            await asyncio.sleep(0.05)
        return sorted(found)

    async def settle(self, *texts: str, verb: LeaseVerb = LeaseVerb.ACK) -> None:
        changes = [LeaseChange(self.tokens.pop(each), verb) for each in texts]
        outcome = await self.world.client.settle_leases(self.topic, DEFAULT_GROUP, changes)
        assert outcome == [None] * len(texts)
        await asyncio.sleep(0.05)


@understanding
async def test_a_successor_holds_back_the_keys_that_are_unsettled_and_no_others(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", group=ORDERED)
    await put(peer, topic, "a1", "b1", "d1")
    reader = Reader(world, peer, topic)
    assert await reader.take(1) == ["a1"]
    topic = reader.topic = await resize(world, topic, 2)
    await put(peer, topic, "a2", "b2", "c1", "a3")
    assert await reader.take() == ["b1", "c1", "d1"]
    await reader.settle("b1", "d1", "c1")
    assert await reader.take() == ["b2"]
    assert waits_for(world, topic) == {1: {0}, 2: {0}}
    await reader.settle("a1")
    assert await reader.take() == ["a2", "a3"]
    assert waits_for(world, topic) == {}
    await world.restart()
    assert waits_for(world, topic) == {}


@understanding
async def test_what_is_given_back_comes_before_what_waits_for_it(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", group=ORDERED)
    await put(peer, topic, "a1")
    reader = Reader(world, peer, topic)
    await reader.take(1)
    topic = reader.topic = await resize(world, topic, 2)
    await put(peer, topic, "a2")
    await reader.settle("a1", verb=LeaseVerb.RELEASE)
    assert await reader.take() == ["a1"]
    assert waits_for(world, topic) == {1: {0}, 2: {0}}


@pytest.mark.parametrize("unsettled_max", [1, 100])
def test_of_too_many_messages_the_whole_queue_waits(unsettled_max: int, monkeypatch) -> None:
    monkeypatch.setattr(unsettled_keys, "GATE_MESSAGES_MAX", unsettled_max)

    @understanding
    async def scenario(world: World) -> None:
        peer = world.peer()
        topic = await peer.topic("work", group=ORDERED)
        await put(peer, topic, "a1", "b1")
        reader = Reader(world, peer, topic)
        assert await reader.take() == ["a1", "b1"]
        topic = reader.topic = await resize(world, topic, 2)
        await put(peer, topic, "c1")
        assert await reader.take() == (["c1"] if unsettled_max > 1 else [])
        if unsettled_max == 1:
            await reader.settle("b1")
            assert await reader.take() == ["c1"]

    scenario()


@understanding
async def test_a_group_without_order_waits_for_what_nobody_has_got_yet(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await put(peer, topic, "a1", "b1")
    reader = Reader(world, peer, topic)
    topic = reader.topic = await resize(world, topic, 2)
    await put(peer, topic, "a2", "b2")
    assert await reader.take(2) == ["a1", "b1"]
    assert await reader.take() == ["a2", "b2"]
    assert waits_for(world, topic) == {}


@understanding
async def test_what_is_delayed_and_not_due_holds_nothing(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", group=ORDERED)
    late = Draft(b"a1", key=b"a", delay_ms=3_600_000)
    await peer.publish(peer.client.to_topic(topic), late)
    topic = await resize(world, topic, 2)
    await put(peer, topic, "a2")
    reader = Reader(world, peer, topic)
    assert await reader.take() == ["a2"]
    assert waits_for(world, topic).get(topic.queue_of(0).id & NUMBER_BITS, set()) in ({0}, set())


@understanding
async def test_a_successor_of_a_successor_waits_for_both(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", group=ORDERED)
    await put(peer, topic, "a1")
    reader = Reader(world, peer, topic)
    await reader.take(1)
    topic = await resize(world, topic, 2)
    await put(peer, topic, "a2")
    topic = reader.topic = await resize(world, topic, 1)
    await put(peer, topic, "a3")
    assert await reader.take() == []
    await reader.settle("a1")
    assert await reader.take() == ["a2"]
    await reader.settle("a2")
    assert await reader.take() == ["a3"]


@understanding
async def test_a_purge_of_the_predecessor_frees_its_keys(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", group=ORDERED)
    await put(peer, topic, "a1", "b1")
    reader = Reader(world, peer, topic)
    topic = reader.topic = await resize(world, topic, 2)
    queue = next(each for each in topic.queues if not each.id & NUMBER_BITS)
    assert await reader.take(1) == ["a1"]
    await put(peer, topic, "a2", "b2")
    done = asyncio.get_running_loop().create_future()
    peer.client.leader_of(queue.group).purge(
        queue.id, DEFAULT_GROUP, (0, 0, 0), done.set_result, in_flight=True
    )
    await done
    assert await reader.take() == ["a2", "b2"]


@pytest.mark.parametrize("commit", [True, False])
def test_a_half_message_holds_its_key_until_it_is_settled_or_rolled_back(commit: bool) -> None:
    @understanding
    async def scenario(world: World) -> None:
        peer = world.peer()
        topic = await peer.topic("work", group=ORDERED)
        halves, half = peer.client.halves, Draft(b"a1", key=b"a")
        uid = peer.client.batch(peer.session, peer).uid()
        token = await halves.prepare(topic, "producers", half.parts(uid, 0))
        old, topic = topic, await resize(world, topic, 2)
        reader = Reader(world, peer, topic)
        await put(peer, topic, "b1")
        assert await reader.take() == ["b1"]
        if not commit:
            await put(peer, topic, "a2")
            assert await reader.take() == []
        await halves.end(old, token, commit=commit)
        if commit:
            await put(peer, topic, "a2")
            assert await reader.take() == ["a1"]
            assert await reader.take() == []
            await reader.settle("a1")
        assert await reader.take() == ["a2"]
        assert waits_for(world, topic) == {}

    scenario()


async def random_run(world: World, seed: int) -> None:
    """Publishing, receiving, settling, resizing and restarts; each key comes in its order."""
    random = Random(seed)
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(queues=random.choice((1, 2, 3))), ORDERED)
    published: dict[str, int] = defaultdict(int)
    received: dict[str, list[int]] = defaultdict(list)
    reader = Reader(world, peer, topic)

    async def take(count: int) -> int:
        some = await reader.take(count)
        for each in some:
            at = ord(each[1])
            if at not in received[each[0]]:
                received[each[0]].append(at)
        return len(some)

    def received_all() -> bool:
        return sum(map(len, received.values())) == sum(published.values())

    for _ in range(40):
        what = random.random()
        if what < 0.4:
            keys = [random.choice("abcdef") for _ in range(3)]
            for key in keys:
                known = world.client.topic(DEFAULT_TENANT, "work") or topic
                await put(peer, known, key + chr(40 + published[key]))
                published[key] += 1
        elif what < 0.6:
            await take(random.choice((1, 4)))
        elif what < 0.85:
            for each in random.sample(sorted(reader.tokens), len(reader.tokens) // 2):
                verb = random.choice((LeaseVerb.ACK, LeaseVerb.ACK, LeaseVerb.RETURN))
                await reader.settle(each, verb=verb)
        elif what < 0.95:
            topic = world.client.topic(DEFAULT_TENANT, "work") or topic
            queues = max(random.choice((1, 2, 3, 4)), len({ref.group for ref in topic.queues}))
            topic = reader.topic = await resize(world, topic, queues)
        else:
            await world.restart()
            peer = reader.peer = world.peer()
    for _ in range(300):
        for each in list(reader.tokens):
            await reader.settle(each)
        if not await take(10) and not reader.tokens and received_all():
            break
        await asyncio.sleep(1)
    for key, count in published.items():
        assert received[key] == list(range(40, 40 + count)), key


def run(seed: int, data_groups: int = 1) -> None:
    simulated(understands=LATEST, data_groups=data_groups)(random_run)(seed)


@pytest.mark.parametrize("data_groups", [1, 3])
@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_the_messages_of_a_key_come_in_their_order(
    seed: int, data_groups: int
) -> None:
    run(seed, data_groups)


def test_messages_out_of_order_would_be_noticed(monkeypatch) -> None:
    monkeypatch.setattr(Gates, "begun", lambda *_: None)
    with pytest.raises(AssertionError):
        for_all()


def for_all() -> None:
    for seed in range(10):
        run(seed)


@understanding
async def test_a_predecessor_that_went_before_it_was_called_drained_keeps_nobody_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Replica, "_propose_drained", lambda *_: None)
    peer = world.peer()
    topic = await peer.topic("work", group=ORDERED)
    await put(peer, topic, "a1")
    reader = Reader(world, peer, topic)
    assert await reader.take(1) == ["a1"]
    topic = reader.topic = await resize(world, topic, 2)
    await put(peer, topic, "a2")
    assert await reader.take() == []
    await reader.settle("a1")
    await asyncio.sleep(40)  # it is retired
    assert await reader.take() == ["a2"]


@understanding
async def test_who_does_not_know_that_a_queue_is_gone_hears_sealed_and_loses_nothing(
    world: World,
) -> None:
    peer = world.peer()
    old = await peer.topic("work")
    topic = await resize(world, old, 2)
    await asyncio.sleep(40)
    assert old.queues[0] not in (world.client.topic(DEFAULT_TENANT, "work") or old).queues
    await put(peer, old, "a1")
    assert await Reader(world, peer, topic).take() == ["a1"]
