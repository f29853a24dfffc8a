"""Very many that connect at once do not keep the others waiting."""

from __future__ import annotations

import asyncio
import socket

import pytest

from adapters.mqtt.client_connection import ClientConnection
from adapters.mqtt.codec.encoder import encode
from adapters.mqtt.codec.packet_types import MQTT_5
from adapters.mqtt.codec.packets import Connect, Publish
from adapters.read_scheduler import READ_MAX
from tests.adapters.mqtt.broker import Broker, eventually

PEERS = 3 * READ_MAX


def _connect(client_id: str) -> Connect:
    return Connect(client_id, MQTT_5, username="guest", password=b"guest")


async def test_what_strangers_have_sent_is_taken_in_turns(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, taken = 0, []
    receive = ClientConnection.receive

    def counting(self: ClientConnection, data: bytes) -> None:
        taken.append(turn)
        receive(self, data)

    monkeypatch.setattr(ClientConnection, "receive", counting)
    peers = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(PEERS)]
    await broker.until_connections(PEERS)
    for number, peer in enumerate(peers):
        peer.sendall(encode(_connect(f"peer-{number}"), MQTT_5))
    while len(taken) < PEERS:
        turn += 1
        await asyncio.sleep(0)
    assert max(taken.count(each) for each in range(turn + 1)) <= READ_MAX
    await eventually(lambda: sum(each.is_connected for each in broker.adapter.holders()) == PEERS)
    for peer in peers:
        peer.close()


async def test_what_comes_behind_connect_is_all_there_and_in_order(broker: Broker) -> None:
    taker = await broker.connect("taker")
    await taker.subscribe("a")
    bodies = [b"%d" % number * 5_000 for number in range(20)]
    with socket.create_connection(("127.0.0.1", broker.port)) as peer:
        publishes = b"".join(encode(Publish("a", each), MQTT_5) for each in bodies)
        peer.sendall(encode(_connect("giver"), MQTT_5) + publishes)
        assert [(await taker.take()).payload for _ in bodies] == bodies
