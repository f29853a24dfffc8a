"""Transient topics of one gateway that are consumed at another."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import pytest

from gateway.admin.metrics.gateway_metrics import GatewayFigures
from kernel.api.client import Client, ConsumerSpec, DeleteTopic, ReceiveSpec, Settlement
from kernel.api.filters import TagFilter
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, TopicInfo, TopicOptions
from kernel.common.errors import Code, KernelError
from kernel.common.ids import MEMORY_FIRST
from kernel.remote.client import ClusterClient
from kernel.remote.streams import stream_wire
from kernel.remote.streams.gateways import MEMORY_STREAMS_MAX
from kernel.remote.streams.stream_service import AWAY_MS
from tests.kernel.remote.cluster import Pair, knows_all, lose, meeting_gateway_of
from tests.kernel.remote.gateway import body_of
from tests.kernel.remote.local import peer_of
from tests.kernel.remote.test_mesh import cut, seen, silence
from tests.kernel.three_stores import until
from tests.simulator.peer import Draft, Peer, Recorder

TRANSIENT = TopicOptions(durable=False)

SOON = AWAY_MS / 1_000 / 2
"""Seconds: before a gateway that has gone is given up because of the time."""


async def made(one: ClusterClient, other: ClusterClient) -> TopicInfo:
    """A topic that lives in one gateway, as the other knows it."""
    await peer_of(one).topic("v", TRANSIENT)
    return seen(other, "v")


async def recorder_of(client: ClusterClient, peer: Peer, topic: TopicInfo, credit: int) -> Recorder:
    recorder = peer.attach(topic, credit=credit)
    assert recorder.consumer is not None
    await client.attached(recorder.consumer)
    return recorder


async def publish(client: ClusterClient, *bodies: bytes) -> None:
    sent = await peer_of(client).publish(seen(client, "v"), *bodies)
    assert not sent.failures


async def ready(client: ClusterClient) -> int:
    return (await client.statistics(seen(client, "v"), DEFAULT_GROUP)).ready


async def has_ready(client: ClusterClient, count: int) -> None:
    async with asyncio.timeout(10):
        while await ready(client) != count:
            await asyncio.sleep(0.01)


def leased(client: ClusterClient) -> int:
    """What is handed out of a topic that lives here."""
    queue = seen(client, "v").queues[0].id
    return client.transient.replica.dispatcher(queue, DEFAULT_GROUP).leased_count


async def test_what_is_handed_out_far_away_is_settled_and_released(pair: Pair) -> None:
    _, one, other = pair
    topic = await made(one, other)
    recorder = await recorder_of(other, peer_of(other), topic, 3)
    await publish(one, *(b"%d" % each for each in range(5)))
    got = await recorder.wait_for(3)
    assert [each.body for each in got] == [b"0", b"1", b"2"]
    assert not await recorder.settle(Settlement.ACK, got[0])
    assert (await recorder.settle(Settlement.ACK, got[0]))[got[0].offset].code is Code.LEASE_LOST
    await recorder.settle(Settlement.RELEASE, got[1])
    recorder.settle_now(Settlement.ACK, got[2])
    recorder.grant(3)
    await recorder.wait_for(6)
    columns = sorted((each.body, each.attempt) for each in recorder.got[3:])
    assert columns == [(b"1", 2), (b"3", 1), (b"4", 1)]
    recorder.cancel()
    await recorder.ack()
    figures = await other.statistics(topic, DEFAULT_GROUP)
    assert (figures.ready, figures.leased, figures.consumers) == (0, 0, 0)


async def test_consumers_of_both_gateways_share_a_topic(two: Pair) -> None:
    _, one, other = two
    topic = await made(one, other)
    near = await recorder_of(one, peer_of(one), seen(one, "v"), 100)
    far = await recorder_of(other, peer_of(other), topic, 100)
    await until(lambda: one.mesh.stream_service.count)
    for number in range(40):
        await publish(other, b"%d" % number)
    await until(lambda: len(near.got) + len(far.got) == 40)
    assert near.got
    assert far.got


async def test_what_a_session_held_returns_when_it_ends(two: Pair) -> None:
    _, one, other = two
    topic = await made(one, other)
    peer = peer_of(other)
    recorder = await recorder_of(other, peer, topic, 10)
    await publish(one, b"1", b"2")
    await recorder.wait_for(2)
    peer.session.close()
    await has_ready(other, 2)
    await until(lambda: not one.mesh.stream_service.count and not other.streams.count)
    again = await recorder_of(other, peer_of(other), topic, 10)
    await again.wait_for(2)
    assert again.attempts == [2, 2]


async def test_a_consumer_and_what_it_holds_outlive_the_connection(two: Pair) -> None:
    _, one, other = two
    topic = await made(one, other)
    peer = peer_of(other)
    recorder = await recorder_of(other, peer, topic, 100)
    await publish(one, *(b"%d" % each for each in range(10)))
    got = list(await recorder.wait_for(10))
    recorder.settle_now(Settlement.ACK, *got[:2])  # on its way, or not
    cut(one)
    recorder.settle_now(Settlement.ACK, *got[2:4])  # there is none
    assert not await recorder.settle(Settlement.ACK, got[4])
    await publish(one, b"10")
    await recorder.wait_for(11)
    assert recorder.error is None
    assert recorder.bodies == [b"%d" % each for each in range(11)]
    assert set(recorder.attempts) == {1}
    await until(lambda: leased(one) == 6)
    peer.session.close()
    await has_ready(one, 6)
    again = await recorder_of(other, peer_of(other), topic, 10)
    await again.wait_for(6)
    assert again.bodies == [b"%d" % each for each in range(5, 11)]
    assert set(again.attempts) == {2}


async def test_what_was_lost_on_the_way_comes_again_uncounted(
    two: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, one, other = two
    topic = await made(one, other)
    recorder = await recorder_of(other, peer_of(other), topic, 10)
    with monkeypatch.context() as deaf:
        deaf.setattr(other.streams, "told", lambda *_: None)
        await publish(one, b"1", b"2")
        await until(lambda: leased(one) == 2)
        cut(one)
    await recorder.wait_for(2)
    assert (recorder.bodies, recorder.attempts) == ([b"1", b"2"], [1, 1])
    assert one.mesh.stream_service.figures.returned == 2


async def test_a_topic_that_goes_while_the_connection_is_broken_ends_its_consumers(
    two: Pair,
) -> None:
    _, one, other = two
    topic = await made(one, other)
    recorder = await recorder_of(other, peer_of(other), topic, 10)
    await publish(one, b"1")
    await recorder.wait_for(1)
    cut(one)
    await one.administer(DeleteTopic(DEFAULT_TENANT, "v"))
    await until(lambda: recorder.error)
    assert recorder.error is not None
    assert recorder.error.code is Code.NOT_FOUND
    await until(lambda: not other.streams.count and not one.mesh.stream_service.count)


@pytest.mark.parametrize("killed", [True, False])
async def test_a_consumer_is_told_when_its_topic_is_gone(two: Pair, killed: bool) -> None:
    _, one, other = two
    topic = await made(one, other)
    recorder = await recorder_of(other, peer_of(other), topic, 1)
    await publish(one, b"1")
    (got,) = await recorder.wait_for(1)
    began = time.monotonic()
    if killed:
        await lose(one)
        waiting = recorder.settling(Settlement.ACK, got)
        assert (await waiting)[got.offset].code is Code.UNAVAILABLE
    else:
        await one.administer(DeleteTopic(DEFAULT_TENANT, "v"))
    await until(lambda: recorder.error)
    assert time.monotonic() - began < SOON
    assert recorder.error is not None
    assert recorder.error.code is (Code.UNAVAILABLE if killed else Code.NOT_FOUND)
    with pytest.raises(KernelError) as caught:
        await recorder_of(other, peer_of(other), topic, 1)
    assert caught.value.code is Code.NOT_FOUND
    await until(lambda: not other.streams.count)
    assert killed != any(each >= MEMORY_FIRST for each in other.streams._groups)


async def test_what_a_gateway_held_is_ready_again_as_soon_as_no_store_hears_it(two: Pair) -> None:
    _, one, other = two
    topic = await made(one, other)
    recorder = await recorder_of(other, peer_of(other), topic, 2)
    await publish(one, b"1", b"2")
    await recorder.wait_for(2)
    began = time.monotonic()
    await lose(other)
    await has_ready(one, 2)
    assert time.monotonic() - began < SOON
    heir = await recorder_of(one, peer_of(one), seen(one, "v"), 2)
    await heir.wait_for(2)
    assert heir.attempts == [2, 2]


async def test_what_a_gateway_held_that_stores_still_hear_is_ready_again_in_the_end(
    two: Pair,
) -> None:
    _, one, other = two
    topic = await made(one, other)
    recorder = await recorder_of(other, peer_of(other), topic, 2)
    await publish(one, b"1", b"2")
    await recorder.wait_for(2)
    one.mesh.stream_service._away_ms = 1_500
    silence(one)
    await asyncio.sleep(1.1)  # `Mesh.each_second` has looked, and stores hear it
    assert leased(one) == 2
    await has_ready(one, 2)


async def test_an_exclusive_consumer_far_away_keeps_others_out(two: Pair) -> None:
    _, one, other = two
    topic = await made(one, other)
    spec = ConsumerSpec(topic, DEFAULT_GROUP, other.open_session("x"), exclusive=True)
    await other.attached(other.attach(spec, Recorder(cast("Client", other))))
    for client in (one, other):
        with pytest.raises(KernelError) as caught:
            await recorder_of(client, peer_of(client), seen(client, "v"), 1)
        assert caught.value.code is Code.LOCKED


async def test_a_topic_of_a_session_is_consumed_and_pulled_by_no_other_gateway(two: Pair) -> None:
    _, one, other = two
    owner = peer_of(one)
    await owner.topic("w", TopicOptions(durable=False, owner=owner.session.id))
    topic, session = seen(other, "w"), other.open_session("x")
    with pytest.raises(KernelError) as caught:
        await recorder_of(other, peer_of(other), topic, 1)
    assert caught.value.code is Code.LOCKED
    with pytest.raises(KernelError) as caught:
        await other.receive(ReceiveSpec(topic, DEFAULT_GROUP, session=session))
    assert caught.value.code is Code.LOCKED


async def test_a_filter_and_several_queues_are_served_far_away(two: Pair) -> None:
    _, one, other = two
    await peer_of(one).topic("v", TopicOptions(durable=False, queues=3))
    topic = seen(other, "v")
    wanted = TagFilter(frozenset((b"red",)))
    recorder = Recorder(cast("Client", other))
    spec = ConsumerSpec(topic, DEFAULT_GROUP, other.open_session("x"), filter=wanted)
    recorder.consumer = other.attach(spec, recorder)
    await other.attached(recorder.consumer)
    recorder.grant(20)
    drafts = [Draft(b"%d" % each, tag=b"red" if each % 2 else b"blue") for each in range(12)]
    await peer_of(other).publish(topic, *drafts)
    await recorder.wait_for(6)
    assert sorted(recorder.bodies, key=int) == [b"%d" % each for each in range(1, 12, 2)]
    assert len({each.queue for each in recorder.got}) > 1
    recorder.settle_now(Settlement.ACK, *recorder.got)
    await has_ready(other, 0)
    assert (await other.statistics(topic, DEFAULT_GROUP)).leased == 0


async def test_single_messages_are_pulled_from_far_away(two: Pair) -> None:
    _, one, other = two
    topic = await made(one, other)
    session = other.open_session("x")
    spec = ReceiveSpec(topic, DEFAULT_GROUP, session=session)
    assert (await other.receive(spec)).deliveries is None
    await publish(one, b"1", b"2", b"3")
    first, second = await asyncio.gather(other.receive(spec), other.receive(spec))
    assert first.deliveries is not None
    assert second.deliveries is not None
    assert first.consumer is not None
    slots = [*first.deliveries.slots, *second.deliveries.slots]
    assert {body_of(each) for each in slots} == {b"1", b"2"}
    other.settle(first.consumer, Settlement.ACK, list(first.deliveries.offsets))
    await until(lambda: leased(one) == 1)
    session.close()
    await has_ready(other, 2)
    await until(lambda: not one.mesh.stream_service.count and not other.streams.count)
    with pytest.raises(KernelError) as caught:
        await other.receive(ReceiveSpec(topic, DEFAULT_GROUP, lease_ms=1_000))
    assert caught.value.code is Code.NOT_ALLOWED


@pytest.mark.parametrize("killed", [True, False])
async def test_a_pull_outlives_the_connection_and_ends_with_the_gateway(
    two: Pair, killed: bool
) -> None:
    _, one, other = two
    topic = await made(one, other)
    spec = ReceiveSpec(topic, DEFAULT_GROUP, wait_ms=30_000, session=other.open_session("x"))
    pull = asyncio.create_task(other.receive(spec))
    await until(lambda: one.mesh.stream_service.count == 1)
    if killed:
        await lose(one)
        with pytest.raises(KernelError) as caught:
            await asyncio.wait_for(pull, SOON)
        assert caught.value.code is Code.UNAVAILABLE
    else:
        cut(one)
        await publish(one, b"1")
        received = await pull
        assert received.deliveries is not None
        assert [body_of(each) for each in received.deliveries.slots] == [b"1"]


async def test_a_slow_gateway_is_sent_more_once_it_has_caught_up(two: Pair) -> None:
    _, one, other = two
    topic = await made(one, other)
    recorder = await recorder_of(other, peer_of(other), topic, 2)
    service = one.mesh.stream_service
    service._waiting_bytes_max = -1  # nothing may wait
    await publish(one, b"1", b"2", b"3", b"4")
    recorder.settle_now(Settlement.ACK, *await recorder.wait_for(2))
    recorder.grant(2)
    await until(lambda: not leased(one))
    assert (service.figures.paused, len(recorder.got)) == (1, 2)
    service._waiting_bytes_max = 1_000
    await recorder.wait_for(4)
    assert (recorder.bodies, recorder.attempts) == ([b"1", b"2", b"3", b"4"], [1] * 4)


async def test_consumers_of_others_are_bounded_and_counted(two: Pair) -> None:
    _, one, other = two
    topic = await made(one, other)
    one.mesh.stream_service._streams_max = 1
    await recorder_of(other, peer_of(other), topic, 1)
    with pytest.raises(KernelError) as caught:
        await recorder_of(other, peer_of(other), topic, 1)
    assert caught.value.code is Code.LIMIT_EXCEEDED
    rows = GatewayFigures(one.leaders, one).collect()
    samples = {each.name: each.value for row in rows for each in row.samples}
    assert samples["weir_gateway_consumers_lent"] == 1
    assert samples["weir_gateway_consumers_lent_attached_total"] == 1
    assert samples["weir_gateway_consumers_lent_refused_total"] == 1


async def test_pulls_of_others_are_bounded_and_find_room_again(two: Pair) -> None:
    _, one, other = two
    topic = await made(one, other)
    assert one.mesh.stream_service._streams_max == MEMORY_STREAMS_MAX
    one.mesh.stream_service._streams_max = 1
    first, second = other.open_session("x"), other.open_session("y")
    await other.receive(ReceiveSpec(topic, DEFAULT_GROUP, session=first))
    with pytest.raises(KernelError) as caught:
        await other.receive(ReceiveSpec(topic, DEFAULT_GROUP, session=second))
    assert caught.value.code is Code.LIMIT_EXCEEDED
    first.close()
    await until(lambda: not one.mesh.stream_service.count)
    assert (
        await other.receive(ReceiveSpec(topic, DEFAULT_GROUP, session=second))
    ).deliveries is None


async def test_clients_are_not_moved_after_what_lives_in_a_gateway(two: Pair) -> None:
    _, one, other = two
    topic = await made(one, other)
    await recorder_of(other, peer_of(other), topic, 1)
    await other.receive(ReceiveSpec(topic, DEFAULT_GROUP, session=other.open_session("x")))
    assert other.tasks.consumed(10) == []


# --- A gateway of version 1 of the protocol ---------------------------------------------------

PLAIN_1 = 1, 1
ATTACH_1, PULL_1, STEER_1, SETTLE_1 = range(123, 127)


@pytest.mark.parametrize("version", [(1, 1), (1, 2)])
async def test_gateways_of_which_one_is_older_publish_to_each_other_and_consume_nothing(
    two: Pair, version: tuple[int, int]
) -> None:
    nodes, one, _ = two
    is_old = version == PLAIN_1
    async with meeting_gateway_of(nodes, version) as older:
        await until(lambda: knows_all(one, older) and knows_all(older, one))
        for here, there in ((one, older), (older, one)):
            topic = await peer_of(here).topic(f"at {here.mesh.process}", TRANSIENT)
            elsewhere = seen(there, topic.name)
            assert not (await peer_of(there).publish(elsewhere, b"1")).failures
            session = there.open_session("x")
            pull = ReceiveSpec(elsewhere, DEFAULT_GROUP, session=session)
            if not is_old:
                assert (await there.receive(pull)).deliveries is not None
                continue
            with pytest.raises(KernelError) as caught:
                peer_of(there).attach(elsewhere)
            assert caught.value.code is Code.UNAVAILABLE
            with pytest.raises(KernelError) as caught:
                await there.receive(pull)
            assert caught.value.code is Code.UNAVAILABLE
            assert not there.streams.count


async def test_a_gateway_of_version_1_is_not_heard_of_streams(two: Pair) -> None:
    """It speaks none: what it says of a store's group would be taken for that store's word."""
    nodes, one, _ = two
    async with meeting_gateway_of(nodes, PLAIN_1) as older:
        await until(lambda: knows_all(one, older) and knows_all(older, one))
        dialled = older.mesh._dialers[one.mesh.process].channel
        process = older.mesh.remote_memory._remote_processes[0, one.mesh.process]
        accepted = process.channel
        assert dialled is not None
        assert accepted is not None
        groups = {number: each.channel for number, each in one.streams._groups.items()}
        dialled.cast(stream_wire.SERVES, stream_wire.encode([(1, 1 << 40)]))
        accepted.cast(stream_wire.ATTACH, stream_wire.encode([]), control=True)
        await until(lambda: dialled.is_closed and accepted.is_closed)
        assert groups == {number: each.channel for number, each in one.streams._groups.items()}
        assert not one.mesh.stream_service.away


async def test_what_an_older_gateway_asks_is_refused_and_its_connection_stays(two: Pair) -> None:
    nodes, one, _ = two
    await peer_of(one).topic("v", TRANSIENT)
    async with meeting_gateway_of(nodes, PLAIN_1) as older:
        await until(lambda: knows_all(one, older) and knows_all(older, one))
        process = older.mesh.remote_memory._remote_processes[0, one.mesh.process]
        channel = process.channel
        assert channel is not None
        for method in (STEER_1, SETTLE_1):
            channel.cast(method, [b"\x00" * 12])
        for method in (ATTACH_1, PULL_1, SETTLE_1):
            with pytest.raises(KernelError) as caught:
                await process.ask(method, [b"\x00" * 12])
            assert caught.value.code is Code.UNAVAILABLE
        assert not (await peer_of(older).publish(seen(older, "v"), b"1")).failures
        assert channel is process.channel
        assert not channel.is_closed
