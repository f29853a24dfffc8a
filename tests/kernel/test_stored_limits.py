"""Limits of what tenants and topics store, and what nobody has set: a share of the disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernel.api.atomic import Transaction
from kernel.api.client import DeleteTopic, PublishBatch, PurgeTopic, PutTopic, Settlement
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    DeadLetter,
    GroupOptions,
    Overflow,
    TopicInfo,
    TopicKind,
    TopicOptions,
)
from kernel.common import feature_levels as levels
from kernel.common.errors import Code, KernelError
from kernel.quotas.account import LimitOutcome
from kernel.quotas.accounts import Quotas
from kernel.quotas.limits import EACH, Entity, LimitSet, Scope
from kernel.store.space.disk_watch import DiskSpace
from tests.kernel import store_fixture
from tests.kernel.tree_client import retained, tell
from tests.simulator.disk import SimulatedDisk
from tests.simulator.peer import Draft, Peer, Sent
from tests.simulator.world import World, simulated

FIXTURE = Path(__file__).parent.parent / "fixtures" / "store-1.json.gz"
KB = b"." * 1_000
TENANT = Entity(Scope.TENANT, DEFAULT_TENANT, "")
GROUPS = {DEFAULT_GROUP: GroupOptions()}
LOOK = 1.1
"""Seconds after which every store has looked at what is stored."""


async def limit(world: World, entity: Entity = TENANT, **limits: int) -> Quotas:
    quotas = Quotas({entity: LimitSet(**limits)})
    world.client.limit_stored(quotas, 1)
    await asyncio.sleep(LOOK)
    return quotas


def refused(sent: Sent) -> list[int]:
    """Positions of what was refused, as a full topic does."""
    assert {error.code for error in sent.failures.values()} <= {Code.REJECTED}
    return sorted(sent.failures)


def refusals(quotas: Quotas) -> dict[str, int]:
    assert all(key[2] is LimitOutcome.REFUSED for key in quotas.counts)
    return {key[1]: count for key, count in quotas.counts.items()}


def stored(world: World, tenant: str = DEFAULT_TENANT) -> tuple[int, int]:
    """(messages, bytes) in all groups."""
    tallies = [
        tally
        for replica in world.opened.store.replicas()
        if (tally := replica.state.stored.by_tenant.get(tenant)) is not None
    ]
    return sum(each[0] for each in tallies), sum(each[1] for each in tallies)


async def topic_of(world: World, tenant: str, name: str = "work") -> TopicInfo:
    groups = {DEFAULT_GROUP: GroupOptions()}
    made = await world.client.administer(PutTopic(tenant, name, TopicOptions(), groups))
    assert isinstance(made, TopicInfo)
    return made


@simulated()
async def test_a_tenant_stores_no_more_messages_than_it_may(world: World) -> None:
    peer = world.peer()
    quotas = await limit(world, stored_messages=5)
    topic = await peer.topic("work")
    assert refused(await peer.publish(topic, *[b"x"] * 7)) == [5, 6]
    assert refused(await peer.publish(topic, b"x")) == [0]
    assert refusals(quotas) == {"tenant.stored_messages": 3}
    recorder = peer.attach(topic, credit=2)
    await recorder.wait_for(2)
    assert refused(await peer.publish(topic, b"x")) == [0], "what is handed out is stored still"
    await recorder.ack()
    assert refused(await peer.publish(topic, b"x", b"x", b"x")) == [2]


@simulated()
async def test_bytes_are_those_of_bodies_and_the_last_that_fits_is_let_in(world: World) -> None:
    peer = world.peer()
    await limit(world, stored_bytes=3_500)
    topic = await peer.topic("work")
    assert refused(await peer.publish(topic, KB, KB * 2, KB)) == [2]
    assert refused(await peer.publish(topic, KB[:500])) == []
    assert refused(await peer.publish(topic, b"x")) == [0]
    await world.client.administer(PurgeTopic(DEFAULT_TENANT, "work", DEFAULT_GROUP))
    assert stored(world) == (0, 0)
    assert refused(await peer.publish(topic, KB * 3)) == []


@simulated()
async def test_every_queue_counts_and_other_groups_within_a_second(world: World) -> None:
    peer = world.peer()
    await limit(world, stored_messages=40)
    topics = [await peer.topic(f"t{number}") for number in range(8)]
    assert len({each.queues[0].group for each in topics}) > 1
    for topic in topics:
        assert refused(await peer.publish(topic, *[b"x"] * 5)) == []
    await asyncio.sleep(LOOK)
    for topic in topics:
        assert refused(await peer.publish(topic, b"x")) == [0]


@simulated()
async def test_one_topic_has_a_limit_of_its_own(world: World) -> None:
    peer = world.peer()
    work = await peer.topic("work", TopicOptions(queues=3))
    other = await peer.topic("other")
    await peer.publish(work, b"x", b"x")
    quotas = await limit(world, Entity(Scope.TOPIC, DEFAULT_TENANT, "work"), stored_messages=3)
    assert quotas.stored == {Entity(Scope.TOPIC, DEFAULT_TENANT, "work"): (2, 2)}
    assert refused(await peer.publish(work, b"x", b"x")) == [1]
    assert refused(await peer.publish(other, *[b"x"] * 9)) == []
    assert refusals(quotas) == {"topic.stored_messages": 1}
    await world.client.administer(PurgeTopic(DEFAULT_TENANT, "work", DEFAULT_GROUP))
    assert refused(await peer.publish(work, b"x")) == []


@simulated()
async def test_dead_letters_and_settlements_are_never_refused(world: World) -> None:
    peer = world.peer()
    dead = await peer.topic("dead")
    to_dead = GroupOptions(dead_letter=DeadLetter(None, "dead"))
    topic = await peer.topic("work", group=to_dead)
    await peer.publish(topic, b"1", b"2")
    await limit(world, stored_messages=1)
    recorder = peer.attach(topic, credit=2)
    await recorder.wait_for(2)
    await recorder.settle(Settlement.DEAD_LETTER, *list(recorder.held.values()))
    await world.settle_down()
    assert world.figures(dead).ready == 2
    assert refused(await peer.publish(topic, b"x")) == [0]


@simulated()
async def test_what_a_limit_of_the_tenant_has_refused_is_no_dead_letter(world: World) -> None:
    peer = world.peer()
    dead = await peer.topic("dead")
    options = TopicOptions(messages_max=100, overflow=Overflow.REJECT_DEAD_LETTER)
    topic = await peer.topic("work", options, GroupOptions(dead_letter=DeadLetter(None, "dead")))
    await limit(world, stored_messages=2)
    assert refused(await peer.publish(topic, b"1", b"2", b"3")) == [2]
    await world.settle_down()
    assert world.figures(dead).ready == 0


@simulated()
async def test_transactions_and_half_messages_are_refused_as_a_whole(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await limit(world, stored_messages=3)

    async def commit(count: int) -> None:
        batch: PublishBatch = peer.client.batch(peer.session, peer)
        for _ in range(count):
            parts = Draft(b"x").parts(batch.uid(), 0)
            batch.add(peer.client.to_topic(topic), parts, sum(map(len, parts)))
        await peer.client.transact(Transaction(batch, ()))

    with pytest.raises(KernelError, match="stores as much as it may") as raised:
        await commit(4)
    assert raised.value.code is Code.REJECTED
    assert stored(world) == (0, 0)
    await commit(3)
    with pytest.raises(KernelError, match="stores as much as it may"):
        await commit(1)
    uid = peer.client.batch(peer.session, peer).uid()
    with pytest.raises(KernelError, match="stores as much as it may"):
        await peer.client.halves.prepare(topic, "payers", Draft(b"x").parts(uid, 0))


@simulated()
async def test_a_full_tenant_has_no_new_retained_message(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await tell(world, "known", b"old", retain=True)
    await limit(world, stored_messages=1)
    await peer.publish(topic, b"x")
    await asyncio.sleep(LOOK)
    with pytest.raises(KernelError):
        await tell(world, "another", b"x", retain=True)
    await tell(world, "known", b"new", retain=True)
    assert await retained(world, "#") == [("known", b"new")]


@pytest.mark.parametrize("kind", [TopicKind.WORK, TopicKind.STREAM])
@simulated()
async def test_after_a_crash_as_much_is_stored_as_before(world: World, kind: TopicKind) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(kind=kind, queues=2))
    for size in range(40):
        await peer.publish(topic, bytes(size), Draft(bytes(size), delay_ms=size))
    assert stored(world) == (80, 2 * sum(range(40)))
    await asyncio.sleep(12)  # a checkpoint, and some behind it
    await peer.publish(topic, KB)
    recorder = peer.attach(topic, credit=3)
    if kind is TopicKind.WORK:
        await recorder.wait_for(3)
        await recorder.ack()
    await world.settle_down()
    before = stored(world)
    await world.crash()
    assert stored(world) == before


def test_what_was_stored_before_there_were_sums_counts_as_messages_alone() -> None:
    """An old directory: bytes count from the level on."""
    disk, wall_ms, _ = store_fixture.read(FIXTURE, "clean")
    with store_fixture.opened(disk, wall_ms) as world:

        async def scenario() -> None:
            peer = world.peer()
            topic = await peer.topic("new")
            messages, size = stored(world)
            assert (messages > 0, size) == (True, 0)
            await peer.publish(topic, KB)
            assert stored(world) == (messages + 1, 0)
            await world.client.raise_level_everywhere(levels.LATEST)
            await peer.publish(topic, KB, KB)
            assert stored(world) == (messages + 3, 2_000)
            recorder = peer.attach(topic, credit=2)
            await recorder.wait_for(2)
            await recorder.ack()
            await world.settle_down()
            assert stored(world) == (messages + 1, 1_000)
            await asyncio.sleep(12)
            await world.crash(seed=3)
            assert stored(world) == (messages + 1, 1_000)

        world.run(scenario())


# --- A share of the disk ----------------------------------------------------------------------


async def fill(world: World, peer: Peer, topic: TopicInfo, seconds: int) -> int:
    """Publish 64 KB at a time, for so long; how much was let in."""
    before = stored(world, topic.tenant)[1]
    for _ in range(seconds * 10):
        await peer.publish(topic, KB * 64)
        await asyncio.sleep(0.1)
    return stored(world, topic.tenant)[1] - before


def small(megabytes: int) -> SimulatedDisk:
    return SimulatedDisk(megabytes << 20)


@simulated(disk=small(64), reserve_bytes=8 << 20)
async def test_the_only_tenant_may_fill_the_disk(world: World) -> None:
    peer = world.peer()
    world.client.limit_stored(Quotas({}), 1)
    topic = await peer.topic("work")
    await fill(world, peer, topic, 90)
    assert stored(world)[1] > 40 << 20
    assert not world.client.accepting


@simulated(disk=small(64), reserve_bytes=8 << 20)
async def test_no_tenant_fills_the_disk_for_another(world: World) -> None:
    peer = world.peer()
    quotas = Quotas({})
    world.client.limit_stored(quotas, 2)
    mine, yours = await topic_of(world, DEFAULT_TENANT), await topic_of(world, "yours")
    await fill(world, peer, mine, 90)
    first = stored(world)[1]
    assert 18 << 20 < first < 28 << 20, "about half of what there is"
    assert refusals(quotas).keys() == {"tenant.disk_share"}
    assert world.client.accepting
    await fill(world, peer, yours, 90)
    assert stored(world, "yours")[1] > 10 << 20
    assert world.client.accepting


async def servers_own(world: World) -> TopicInfo:
    """A topic as the server makes for itself: metering has one in every node."""
    made = await world.client.administer(
        PutTopic("__system", "__own", TopicOptions(), GROUPS, reserved_name=True)
    )
    assert isinstance(made, TopicInfo)
    return made


@simulated()
async def test_the_servers_own_topics_are_nobodys_neighbour_and_have_no_limit(
    world: World,
) -> None:
    peer = world.peer()
    own, topic = await servers_own(world), await peer.topic("work")
    await peer.publish(topic, KB)
    room = world.opened.store.topic_room.stored
    world.client.limit_stored(Quotas({}), 1)
    room.look(world.opened.store.replicas(), DiskSpace(1_000, 10**9, 1_000))
    assert refused(await peer.publish(topic, KB)) == [], "it is the only tenant"
    each = Entity(Scope.TENANT, EACH, "")
    world.client.limit_stored(Quotas({each: LimitSet(stored_messages=1)}), 1)
    await asyncio.sleep(LOOK)
    assert refused(await peer.publish(own, *[b"x"] * 3)) == []
    assert refused(await peer.publish(own, b"x")) == []
    assert refused(await peer.publish(topic, b"x")) == [0]


@simulated()
async def test_who_is_left_alone_may_have_all_of_the_disk_again(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await topic_of(world, "yours")
    room = world.opened.store.topic_room.stored
    world.client.limit_stored(Quotas({}), 1)
    await peer.publish(topic, KB)
    room.look(world.opened.store.replicas(), DiskSpace(1_000, 10**9, 1_000))
    assert refused(await peer.publish(topic, KB)) == [0]
    await world.client.administer(DeleteTopic("yours", "work"))
    room.look(world.opened.store.replicas(), DiskSpace(1_000, 10**9, 1_000))
    assert refused(await peer.publish(topic, KB)) == []


@simulated()
async def test_a_limit_of_stored_bytes_takes_the_place_of_the_share(world: World) -> None:
    peer = world.peer()
    quotas = Quotas({Entity(Scope.TENANT, EACH, ""): LimitSet(stored_bytes=10**9)})
    world.client.limit_stored(quotas, 2)
    topic = await peer.topic("work")
    await peer.publish(topic, KB)
    room = world.opened.store.topic_room.stored
    room.look(world.opened.store.replicas(), DiskSpace(1_000, 10**9, 1_000))
    assert refused(await peer.publish(topic, KB)) == []
    world.client.limit_stored(Quotas({}), 2)
    room.look(world.opened.store.replicas(), DiskSpace(1_000, 10**9, 1_000))
    assert refused(await peer.publish(topic, KB)) == [0]


@simulated()
async def test_what_nobody_has_a_group_of_is_not_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.client.administer(PutTopic(DEFAULT_TENANT, "lonely", TopicOptions(), {}))
    topic = world.client.topic(DEFAULT_TENANT, "lonely")
    assert topic is not None
    journal, let_go = world.opened.store.journal, []
    release = journal.release

    def released(group: int, index: int, count: int) -> None:
        let_go.append(count)
        release(group, index, count)

    monkeypatch.setattr(journal, "release", released)
    await world.peer().publish(topic, KB, KB)
    assert let_go == [2]
    assert stored(world) == (0, 0)
