"""Three stores of which each leads some of the groups: changes are whole wherever they are made."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest

from kernel.api.changes import (
    DeleteGroup,
    DeleteRoute,
    DeleteRouter,
    DeleteTopic,
    PurgeTopic,
    PutRecord,
    PutRoute,
    PutRouter,
    PutTopic,
)
from kernel.api.client import Client
from kernel.api.model import (
    DEFAULT_GROUP,
    GroupOptions,
    Route,
    RouterOptions,
    TopicInfo,
    TopicOptions,
)
from kernel.broker.log_commands import commands
from kernel.common.errors import Code, KernelError
from kernel.common.ids import METADATA_GROUP, RaftGroup, TopicId, home_of
from kernel.remote.client import ClusterClient
from kernel.routing.destinations import Found
from tests.kernel.remote.local import peer_of
from tests.kernel.remote.spread import (
    DATA_GROUPS,
    Spread,
    T,
    clients,
    lead,
    name_in,
    names,
    put_topic,
    spread_cluster,
)
from tests.kernel.three_stores import Node, leader_of, until


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Spread]:
    async with spread_cluster(tmp_path) as running:
        yield running


def targets(client: Client | ClusterClient, router: str, key: str = "k") -> tuple[TopicInfo, ...]:
    found = client.to_router(T, router, key)
    assert isinstance(found, Found)
    return found.topics


def queues_of(nodes: list[Node]) -> dict[int, set[int]]:
    """Queues that each store has, reference lists aside."""
    return {
        node.number: {
            int(ident) for each in node.opened.store.replicas() for ident in each.state.queues
        }
        for node in nodes
        if node.runs
    }


async def everywhere(cluster: Spread, condition: Callable[[Client], object]) -> None:
    """Return once a condition holds for everybody."""
    for each in clients(cluster):
        await until(lambda each=each: condition(each))  # type: ignore[misc]


# --- Topics -------------------------------------------------------------------------------------


async def test_topics_with_queues_in_every_group_live_from_anywhere(cluster: Spread) -> None:
    nodes, gateway = cluster
    for number, client in enumerate(clients(cluster)):
        for name in names(f"t{number}-"):
            made = cast("TopicInfo", await client.administer(put_topic(name, queues=4)))
            assert client.topic(T, name) is made
            assert {ref.group for ref in made.queues} == {1, 2, 3}
            peer = peer_of(gateway, "publisher")
            await until(lambda name=name: gateway.topic(T, name))  # type: ignore[misc]
            await peer.publish(made, *[b"m"] * 8)
            assert (await client.statistics(made, DEFAULT_GROUP)).ready == 8
            assert await client.administer(PurgeTopic(T, name, DEFAULT_GROUP)) == 8
            more = PutTopic(T, name, TopicOptions(queues=4), {"audit": GroupOptions()})
            added = cast("TopicInfo", await client.administer(more))
            assert set(added.groups) == {DEFAULT_GROUP, "audit"}
            await peer.publish(added, *[b"m"] * 4)
            assert (await client.statistics(added, "audit")).ready == 4
            await client.administer(DeleteGroup(T, name, "audit"))
            with pytest.raises(KernelError) as caught:
                await client.statistics(added, "audit")
            assert caught.value.code is Code.NOT_FOUND
            with pytest.raises(KernelError) as caught:
                await client.administer(DeleteTopic(T, name, if_empty=True))
            assert caught.value.code is Code.IN_USE
            assert await client.administer(DeleteTopic(T, name)) == 4
            assert client.topic(T, name) is None
    await until(lambda: queues_of(nodes) == {1: set(), 2: set(), 3: set()})


async def test_every_store_hears_what_each_group_has_stored_of_a_topic(cluster: Spread) -> None:
    """By which the leader of its home decides how large it is to be."""
    nodes, gateway = cluster
    made = cast("TopicInfo", await gateway.administer(put_topic("used", queues=4)))
    await peer_of(gateway, "publisher").publish(made, *[b"m"] * 8)
    nothing = TopicId(made.id + 1)
    for node in nodes:
        tails: dict[int, int] = {}
        for group in {ref.group for ref in made.queues}:
            found = await node.opened.client.sizing._used(group, [made.id, nothing])
            assert list(found) == [made.id]
            assert found[made.id].bytes > 0
            tails.update(found[made.id].tails)
        assert (len(tails), sum(tails.values())) == (4, 8)


async def test_records_are_written_from_anywhere(cluster: Spread) -> None:
    for number, client in enumerate(clients(cluster)):
        version = await client.administer(PutRecord(f"users/{number}", b"1"))
        assert client.records("users/")[f"users/{number}"] == (version, b"1")


# --- Routes -------------------------------------------------------------------------------------


async def test_the_routes_to_what_is_deleted_go_in_every_group(cluster: Spread) -> None:
    """The thing made anew under the same name has none of them."""
    for number, client in enumerate(clients(cluster)):
        routers = names(f"r{number}-")
        for router in routers:
            await client.administer(PutRouter(T, router, RouterOptions()))
        for topic in names(f"t{number}-"):
            made = await client.administer(put_topic(topic))
            for router in routers:
                await client.administer(PutRoute(T, router, Route(key="k", topic=topic)))
                assert targets(client, router) == (made,)
            await client.administer(DeleteTopic(T, topic))
            again = await client.administer(put_topic(topic))
            for router in routers:
                info = client.router(T, router)
                assert info is not None
                assert not info.routes
                assert not targets(client, router)
            await client.administer(PutRoute(T, routers[0], Route(key="k", topic=topic)))
            assert targets(client, routers[0]) == (again,)
            route = Route(key="k", topic=topic)
            assert await client.administer(DeleteRoute(T, routers[0], route)) is True
            assert await client.administer(DeleteRoute(T, routers[0], route)) is False


async def test_routers_that_nothing_uses_go_one_after_the_other(cluster: Spread) -> None:
    _, client = cluster
    await client.administer(put_topic("end"))
    chain = [*names("a"), *names("b")]
    options = RouterOptions(delete_when_unused=True)
    end = Route(key="k", topic="end")
    for router in chain:
        await client.administer(PutRouter(T, router, options))
        await client.administer(PutRoute(T, router, end))
        end = Route(key="k", router=router)
    assert [each.name for each in targets(client, chain[-1])] == ["end"]
    await client.administer(DeleteTopic(T, "end"))
    assert [client.router(T, each) for each in chain] == [None] * len(chain)


async def test_routers_that_lead_to_each_other_are_deleted_at_once(cluster: Spread) -> None:
    _, client = cluster
    ring = names("ring")
    for router in ring:
        await client.administer(PutRouter(T, router, RouterOptions()))
    for one in ring:
        for other in ring:
            if one != other:
                await client.administer(PutRoute(T, one, Route(key="k", router=other)))
    async with asyncio.timeout(10):
        await asyncio.gather(*(client.administer(DeleteRouter(T, each)) for each in ring))
    await everywhere(cluster, lambda each: not any(each.router(T, name) for name in ring))


async def test_a_route_finds_what_another_process_has_just_made(cluster: Spread) -> None:
    nodes, client = cluster
    await client.administer(PutRouter(T, "in", RouterOptions()))
    for number in range(10):
        for node in nodes:
            name = f"t{number}-{node.number}"
            await node.opened.client.administer(put_topic(name))
            await client.administer(PutRoute(T, "in", Route(key="k", topic=name)))
    assert len(targets(client, "in")) == 30


async def test_a_route_to_nothing_is_refused_by_name(cluster: Spread) -> None:
    _, client = cluster
    for router in names("r"):
        await client.administer(PutRouter(T, router, RouterOptions()))
        for change in (Route(key="k", topic="gone"), Route(key="k", router="gone")):
            with pytest.raises(KernelError) as caught:
                await client.administer(PutRoute(T, router, change))
            assert caught.value.code is Code.NOT_FOUND
            assert "gone" in caught.value.message


async def test_no_route_outlives_a_race_of_its_making_with_the_deletion_of_its_end(
    cluster: Spread,
) -> None:
    nodes, gateway = cluster
    routers = names("r")
    for router in routers:
        await gateway.administer(PutRouter(T, router, RouterOptions()))
    made = 0

    async def bind(client: Client, router: str, topic: str) -> None:
        nonlocal made
        with contextlib.suppress(KernelError):
            await client.administer(PutRoute(T, router, Route(key="k", topic=topic)))
            made += 1

    for number in range(15):
        topic = f"t{number}"
        await gateway.administer(put_topic(topic))
        deleting = gateway.administer(DeleteTopic(T, topic))
        binding = (bind(client, router, topic) for client in clients(cluster) for router in routers)
        await asyncio.gather(*binding, deleting)
    assert made
    for node in nodes:
        topology = node.opened.client.topology
        await until(lambda topology=topology: not list(topology.dangling()))  # type: ignore[misc]


# --- Leaders that go ----------------------------------------------------------------------------


async def test_changes_go_on_while_leaders_are_moved(cluster: Spread) -> None:
    nodes, client = cluster
    over = asyncio.Event()
    turn = 0

    async def move() -> None:
        nonlocal turn
        while not over.is_set():
            turn += 1
            for group in range(DATA_GROUPS + 1):
                await lead(nodes, RaftGroup(group), (group + turn) % 3 + 1)
            await asyncio.sleep(0.05)

    moving = asyncio.create_task(move())
    try:
        await asyncio.gather(*(churn(client, f"c{each}-", 10) for each in range(4)))
    finally:
        over.set()
        await moving
    assert turn > 2
    await assert_whole(cluster)


async def churn(client: ClusterClient, what: str, rounds: int) -> None:
    """Make, bind, change and delete topics; what is left at the end is bound once."""
    router = f"{what}router"
    await client.administer(PutRouter(T, router, RouterOptions()))
    for number in range(rounds):
        name = f"{what}{number}"
        route = Route(key="k", topic=name)
        made = await client.administer(put_topic(name, queues=3))
        await client.administer(PutRoute(T, router, route))
        assert made in targets(client, router)
        if number % 2:
            await client.administer(DeleteTopic(T, name))
            assert client.topic(T, name) is None


async def assert_whole(cluster: Spread) -> None:
    """No store has queues, groups or routes that belong to nothing; all know the same."""
    nodes, client = cluster
    known = {each.name: each for each in client.topics(T)}
    wanted = {int(ref.id) for each in known.values() for ref in each.queues}
    for node in nodes:
        if not node.runs:
            continue
        own = node.opened.client
        await until(lambda own=own: {each.name: each for each in own.topics(T)} == known)  # type: ignore[misc]
        await until(lambda node=node: queues_of([node])[node.number] == wanted)  # type: ignore[misc]
        assert not list(own.topology.dangling())


async def test_changes_are_whole_after_a_leader_has_died_in_the_middle(cluster: Spread) -> None:
    nodes, client = cluster
    for node in nodes:
        node.opened.client.leader_tasks.look_again_seconds = 1.0
    working = asyncio.gather(*(churn(client, f"c{each}-", 8) for each in range(6)))
    await until(lambda: len(client.topics(T)) > 4)
    await nodes[1].kill()
    async with asyncio.timeout(60):
        await working
    assert len(client.topics(T)) == 24
    await assert_whole(cluster)


async def test_a_leader_that_begins_undoes_what_the_last_one_left(cluster: Spread) -> None:
    """Queues without a topic, routes without an end: it died behind its deciding command."""
    nodes, client = cluster
    topic, router = name_in(RaftGroup(1), "t"), name_in(RaftGroup(2), "r")
    made = cast("TopicInfo", await client.administer(put_topic(topic, queues=3)))
    await client.administer(PutRouter(T, router, RouterOptions()))
    await client.administer(PutRoute(T, router, Route(key="k", topic=topic)))
    assert home_of(made.id) == 1
    own = nodes[0].opened.client
    store = nodes[0].opened.store
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    store.leader(RaftGroup(1)).propose(
        commands.DeleteTopic(made.id), own.next_identity(), done.set_result
    )
    await done
    assert len(own.topology.routes_to(T, "topic", topic)) == 1
    await lead(nodes, RaftGroup(1), 3)
    again = await client.administer(put_topic(topic, queues=3))
    info = client.router(T, router)
    assert info is not None
    assert not info.routes
    assert isinstance(again, TopicInfo)
    assert again.id != made.id
    await until(lambda: queues_of(nodes)[3] == {int(ref.id) for ref in again.queues})


async def test_ids_of_another_leader_are_never_given_again(cluster: Spread) -> None:
    nodes, client = cluster
    seen: set[int] = set()
    for turn in range(3):
        await lead(nodes, RaftGroup(1), turn % 3 + 1)
        made = cast(
            "TopicInfo", await client.administer(put_topic(name_in(RaftGroup(1), f"t{turn}-")))
        )
        assert all(abs(made.id - each) >= 4_096 for each in seen)
        seen.add(made.id)


async def test_metadata_is_written_while_its_leader_dies(cluster: Spread) -> None:
    nodes, client = cluster
    leader = leader_of(nodes, METADATA_GROUP)
    assert leader is not None
    dying = asyncio.create_task(leader.kill())
    version = await client.administer(PutRecord("users/ada", b"1"))
    assert client.records("users/") == {"users/ada": (version, b"1")}
    await dying
