"""Half messages of gateways without a store: kept at leaders, who ask producers at any gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, HalfOptions, TopicInfo, TopicOptions
from kernel.api.transactions import HalfCheck
from kernel.common.errors import Code, KernelError
from kernel.remote.client import ClusterClient
from kernel.remote.transactions import half_wire
from kernel.rpc.channel import Channel
from tests.kernel.remote.cluster import gateway_of, running_stores
from tests.kernel.remote.gateway import GROUP
from tests.kernel.remote.test_streams import cut
from tests.kernel.three_stores import CLOCK, Node, leader_of, until
from tests.simulator.peer import Draft, Peer

PRODUCERS = "payers"


class Producer:
    """`HalfSink` that remembers what it was asked."""

    def __init__(self) -> None:
        self.checks: list[HalfCheck] = []

    def check(self, check: HalfCheck) -> None:
        self.checks.append(check)


async def prepare(peer: Peer, topic: TopicInfo, body: bytes = b"half") -> bytes:
    uid = peer.client.batch(peer.session, peer).uid()
    return await peer.client.halves.prepare(topic, PRODUCERS, Draft(body).parts(uid, 0))


async def ready(client: ClusterClient, topic: TopicInfo) -> int:
    return (await client.statistics(topic, DEFAULT_GROUP)).ready


async def refused(peer: Peer, topic: TopicInfo) -> KernelError:
    with pytest.raises(KernelError) as caught:
        await prepare(peer, topic)
    return caught.value


def asked(nodes: list[Node]) -> int:
    """Producer groups that the stores can ask of gateways."""
    keepers = [node.opened.client.half_keeper for node in nodes if node.runs]
    return sum(len(each.watches.keys) for each in keepers)


async def test_a_half_message_is_committed_or_rolled_back(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        topic = await peer.topic("orders", TopicOptions(queues=2))
        one, two = await prepare(peer, topic), await prepare(peer, topic)
        assert await ready(client, topic) == 0
        place = await client.halves.end(topic, one, commit=True)
        assert place is not None
        assert await client.halves.end(topic, one, commit=True) == place
        assert await client.halves.end(topic, two, commit=False) is None
        with pytest.raises(KernelError) as caught:
            await client.halves.end(topic, two, commit=True)
        assert (caught.value.code, await ready(client, topic)) == (Code.LEASE_LOST, 1)
        figures = nodes[0].opened.client.half_keeper.figures
        assert (figures.prepared, figures.committed, figures.rolled_back) == (2, 1, 1)


async def test_limits_are_kept_over_all_groups_and_gateways(tmp_path: Path) -> None:
    async with (
        running_stores(tmp_path) as nodes,
        gateway_of(nodes) as client,
        gateway_of(nodes) as other,
    ):
        peer, second = Peer(client, CLOCK, "peer"), Peer(other, CLOCK, "second")
        options = TopicOptions(queues=2, half=HalfOptions(messages_max=3))
        topic = await peer.topic("orders", options)
        assert len({ref.group for ref in topic.queues}) == 2
        tokens = [await prepare(each, topic) for each in (peer, peer, second)]
        error = await refused(second, topic)
        assert error.code is Code.LIMIT_EXCEEDED
        assert "half.messages_max of topic orders is 3" in error.message
        await client.halves.end(topic, tokens[0], commit=True)
        await prepare(second, topic)
        nodes[0].fill(full=True)
        assert (await refused(peer, topic)).code is Code.NO_SPACE
        nodes[0].fill(full=False)


async def test_each_gateway_with_producers_is_asked_in_turn(tmp_path: Path) -> None:
    async with (
        running_stores(tmp_path, data_groups=1) as nodes,
        gateway_of(nodes) as client,
        gateway_of(nodes) as other,
        gateway_of(nodes) as third,
    ):
        peer = Peer(client, CLOCK, "peer")
        often = HalfOptions(check_after_ms=1, check_interval_ms=1, checks_max=100)
        topic = await peer.topic("orders", TopicOptions(half=often))
        token = await prepare(peer, topic)
        one, two, three, stranger = Producer(), Producer(), Producer(), Producer()
        watch = other.halves.watch(DEFAULT_TENANT, PRODUCERS, one)
        third.halves.watch(DEFAULT_TENANT, PRODUCERS, two)
        third.halves.watch(DEFAULT_TENANT, PRODUCERS, three)
        client.halves.watch(DEFAULT_TENANT, "others", stranger)
        await until(lambda: asked(nodes) == 2)
        keeper = nodes[0].opened.client.half_keeper
        for number in range(1, 5):
            await asyncio.sleep(0.005)
            keeper.ask()
            await until(lambda n=number: len(one.checks + two.checks + three.checks) >= n)
        assert [len(each.checks) for each in (one, two, three)] == [2, 1, 1]
        check = two.checks[0]
        assert (check.tenant, check.topic, check.producers) == (
            DEFAULT_TENANT,
            "orders",
            PRODUCERS,
        )
        assert (check.token, check.slot[-4:]) == (token, b"half")
        watch.close()
        watch.close()
        await asyncio.sleep(0.05)
        for number in range(5, 7):
            keeper.ask()
            await until(lambda n=number: len(one.checks + two.checks + three.checks) >= n)
            await asyncio.sleep(0.005)
        assert [len(each.checks) for each in (one, two, three)] == [2, 2, 2]
        assert not stranger.checks
        assert await third.halves.end(topic, check.token, commit=True) is not None
        assert await ready(client, topic) == 1


async def test_producers_are_found_again_when_a_connection_was_cut(tmp_path: Path) -> None:
    async with running_stores(tmp_path, data_groups=1) as nodes, gateway_of(nodes) as client:
        producer = Producer()
        client.halves.watch(DEFAULT_TENANT, PRODUCERS, producer)
        await until(lambda: asked(nodes) == 1)
        cut(nodes[0])
        await until(lambda: asked(nodes) == 0)
        await until(lambda: asked(nodes) == 1)
    assert not producer.checks


@pytest.mark.parametrize("disturbance", ["kill", "transfer"])
async def test_each_is_prepared_once_and_asked_for_by_the_next_leader(
    tmp_path: Path, disturbance: str
) -> None:
    async with running_stores(tmp_path, 3, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        often = HalfOptions(check_after_ms=1, check_interval_ms=60_000)
        topic = await peer.topic("orders", TopicOptions(half=often))
        producer = Producer()
        client.halves.watch(DEFAULT_TENANT, PRODUCERS, producer)
        asking = [asyncio.create_task(prepare(peer, topic, b"%d" % n)) for n in range(20)]
        leader = leader_of(nodes, GROUP)
        assert leader is not None
        await asyncio.sleep(0)
        if disturbance == "kill":
            await leader.kill()
        else:
            to = next(node.number for node in nodes if node is not leader)
            leader.opened.store.consensus.transfer(GROUP, to)
        async with asyncio.timeout(25):
            tokens = await asyncio.gather(*asking)
            assert len(set(tokens)) == 20
            await until(lambda: len(producer.checks) >= 20)
        assert {check.token for check in producer.checks} == set(tokens)
        for check in producer.checks:
            await client.halves.end(topic, check.token, commit=True)
        assert await ready(client, topic) == 20


async def test_garbage_closes_the_connection(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        for method in (half_wire.WATCH, half_wire.CHECK):
            channel: Channel | None = None

            def opened() -> Channel | None:
                return client.leaders.channel_to(client.groups[0])

            await until(opened)
            channel = opened()
            assert channel is not None
            channel.cast(method, [b"\xff" * 40])
            await until(lambda c=channel: c.is_closed)
