"""Chunks of good and bad packets against a running adapter: every connection ends in the protocol's
own way, and none leaves an error of ours in the log.

`WEIR_FUZZ_CHUNKS` sets how many chunks are sent (default 300), `WEIR_FUZZ_SEED` the seed.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog.testing

from adapters.mqtt.codec.encoder import encode
from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.packets import (
    Ack,
    Disconnect,
    FilterOptions,
    Pingreq,
    Publish,
    Subscribe,
    Unsubscribe,
)
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.codec.reason_codes import ReasonCode
from tests.adapters.mqtt.broker import Broker, WireClient, serving

CHUNKS = int(os.environ.get("WEIR_FUZZ_CHUNKS", "300"))
SEED = int(os.environ.get("WEIR_FUZZ_SEED", "20261123"))

ACKS = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP)


@pytest.fixture
def lines() -> Iterator[list[dict]]:
    """The log, which must hold no error in the end."""
    with structlog.testing.capture_logs() as logs:
        yield logs
    wrong = [each for each in logs if each["log_level"] in ("error", "critical")]
    assert wrong == []


def a_packet(chance: random.Random, level: int) -> bytes:
    """A packet that may or may not be allowed now."""
    topic = chance.choice(("a", "a/b", "b"))
    five = level == 5
    kind = chance.randrange(12)
    number = chance.randrange(1, 8)
    if kind < 4:
        qos = chance.randrange(3)
        properties = Properties()
        if five and chance.random() < 0.3:
            properties = Properties(topic_alias=chance.randrange(1, 3))
            topic = chance.choice((topic, ""))
        body = b"x" * chance.choice((0, 1, 200))
        retain = chance.random() < 0.2
        packet = Publish(topic, body, qos, retain, False, number if qos else 0, properties)
        return encode(packet, level)
    if kind < 8:
        return encode(Ack(chance.choice(ACKS), number), level)
    if kind == 8:
        return encode(Pingreq(), level)
    if kind == 9:
        return encode(Unsubscribe(number, (topic,)), level)
    filters = [chance.choice(("a", "a/+", "#", "b", "$share/g/a")) for _ in range(2)]
    options = tuple(FilterOptions(each, chance.randrange(3)) for each in filters)
    return encode(Subscribe(number, options), level)


def an_end(chance: random.Random, level: int) -> bytes:
    """What ends a connection."""
    ends = [b"\x00", b"\xff\xff\xff\xff\xff", b"\x30\x01\x00", b"\x62\x02\x00\x00"]
    if level == 5:
        # Alias 1 and subscription identifier 1, in a PUBLISH of a client.
        ends.append(bytes.fromhex("3009000161052300010b01"))
        ends.append(encode(Disconnect(), 5))
    ends.append(encode(Disconnect(), level))
    return chance.choice(ends)


async def _drain(client: WireClient) -> None:
    while await client.reader.read(65_536):
        pass


@pytest.mark.usefixtures("lines")
async def test_nothing_but_the_protocols_own_errors_comes_of_any_chunk(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    async with serving(tmp_path / "data") as broker:
        live: list[tuple[WireClient, asyncio.Task[None]]] = []
        for number in range(CHUNKS):
            while len(live) < 4:
                level = chance.choice((4, 5, 5))
                properties = Properties()
                if level == 5:
                    properties = Properties(
                        receive_maximum=chance.choice((1, 2, 100)),
                        session_expiry_interval=chance.choice((0, 60)),
                    )
                client = await broker.dial(level)
                await client.connect(
                    f"c{chance.randrange(6)}",
                    clean=chance.random() < 0.5,
                    properties=properties,
                )
                live.append((client, asyncio.create_task(_drain(client))))
            client, reading = chance.choice(live)
            chunk = b"".join(a_packet(chance, client.level) for _ in range(chance.randrange(12)))
            if chance.random() < 0.3:
                chunk += an_end(chance, client.level)
            client.writer.write(chunk)
            if chance.random() < 0.1:
                client.drop()
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            if number % 10 == 0:
                await asyncio.sleep(0.01)
            live = [each for each in live if not each[1].done()]
        for client, reading in live:
            client.drop()
            reading.cancel()
        await asyncio.gather(*(each[1] for each in live), return_exceptions=True)
        await broker.until_connections(0)


@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize("kept", [False, True])
async def test_an_acknowledgement_and_a_bad_packet_in_one_read(broker: Broker, kept: bool) -> None:
    """What waited for the acknowledgement is not sent on the connection that is over by then; the
    end reaches the client, and what it acknowledged is acknowledged."""
    one = Properties(receive_maximum=1, session_expiry_interval=600 if kept else 0)
    recorder = await broker.dial()
    await recorder.connect("taker", clean=not kept, properties=one)
    await recorder.subscribe("a", qos=1)
    await recorder.subscribe("z", qos=0)
    giver = await broker.connect("giver")
    for number in range(3):
        await giver.publish("a", b"%d" % number)
    packet = await recorder.next(Publish)
    recorder.writer.write(encode(Ack(PacketType.PUBACK, packet.packet_id), 5) + b"\x00")
    [goodbye] = await recorder.closed()
    assert goodbye.reason_code == ReasonCode.MALFORMED_PACKET
    await broker.until_connections(1)
    if kept:
        again = await broker.connect("taker", clean=False, expiry=600)
        assert [(await again.take()).payload for _ in range(2)] == [b"1", b"2"]


@pytest.mark.usefixtures("lines")
async def test_a_topic_alias_beside_a_subscription_identifier(broker: Broker) -> None:
    """[MQTT-3.3.4-6]: 0x82, whatever else is in the packet; what came before it is stored."""
    recorder = await broker.connect("taker")
    await recorder.subscribe("a")
    client = await broker.connect("c")
    good = encode(Publish("a", b"good", 1, packet_id=1), 5)
    bad = bytes.fromhex("3009000161052300010b01")
    client.writer.write(good + bad)
    *_, goodbye = await client.closed()
    assert goodbye.reason_code == ReasonCode.PROTOCOL_ERROR
    assert (await recorder.take()).payload == b"good"
