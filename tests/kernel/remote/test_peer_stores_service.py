"""What stores ask of each other: answered by leaders alone, within bounds, without harm twice."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

import msgspec
import pytest

from kernel.api.changes import DeleteTopic, PutRoute, PutRouter, PutTopic
from kernel.api.model import DEFAULT_GROUP, Route, RouterOptions, TopicInfo, TopicOptions
from kernel.common.errors import Code, KernelError
from kernel.common.ids import RaftGroup
from kernel.remote.client import ClusterClient
from kernel.remote.leader_calls.call_wire import WireError, decode
from kernel.remote.peer_stores import peer_stores_wire
from kernel.remote.peer_stores.peer_stores_service import PeerStoresService
from tests.kernel.remote.cluster import gateway_of, running_stores
from tests.kernel.remote.spread import GROUPS, T, lead, put_topic, spread_cluster
from tests.kernel.three_stores import Node, until

_T = TypeVar("_T")
GROUP = RaftGroup(1)


def service_of(node: Node) -> PeerStoresService:
    section = node.service._sections.of(peer_stores_wire.CLEAR)
    assert isinstance(section, PeerStoresService)
    return section


async def ask(
    client: ClusterClient,
    method: int,
    question: peer_stores_wire.Question,
    answers: msgspec.msgpack.Decoder[_T],
    node: int = 1,
) -> _T:
    return await client.leaders.ask_node(
        node, method, peer_stores_wire.encode(question), partial(decode, answers)
    )


@pytest.mark.parametrize(
    ("method", "payload"),
    [
        (peer_stores_wire.DEFINED, b""),
        (peer_stores_wire.CLEAR, msgspec.msgpack.encode([1, "default", "queue", "x", 1, 1])),
        (peer_stores_wire.CLEAR, msgspec.msgpack.encode([1, "default", "topic", "x" * 256, 1, 1])),
        (peer_stores_wire.IDLE, msgspec.msgpack.encode([1, -1])),
        (peer_stores_wire.MOVE, msgspec.msgpack.encode([1, "default", 1, "g", 7, 1])),
    ],
)
def test_what_is_no_question_is_not_taken_for_one(method: int, payload: bytes) -> None:
    with pytest.raises(WireError):
        decode(peer_stores_wire.questions[method], payload)


async def test_only_the_leader_answers_and_the_others_name_it(tmp_path: Path) -> None:
    async with running_stores(tmp_path, 3) as nodes, gateway_of(nodes) as client:
        await lead(nodes, GROUP, 2)
        for node in (1, 3):
            with pytest.raises(KernelError) as caught:
                await ask(
                    client,
                    peer_stores_wire.DEFINED,
                    peer_stores_wire.Defined(GROUP),
                    peer_stores_wire.number,
                    node,
                )
            assert (caught.value.code, caught.value.hint) == (Code.NOT_LEADER, 2)
        assert (
            await ask(
                client,
                peer_stores_wire.DEFINED,
                peer_stores_wire.Defined(GROUP),
                peer_stores_wire.number,
                2,
            )
            >= 0
        )


async def test_a_group_that_there_is_not_is_refused(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        with pytest.raises(KernelError) as caught:
            await ask(
                client,
                peer_stores_wire.DEFINED,
                peer_stores_wire.Defined(99),
                peer_stores_wire.number,
            )
        assert caught.value.code is Code.NOT_LEADER


async def test_above_the_limit_questions_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        service = service_of(nodes[0])
        monkeypatch.setattr(service, "_tasks_max", 1)
        late = peer_stores_wire.Clear(GROUP, T, "topic", "x", GROUP, 1 << 40)
        waiting = asyncio.create_task(
            ask(client, peer_stores_wire.CLEAR, late, peer_stores_wire.cleared)
        )
        await until(lambda: service._tasks)
        with pytest.raises(KernelError) as caught:
            await ask(
                client,
                peer_stores_wire.DEFINED,
                peer_stores_wire.Defined(GROUP),
                peer_stores_wire.number,
            )
        assert caught.value.code is Code.BUSY
        assert nodes[0].service.refused()["fellow_questions"] == 1
        with pytest.raises(KernelError) as caught:
            await waiting
        assert caught.value.code is Code.TIMEOUT
        assert (
            await ask(
                client,
                peer_stores_wire.DEFINED,
                peer_stores_wire.Defined(GROUP),
                peer_stores_wire.number,
            )
            >= 0
        )


async def test_a_late_question_spares_the_routes_of_what_was_made_again(tmp_path: Path) -> None:
    async with spread_cluster(tmp_path) as (nodes, client):
        made = cast("TopicInfo", await client.administer(put_topic("t")))
        await client.administer(PutRouter(T, "r", RouterOptions()))
        await client.administer(PutRoute(T, "r", Route(key="k", topic="t")))
        home = RaftGroup(made.id >> 32)
        for node in nodes:
            for group in node.opened.store.data_groups:
                if node.serves(group):
                    late = peer_stores_wire.Clear(group, T, "topic", "t", home, 1)
                    await ask(
                        client, peer_stores_wire.CLEAR, late, peer_stores_wire.cleared, node.number
                    )
        info = client.router(T, "r")
        assert info is not None
        assert len(info.routes) == 1


async def test_a_question_that_comes_again_waits_for_what_is_under_way(tmp_path: Path) -> None:
    async with spread_cluster(tmp_path) as (_nodes, client):
        routers = [f"r{number}" for number in range(30)]
        await client.administer(put_topic("t"))
        for router in routers:
            await client.administer(PutRouter(T, router, RouterOptions(delete_when_unused=True)))
            await client.administer(PutRoute(T, router, Route(key="k", topic="t")))
        deleting = asyncio.create_task(client.administer(DeleteTopic(T, "t")))
        while not deleting.done():
            for node in (1, 2, 3):
                late = peer_stores_wire.Clear(node, T, "topic", "t", node, 0)
                await ask(client, peer_stores_wire.CLEAR, late, peer_stores_wire.cleared, node)
        await deleting
        assert not [router for router in routers if client.router(T, router) is not None]


async def test_how_long_a_topic_was_not_used_is_what_its_leader_knows(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        expires = PutTopic(T, "t", TopicOptions(unused_expiry_ms=60_000), GROUPS)
        made = cast("TopicInfo", await client.administer(expires))
        group = made.queues[0].group
        question = peer_stores_wire.Idle(group, made.id)
        await asyncio.sleep(0.05)
        assert await ask(client, peer_stores_wire.IDLE, question, peer_stores_wire.number) >= 40
        nodes[0].opened.client.used(made.id, DEFAULT_GROUP)
        assert await ask(client, peer_stores_wire.IDLE, question, peer_stores_wire.number) < 40
        assert (
            await ask(
                client,
                peer_stores_wire.IDLE,
                peer_stores_wire.Idle(group, made.id + 1),
                peer_stores_wire.number,
            )
            == 0
        )


async def test_a_topic_of_a_session_is_not_durable(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        owned = TopicOptions(owner=client.open_session("s").id)
        with pytest.raises(KernelError) as caught:
            await client.administer(PutTopic(T, "t", owned, GROUPS))
        assert caught.value.code is Code.INVALID_ARGUMENT
        assert nodes[0].opened.client.topic(T, "t") is None
