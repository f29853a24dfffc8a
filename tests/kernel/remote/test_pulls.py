"""Pulls of a gateway without a store: long polls at leaders far away, and no lease left behind."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from kernel.api.client import LeaseChange, LeaseVerb, PutTopic, Received, ReceiveSpec
from kernel.api.message import HEADER_BYTES
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, GroupOptions, TopicInfo, TopicOptions
from kernel.broker.group_state.usage import Verb, counts
from kernel.common.ids import Offset
from kernel.remote.client import ClusterClient
from kernel.remote.pulls import pull_wire
from kernel.requests.publish_part import Part
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
    part = Part([(ref.id, 0, len(slots), 0)], list(map(len, slots)), slots)
    identity = client.next_identity()
    await client.proposer.outcome(
        ref.group,
        lambda leader, done: leader.publish(identity, part, done, 1),
    )


def bodies_of(received: Received) -> list[bytes]:
    return [body_of(each) for each in received.deliveries.slots] if received.deliveries else []


def leased(nodes: list[Node], topic: TopicInfo) -> int:
    store = nodes[0].opened.store
    return sum(
        store.replica(ref.group).dispatcher(ref.id, DEFAULT_GROUP).leased_count
        for ref in topic.queues
    )


def billed(nodes: list[Node]) -> tuple[int, int, int]:
    """Messages, bytes and units delivered, less those returned, as the leaders have counted."""
    sums = [0, 0, 0]
    replicas = [each for node in nodes for each in node.opened.store.replicas() if each.serving]
    for each in (each for replica in replicas for each in counts(replica.state)):
        sign = {Verb.DELIVERED: 1, Verb.RETURNED: -1}.get(each.verb, 0)
        for place, value in enumerate((each.messages, each.size_bytes, each.units_4k)):
            sums[place] += sign * value
    return sums[0], sums[1], sums[2]


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
        await until(lambda: not nodes[0].service.pulls.unheard)


@pytest.mark.parametrize("number", [0, 1])
async def test_a_long_poll_waits_at_several_groups_at_once(tmp_path: Path, number: int) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes, queues=2)
        assert len({ref.group for ref in topic.queues}) == 2
        spec = ReceiveSpec(topic, DEFAULT_GROUP, wait_ms=20_000)
        pull = asyncio.create_task(client.receive(spec))
        await until(lambda: nodes[0].service.pulls.waiting == 2)
        await published(client, topic, number, b"x")
        assert bodies_of(await asyncio.wait_for(pull, 5)) == [b"x"]
        assert client.pulls.waiting == 0


async def test_a_cancelled_poll_leaves_no_lease_behind(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        spec = ReceiveSpec(topic, DEFAULT_GROUP, wait_ms=20_000)
        for pause in (0.0, 0.001, 0.003, 0.01, 0.03):
            pull = asyncio.create_task(client.receive(spec))
            # What an earlier one gave back comes at once.
            await until(lambda pull=pull: pull.done() or nodes[0].service.pulls.waiting)  # type: ignore[misc]
            await published(client, topic, 0, b"x")
            await asyncio.sleep(pause)
            pull.cancel()
            found = (await asyncio.gather(pull, return_exceptions=True))[0]
            if isinstance(found, Received):
                assert found.deliveries is not None
                changes = [
                    LeaseChange(each, LeaseVerb.RETURN, slot_bytes=len(slot))
                    for each, slot in zip(found.tokens, found.deliveries.slots, strict=True)
                ]
                await client.settle_leases(topic, DEFAULT_GROUP, changes)
        await until(lambda: not leased(nodes, topic))
        assert billed(nodes) == (0, 0, 0)
        assert len(await client.peek(topic, 0, Offset(0), 10)) == 5


async def test_a_poll_given_up_while_its_connection_breaks_leaves_the_store_reachable(
    tmp_path: Path,
) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes, queues=2)  # so each group is tried by itself first
        (channel,) = client.leaders.channels
        pull = asyncio.create_task(client.receive(ReceiveSpec(topic, DEFAULT_GROUP)))
        await asyncio.sleep(0)
        assert client.pulls.waiting
        pull.cancel()
        channel.broken("cut")  # before the poll's task has run again
        with pytest.raises(asyncio.CancelledError):
            await pull
        await until(lambda: client.leaders.channels not in ([], [channel]))
        await published(client, topic, 0, b"x")
        found = await client.receive(ReceiveSpec(topic, DEFAULT_GROUP, wait_ms=5_000))
        assert bodies_of(found) == [b"x"]


async def test_two_thousand_polls_wait_without_a_task_at_the_store_each(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        spec = ReceiveSpec(topic, DEFAULT_GROUP, wait_ms=20_000)
        before = len(asyncio.all_tasks())
        pulls = [asyncio.create_task(client.receive(spec)) for _ in range(2_000)]
        service = nodes[0].service.pulls
        await until(lambda: service.waiting == 2_000)
        assert len(asyncio.all_tasks()) <= before + 2_000
        await published(client, topic, 0, b"x")
        await until(lambda: sum(each.done() for each in pulls) == 1)
        for each in pulls:
            each.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)
        await until(lambda: service.waiting == 0)


async def test_a_poll_outlives_its_connection(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        spec = ReceiveSpec(topic, DEFAULT_GROUP, wait_ms=20_000)
        pull = asyncio.create_task(client.receive(spec))
        await until(lambda: nodes[0].service.pulls.waiting == 1)
        for each in list(nodes[0].links.acceptor._wires):
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
            await until(lambda: leader.service.pulls.waiting == 1)
            await leader.kill()
            await until(lambda: leader_of(nodes, GROUP))
            await gateway.stored(queue, [b"x"])
            assert bodies_of(await asyncio.wait_for(pull, 10)) == [b"x"]


@pytest.mark.parametrize("disturbance", ["kill", "transfer"])
async def test_what_a_leader_leased_before_it_died_unheard_is_ready_again_at_once(
    tmp_path: Path, disturbance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_stores(tmp_path, 3, data_groups=1) as nodes, gateway_of(nodes) as client:
        gateway = Gateway(nodes[0].addresses)
        async with started(gateway, nodes):
            (queue,) = await gateway.topic("work")
            leader = leader_of(nodes, GROUP)
            assert leader is not None
            state = leader.opened.store.replica(GROUP).state
            info = state.queues[queue].topic.info()
            await gateway.stored(queue, [b"heard", b"unheard"])
            heard = await client.receive(ReceiveSpec(info, DEFAULT_GROUP, lease_ms=600_000))
            assert bodies_of(heard) == [b"heard"]
            service = leader.service.pulls
            monkeypatch.setattr(service, "_answer_all", lambda: None)
            spec = ReceiveSpec(info, DEFAULT_GROUP, wait_ms=30_000, lease_ms=600_000)
            pull = asyncio.create_task(client.receive(spec))
            states = [node.opened.store.replica(GROUP).state for node in nodes]
            await until(
                lambda: all(each.queues[queue].groups[DEFAULT_GROUP].holder(1) for each in states)
            )
            if disturbance == "kill":
                await leader.kill()
            else:
                to = next(node.number for node in nodes if node is not leader)
                leader.opened.store.consensus.transfer(GROUP, to)
            got = await asyncio.wait_for(pull, 10)
            assert bodies_of(got) == [b"unheard"]
            assert got.deliveries is not None
            assert got.deliveries.attempts in (None, [1])
            nothing = await client.receive(ReceiveSpec(info, DEFAULT_GROUP, wait_ms=200))
            assert nothing.deliveries is None
            living = [each for each in nodes if disturbance != "kill" or each is not leader]
            assert heard.deliveries is not None
            slots = [*heard.deliveries.slots, *got.deliveries.slots]
            assert billed(living) == (2, sum(map(len, slots)) - 2 * HEADER_BYTES, 2)
            changes = [LeaseChange(each.tokens[0], LeaseVerb.ACK) for each in (heard, got)]
            assert await client.settle_leases(info, DEFAULT_GROUP, changes) == [None, None]
