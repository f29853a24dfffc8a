"""Push consumers of a gateway without a store: deliveries, settlements, faults."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

from kernel.api.client import Consumer, ConsumerSpec, Deliveries, PutTopic, Session, Settlement
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, GroupOptions, TopicInfo, TopicOptions
from kernel.common import ring as rings
from kernel.common.errors import Code, KernelError
from kernel.common.ids import RaftGroup
from kernel.remote.client import ClusterClient
from kernel.remote.streams import stream_wire
from kernel.rpc.channel import Channel
from tests.kernel.remote.cluster import gateway_of, running_stores
from tests.kernel.remote.gateway import GROUP, Gateway, body_of, started
from tests.kernel.remote.test_pulls import leased, made, published
from tests.kernel.three_stores import Node, leader_of, until


class Recorder:
    """Consumer, and all that it has heard."""

    def __init__(
        self,
        client: ClusterClient,
        topic: TopicInfo,
        credit: int,
        *,
        exclusive: bool = False,
        auto_ack: bool = False,
    ) -> None:
        self.client = client
        self.got: list[tuple[Consumer, int, bytes, int]] = []
        self.ended: list[KernelError] = []
        self.settlements: list[tuple[object, Mapping[int, KernelError] | None]] = []
        self.session: Session = client.open_session("a connection")
        spec = ConsumerSpec(
            topic, DEFAULT_GROUP, self.session, exclusive=exclusive, auto_ack=auto_ack
        )
        self.consumer = client.attach(spec, self)
        self.consumer.grant(credit)

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        attempts = deliveries.attempts or [1] * len(deliveries.offsets)
        columns = zip(deliveries.offsets, deliveries.slots, attempts, strict=True)
        self.got += [(consumer, offset, body_of(body), each) for offset, body, each in columns]

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        self.ended.append(error)

    def settled(self, tag: object, failures: Mapping[int, KernelError] | None) -> None:
        self.settlements.append((tag, failures))

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, _, body, _ in self.got]

    async def wait_for(self, number: int) -> None:
        await until(lambda: len(self.got) >= number)

    def settle(self, at: int, how: Settlement) -> None:
        consumer, offset, _, _ = self.got[at]
        self.client.settle(consumer, how, [offset], sink=self, tag=at)


def unacked(nodes: list[Node], topic: TopicInfo) -> int:
    ref = topic.queues[0]
    node = leader_of(nodes, ref.group)
    if node is None:
        return -1
    queue = node.opened.store.replica(ref.group).state.queues[ref.id]
    return queue.index.tail - queue.groups[DEFAULT_GROUP].floor


def cut(node: Node) -> None:
    for each in list(node.links.acceptor._wires):
        each.abort()


async def test_what_is_delivered_is_acked(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        recorder = Recorder(client, topic, 10)
        await client.attached(recorder.consumer)
        await published(client, topic, 0, b"1", b"2", b"3")
        await recorder.wait_for(3)
        assert recorder.bodies == [b"1", b"2", b"3"]
        recorder.settle(0, Settlement.ACK)
        client.acknowledge({recorder.consumer: [1, 2]})
        await until(lambda: not unacked(nodes, topic))
        await until(lambda: recorder.settlements == [(0, None)])
        recorder.settle(0, Settlement.ACK)
        await until(lambda: len(recorder.settlements) == 2)
        failures = recorder.settlements[1][1]
        assert failures is not None
        assert failures[0].code is Code.LEASE_LOST


async def test_a_consumer_follows_the_queues_of_its_topic(tmp_path: Path) -> None:
    """Of a topic that is resized (ADR 31): told here as if it had had one queue before."""
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes, 2)
        await until(lambda: client.topic(DEFAULT_TENANT, "work") == topic)
        known = structs.replace(topic, queues=topic.queues[:1], ring=bytes(64))
        grown = structs.replace(topic, ring=rings.first_ring(2))
        client.topology.put_topic(known)
        recorder = Recorder(client, known, 3)
        await client.attached(recorder.consumer)
        client.topology.put_topic(grown)
        await published(client, topic, 0, b"1")
        await published(client, topic, 1, b"2", b"3", b"4")
        await recorder.wait_for(3)
        recorder.consumer.grant(1)
        await recorder.wait_for(4)
        assert sorted(recorder.bodies) == [b"1", b"2", b"3", b"4"]
        for at in range(4):
            recorder.settle(at, Settlement.ACK)
        await until(lambda: len(recorder.settlements) == 4)
        assert {failures for _, failures in recorder.settlements} == {None}
        shrunk = structs.replace(topic, queues=topic.queues[1:], ring=bytes([1]) * 64)
        client.topology.put_topic(shrunk)
        recorder.consumer.grant(5)
        await published(client, topic, 1, b"5")
        await recorder.wait_for(5)
        await until(lambda: len(list(client.streams.parts())) == 1)
        recorder.consumer.cancel()
        assert not recorder.ended


async def test_what_is_released_comes_again_and_counts(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        recorder = Recorder(client, topic, 10)
        await published(client, topic, 0, b"x")
        await recorder.wait_for(1)
        recorder.settle(0, Settlement.RELEASE)
        await recorder.wait_for(2)
        recorder.settle(1, Settlement.RETURN)
        await recorder.wait_for(3)
        assert [attempt for _, _, _, attempt in recorder.got] == [1, 2, 2]


async def test_the_last_attempt_is_a_dead_letter(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        groups = {DEFAULT_GROUP: GroupOptions(attempts_max=2)}
        change = PutTopic(DEFAULT_TENANT, "work", TopicOptions(), groups)
        topic = await nodes[0].opened.client.administer(change)
        assert isinstance(topic, TopicInfo)
        recorder = Recorder(client, topic, 10)
        await published(client, topic, 0, b"1", b"2")
        await recorder.wait_for(2)
        recorder.settle(1, Settlement.DEAD_LETTER)
        recorder.settle(0, Settlement.RELEASE)
        await recorder.wait_for(3)
        recorder.settle(2, Settlement.RELEASE)
        await until(lambda: not unacked(nodes, topic))
        assert recorder.bodies == [b"1", b"2", b"1"]


async def test_credit_is_kept_over_several_queues(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes, queues=2)
        recorder = Recorder(client, topic, 3)
        for number in (0, 1):
            await published(client, topic, number, *[b"%d" % each for each in range(20)])
        seen = 0
        while seen < 40:
            await recorder.wait_for(min(seen + 3, 40))
            assert len(recorder.got) <= seen + 3
            for at in range(seen, len(recorder.got)):
                recorder.settle(at, Settlement.ACK)
            more = len(recorder.got) - seen
            seen = len(recorder.got)
            recorder.consumer.grant(more)
        for number in (0, 1):
            part = recorder.consumer.parts[number]  # type: ignore[attr-defined]
            mine = [offset for each, offset, _, _ in recorder.got if each is part]
            assert mine == list(range(20))
        assert {attempt for _, _, _, attempt in recorder.got} == {1}


async def test_an_exclusive_consumer_of_another_gateway_is_in_the_way(tmp_path: Path) -> None:
    async with (
        running_stores(tmp_path) as nodes,
        gateway_of(nodes) as client,
        gateway_of(nodes) as other,
    ):
        topic = await made(nodes)
        first = Recorder(client, topic, 1, exclusive=True)
        await client.attached(first.consumer)
        second = Recorder(other, topic, 1)
        with pytest.raises(KernelError) as caught:
            await other.attached(second.consumer)
        assert caught.value.code is Code.LOCKED
        assert not second.ended
        third = Recorder(other, topic, 1)
        await until(lambda: third.ended)
        assert third.ended[0].code is Code.LOCKED
        first.consumer.cancel()
        await until(lambda: not client.streams.count)
        await other.attached(Recorder(other, topic, 1).consumer)


async def test_a_cut_connection_counts_no_attempt(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        recorder = Recorder(client, topic, 100)
        await published(client, topic, 0, *[b"%d" % each for each in range(10)])
        await recorder.wait_for(10)
        client.acknowledge({recorder.consumer: [0, 1]})
        cut(nodes[0])
        client.acknowledge({recorder.consumer: [2, 3]})
        recorder.settle(4, Settlement.ACK)
        await until(lambda: recorder.settlements == [(4, None)])
        await until(partial(client.leaders.channel_to, topic.queues[0].group))
        await published(client, topic, 0, b"10")
        await recorder.wait_for(11)
        assert recorder.bodies == [b"%d" % each for each in range(11)]
        recorder.session.close()
        again = Recorder(client, topic, 100)
        await again.wait_for(6)
        assert again.bodies == [b"%d" % each for each in range(5, 11)]
        assert {attempt for _, _, _, attempt in again.got} == {2}


async def test_a_closed_session_returns_what_it_holds(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        recorder = Recorder(client, topic, 2)
        await published(client, topic, 0, b"1", b"2", b"3")
        await recorder.wait_for(2)
        recorder.session.close()
        await until(lambda: not leased(nodes, topic))
        again = Recorder(client, topic, 10)
        await again.wait_for(3)
        assert sorted(again.bodies) == [b"1", b"2", b"3"]
        await until(lambda: client.streams.count == 1)


async def test_what_a_dead_gateway_held_is_released(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        service = nodes[0].service._sections.of(stream_wire.STREAM_BATCH)
        service._away_ms = 50  # type: ignore[union-attr]
        async with gateway_of(nodes) as other:
            recorder = Recorder(other, topic, 1)
            await published(client, topic, 0, b"x")
            await recorder.wait_for(1)
        heir = Recorder(client, topic, 1)
        await heir.wait_for(1)
        assert heir.got[0][3] == 2


async def test_garbage_closes_the_connection(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        for method in (stream_wire.ATTACH, stream_wire.STREAM_BATCH, stream_wire.CLAIMED):
            await until(partial(client.leaders.channel_to, RaftGroup(1)))
            channel = client.leaders.channel_to(RaftGroup(1))
            assert channel is not None
            channel.cast(method, [b"\xff" * 40], control=True)
            await until(partial(getattr, channel, "is_closed"))


async def test_a_consumer_follows_its_queue_to_another_leader(tmp_path: Path) -> None:
    async with running_stores(tmp_path, 3, data_groups=1) as nodes, gateway_of(nodes) as client:
        gateway = Gateway(nodes[0].addresses)
        async with started(gateway, nodes):
            (queue,) = await gateway.topic("work")
            leader = leader_of(nodes, GROUP)
            assert leader is not None
            topic = leader.opened.store.replica(GROUP).state.queues[queue].topic.info()
            recorder = Recorder(client, topic, 100)
            await gateway.stored(queue, [b"%d" % each for each in range(10)])
            await recorder.wait_for(10)
            await leader.kill()
            client.acknowledge({recorder.consumer: [0, 1, 2]})
            recorder.settle(3, Settlement.ACK)
            await until(lambda: leader_of(nodes, GROUP))
            await gateway.stored(queue, [b"10"])
            await recorder.wait_for(11)
            assert recorder.bodies == [b"%d" % each for each in range(11)]
            await until(lambda: recorder.settlements == [(3, None)])
            client.acknowledge({recorder.consumer: list(range(4, 11))})
            await until(lambda: not unacked(nodes, topic))


async def test_a_slow_gateway_is_given_no_more_and_loses_nothing(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        service = nodes[0].service._sections.of(stream_wire.STREAM_BATCH)
        service._waiting_bytes_max = 2_000  # type: ignore[union-attr]
        bodies = [b"%d" % each + b"x" * 1_000 for each in range(50)]
        for body in bodies:
            await published(client, topic, 0, body)
        recorder = Recorder(client, topic, 50)
        await recorder.wait_for(50)
        assert recorder.bodies == bodies
        assert {attempt for _, _, _, attempt in recorder.got} == {1}
        assert service.figures.paused  # type: ignore[union-attr]


async def test_a_transient_topic_is_consumed_in_this_process(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        groups = {DEFAULT_GROUP: GroupOptions()}
        change = PutTopic(DEFAULT_TENANT, "here", TopicOptions(durable=False), groups)
        topic = await client.administer(change)
        assert isinstance(topic, TopicInfo)
        recorder = Recorder(client, topic, 10)
        await published(client, topic, 0, b"1", b"2")
        await recorder.wait_for(2)
        recorder.settle(0, Settlement.ACK)
        await until(lambda: recorder.settlements == [(0, None)])
        recorder.session.close()
        again = Recorder(client, topic, 10)
        await again.wait_for(1)
        assert again.bodies == [b"2"]


class Withheld:
    """What stores say to a gateway, until it is let through."""

    def __init__(self, client: ClusterClient) -> None:
        self._streams = client.streams
        self._told = client.streams.told
        self.said: list[tuple[Channel, int, bytes]] = []
        client.streams.told = self._hear  # type: ignore[method-assign]

    def _hear(self, channel: Channel, method: int, payload: bytes) -> None:
        self.said.append((channel, method, payload))

    async def heard(self, method: int) -> None:
        """Return once something of this kind is withheld."""
        await until(lambda: any(each[1] == method for each in self.said))

    def let_through(self) -> None:
        self._streams.told = self._told  # type: ignore[method-assign]
        for each in self.said:
            self._told(*each)


async def test_what_was_acked_by_handing_over_is_delivered_beyond_the_credit(
    tmp_path: Path,
) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        recorder = Recorder(client, topic, 3, auto_ack=True)
        await client.attached(recorder.consumer)
        withheld = Withheld(client)
        await published(client, topic, 0, b"1", b"2")
        await withheld.heard(stream_wire.DELIVER)
        recorder.consumer.grant(-3)
        withheld.let_through()
        assert recorder.bodies == [b"1", b"2"]
        await published(client, topic, 0, b"3")
        recorder.consumer.grant(3)
        await recorder.wait_for(3)
        await until(lambda: not unacked(nodes, topic))


async def test_what_comes_beyond_the_credit_returns_uncounted_and_in_order(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        recorder = Recorder(client, topic, 4)
        await client.attached(recorder.consumer)
        withheld = Withheld(client)
        await published(client, topic, 0, *[b"%d" % each for each in range(4)])
        await withheld.heard(stream_wire.DELIVER)
        recorder.consumer.grant(-3)
        withheld.let_through()
        assert recorder.bodies == [b"0"]
        await until(lambda: leased(nodes, topic) == 1)
        recorder.consumer.grant(8)
        await recorder.wait_for(4)
        assert recorder.bodies == [b"0", b"1", b"2", b"3"]
        assert {attempt for _, _, _, attempt in recorder.got} == {1}
