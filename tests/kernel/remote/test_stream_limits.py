"""Bounds of push streams, and what very many of them cost."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from gateway.admin.metrics.service_metrics import ServiceFigures
from kernel.api.client import ConsumerSpec, Settlement
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, QueueRef, TopicInfo, TopicOptions
from kernel.broker.tracing import TraceBuffer
from kernel.common.errors import Code, KernelError
from kernel.common.ids import QueueId, RaftGroup, TopicId
from kernel.remote.streams.gateways import ConsumingGateway, GatewayCredit, GatewayStream
from kernel.remote.streams.parts import CreditPool, CreditShare
from kernel.remote.streams.streams import Streams
from kernel.remote.tree import consumer as tree_consumer
from kernel.requests.client_trace import ClientTrace
from kernel.rpc.channel import Channel
from tests.kernel.remote.cluster import gateway_of, running_stores
from tests.kernel.remote.test_pulls import made, published
from tests.kernel.remote.test_stream_claims import service_of
from tests.kernel.remote.test_streams import Recorder
from tests.kernel.remote.test_tree_far import Far
from tests.kernel.three_stores import until
from tests.kernel.tree_client import SubscriberClient as Subscriber
from tests.kernel.tree_client import tell


class Ends:
    """A connection to a store that takes everything and answers nothing."""

    def __init__(self) -> None:
        self.said: list[tuple[int, list[bytes]]] = []

    def cast(self, method: int, parts: list[bytes], *, control: bool = False) -> bool:
        assert control
        self.said.append((method, parts))
        return True


class Nobody:
    def deliver(self, consumer: object, deliveries: object) -> None:
        raise AssertionError

    def consumer_ended(self, consumer: object, error: KernelError) -> None:
        raise AssertionError


async def test_one_stream_too_many_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        service = service_of(nodes[0])
        service._streams_max = 2
        recorders = [Recorder(client, topic, 1) for _ in range(2)]
        for recorder in recorders:
            await client.attached(recorder.consumer)
        refused = Recorder(client, topic, 1)
        with pytest.raises(KernelError) as caught:
            await client.attached(refused.consumer)
        assert caught.value.code is Code.LIMIT_EXCEEDED
        assert "2 streams" in caught.value.message
        assert (service.count, service.figures.over_streams) == (2, 1)
        await published(client, topic, 0, b"1", b"2")
        await until(lambda: all(each.got for each in recorders))
        recorders[0].settle(0, Settlement.ACK)
        recorders[0].consumer.cancel()
        await until(lambda: service.count == 1)
        await client.attached(Recorder(client, topic, 1).consumer)


async def test_a_list_that_gets_no_stream_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_consumer, "PAUSE_SECONDS", 0.05)
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        service = service_of(nodes[0])
        service._streams_max = 0
        consuming_gateway = await Subscriber.open(Far(client), "g", expiry_ms=None, credit=5)
        await consuming_gateway.subscribe("a")
        await tell(Far(client), "a", b"1")
        await until(lambda: service.figures.over_streams > 1)
        assert not consuming_gateway.bodies
        service._streams_max = 1
        await until(lambda: consuming_gateway.bodies == [b"1"])


async def test_a_list_that_brings_nothing_any_more_has_no_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_consumer, "IDLE_SECONDS", 1)
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        gateway, streams = Far(client), client.streams
        consuming_gateway = await Subscriber.open(gateway, "g", expiry_ms=None, credit=50)
        for number in range(4):
            await consuming_gateway.subscribe(f"a/{number}")
        for number in range(4):
            await tell(gateway, f"a/{number}", b"1")
        await until(lambda: len(consuming_gateway.bodies) == 4)
        parts = set(streams._parts.values())
        looked_at: set[object] = set()
        park = streams.park
        monkeypatch.setattr(streams, "park", lambda part: looked_at.add(part) or park(part))
        await until(lambda: looked_at == parts)
        assert streams.count == 4  # what it brought is still held
        consuming_gateway.recorder.settle_now(
            Settlement.ACK, *list(consuming_gateway.recorder.held.values())
        )
        await until(lambda: streams.count == 0)
        await until(lambda: service_of(nodes[0]).count == 0)
        for number in range(4):
            await tell(gateway, f"a/{number}", b"2")
        await until(lambda: len(consuming_gateway.bodies) == 8)
        assert set(streams._parts.values()) == parts  # so that whoever knows them need not forget
        consuming_gateway.consumer.cancel()
        consuming_gateway.recorder.settle_now(
            Settlement.ACK, *list(consuming_gateway.recorder.held.values())
        )
        await until(lambda: streams.count == 0)


async def test_a_list_that_was_deleted_and_made_anew_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_consumer, "PAUSE_SECONDS", 0.05)
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        gateway = Far(client)
        consuming_gateway = await Subscriber.open(gateway, "g", expiry_ms=None, credit=50)
        await consuming_gateway.subscribe("a")
        await tell(gateway, "a", b"1")
        await until(lambda: consuming_gateway.bodies == [b"1"])
        ((consumer, _),) = service_of(nodes[0])._streams.items()
        consumer.dispatcher.end(KernelError(Code.NOT_FOUND, "the list is gone"))
        await until(lambda: not client.streams.count)
        await tell(gateway, "a", b"2")
        await until(lambda: b"2" in consuming_gateway.bodies)


async def test_ten_thousand_streams_end_in_linear_time() -> None:
    """A subscriber with so many lists that have something: its end costs what they are. The least
    of three counts: what else the machine does is no cost of ours.
    """
    spent: dict[int, float] = {}
    for count in (1_000, 10_000) * 3:
        later: list[object] = []
        streams = Streams(later.append, ClientTrace(TraceBuffer(), int))
        channel = Ends()
        streams._serves(channel, RaftGroup(1), 1)  # type: ignore[arg-type]
        pool = CreditPool()
        topic = TopicInfo(DEFAULT_TENANT, "work", TopicId(1), 1, TopicOptions(), (), {})
        spec = ConsumerSpec(topic, DEFAULT_GROUP, None)
        parts = [
            streams.attach_part(QueueRef(QueueId(number), RaftGroup(1)), spec, Nobody(), pool)
            for number in range(count)
        ]
        pool.left = 20
        streams.credit_changed(pool)
        streams._stream_batches.send()
        for part in parts:
            part.is_attached, part.waiters = True, None
        assert len(pool.shares) == 1
        began = time.process_time()
        for part in parts:
            part.cancel()
        streams._stream_batches.send()
        spent[count] = min(time.process_time() - began, spent.get(count, math.inf))
        assert (streams.count, pool.shares) == (0, {})
        assert len(channel.said) < 40
    assert spent[10_000] < 40 * max(spent[1_000], 0.005)


def test_credit_is_divided_among_stores_and_never_among_streams() -> None:
    pool = CreditPool()
    stores = [Channel.__new__(Channel) for _ in range(3)]
    pool.left = 30
    for number, each in enumerate(stores):
        pool.shares[each] = CreditShare(pool, number)

    def told() -> list[int]:
        for _, share, more in pool.changes():
            share.granted += more
        return [share.granted for share in pool.shares.values()]

    assert told() == [10, 10, 10]
    first = pool.shares[stores[0]]
    first.granted -= 4
    pool.left -= 4
    assert told() == [6, 10, 10]  # not yet half of what is its part
    first.granted -= 6
    pool.left -= 20
    assert told() == [2, 2, 2]
    first.granted -= 2
    pool.left = 0
    first.fences = 1
    assert told() == [0, 0, 0]
    pool.left = 9
    assert told() == [0, 3, 3]  # nothing while surplus is on its way back
    first.fences = 0
    assert told() == [3, 3, 3]


def test_streams_that_have_credit_in_common_are_looked_at_only_when_there_was_none() -> None:
    looked: list[int] = []

    class Stream(GatewayStream):
        __slots__ = ()

        def pump(self) -> None:
            looked.append(self.number)
            if pool.left > 0:
                pool.left -= 1

    consuming_gateway, pool = ConsumingGateway("a gateway"), GatewayCredit(1)
    for number in range(4):
        Stream(consuming_gateway, number, RaftGroup(1), (0, 0)).join(pool)
    pool.grant(2)
    assert len(looked) == 2
    pool.grant(2)
    assert len(looked) == 4
    assert len(set(looked)) > 2  # a different one first each time
    pool.left = 5
    pool.grant(5)
    assert len(looked) == 4


async def test_what_gateways_consume_is_seen_in_the_metrics_of_a_store(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        recorder = Recorder(client, topic, 1)
        await client.attached(recorder.consumer)
        found = {
            sample.name: sample.value
            for metric in ServiceFigures(nodes[0].service).collect()
            for sample in metric.samples
            if not sample.labels
        }
        assert (found["weir_streams"], found["weir_streams_attached_total"]) == (1, 1)
        assert found["weir_streams_refused_total"] == 0
