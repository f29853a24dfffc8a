"""Pulls of a gateway without a store: long polls at leaders far away, and no lease left behind."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from kernel.client import LeaseChange, LeaseVerb, PutTopic, Received, ReceiveSpec
from kernel.errors import Code, KernelError
from kernel.ids import Offset
from kernel.model import DEFAULT_GROUP, DEFAULT_TENANT, GroupOptions, TopicInfo, TopicOptions
from kernel.remote import pull_wire
from kernel.remote.client import ClusterClient
from tests.kernel.remote.cluster import gateway_of, running_stores
from tests.kernel.remote.gateway import GROUP, Gateway, body_of, slot, started
from tests.kernel.three_stores import Node, leader_of, until


async def made(nodes: list[Node], queues: int = 1) -> TopicInfo:
    """A topic, made by the one store there is."""
    change = PutTopic(
        DEFAULT_TENANT, "work", TopicOptions(queues=queues), {DEFAULT_GROUP: GroupOptions()}
    )
    info = await nodes[0].opened.client.administer(change)
    assert isinstance(info, TopicInfo)
    return info


async def published(client: ClusterClient, topic: TopicInfo, number: int, *bodies: bytes) -> None:
    ref = topic.queues[number]
    slots = [slot(each) for each in bodies]
    lengths = list(map(len, slots))
    identity = client.next_identity()
    await client.proposer.outcome(
        ref.group,
        lambda leader, done: leader.publish(
            identity,
            [(ref.id, 0, len(slots), 0)],
            list(lengths),
            list(slots),
            sum(lengths),
            done,
            1,
        ),
    )


def bodies_of(received: Received) -> list[bytes]:
    return [body_of(each) for each in received.deliveries.slots] if received.deliveries else []


def leased(nodes: list[Node], topic: TopicInfo) -> int:
    store = nodes[0].opened.store
    return sum(
        store.replica(ref.group).dispatcher(ref.id, DEFAULT_GROUP).leased_count
        for ref in topic.queues
    )


async def test_what_is_pulled_is_leased_and_settled_by_token(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=10)
        assert (await client.receive(spec)).deliveries is None
        await published(client, topic, 0, b"1", b"2")
        found = await client.receive(spec)
        assert bodies_of(found) == [b"1", b"2"]
        assert (await client.receive(spec)).deliveries is None
        changes = [LeaseChange(each, LeaseVerb.ACK) for each in found.tokens]
        assert await client.settle_leases(topic, DEFAULT_GROUP, changes) == [None, None]
        service = nodes[0].service._sections.of(pull_wire.PULL)
        await until(lambda: not service.unheard)  # type: ignore[union-attr]


@pytest.mark.parametrize("number", [0, 1])
async def test_a_long_poll_waits_at_several_groups_at_once(tmp_path: Path, number: int) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes, queues=2)
        assert len({ref.group for ref in topic.queues}) == 2
        spec = ReceiveSpec(topic, DEFAULT_GROUP, wait_ms=20_000)
        pull = asyncio.create_task(client.receive(spec))
        await asyncio.sleep(0.1)
        await published(client, topic, number, b"x")
        assert bodies_of(await asyncio.wait_for(pull, 5)) == [b"x"]
        assert client.pulls.waiting == 0


async def test_a_cancelled_poll_leaves_no_lease_behind(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        spec = ReceiveSpec(topic, DEFAULT_GROUP, wait_ms=20_000)
        for pause in (0.0, 0.001, 0.003, 0.01, 0.03):
            pull = asyncio.create_task(client.receive(spec))
            await asyncio.sleep(0.02)
            await published(client, topic, 0, b"x")
            await asyncio.sleep(pause)
            pull.cancel()
            found = (await asyncio.gather(pull, return_exceptions=True))[0]
            if isinstance(found, Received):
                changes = [LeaseChange(each, LeaseVerb.RETURN) for each in found.tokens]
                await client.settle_leases(topic, DEFAULT_GROUP, changes)
        await until(lambda: not leased(nodes, topic))
        assert len(await client.peek(topic, 0, Offset(0), 10)) == 5


async def test_two_thousand_polls_wait_without_a_task_at_the_store_each(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        spec = ReceiveSpec(topic, DEFAULT_GROUP, wait_ms=20_000)
        before = len(asyncio.all_tasks())
        pulls = [asyncio.create_task(client.receive(spec)) for _ in range(2_000)]
        service = nodes[0].service._sections.of(pull_wire.PULL)
        await until(lambda: service.waiting == 2_000)  # type: ignore[union-attr]
        assert len(asyncio.all_tasks()) <= before + 2_000
        await published(client, topic, 0, b"x")
        await until(lambda: sum(each.done() for each in pulls) == 1)
        for each in pulls:
            each.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)
        await until(lambda: service.waiting == 0)  # type: ignore[union-attr]


async def test_a_poll_outlives_its_connection(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        spec = ReceiveSpec(topic, DEFAULT_GROUP, wait_ms=20_000)
        pull = asyncio.create_task(client.receive(spec))
        await asyncio.sleep(0.05)
        for each in list(nodes[0].links._acceptor._wires):
            each.abort()
        await until(lambda: client.pulls.figures.asked_again)
        await until(partial(client.leaders.channel_to, topic.queues[0].group))
        await published(client, topic, 0, b"x")
        assert bodies_of(await asyncio.wait_for(pull, 10)) == [b"x"]


async def test_garbage_closes_the_connection(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        channel = client.leaders.channel_to(client.groups[0])
        assert channel is not None
        heard: list[object] = []
        channel.call(pull_wire.PULL, [b"\xff" * 40], heard.append, 1_000)
        await until(lambda: heard)
        assert channel.is_closed


async def test_a_poll_follows_its_group_to_another_leader(tmp_path: Path) -> None:
    async with running_stores(tmp_path, 3, data_groups=1) as nodes, gateway_of(nodes) as client:
        gateway = Gateway(nodes[0].addresses)
        async with started(gateway, nodes):
            (queue,) = await gateway.topic("work")
            leader = leader_of(nodes, GROUP)
            assert leader is not None
            info = leader.opened.store.replica(GROUP).state.queues[queue].topic.info()
            spec = ReceiveSpec(info, DEFAULT_GROUP, wait_ms=20_000)
            pull = asyncio.create_task(client.receive(spec))
            await asyncio.sleep(0.1)
            await leader.kill()
            await until(lambda: leader_of(nodes, GROUP))
            await gateway.stored(queue, [b"x"])
            assert bodies_of(await asyncio.wait_for(pull, 10)) == [b"x"]


async def test_a_pull_for_a_session_is_refused_and_leases_nothing(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        await published(client, topic, 0, b"x")
        session = nodes[0].opened.client.open_session("a connection")
        with pytest.raises(KernelError) as caught:
            await client.receive(ReceiveSpec(topic, DEFAULT_GROUP, session=session))
        assert caught.value.code is Code.UNAVAILABLE
        assert not leased(nodes, topic)
