"""Transactions of a gateway without a store: decided at the leader, done once whatever happens."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernel.api.atomic import ChangeLeases, Settle, Transaction
from kernel.api.client import (
    Consumer,
    DeleteTopic,
    LeaseChange,
    LeaseVerb,
    PublishBatch,
    ReceiveSpec,
    Settlement,
)
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    DeadLetter,
    GroupOptions,
    Overflow,
    TopicInfo,
    TopicOptions,
)
from kernel.common.errors import Code, KernelError
from kernel.common.ids import Offset
from kernel.remote.client import ClusterClient
from tests.kernel.remote.cluster import gateway_of, running_stores
from tests.kernel.remote.gateway import GROUP, body_of
from tests.kernel.remote.test_streams import cut
from tests.kernel.three_stores import CLOCK, leader_of, until
from tests.simulator.peer import Draft, Peer, Recorder


def batch_of(peer: Peer, to: TopicInfo, *bodies: bytes) -> PublishBatch:
    """A batch that is not submitted."""
    batch = peer.client.batch(peer.session, peer)
    for body in bodies:
        parts = Draft(body).parts(batch.uid(), 0)
        batch.add(peer.client.to_topic(to), parts, sum(map(len, parts)))
    return batch


async def tokens_of(client: ClusterClient, topic: TopicInfo, count: int) -> list[bytes]:
    tokens: list[bytes] = []
    while len(tokens) < count:
        spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=count, wait_ms=5_000, lease_ms=60_000)
        tokens += (await client.receive(spec)).tokens
    return tokens


async def holding(peer: Peer, topic: TopicInfo, count: int) -> tuple[Recorder, Consumer]:
    recorder = peer.attach(topic, credit=count)
    await recorder.wait_for(count)
    return recorder, recorder.got[0].consumer


async def bodies(client: ClusterClient, topic: TopicInfo) -> list[bytes]:
    """What a topic has ever got, as long as nobody acks it."""
    return [body_of(slot) for _, slot in await client.peek(topic, 0, Offset(0), 1_000)]


async def left(client: ClusterClient, topic: TopicInfo) -> int:
    figures = await client.statistics(topic, DEFAULT_GROUP)
    return figures.ready + figures.leased + figures.delayed


async def refused(client: ClusterClient, wanted: Transaction) -> Code:
    with pytest.raises(KernelError) as caught:
        await client.transact(wanted)
    return caught.value.code


def changes(topic: TopicInfo, verb: LeaseVerb, *tokens: bytes) -> list[ChangeLeases]:
    return [ChangeLeases(topic, DEFAULT_GROUP, [LeaseChange(each, verb) for each in tokens])]


async def test_publishes_settlements_and_changes_happen_together(tmp_path: Path) -> None:
    async with running_stores(tmp_path, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        source, target = await peer.topic("source"), await peer.topic("target")
        await peer.publish(source, b"1", b"2", b"3")
        (token,) = await tokens_of(client, source, 1)
        recorder, consumer = await holding(peer, source, 2)
        assert (recorder.bodies, await left(client, source)) == ([b"2", b"3"], 3)
        batch = batch_of(peer, target, b"a", b"b")
        settle = [Settle(consumer, Settlement.ACK, [1])]
        again = [Settle(consumer, Settlement.RELEASE, [2])]
        wanted = Transaction(batch, settle + again, changes(source, LeaseVerb.ACK, token))
        await client.transact(wanted)
        assert [batch.place(at) for at in range(2)] == [
            (target.queues[0].id, 0),
            (target.queues[0].id, 1),
        ]
        assert await bodies(client, target) == [b"a", b"b"]
        recorder.held.clear()
        recorder.grant(1)
        assert [each.attempt for each in (await recorder.wait_for(3))[2:]] == [2]
        await recorder.ack(2)
        assert await left(client, source) == 0


async def test_one_lost_lease_refuses_everything(tmp_path: Path) -> None:
    async with running_stores(tmp_path, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        source, target = await peer.topic("source"), await peer.topic("target")
        await peer.publish(source, b"1", b"2", b"3")
        one, two = await tokens_of(client, source, 2)
        _, consumer = await holding(peer, source, 1)
        ended = [LeaseChange(two, LeaseVerb.ACK)]
        assert await client.settle_leases(source, DEFAULT_GROUP, ended) == [None]
        batch = batch_of(peer, target, b"a")
        settle = [Settle(consumer, Settlement.ACK, [2])]
        wanted = Transaction(batch, settle, changes(source, LeaseVerb.ACK, one, two))
        assert await refused(client, wanted) is Code.LEASE_LOST
        assert (await bodies(client, target), await left(client, source)) == ([], 2)
        await client.transact(Transaction(None, settle, changes(source, LeaseVerb.ACK, one)))
        assert await left(client, source) == 0


async def test_the_leader_knows_the_last_attempt_and_what_is_full(tmp_path: Path) -> None:
    async with running_stores(tmp_path, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        dead = await peer.topic("dead")
        once = GroupOptions(attempts_max=1, dead_letter=DeadLetter(None, "dead"))
        source = await peer.topic("source", group=once)
        full = await peer.topic("full", TopicOptions(messages_max=1, overflow=Overflow.REJECT))
        await peer.publish(source, b"1", b"2")
        (token,) = await tokens_of(client, source, 1)
        _, consumer = await holding(peer, source, 1)
        settle = [Settle(consumer, Settlement.RELEASE, [1])]
        both = changes(source, LeaseVerb.RELEASE, token)
        too_much = Transaction(batch_of(peer, full, b"a", b"b"), settle, both)
        assert await refused(client, too_much) is Code.REJECTED
        assert (await bodies(client, full), await left(client, source)) == ([], 2)
        await client.transact(Transaction(batch_of(peer, full, b"a"), settle, both))
        recorder, _ = await holding(peer, dead, 2)
        assert sorted(recorder.bodies) == [b"1", b"2"]


async def test_what_a_deleted_topic_held_is_lost(tmp_path: Path) -> None:
    async with running_stores(tmp_path, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        source, target = await peer.topic("source"), await peer.topic("target")
        await peer.publish(source, b"1")
        recorder, consumer = await holding(peer, source, 1)
        await client.administer(DeleteTopic(DEFAULT_TENANT, "source"))
        await until(lambda: recorder.error)
        wanted = Transaction(batch_of(peer, target, b"a"), [Settle(consumer, Settlement.ACK, [0])])
        assert await refused(client, wanted) is Code.LEASE_LOST
        assert await bodies(client, target) == []


@pytest.mark.parametrize("disturbance", ["kill", "transfer", "cut"])
async def test_each_is_done_once_whatever_becomes_of_the_leader(
    tmp_path: Path, disturbance: str
) -> None:
    async with running_stores(tmp_path, 3, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        source, target = await peer.topic("source"), await peer.topic("target")
        await peer.publish(source, *[b"%d" % number for number in range(40)])
        tokens = await tokens_of(client, source, 20)
        _, consumer = await holding(peer, source, 20)

        async def move(number: int) -> None:
            batch = batch_of(peer, target, b"%d" % number)
            settle = [Settle(consumer, Settlement.ACK, [20 + number])]
            change = changes(source, LeaseVerb.ACK, tokens[number])
            await client.transact(Transaction(batch, settle, change))

        moves = [asyncio.create_task(move(number)) for number in range(10)]
        leader = leader_of(nodes, GROUP)
        assert leader is not None
        await asyncio.sleep(0)
        if disturbance == "kill":
            await leader.kill()
        elif disturbance == "transfer":
            consensus = leader.opened.store.consensus
            consensus.transfer(GROUP, next(n.number for n in nodes if n is not leader))
        else:
            cut(leader)
        moves += [asyncio.create_task(move(number)) for number in range(10, 20)]
        async with asyncio.timeout(25):
            await asyncio.gather(*moves)
        assert sorted(await bodies(client, target), key=int) == [
            b"%d" % number for number in range(20)
        ]
        assert await left(client, source) == 0


async def test_what_need_not_be_whole_may_live_in_several_places(tmp_path: Path) -> None:
    """At a leader far away, and in this process's memory: messages first, then settlements."""
    async with running_stores(tmp_path, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        source = await peer.topic("source")
        replies = await peer.topic("replies", TopicOptions(durable=False))
        await peer.publish(source, b"1", b"2")
        _, consumer = await holding(peer, source, 2)
        settle = Settle(consumer, Settlement.ACK, [0, 1])
        await client.transact(Transaction(batch_of(peer, replies, b"a"), [settle], whole=False))
        assert (await left(client, source), await left(client, replies)) == (0, 1)
        _, consumer = await holding(peer, replies, 1)
        settle = Settle(consumer, Settlement.ACK, [0])
        await client.transact(Transaction(batch_of(peer, replies, b"b"), [settle], whole=False))
        await client.transact(Transaction(batch_of(peer, source, b"c"), [], whole=False))
        assert (await left(client, source), await left(client, replies)) == (1, 1)
