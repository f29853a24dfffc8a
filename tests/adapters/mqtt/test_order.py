"""What one publisher sends to one topic with one QoS comes in that order, after absence too
([MQTT-4.6.0-5], [MQTT-4.6.0-6]); a repetition after a broken connection comes in its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

import pytest

from adapters.mqtt.codec.encoder import encode
from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.packets import Ack, Publish
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.delivery import session_deliveries as stored_deliveries
from kernel.api.client import Client
from tests.adapters.mqtt.broker import Broker, WireClient, serving, serving_over
from tests.kernel.remote import cluster

TOPICS = [f"line/{number}" for number in range(5)]
EACH = 60
"""Messages of each topic and QoS."""


@pytest.fixture(params=["node", "gateway"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Broker]:
    async with AsyncExitStack() as stack:
        if request.param == "node":
            yield await stack.enter_async_context(serving(tmp_path / "data"))
        else:
            nodes = await stack.enter_async_context(cluster.running_stores(tmp_path, 3))
            gateway = await stack.enter_async_context(cluster.gateway_of(nodes))
            yield await stack.enter_async_context(serving_over(cast("Client", gateway)))


async def publish_all(giver: WireClient, first: int) -> None:
    """EACH messages of every topic and QoS, topics and QoS mixed, without waiting in between."""
    for number in range(first, first + EACH):
        chunk: list[bytes] = []
        acked = 0
        for topic in TOPICS:
            for qos in (1, 2):
                packet_id = giver.packet_id()
                packet = Publish(topic, b"%d" % number, qos, packet_id=packet_id)
                chunk.append(encode(packet, giver.level))
                acked += 1
        giver.writer.write(b"".join(chunk))
        while acked:
            kind, packet_id, code, _ = await giver.next()
            assert code == 0
            if kind is PacketType.PUBREC:
                giver.send(Ack(PacketType.PUBREL, packet_id))
            else:
                acked -= 1


class Reader:
    """What a session has got: per topic and QoS the numbers, each where it came first."""

    def __init__(self, *, overlapping: bool) -> None:
        self._overlapping = overlapping
        """Then what several filters match may come again after a reconnect, as if it were new."""
        self.got: dict[tuple[str, int], list[int]] = defaultdict(list)

    async def take(self, client: WireClient, total: int, *, answers: bool = True) -> None:
        """Until so many different messages are there; `answers`: whether they are acknowledged."""
        while self.total < total:
            packet = await client.next()
            if isinstance(packet, tuple):
                if packet[0] is PacketType.PUBREL:
                    client.send(Ack(PacketType.PUBCOMP, packet[1]))
                continue
            numbers, number = self.got[packet.topic, packet.qos], int(packet.payload)
            if number in numbers:
                assert packet.dup or self._overlapping, "a repetition says that it is one"
            else:
                numbers.append(number)
            if answers:
                kind = PacketType.PUBACK if packet.qos == 1 else PacketType.PUBREC
                client.send(Ack(kind, packet.packet_id))

    @property
    def total(self) -> int:
        return sum(len(numbers) for numbers in self.got.values())


@pytest.mark.parametrize("filters", [("line/+",), ("#", "line/#", "line/1"), tuple(TOPICS)])
async def test_order_holds_for_each_topic_and_qos_after_absence_too(
    place: Broker, filters: tuple[str, ...]
) -> None:
    window = Properties(session_expiry_interval=600, receive_maximum=20)
    reader = Reader(overlapping="#" in filters)
    recorder = await place.dial()
    await recorder.connect("taker", clean=False, properties=window)
    await recorder.subscribe(*filters, qos=2)
    giver = await place.connect("giver")
    round_total = EACH * len(TOPICS) * 2
    await publish_all(giver, 0)
    await reader.take(recorder, round_total // 3)
    recorder.drop()  # with some of them on their way
    await place.until_connections(1)
    await publish_all(giver, EACH)
    for share in (4, 5):  # a window of each connection is never acknowledged
        recorder = await place.dial()
        await recorder.connect("taker", clean=False, properties=window)
        await reader.take(recorder, round_total * share // 6)
        await reader.take(recorder, reader.total + 3, answers=False)
        recorder.drop()
        await place.until_connections(1)
    recorder = await place.dial()
    await recorder.connect("taker", clean=False, properties=window)
    await reader.take(recorder, 2 * round_total)
    assert set(reader.got) == {(topic, qos) for topic in TOPICS for qos in (1, 2)}
    for key, numbers in reader.got.items():
        assert numbers == list(range(2 * EACH)), key


async def test_what_an_earlier_connection_left_half_done_holds_the_window_up_only_for_now(
    broker: Broker,
) -> None:
    window = Properties(session_expiry_interval=600, receive_maximum=4)
    recorder = await broker.connect("taker", clean=False, properties=window)
    await recorder.subscribe("a", qos=2)
    giver = await broker.connect("giver")
    for number in range(12):
        await giver.publish("a", b"%d" % number, qos=2)
    for _ in range(4):
        packet = await recorder.next(Publish)
        recorder.ack(packet, PacketType.PUBREC)
    for _ in range(4):
        await recorder.next(PacketType.PUBREL)
    recorder.drop()
    await broker.until_connections(1)
    recorder = await broker.connect("taker", clean=False, properties=window)
    for _ in range(4):
        released = await recorder.next(PacketType.PUBREL)
        recorder.send(Ack(PacketType.PUBCOMP, released[1]))
    got = [(await recorder.next(Publish)).payload for _ in range(4)]
    assert got == [b"4", b"5", b"6", b"7"]
    await recorder.nothing()


async def test_an_identifier_used_anew_keeps_its_exchange_when_the_connection_breaks(
    broker: Broker,
) -> None:
    """The identifier was a QoS 1 delivery's that an earlier connection had left, and is a QoS 2
    exchange's now: what is forgotten with the connection is the former, not the latter.
    """
    window = Properties(session_expiry_interval=600)
    recorder = await broker.connect("taker", clean=False, properties=window)
    await recorder.subscribe("a", qos=2)
    giver = await broker.connect("giver")
    await giver.publish("a", b"once or more", qos=1)
    left = await recorder.next(Publish)
    recorder.drop()
    await broker.until_connections(1)
    recorder = await broker.connect("taker", clean=False, properties=window)
    again = await recorder.next(Publish)
    assert (again.packet_id, again.dup) == (left.packet_id, True)
    recorder.ack(again, PacketType.PUBACK)
    await giver.publish("a", b"exactly once", qos=2)
    sent = await recorder.next(Publish)
    assert (sent.packet_id, sent.dup) == (left.packet_id, False)
    recorder.drop()
    await broker.until_connections(1)
    recorder = await broker.connect("taker", clean=False, properties=window)
    again = await recorder.next(Publish)
    assert (again.packet_id, again.dup, again.payload) == (sent.packet_id, True, b"exactly once")


async def test_too_many_kept_identifiers_are_forgotten_where_a_message_may_come_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else messages that expire while nobody is connected use up a session's identifiers."""
    monkeypatch.setattr(stored_deliveries, "KEPT_IDS_MAX", 3)
    window = Properties(session_expiry_interval=600)
    recorder = await broker.connect("taker", clean=False, properties=window)
    await recorder.subscribe("a", qos=2)
    giver = await broker.connect("giver")
    for number in range(4):
        await giver.publish("a", b"%d" % number, qos=1 + (number == 3))
    first = [await recorder.next(Publish) for _ in range(4)]
    recorder.drop()
    await broker.until_connections(1)
    recorder = await broker.connect("taker", clean=False, properties=window)
    again = [await recorder.next(Publish) for _ in range(4)]
    assert [(each.payload, each.dup) for each in again] == [(b"%d" % at, True) for at in range(4)]
    assert again[3].packet_id == first[3].packet_id, "exactly once: by its identifier"
    assert len({each.packet_id for each in again}) == 4
    for each in again:
        recorder.ack(each, PacketType.PUBACK if each.qos == 1 else PacketType.PUBREC)
    released = await recorder.next(PacketType.PUBREL)
    assert released[1] == first[3].packet_id


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("filters", [("#", "line/1"), ("line/1", "#"), ("line/1", "line/#", "#")])
async def test_what_several_filters_match_comes_again_in_its_place_by_whichever_comes_first(
    place: Broker, filters: tuple[str, ...], qos: int
) -> None:
    """After each break another filter's queue may be asked first: none has gone on without the
    others, and each finds the identifier that a message had.
    """
    window = Properties(session_expiry_interval=600, receive_maximum=3)
    recorder = await place.connect("taker", clean=False, properties=window)
    await recorder.subscribe(*filters, qos=2)
    giver = await place.connect("giver")
    for number in range(7):
        await giver.publish("line/1", b"%d" % number, qos=qos)
    sent = [await recorder.next(Publish) for _ in range(3)]
    assert [each.payload for each in sent] == [b"0", b"1", b"2"]
    await recorder.nothing()
    recorder.drop()
    await place.until_connections(1)
    recorder = await place.connect("taker", clean=False, properties=window)
    again = [await recorder.next(Publish) for _ in range(3)]
    assert [(each.payload, each.packet_id, each.dup) for each in again] == [
        (each.payload, each.packet_id, True) for each in sent
    ]
    await recorder.nothing()
    recorder.ack(again[0], PacketType.PUBACK if qos == 1 else PacketType.PUBREC)
    if qos == 2:
        released = await recorder.next(PacketType.PUBREL)
        assert released[1] == sent[0].packet_id
    else:
        assert (await recorder.next(Publish)).payload == b"3"
        await recorder.nothing()  # each of the queues that it came from has the ack
    recorder.drop()
    await place.until_connections(1)
    recorder = await place.connect("taker", clean=False, properties=window)
    got: list[bytes] = []
    if qos == 2:
        assert (await recorder.next(PacketType.PUBREL))[1] == sent[0].packet_id
        recorder.send(Ack(PacketType.PUBCOMP, sent[0].packet_id))
    while len(got) < 6:
        packet = await recorder.next()
        if isinstance(packet, Publish):
            got.append(packet.payload)
            recorder.ack(packet, PacketType.PUBACK if qos == 1 else PacketType.PUBREC)
        else:
            recorder.send(Ack(PacketType.PUBCOMP, packet[1]))
    assert got == [b"1", b"2", b"3", b"4", b"5", b"6"]
