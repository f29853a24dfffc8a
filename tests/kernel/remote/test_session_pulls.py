"""Pulls of a gateway without a store whose leases last as long as a session (AMQP's basic.get)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernel.api.client import PutTopic, Received, ReceiveSpec, Session, Settlement
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    GroupOptions,
    QueueRef,
    TopicInfo,
    TopicOptions,
)
from kernel.common.errors import Code, KernelError
from kernel.common.ids import QueueId
from kernel.remote.client import ClusterClient
from tests.kernel.remote.cluster import gateway_of, lose, meeting_gateway_of, running_stores
from tests.kernel.remote.gateway import GROUP, Gateway, body_of, started
from tests.kernel.remote.test_pulls import leased, made, published
from tests.kernel.remote.test_streams import Recorder, cut, unacked
from tests.kernel.three_stores import leader_of, until


def asks(topic: TopicInfo, session: Session, messages: int = 1, wait_ms: int = 0) -> ReceiveSpec:
    return ReceiveSpec(topic, DEFAULT_GROUP, messages, wait_ms, session)


def bodies(received: Received) -> list[bytes]:
    deliveries = received.deliveries
    return [body_of(each) for each in deliveries.slots] if deliveries is not None else []


def settle(client: ClusterClient, received: Received, how: Settlement) -> None:
    assert received.consumer is not None
    assert received.deliveries is not None
    client.settle(received.consumer, how, received.deliveries.offsets)


async def test_what_is_pulled_is_leased_to_the_session(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        session = client.open_session("a connection")
        assert bodies(await client.receive(asks(topic, session))) == []
        await published(client, topic, 0, b"1", b"2", b"3")
        first = await client.receive(asks(topic, session))
        assert (bodies(first), first.ready, list(first.tokens)) == ([b"1"], 2, [])
        second = await client.receive(asks(topic, session, 5))
        assert bodies(second) == [b"2", b"3"]
        settle(client, first, Settlement.ACK)
        settle(client, second, Settlement.RELEASE)
        again: list[bytes] = []
        while len(again) < 2:
            again += bodies(await client.receive(asks(topic, session, 5, 1_000)))
        assert again == [b"2", b"3"]
        session.close()
        other = client.open_session("another")
        third = await client.receive(asks(topic, other, 5, 1_000))
        assert bodies(third)
        assert third.deliveries is not None
        assert set(third.deliveries.attempts or ()) == {3}


async def test_one_stream_serves_the_pulls_of_a_session(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        session = client.open_session("a connection")
        await published(client, topic, 0, *[b"%d" % each for each in range(8)])
        for _ in range(4):
            settle(client, await client.receive(asks(topic, session)), Settlement.ACK)
        assert client.streams.count == 1
        both = await asyncio.gather(*[client.receive(asks(topic, session)) for _ in range(2)])
        assert sorted(bodies(both[0]) + bodies(both[1])) == [b"4", b"5"]
        assert client.streams.count == 2
        session.close()
        await until(lambda: not client.streams.count)
        await until(lambda: not leased(nodes, topic))


async def test_a_pull_waits_for_the_first_message_of_any_queue(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes, queues=3)
        session = client.open_session("a connection")
        pull = asyncio.create_task(client.receive(asks(topic, session, wait_ms=5_000)))
        await until(lambda: client.streams.count == 3)
        await asyncio.sleep(0.05)
        assert not pull.done()
        await published(client, topic, 2, b"x", b"y")
        assert bodies(await pull) == [b"x"]
        rest = await client.receive(asks(topic, session, wait_ms=1_000))
        assert bodies(rest) == [b"y"]
        assert rest.deliveries is not None
        assert not rest.deliveries.attempts or set(rest.deliveries.attempts) == {1}


async def test_a_pull_that_is_cancelled_leases_nothing(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        session = client.open_session("a connection")
        pull = asyncio.create_task(client.receive(asks(topic, session, wait_ms=60_000)))
        await until(lambda: client.streams.count == 1)
        await asyncio.sleep(0.05)
        pull.cancel()
        await asyncio.gather(pull, return_exceptions=True)
        await until(lambda: not client.streams.count)
        await published(client, topic, 0, b"x")
        assert not leased(nodes, topic)
        got = await client.receive(asks(topic, session))
        assert bodies(got) == [b"x"]
        assert got.deliveries is not None
        assert not got.deliveries.attempts or set(got.deliveries.attempts) == {1}


async def test_a_pull_of_a_session_that_closes_ends(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        session = client.open_session("a connection")
        pull = asyncio.create_task(client.receive(asks(topic, session, wait_ms=60_000)))
        await until(lambda: client.streams.count == 1)
        session.close()
        assert bodies(await asyncio.wait_for(pull, 5)) == []


async def test_a_pull_outlives_its_connection_and_takes_each_message_once(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        session = client.open_session("a connection")
        pull = asyncio.create_task(client.receive(asks(topic, session, wait_ms=10_000)))
        await until(lambda: client.streams.count == 1)
        await asyncio.sleep(0.05)
        cut(nodes[0])
        await asyncio.sleep(0.05)
        await published(client, topic, 0, b"1", b"2")
        first = await pull
        assert bodies(first) == [b"1"]
        cut(nodes[0])
        assert bodies(await client.receive(asks(topic, session))) == [b"2"]
        settle(client, first, Settlement.ACK)
        await until(lambda: leased(nodes, topic) == 1)


async def test_a_pull_is_asked_again_of_the_next_leader(tmp_path: Path) -> None:
    async with running_stores(tmp_path, 3, data_groups=1) as nodes, gateway_of(nodes) as client:
        gateway = Gateway(nodes[0].addresses)
        async with started(gateway, nodes):
            (queue,) = await gateway.topic("work")
            leader = leader_of(nodes, GROUP)
            assert leader is not None
            topic = leader.opened.store.replica(GROUP).state.queues[queue].topic.info()
            session = client.open_session("a connection")
            await gateway.stored(queue, [b"1"])
            first = await client.receive(asks(topic, session))
            waiting = asyncio.create_task(client.receive(asks(topic, session, wait_ms=15_000)))
            await until(lambda: client.streams.count == 2 or not waiting.done())
            await leader.kill()
            await until(lambda: leader_of(nodes, GROUP))
            await gateway.stored(queue, [b"2"])
            second = await waiting
            assert (bodies(first), bodies(second)) == ([b"1"], [b"2"])
            settle(client, first, Settlement.ACK)
            settle(client, second, Settlement.ACK)
            await until(lambda: not unacked(nodes, topic))


async def test_a_pull_waits_as_long_as_a_new_leader_waits_for_a_gateway_that_is_gone(
    tmp_path: Path,
) -> None:
    async with (
        running_stores(tmp_path, 3, data_groups=1) as nodes,
        gateway_of(nodes) as client,
        meeting_gateway_of(nodes) as other,
    ):
        topic = await made(nodes)
        await published(client, topic, 0, b"x", b"y")
        first = await other.receive(asks(topic, other.open_session("it holds a message")))
        assert bodies(first) == [b"x"]
        session = client.open_session("a connection")
        leader = leader_of(nodes, topic.queues[0].group)
        assert leader is not None
        await leader.kill()
        pull = asyncio.create_task(client.receive(asks(topic, session, 2)))
        await asyncio.sleep(0.01)
        await lose(other)
        assert bodies(await pull) == [b"x", b"y"]


async def test_a_full_group_refuses_a_pull_and_a_gone_topic_too(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        groups = {DEFAULT_GROUP: GroupOptions(in_flight_max=1)}
        change = PutTopic(DEFAULT_TENANT, "work", TopicOptions(), groups)
        topic = await nodes[0].opened.client.administer(change)
        assert isinstance(topic, TopicInfo)
        await published(client, topic, 0, b"1", b"2")
        session = client.open_session("a connection")
        await client.receive(asks(topic, session))
        with pytest.raises(KernelError) as caught:
            await client.receive(asks(topic, session))
        assert caught.value.code is Code.LIMIT_EXCEEDED
        ref = topic.queues[0]
        other = QueueRef(QueueId(ref.id + (1 << 20)), ref.group)
        gone = TopicInfo(topic.tenant, "gone", topic.id, 1, topic.options, (other,), {})
        with pytest.raises(KernelError) as caught:
            await client.receive(asks(gone, session))
        assert caught.value.code is Code.NOT_FOUND


async def test_a_pull_of_a_slow_gateway_is_carried_out_later(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        await published(client, topic, 0, b"x" * 5_000, b"y")
        service = nodes[0].service._sections.of(32)
        service._waiting_bytes_max = 1_000  # type: ignore[union-attr]
        session = client.open_session("a connection")
        pulls = [client.receive(asks(topic, session)) for _ in range(2)]
        got = await asyncio.gather(*pulls)
        assert sorted(bodies(got[0]) + bodies(got[1])) == [b"x" * 5_000, b"y"]
        assert service.figures.paused  # type: ignore[union-attr]


async def test_a_pull_is_in_no_consumers_way(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        session = client.open_session("a connection")
        await client.receive(asks(topic, session))
        recorder = Recorder(client, topic, 1, exclusive=True)
        await client.attached(recorder.consumer)
        await published(client, topic, 0, b"1", b"2")
        await recorder.wait_for(1)
        got = await client.receive(asks(topic, session))
        assert (recorder.bodies, bodies(got)) == ([b"1"], [b"2"])


async def test_a_session_that_ends_while_it_asks_queue_by_queue_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes, queues=2)
        session = client.open_session("a connection")
        pull = asyncio.create_task(client.receive(asks(topic, session, wait_ms=60_000)))
        await asyncio.sleep(0)
        assert client.streams.count == 1
        session.close()
        assert bodies(await pull) == []
        await until(lambda: not client.streams.count)
