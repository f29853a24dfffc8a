"""Transient topics of one gateway that are consumed at another."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from kernel.api.client import Client, ConsumerSpec, DeleteTopic, ReceiveSpec, Settlement
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, TopicInfo, TopicOptions
from kernel.common.errors import Code, KernelError
from kernel.remote.client import ClusterClient
from kernel.remote.mesh import remote_consumer_wire as wire
from kernel.remote.mesh import served_consumers
from tests.kernel.remote.cluster import Pair, lose
from tests.kernel.remote.gateway import body_of
from tests.kernel.remote.local import peer_of
from tests.kernel.remote.test_mesh import cut, seen
from tests.kernel.three_stores import until
from tests.simulator.peer import Peer, Recorder

TRANSIENT = TopicOptions(durable=False)


async def made(one: ClusterClient, other: ClusterClient) -> TopicInfo:
    """A topic that lives in one gateway, as the other knows it."""
    await peer_of(one).topic("v", TRANSIENT)
    return seen(other, "v")


async def recorder_of(client: ClusterClient, peer: Peer, topic: TopicInfo, credit: int) -> Recorder:
    recorder = peer.attach(topic, credit=credit)
    assert recorder.consumer is not None
    await client.attached(recorder.consumer)
    return recorder


async def ready(client: ClusterClient) -> int:
    return (await client.statistics(seen(client, "v"), DEFAULT_GROUP)).ready


async def has_ready(client: ClusterClient, count: int) -> None:
    async with asyncio.timeout(10):
        while await ready(client) != count:
            await asyncio.sleep(0.01)


async def test_what_is_handed_out_far_away_is_settled_and_released(pair: Pair) -> None:
    _, one, other = pair
    topic = await made(one, other)
    recorder = await recorder_of(other, peer_of(other), topic, 3)
    await peer_of(one).publish(seen(one, "v"), *(b"%d" % each for each in range(5)))
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
    await until(lambda: one.mesh.served_consumers.count)
    for number in range(40):
        await peer_of(other).publish(topic, b"%d" % number)
    await until(lambda: len(near.got) + len(far.got) == 40)
    assert near.got
    assert far.got


async def test_what_a_session_held_returns_when_it_ends(two: Pair) -> None:
    _, one, other = two
    topic = await made(one, other)
    peer = peer_of(other)
    recorder = await recorder_of(other, peer, topic, 10)
    await peer_of(one).publish(seen(one, "v"), b"1", b"2")
    await recorder.wait_for(2)
    peer.session.close()
    await has_ready(other, 2)
    assert (one.mesh.served_consumers.count, other.mesh.remote_consumers.count) == (0, 0)
    again = await recorder_of(other, peer_of(other), topic, 10)
    await again.wait_for(2)
    assert again.attempts == [2, 2]


async def test_a_consumer_ends_with_the_connection_and_what_it_held_returns(two: Pair) -> None:
    _, one, other = two
    topic = await made(one, other)
    recorder = await recorder_of(other, peer_of(other), topic, 1)
    await peer_of(one).publish(seen(one, "v"), b"1", b"2")
    (got,) = await recorder.wait_for(1)
    cut(one)
    await until(lambda: recorder.error)
    assert recorder.error is not None
    assert recorder.error.code is Code.UNAVAILABLE
    assert (await recorder.settle(Settlement.ACK, got))[got.offset].code is Code.LEASE_LOST
    await has_ready(one, 2)
    assert (one.mesh.served_consumers.count, other.mesh.remote_consumers.count) == (0, 0)


@pytest.mark.parametrize("killed", [True, False])
async def test_a_consumer_is_told_when_its_topic_is_gone(two: Pair, killed: bool) -> None:
    _, one, other = two
    topic = await made(one, other)
    recorder = await recorder_of(other, peer_of(other), topic, 1)
    if killed:
        await lose(one)
    else:
        await one.administer(DeleteTopic(DEFAULT_TENANT, "v"))
    await until(lambda: recorder.error)
    assert recorder.error is not None
    assert recorder.error.code is (Code.UNAVAILABLE if killed else Code.NOT_FOUND)
    with pytest.raises(KernelError):
        await recorder_of(other, peer_of(other), topic, 1)
    assert other.mesh.remote_consumers.count == 0


async def test_an_exclusive_consumer_far_away_keeps_others_out(two: Pair) -> None:
    _, one, other = two
    topic = await made(one, other)
    spec = ConsumerSpec(topic, DEFAULT_GROUP, other.open_session("x"), exclusive=True)
    await other.attached(other.attach(spec, Recorder(cast("Client", other))))
    for client in (one, other):
        with pytest.raises(KernelError) as caught:
            await recorder_of(client, peer_of(client), seen(client, "v"), 1)
        assert caught.value.code is Code.LOCKED
    owner = peer_of(one)
    await owner.topic("w", TopicOptions(durable=False, owner=owner.session.id))
    with pytest.raises(KernelError) as caught:
        await recorder_of(other, peer_of(other), seen(other, "w"), 1)
    assert caught.value.code is Code.LOCKED


async def test_single_messages_are_pulled_from_far_away(two: Pair) -> None:
    _, one, other = two
    topic = await made(one, other)
    session = other.open_session("x")
    spec = ReceiveSpec(topic, DEFAULT_GROUP, session=session)
    assert (await other.receive(spec)).deliveries is None
    await peer_of(one).publish(seen(one, "v"), b"1", b"2", b"3")
    first, second = await asyncio.gather(other.receive(spec), other.receive(spec))
    assert first.deliveries is not None
    assert second.deliveries is not None
    assert first.consumer is not None
    slots = [*first.deliveries.slots, *second.deliveries.slots]
    assert {body_of(each) for each in slots} == {b"1", b"2"}
    other.settle(first.consumer, Settlement.ACK, list(first.deliveries.offsets))
    await until(lambda: one.mesh.served_consumers.count == other.mesh.remote_consumers.count == 1)
    session.close()
    await has_ready(other, 2)
    with pytest.raises(KernelError) as caught:
        await other.receive(ReceiveSpec(topic, DEFAULT_GROUP, lease_ms=1_000))
    assert caught.value.code is Code.NOT_ALLOWED


async def test_a_slow_gateway_is_sent_more_once_it_has_caught_up(
    two: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, one, other = two
    topic = await made(one, other)
    recorder = await recorder_of(other, peer_of(other), topic, 2)
    monkeypatch.setattr(served_consumers, "SERVED_BYTES_MAX", -1)  # nothing may wait
    await peer_of(one).publish(seen(one, "v"), b"1", b"2", b"3")
    (served,) = next(iter(one.mesh.served_consumers._served.values())).values()
    await until(lambda: served._withheld == 2)
    await has_ready(one, 3)
    assert not recorder.got
    monkeypatch.setattr(served_consumers, "SERVED_BYTES_MAX", 1_000)
    await recorder.wait_for(2)
    assert (recorder.bodies, recorder.attempts) == ([b"1", b"2"], [1, 1])


async def test_consumers_of_others_are_bounded(two: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    _, one, other = two
    topic = await made(one, other)
    monkeypatch.setattr(served_consumers, "SERVED_MAX", 1)
    await recorder_of(other, peer_of(other), topic, 1)
    with pytest.raises(KernelError) as caught:
        await recorder_of(other, peer_of(other), topic, 1)
    assert caught.value.code is Code.LIMIT_EXCEEDED
    assert one.mesh.served_consumers.refused == 1


@pytest.mark.parametrize(
    "method", [wire.ATTACH, wire.PULL, wire.STEER, wire.SETTLE, wire.HANDED_OVER]
)
async def test_garbage_ends_the_connection(two: Pair, method: int) -> None:
    _, one, other = two
    await made(one, other)
    (dialer,) = one.mesh._dialers.values()
    near, far = dialer.channel, next(iter(other.mesh.remote_memory._by_channel))
    assert near is not None
    (near if method == wire.HANDED_OVER else far).cast(method, [b"\xc1" * 9])
    await until(lambda: near.is_closed)
    await until(lambda: one.mesh.peers)
