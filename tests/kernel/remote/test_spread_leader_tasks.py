"""Three stores of which each leads some groups: what leaders look after is done once, by whoever
leads, with queues and targets in groups that others lead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from kernel.api.changes import CancelMove, PutTopic, ResizeTopic, StartMove
from kernel.api.client import LeaseChange, LeaseVerb, ReceiveSpec, Settlement
from kernel.api.model import (
    DEFAULT_GROUP,
    DeadLetter,
    GroupOptions,
    HalfOptions,
    TopicInfo,
    TopicOptions,
)
from kernel.api.moves import MoveState, MoveTask, tasks
from kernel.api.transactions import HalfCheck
from kernel.broker.log_commands import commands
from kernel.broker.log_commands import tree_commands as tree
from kernel.common.errors import Code, KernelError
from kernel.common.feature_levels import LATEST
from kernel.common.ids import METADATA_GROUP, RaftGroup, home_of
from kernel.leader_tasks import leader_tasks
from kernel.remote.client import ClusterClient
from tests.kernel.remote.gateway import body_of
from tests.kernel.remote.local import peer_of
from tests.kernel.remote.spread import (
    DATA_GROUPS,
    Spread,
    T,
    lead,
    name_in,
    names,
    put_topic,
    spread_cluster,
)
from tests.kernel.three_stores import CLOCK, leader_of, until
from tests.simulator.peer import Draft, Peer

HOMES = [RaftGroup(each) for each in range(1, DATA_GROUPS + 1)]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Spread]:
    async with spread_cluster(tmp_path) as running:
        yield running


async def ready(client: ClusterClient, topic: TopicInfo) -> int:
    return (await client.statistics(topic, DEFAULT_GROUP)).ready


async def has_ready(client: ClusterClient, topic: TopicInfo, count: int) -> None:
    async with asyncio.timeout(20):
        while await ready(client, topic) != count:
            await asyncio.sleep(0.02)


async def pull_all(
    client: ClusterClient, topic: TopicInfo, verb: LeaseVerb, count: int
) -> list[bytes]:
    """Receive so many messages, and settle them so."""
    found: list[bytes] = []
    while len(found) < count:
        spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=10, wait_ms=1_000)
        received = await client.receive(spec)
        if received.deliveries is None:
            continue
        found += [body_of(each) for each in received.deliveries.slots]
        changes = [LeaseChange(each, verb) for each in received.tokens]
        assert not any(await client.settle_leases(topic, DEFAULT_GROUP, changes))
    return found


async def made(client: ClusterClient, change: PutTopic) -> TopicInfo:
    return cast("TopicInfo", await client.administer(change))


async def filled(client: ClusterClient, topic: TopicInfo, count: int) -> list[bytes]:
    bodies = [f"{topic.name} {each}".encode() for each in range(count)]
    for start in range(0, count, 10):
        await peer_of(client).publish(topic, *bodies[start : start + 10])
    return bodies


# --- Dead letters -------------------------------------------------------------------------------


async def test_dead_letters_cross_groups_once_while_leaders_move(cluster: Spread) -> None:
    nodes, client = cluster
    targets = [await made(client, put_topic(name)) for name in names("dead")]
    sent: dict[str, list[bytes]] = {}
    for at, home in enumerate(HOMES):
        target = targets[(at + 1) % 3]
        to_dead = {DEFAULT_GROUP: GroupOptions(dead_letter=DeadLetter(None, target.name))}
        name = name_in(home, "work")
        source = await made(client, PutTopic(T, name, TopicOptions(queues=3), to_dead))
        sent[target.name] = await filled(client, source, 60)
        taken = pull_all(client, source, LeaseVerb.DEAD_LETTER, 60)
        moving = lead(nodes, home, (home + 1) % 3 + 1)
        await asyncio.gather(taken, moving)
    for target in targets:
        await has_ready(client, target, 60)
        assert sorted(await pull_all(client, target, LeaseVerb.ACK, 60)) == sorted(
            sent[target.name]
        )


async def test_a_dead_letter_waits_for_a_topic_that_another_leader_makes(cluster: Spread) -> None:
    _, client = cluster
    dead = name_in(RaftGroup(3), "dead")
    to_dead = {DEFAULT_GROUP: GroupOptions(dead_letter=DeadLetter(None, dead))}
    source = await made(client, PutTopic(T, name_in(RaftGroup(1), "w"), TopicOptions(), to_dead))
    bodies = await filled(client, source, 3)
    await pull_all(client, source, LeaseVerb.DEAD_LETTER, 3)
    target = await made(client, put_topic(dead))
    await has_ready(client, target, 3)
    assert await pull_all(client, target, LeaseVerb.ACK, 3) == bodies


async def test_a_consumer_that_rejects_has_its_dead_letters_sent_after_its_leader_died(
    cluster: Spread,
) -> None:
    nodes, client = cluster
    target = await made(client, put_topic(name_in(RaftGroup(3), "dead")))
    to_dead = {DEFAULT_GROUP: GroupOptions(dead_letter=DeadLetter(None, target.name))}
    source = await made(client, PutTopic(T, name_in(RaftGroup(2), "w"), TopicOptions(), to_dead))
    bodies = await filled(client, source, 40)
    recorder = peer_of(client).attach(source, credit=40)
    await recorder.wait_for(40)
    leader = leader_of(nodes, home_of(source.id))
    assert leader is not None
    await leader.opened.client.dead_letters.stop()  # none is sent before its death
    recorder.settle_now(Settlement.DEAD_LETTER, *list(recorder.held.values()))
    await until(lambda: leader.opened.store.replica(RaftGroup(2)).state.outbox)
    await leader.kill()
    await has_ready(client, target, 40)
    assert sorted(await pull_all(client, target, LeaseVerb.ACK, len(bodies))) == sorted(bodies)


# --- Moves --------------------------------------------------------------------------------------


def listed(client: ClusterClient, name: str) -> list[MoveTask]:
    return tasks(client.records("moves/"), T, name)


async def test_messages_are_moved_from_queues_that_others_lead(cluster: Spread) -> None:
    _, client = cluster
    for home in HOMES:
        source = await made(client, put_topic(name_in(home, "from"), queues=3))
        target = await made(client, put_topic(name_in(home, "to"), queues=2))
        bodies = await filled(client, source, 30)
        start = StartMove(T, source.name, DEFAULT_GROUP, target.name)
        ident = await client.administer(start)
        assert [each.id for each in listed(client, source.name)] == [ident]
        await has_ready(client, target, 30)
        await until(lambda: listed(client, source.name)[0].state is MoveState.COMPLETED)  # noqa: B023
        assert listed(client, source.name)[0].moved == 30
        assert sorted(await pull_all(client, target, LeaseVerb.ACK, len(bodies))) == sorted(bodies)
        with pytest.raises(KernelError) as caught:
            await client.administer(CancelMove(T, source.name, str(ident)))
        assert caught.value.code is Code.NOT_ALLOWED


async def test_a_move_goes_on_at_the_next_leader_and_can_be_cancelled_there(
    cluster: Spread,
) -> None:
    nodes, client = cluster
    home = RaftGroup(2)
    source = await made(client, put_topic(name_in(home, "from"), queues=3))
    target = await made(client, put_topic(name_in(home, "to")))
    await filled(client, source, 60)
    slowly = StartMove(T, source.name, DEFAULT_GROUP, target.name, per_second=5)
    ident = await client.administer(slowly)
    await until(lambda: listed(client, source.name)[0].moved)
    leader = leader_of(nodes, home)
    assert leader is not None
    await lead(nodes, home, leader.number % 3 + 1)
    before = await ready(client, target)
    async with asyncio.timeout(20):
        while await ready(client, target) < before + 10:
            await asyncio.sleep(0.05)
    assert not leader.opened.client.moves._running
    moved = await client.administer(CancelMove(T, source.name, str(ident)))
    assert listed(client, source.name)[0].state is MoveState.CANCELLED
    assert isinstance(moved, int)
    await has_ready(client, source, 60 - await ready(client, target))


# --- What nobody uses ---------------------------------------------------------------------------


async def test_a_topic_that_is_used_where_another_store_leads_does_not_expire(
    cluster: Spread,
) -> None:
    nodes, client = cluster
    used = await made(client, put_topic(name_in(RaftGroup(1), "u"), 3, unused_expiry_ms=2_000))
    idle = await made(client, put_topic(name_in(RaftGroup(1), "i"), 3, unused_expiry_ms=2_000))
    elsewhere = leader_of(nodes, used.queues[1].group)
    assert elsewhere is not None
    assert elsewhere is not leader_of(nodes, home_of(used.id))
    async with asyncio.timeout(10):
        while client.topic(T, idle.name) is not None:
            elsewhere.opened.client.used(used.id, DEFAULT_GROUP)
            await asyncio.sleep(0.1)
    for _ in range(10):
        elsewhere.opened.client.used(used.id, DEFAULT_GROUP)
        await asyncio.sleep(0.1)
    assert client.topic(T, used.name) is used
    await until(lambda: client.topic(T, used.name) is None)


@pytest.mark.parametrize("home", HOMES)
async def test_a_topic_goes_with_its_last_consumer_wherever_it_is_led(
    cluster: Spread, home: RaftGroup
) -> None:
    _, client = cluster
    topic = await made(client, put_topic(name_in(home), queues=2, delete_when_unused=True))
    one, two = (peer_of(client).attach(topic, credit=1) for _ in range(2))
    await client.attached(one.consumer)  # type: ignore[arg-type]
    await client.attached(two.consumer)  # type: ignore[arg-type]
    one.cancel()
    await asyncio.sleep(0.2)
    assert client.topic(T, topic.name) is topic
    two.cancel()
    await until(lambda: client.topic(T, topic.name) is None)


# --- Half messages ------------------------------------------------------------------------------


class Producer:
    """`HalfSink` that remembers what it was asked."""

    def __init__(self) -> None:
        self.checks: list[HalfCheck] = []

    def check(self, check: HalfCheck) -> None:
        self.checks.append(check)


async def test_questions_about_half_messages_are_put_by_the_leader_alone(cluster: Spread) -> None:
    nodes, client = cluster
    home = RaftGroup(2)
    half = HalfOptions(check_after_ms=100, check_interval_ms=60_000, checks_max=5)
    topic = await made(client, put_topic(name_in(home), half=half))
    producers = [Producer() for _ in nodes]
    for node, producer in zip(nodes, producers, strict=True):
        node.opened.client.halves.watch(T, "payers", producer)
    leader = leader_of(nodes, home)
    assert leader is not None
    own = leader.opened.client
    uid = own.batch(own.open_session("p"), Peer(own, CLOCK, "p")).uid()
    token = await own.halves.prepare(topic, "payers", Draft(b"half").parts(uid, 0))
    await until(lambda: any(each.checks for each in producers))
    for node in nodes:
        node.opened.client.half_keeper.ask()  # as it does each second
    # Behind whatever that would have brought into the log.
    await client.proposer.propose(home, tree.JoinIndex(T, "a/+", "nobody", 0))
    assert [len(each.checks) for each in producers] == [
        1 if node is leader else 0 for node in nodes
    ]
    assert producers[nodes.index(leader)].checks[0].token == token


# --- Lists of the topic tree --------------------------------------------------------------------


async def test_a_list_that_nobody_reads_is_left_when_it_was_seen_twice(cluster: Spread) -> None:
    nodes, client = cluster
    group = RaftGroup(1)
    join = tree.JoinIndex(T, "a/+", "nobody", 0)
    await client.proposer.propose(group, join)
    for node in nodes:
        node.opened.client.leader_tasks.look_again_seconds = 1.0
        await until(lambda node=node: node.opened.store.replica(group).state.indexes)  # type: ignore[misc]
    await lead(nodes, group, 3)
    keeper = nodes[2].opened.client.tree._keeper
    await until(lambda: keeper._unwanted.get(group))
    assert nodes[2].opened.store.replica(group).state.indexes
    for node in nodes:
        await until(lambda node=node: not node.opened.store.replica(group).state.indexes)  # type: ignore[misc]
    assert not keeper._unwanted[group]


async def subscribed_without_a_list(
    cluster: Spread, home: RaftGroup, pattern: str
) -> tuple[int, int, str, str]:
    """(number, epoch, share, pattern) of a subscription that every store knows of, and that nothing
    is kept for. Who leads the pattern's group now would mend that too: it does not look.
    """
    nodes, client = cluster
    for node in nodes:
        node.opened.client.leader_tasks.follows(RaftGroup(1))
    open_it = tree.OpenSubscriber(T, "s", False, None, None, owner=4711)
    opened = await client.proposer.propose(home, open_it)
    assert isinstance(opened, tree.Opened)
    who = opened.number, opened.epoch, "", pattern
    await client.proposer.propose(home, tree.PutSubscription(*who, b""))
    for node in nodes:
        states = node.opened.store.replica(home).state.subscribers
        await until(lambda states=states: states[opened.number].subscriptions)  # type: ignore[misc]
    return who


async def test_a_look_at_lists_that_has_to_be_begun_again_is_none(
    cluster: Spread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_tasks, "RETRY_SECONDS", 0.05)
    nodes, client = cluster
    group = RaftGroup(1)
    await client.proposer.propose(group, tree.JoinIndex(T, "about/to/be/put", "somebody", 0))
    await subscribed_without_a_list(cluster, RaftGroup(2), "a/+")
    keeper = nodes[2].opened.client.tree._keeper
    propose, failures = keeper._propose, []

    async def fails_at_first(to: RaftGroup, change: commands.Control) -> object:
        if isinstance(change, tree.JoinIndex) and len(failures) < 3:
            failures.append(change)
            raise KernelError(Code.UNAVAILABLE, "not now")
        return await propose(to, change)

    keeper._propose = fails_at_first
    await lead(nodes, group, 3)
    indexes = nodes[2].opened.store.replica(group).state.indexes
    await until(lambda: (T, "a/+") in indexes)
    assert len(failures) == 3
    assert (T, "about/to/be/put") in indexes


async def test_a_list_that_was_mended_for_a_subscription_that_ended_meanwhile_is_left(
    cluster: Spread,
) -> None:
    nodes, client = cluster
    group, home = RaftGroup(1), RaftGroup(2)
    who = await subscribed_without_a_list(cluster, home, "a/+")
    for node in nodes:
        node.opened.client.leader_tasks.look_again_seconds = 0.5
    keeper = nodes[2].opened.client.tree._keeper
    propose, joined = keeper._propose, []

    async def unsubscribed_first(to: RaftGroup, change: commands.Control) -> object:
        if isinstance(change, tree.JoinIndex) and not joined:
            joined.append(change)
            await client.proposer.propose(home, tree.DeleteSubscription(*who))
        return await propose(to, change)

    keeper._propose = unsubscribed_first
    await lead(nodes, group, 3)
    indexes = nodes[2].opened.store.replica(group).state.indexes
    await until(lambda: indexes)
    await until(lambda: not indexes)
    assert joined


async def test_a_window_is_told_to_the_leaders_of_other_groups(cluster: Spread) -> None:
    nodes, client = cluster
    home = leader_of(nodes, METADATA_GROUP)
    assert home is not None
    await home.opened.client.raise_level(LATEST)
    async with asyncio.timeout(20):
        while any(
            node.opened.store.replica(each).state.feature_level < LATEST
            for node in nodes
            for each in HOMES
        ):
            await asyncio.sleep(0.02)
    peer = peer_of(client)
    topic = await client.administer(put_topic("window", 2, deduplication_ms=300_000))
    assert isinstance(topic, TopicInfo)
    drafts = [
        Draft(b"%d" % each, key=b"%d" % (each % 9), deduplication_id=b"id %d" % each)
        for each in range(3_000)
    ]
    await peer.publish(client.to_topic(topic), *drafts)
    change = ResizeTopic(T, "window", 6, by_key=True, spread=True)
    topic = await client.administer(change)
    assert isinstance(topic, TopicInfo)
    assert len({ref.group for ref in topic.regular}) == DATA_GROUPS
    again = await peer.publish(client.to_topic(topic), *drafts)
    assert again.batch is not None
    assert again.batch.duplicates is not None
    assert len(again.batch.duplicates) == 3_000
    await has_ready(client, topic, 3_000)
    states = [node.opened.store.replica(home).state for node in nodes for home in HOMES]
    windows = [window for each in states for window in each.windows.values()]
    assert sum(each.since(0)[0] for each in windows) >= 3 * 3_000
