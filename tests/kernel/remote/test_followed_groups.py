"""Three stores of which none has a replica of every group: it hears of the others by feeds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from kernel.api.changes import DeleteTopic, PutRoute, PutRouter
from kernel.api.client import Client
from kernel.api.model import Route, RouterOptions, TopicInfo
from kernel.broker.log_commands import commands
from kernel.broker.log_commands import tree_commands as tree
from kernel.broker.snapshots.tree_snapshot import index_queue
from kernel.common.ids import RaftGroup
from kernel.quotas.accounts import Quotas
from kernel.quotas.limits import Entity, LimitSet, Scope
from kernel.raft.members.configuration import (
    ADD_LEARNER,
    ADD_VOTER,
    REMOVE,
    Change,
    ConfigurationChange,
)
from kernel.remote.peer_stores import peer_stores_wire
from tests.kernel.remote.spread import (
    Spread,
    T,
    clients,
    lead,
    name_in,
    names,
    put_topic,
    spread_cluster,
)
from tests.kernel.remote.test_tree_far import Far
from tests.kernel.three_stores import Node, leader_of, until
from tests.kernel.tree_client import SubscriberClient

FIRST, SECOND = RaftGroup(1), RaftGroup(2)
TENANT = Entity(Scope.TENANT, T, "")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Spread]:
    """Group n is led by store n; store n + 1 has no replica of it."""
    async with spread_cluster(tmp_path, thin=True) as running:
        yield running


def shown(client: Client) -> tuple[dict[str, TopicInfo], dict[str, list[str]]]:
    """All that look-ups show."""
    routers = {name: client.router(T, name) for name in client.routers(T)}
    return (
        {each.name: each for each in client.topics(T)},
        {name: sorted(map(repr, each.routes)) for name, each in routers.items() if each},
    )


async def same_everywhere(cluster: Spread) -> None:
    """Whoever is asked shows the same, as soon as all have heard."""
    one, *others = clients(cluster)
    await until(lambda: all(shown(each) == shown(one) for each in others))


def parts_of(nodes: list[Node], ident: int) -> list[int]:
    """Groups that have something of a topic, as their leaders say."""
    groups = map(RaftGroup, (1, 2, 3))
    leaders = {group: leader_of(nodes, group) for group in groups}
    return [
        int(group)
        for group, node in leaders.items()
        if node is None or ident in node.opened.store.replica(group).state.topics
    ]


async def change(nodes: list[Node], group: RaftGroup, kind: int, node: int) -> None:
    leader = leader_of(nodes, group)
    assert leader is not None
    made = ConfigurationChange((Change(kind, node),))
    leader.opened.store.consensus.change_members(group, made)


async def test_whoever_is_asked_shows_and_changes_all_there_is(cluster: Spread) -> None:
    nodes, _ = cluster
    for number, client in enumerate(clients(cluster)):
        routers = names(f"r{number}-")
        for router in routers:
            await client.administer(PutRouter(T, router, RouterOptions()))
        made = [
            cast("TopicInfo", await client.administer(put_topic(name, queues=3)))
            for name in names(f"t{number}-")
        ]
        for router in routers:
            for topic in made:
                await client.administer(PutRoute(T, router, Route(key="k", topic=topic.name)))
        await same_everywhere(cluster)
        assert parts_of(nodes, made[0].id) == [1, 2, 3]
        for topic in made[:2]:
            await client.administer(DeleteTopic(T, topic.name))
            assert not parts_of(nodes, topic.id)
        await same_everywhere(cluster)
        assert [len(shown(client)[1][router]) for router in routers] == [1, 1, 1]


async def test_a_leader_mends_what_is_left_in_a_group_it_has_no_replica_of(
    cluster: Spread, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, client = cluster
    monkeypatch.setattr(peer_stores_wire, "PAGE_NAMES", 2)
    routers = names("r")
    made = [
        cast("TopicInfo", await client.administer(put_topic(name_in(FIRST, f"t{each}"), queues=3)))
        for each in range(4)
    ]
    for router in routers:
        await client.administer(PutRouter(T, router, RouterOptions()))
        await client.administer(PutRoute(T, router, Route(key="k", topic=made[0].name)))
    store = nodes[0].opened.store
    identity = nodes[0].opened.client.next_identity()
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    delete = commands.DeleteTopic(made[0].id)  # the deciding command, and nothing behind it
    store.leader(FIRST).propose(delete, identity, done.set_result)
    await done
    assert parts_of(nodes, made[0].id) == [2, 3]
    assert not nodes[2].opened.store.holds(SECOND)
    await lead(nodes, FIRST, 3)
    await client.administer(put_topic(made[0].name))  # waits until all is mended
    assert not parts_of(nodes, made[0].id)
    assert [parts_of(nodes, each.id) for each in made[1:]] == [[1, 2, 3]] * 3
    await same_everywhere(cluster)
    assert [len(shown(cast("Client", client))[1][each]) for each in routers] == [0, 0, 0]


async def test_look_ups_stay_whole_while_a_replica_comes_and_goes(cluster: Spread) -> None:
    nodes, client = cluster
    second = nodes[1].opened
    kept, gone, late = (name_in(FIRST, each) for each in ("kept", "gone", "late"))
    router = name_in(FIRST, "router")
    await client.administer(PutRouter(T, router, RouterOptions()))
    for name in (kept, gone):
        await client.administer(put_topic(name))
        await client.administer(PutRoute(T, router, Route(key=name, topic=name)))
    await same_everywhere(cluster)
    before = second.client.topic(T, kept)
    await client.administer(DeleteTopic(T, gone))
    await change(nodes, FIRST, ADD_LEARNER, 2)
    await until(lambda: second.store.holds(FIRST))
    await change(nodes, FIRST, ADD_VOTER, 2)
    await until(lambda: 2 in second.store.member(FIRST).core.tracker.members.voters)
    await same_everywhere(cluster)
    assert second.client.topic(T, kept) == before
    await client.administer(put_topic(late))
    await same_everywhere(cluster)
    await change(nodes, FIRST, REMOVE, 2)
    await until(lambda: not second.store.holds(FIRST))
    await client.administer(DeleteTopic(T, late))
    await same_everywhere(cluster)


async def test_a_store_that_starts_anew_hears_of_what_it_has_no_replica_of(
    cluster: Spread,
) -> None:
    nodes, client = cluster
    for name in names("t"):
        await client.administer(put_topic(name, queues=3))
    await nodes[1].stop()
    await nodes[1].start()
    assert not nodes[1].opened.store.holds(FIRST)
    await client.administer(DeleteTopic(T, name_in(FIRST, "t")))
    await same_everywhere(cluster)
    assert len(nodes[1].opened.client.topics(T)) == 2


async def test_every_store_knows_what_a_tenant_stores_in_all_groups(cluster: Spread) -> None:
    """By its replicas and by their leaders; what is left of a replica does not count."""
    nodes, _ = cluster
    for node in nodes:
        store = node.opened.store
        node.opened.client.limit_stored(Quotas({TENANT: LimitSet(stored_messages=100)}), 1)
        for group in (FIRST, SECOND):
            tally = [40, 4_000] if store.holds(group) else [999, 0]
            store.replica(group).state.stored.by_tenant[T] = tally
    for node in nodes:
        room = node.opened.store.topic_room.stored
        await until(lambda room=room: room.figures("tenant", T, "") == (80, 8_000))
    assert {len(each.opened.store.topic_room.stored.elsewhere) for each in nodes} == {1}


async def test_no_leader_takes_a_reader_for_unwanted_whose_subscriber_it_has_no_replica_of(
    cluster: Spread,
) -> None:
    """It did: a minute after an election acknowledged messages went to nobody."""
    nodes, client = cluster
    gateway = Far(client)
    names = [f"client-{number}" for number in range(12)]  # some have their home in each group
    for name in names:
        subscriber = await SubscriberClient.open(gateway, name, expiry_ms=None)
        await subscriber.subscribe("a/#")
        await subscriber.subscribe("a/+", share="crew")
    readers = {f"own/{number:x}" for node in nodes for number in numbers_in(node)}
    assert len(readers) == len(names)
    for _ in range(3):
        for group in map(RaftGroup, (1, 2, 3)):
            leader = leader_of(nodes, group)
            assert leader is not None
            await leader.opened.client.tree.repair([group])
    for group in map(RaftGroup, (1, 2, 3)):
        leader = leader_of(nodes, group)
        assert leader is not None
        state = leader.opened.store.replica(group).state
        kept = {
            name
            for ident in state.indexes.values()
            for name in state.queues[index_queue(ident)].groups
        }
        assert kept == {*readers, "share/crew"}


async def test_a_reader_that_a_crash_has_left_goes_though_its_home_is_elsewhere(
    cluster: Spread,
) -> None:
    """Nobody took it away where its subscriber's home has no replica: its list grew for ever."""
    nodes, client = cluster
    for node in nodes:
        node.opened.client.leader_tasks.follows(RaftGroup(1))
    subscriber = await SubscriberClient.open(Far(client), "s", expiry_ms=None)
    await subscriber.subscribe("a/#")
    await subscriber.subscribe("a/+", share="crew")
    left = [tree.JoinIndex(T, "a/+", "share/gone", 0)]
    left += [tree.JoinIndex(T, "a/+", f"own/{home << 40 | 99:x}", 0) for home in (1, 2, 3)]
    for join in left:
        await client.proposer.propose(FIRST, join)
    leader = leader_of(nodes, FIRST)
    assert leader is not None
    state = leader.opened.store.replica(FIRST).state

    def readers() -> set[str]:
        lists = (state.queues[index_queue(ident)] for ident in state.indexes.values())
        return {name for each in lists for name in each.groups}

    await until(lambda: {each.group for each in left} <= readers())
    repair = leader.opened.client.tree.repair
    assert await repair([FIRST]), "it is looked at again"
    assert {each.group for each in left} <= readers(), "somebody may be about to want it"
    assert await repair([FIRST])
    await until(
        lambda: readers() == {f"own/{n:x}" for x in nodes for n in numbers_in(x)} | {"share/crew"}
    )
    assert not await repair([FIRST])


def numbers_in(node: Node) -> list[int]:
    """Of the subscribers whose home it leads."""
    store = node.opened.store
    led = [store.replica(group) for group in map(RaftGroup, (1, 2, 3)) if store.serving(group)]
    return [number for replica in led for number in replica.state.subscribers]
