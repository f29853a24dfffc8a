"""MQTT over WebSocket (MQTT5 chapter 6), with wsproto's client side as the peer."""

from __future__ import annotations

import asyncio

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

from adapters.mqtt.codec.encoder import encode
from adapters.mqtt.codec.packets import Connack, Connect, Disconnect, Pingreq, Pingresp
from adapters.mqtt.limits import WEBSOCKET_HANDSHAKE_BYTES_MAX
from adapters.mqtt.transport.websocket import WebSocket
from tests.adapters.mqtt.broker import Broker
from tests.adapters.mqtt.support import client_decoder, single


class Peer:
    """A client's side without a socket."""

    def __init__(self, *subprotocols: str) -> None:
        self.connection = WSConnection(ConnectionType.CLIENT)
        self.server = WebSocket()
        self.events: list = []
        self.received: list[bytes] = []
        self.say(Request(host="h", target="/mqtt", subprotocols=list(subprotocols)))

    def say(self, event) -> None:
        self.take(self.connection.send(event))

    def take(self, data: bytes) -> None:
        """Bytes for the server, and what it answers."""
        self.received += self.server.receive(data)
        self.hear()

    def hear(self) -> None:
        self.connection.receive_data(self.server.data_to_send())
        self.events += self.connection.events()


def test_the_subprotocol_is_mqtt() -> None:
    """[MQTT-6.0.0-3], [MQTT-6.0.0-4]."""
    peer = Peer("other", "mqtt")
    assert peer.events == [AcceptConnection(subprotocol="mqtt")]
    assert Peer("mqttv3.1").events == [AcceptConnection(subprotocol="mqttv3.1")]


@pytest.mark.parametrize("subprotocols", [(), ("chat",)])
def test_another_subprotocol_is_refused_with_a_reason(subprotocols: tuple[str, ...]) -> None:
    peer = Peer(*subprotocols)
    refusal, body = peer.events[:2]
    assert isinstance(refusal, RejectConnection)
    assert refusal.status_code == 400
    assert isinstance(body, RejectData)
    assert b"mqtt" in bytes(body.data)
    assert peer.server.is_over
    assert peer.server.receive(b"more") == []


def test_packets_may_span_frames_and_share_them() -> None:
    """[MQTT-6.0.0-2]: only bytes are handed on."""
    peer = Peer("mqtt")
    peer.say(BytesMessage(b"\x10"))
    peer.say(BytesMessage(b"", message_finished=False))
    peer.say(BytesMessage(b"\x05abc", message_finished=True))
    assert b"".join(peer.received) == b"\x10\x05abc"
    peer.server.send(b"answer")
    peer.hear()
    assert peer.events[-1] == BytesMessage(data=b"answer")


def test_text_ends_the_connection() -> None:
    """[MQTT-6.0.0-1]."""
    peer = Peer("mqtt")
    peer.say(TextMessage("hello"))
    assert isinstance(peer.events[-1], CloseConnection)
    assert peer.events[-1].code == 1003
    assert peer.server.is_over


def test_pings_are_answered_and_a_goodbye_too() -> None:
    peer = Peer("mqtt")
    peer.say(Ping(b"x"))
    assert peer.events[-1] == Pong(payload=bytearray(b"x"))
    peer.say(CloseConnection(1000))
    assert isinstance(peer.events[-1], CloseConnection)
    assert peer.server.is_over
    peer.server.send(b"late")
    peer.server.close()
    assert peer.server.data_to_send() == b""


def test_what_is_no_handshake_ends_it() -> None:
    server = WebSocket()
    assert server.receive(b"\x10\x0c\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00\r\n\r\n") == []
    assert server.is_over
    endless = WebSocket()
    line = b"GET /mqtt HTTP/1.1\r\nX: "
    assert endless.receive(line + b"x" * WEBSOCKET_HANDSHAKE_BYTES_MAX) == []
    assert endless.is_over


def test_a_broken_frame_ends_it() -> None:
    peer = Peer("mqtt")
    peer.received += peer.server.receive(b"\xff\xff\xff\xff")
    peer.hear()
    assert isinstance(peer.events[-1], CloseConnection)
    assert peer.server.is_over


class Socket:
    """The same over TCP."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.connection = WSConnection(ConnectionType.CLIENT)
        self.decoder = client_decoder(5)
        self.closed_with: int | None = None

    def say(self, event) -> None:
        self.writer.write(self.connection.send(event))

    async def events(self) -> list:
        data = await asyncio.wait_for(self.reader.read(65_536), 5)
        self.connection.receive_data(data or None)
        return list(self.connection.events())

    async def packets(self) -> list:
        found: list = []
        for event in await self.events():
            if isinstance(event, BytesMessage):
                self.decoder.receive(bytes(event.data), found)
            elif isinstance(event, CloseConnection):
                self.closed_with = event.code
        return single(found)


async def test_a_connection_by_websocket_lives_and_ends_as_any(broker: Broker) -> None:
    stream = await asyncio.open_connection("127.0.0.1", broker.websocket_port)
    socket = Socket(*stream)
    socket.say(Request(host="h", target="/", subprotocols=["mqtt"]))
    assert isinstance((await socket.events())[0], AcceptConnection)
    socket.say(BytesMessage(encode(Connect("c", username="guest", password=b"guest"), 5)))
    [answer] = await socket.packets()
    assert isinstance(answer, Connack)
    socket.say(BytesMessage(encode(Pingreq(), 5)))
    assert await socket.packets() == [Pingresp()]
    draining = asyncio.ensure_future(broker.adapter.drain())
    [goodbye] = await socket.packets()
    assert isinstance(goodbye, Disconnect)
    if socket.closed_with is None:
        await socket.packets()
    assert socket.closed_with == 1000
    socket.writer.close()
    await asyncio.wait_for(draining, 5)
