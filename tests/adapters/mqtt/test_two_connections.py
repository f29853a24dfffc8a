"""A client made of our codec and a server session, joined by bytes alone.

The client below is written from the specification's client side: it keeps its own exchanges, sends
again on reconnect, and counts what it was given. Random schedules of publishing, committing,
delivering, losing the connection and resuming must lose nothing, keep every order, and deliver
QoS 2 once.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.mqtt.codec.encoder import encode, publish_frame
from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.packets import Ack, Connack, Connect, Disconnect, Publish, PublishRun
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.config import SessionConfig
from adapters.mqtt.session.client_session import Session
from adapters.mqtt.session.events import (
    ConnectionClosed,
    ConnectReceived,
    DeliveriesCompleted,
    DeliveriesReceived,
    PublishesReleased,
)
from adapters.mqtt.session.handshake import Welcome
from adapters.mqtt.session.outbound import InFlight
from adapters.mqtt.session.states import ConnectionState
from tests.adapters.mqtt.support import LEVELS, NAMES, NOW_MS, client_decoder, single

KINDS = PacketType


class Client:
    """A client of the specification, without a socket."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.decoder = client_decoder(level)
        self.to_send: list[bytes] = []
        self.last_id = 0
        # Packet identifier -> packet, or None once PUBREL is due; in order of sending.
        self.unacknowledged: dict[int, Publish | None] = {}
        self.acknowledged: list[int] = []
        # What was delivered to the application, and the QoS 2 identifiers that are not released.
        self.given: list[bytes] = []
        self.held: set[int] = set()
        self.connected = False

    def send(self, packet) -> None:
        self.to_send.append(encode(packet, self.level))

    def connect(self, clean: bool) -> None:
        self.connected = False
        self.decoder = client_decoder(self.level)
        self.to_send.clear()
        properties = Properties(session_expiry_interval=600) if self.level == 5 else Properties()
        self.send(Connect("c", self.level, clean, properties=properties))

    def publish(self, payload: bytes, qos: int) -> None:
        packet_id = 0
        if qos:
            self.last_id = packet_id = self.last_id % 65_535 + 1
        packet = Publish("t", payload, qos, packet_id=packet_id)
        if qos:
            self.unacknowledged[packet_id] = packet
        self.send(packet)

    def resend(self) -> None:
        for packet_id, packet in self.unacknowledged.items():
            if packet is None:
                self.send(Ack(KINDS.PUBREL, packet_id))
            else:
                duplicate = Publish("t", packet.payload, packet.qos, False, True, packet_id)
                self.send(duplicate)

    def receive(self, data: bytes) -> None:
        packets: list = []
        self.decoder.receive(data, packets)
        for packet in single(packets):
            if isinstance(packet, Connack):
                assert packet.reason_code == 0
                assert packet.session_present == bool(self.last_id)
                self.connected = True
                self.resend()
            elif isinstance(packet, Publish):
                self.on_publish(packet)
            else:
                self.on_ack(*packet[:2])

    def on_publish(self, packet: Publish) -> None:
        if packet.qos == 2:
            if packet.packet_id not in self.held:
                self.held.add(packet.packet_id)
                self.given.append(packet.payload)
            self.send(Ack(KINDS.PUBREC, packet.packet_id))
            return
        self.given.append(packet.payload)
        if packet.qos:
            self.send(Ack(KINDS.PUBACK, packet.packet_id))

    def on_ack(self, kind: PacketType, packet_id: int) -> None:
        if kind == KINDS.PUBREC:
            self.unacknowledged[packet_id] = None
            self.send(Ack(KINDS.PUBREL, packet_id))
        elif kind == KINDS.PUBREL:
            self.held.discard(packet_id)
            self.send(Ack(KINDS.PUBCOMP, packet_id))
        else:
            del self.unacknowledged[packet_id]
            self.acknowledged.append(packet_id)


class Server:
    """A driver with a memory in place of a kernel: what is recorded survives the connection."""

    def __init__(self, dice: random.Random, window: int) -> None:
        self.dice = dice
        self.config = SessionConfig(receive_maximum=500, deliveries_in_flight_max=window)
        self.session = Session(self.config, NAMES, NOW_MS)
        self.stored: list[bytes] = []
        self.waiting: list[tuple[int, bytes, int, int]] = []
        # The session's record: deliveries in order, and the QoS 2 identifiers received.
        self.record: dict[int, InFlight] = {}
        # Those that an earlier connection sent and this one has not yet.
        self.again: list[InFlight] = []
        self.received_ids: set[int] = set()
        self.known = False
        self.bodies: dict[int, tuple[bytes, int]] = {}
        self.completed: list[int] = []
        self.queue: list[int] = []

    def receive(self, data: bytes) -> None:
        self.take(self.session.receive_data(data, NOW_MS))

    def take(self, events: list) -> None:
        session = self.session
        for event in events:
            if isinstance(event, ConnectReceived):
                present = self.known and not event.connect.clean_start
                self.known = True
                welcome = Welcome(session_present=present)
                released = [each for each in self.record.values() if each.released]
                self.again = [each for each in self.record.values() if not each.released]
                session.keep_ids(each.packet_id for each in self.again)
                self.take(
                    session.accept(
                        welcome,
                        NOW_MS,
                        in_flight=released,
                        received_ids=tuple(self.received_ids),
                    )
                )
            elif isinstance(event, PublishRun):
                for index, token in enumerate(event.tokens):
                    qos = event.flags[index] >> 1 & 3
                    if token:
                        packet_id = event.packet_ids[index]
                        payload = event.payloads[index]
                        self.waiting.append((token, payload, qos, packet_id))
                    else:
                        self.stored.append(event.payloads[index])
            elif isinstance(event, PublishesReleased):
                self.received_ids -= set(event.packet_ids)
                session.releases_committed(event.packet_ids)
            elif isinstance(event, DeliveriesReceived):
                for packet_id in event.packet_ids:
                    self.record[packet_id] = self.record[packet_id]._replace(released=True)
                session.receipts_committed(event.packet_ids)
            else:
                assert isinstance(event, DeliveriesCompleted), event
                assert not event.refused
                self.completed += event.tokens
                for packet_id, item in list(self.record.items()):
                    if item.token in event.tokens:
                        del self.record[packet_id]

    def commit(self, count: int) -> None:
        """Commits some waiting messages in any order: first the record, then the answer."""
        for _ in range(min(count, len(self.waiting))):
            token, payload, qos, packet_id = self.waiting.pop(
                self.dice.randrange(len(self.waiting))
            )
            self.store(payload, qos, packet_id)
            self.session.publish_committed([token])

    def store(self, payload: bytes, qos: int, packet_id: int) -> None:
        if qos == 2:
            if packet_id in self.received_ids:
                # A repeat over two connections: stored under the same number before.
                return
            self.received_ids.add(packet_id)
        self.stored.append(payload)

    def lose(self) -> None:
        """What was with the kernel is committed or fenced off; the client never hears which."""
        for _, payload, qos, packet_id in self.waiting:
            if self.dice.random() < 0.5:
                self.store(payload, qos, packet_id)
        self.waiting.clear()
        closed = self.session.connection_lost()
        assert isinstance(closed, ConnectionClosed)
        self.session = Session(self.config, NAMES, NOW_MS)

    def deliver(self) -> None:
        if self.session.state != ConnectionState.CONNECTED:
            return
        while self.again and self.session.credit:
            item = self.again.pop(0)
            payload, qos = self.bodies[item.token]
            frame = publish_frame(self.session.level, qos << 1, b"t", b"", payload)
            self.session.send_kept(item.packet_id, item.token, frame)
        while self.queue and (self.session.credit or not self.bodies[self.queue[0]][1]):
            if self.again:
                return
            token = self.queue.pop(0)
            payload, qos = self.bodies[token]
            frame = publish_frame(self.session.level, qos << 1, b"t", b"", payload)
            before = {item.packet_id for item in self.session.in_flight()}
            assert self.session.send_frames([frame], [token]) == []
            for item in self.session.in_flight():
                if item.packet_id not in before:
                    self.record[item.packet_id] = item


class Link:
    """Both ends, and the bytes between them, cut anywhere."""

    def __init__(self, level: int, seed: int, window: int) -> None:
        self.dice = random.Random(seed)
        self.client = Client(level)
        self.server = Server(self.dice, window)
        self.client.connect(clean=True)
        self.settle()

    def exchange(self) -> bool:
        """Moves what is to be moved; False if there was nothing."""
        up = b"".join(self.client.to_send)
        self.client.to_send.clear()
        down = self.server.session.data_to_send()
        for data, receive in ((up, self.server.receive), (down, self.client.receive)):
            while data:
                cut = self.dice.randint(1, len(data))
                receive(data[:cut])
                data = data[cut:]
        return bool(up or down)

    def settle(self) -> None:
        while True:
            self.server.commit(100)
            self.server.deliver()
            if not self.exchange():
                return

    def lose(self) -> None:
        """The connection breaks; bytes on the way are lost; the client comes back."""
        self.server.session.data_to_send()
        self.server.lose()
        self.client.connect(clean=False)


@pytest.mark.parametrize("level", LEVELS)
@given(seed=st.integers(0, 2**32), window=st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_nothing_is_lost_or_reordered_and_qos_2_comes_once(level, seed, window):
    """[MQTT-4.3.2-4], [MQTT-4.3.3-10], [MQTT-4.4.0-1], [MQTT-4.6.0-5], [MQTT-4.8.2-4]."""
    link = Link(level, seed, window)
    dice, client, server = link.dice, link.client, link.server
    published: list[tuple[bytes, int]] = []
    queued = 0
    losses = 0
    for step in range(60):
        action = dice.randrange(8)
        if action < 2 and client.connected:
            payload, qos = b"p%d" % step, dice.choice((1, 2))
            client.publish(payload, qos)
            published.append((payload, qos))
        elif action == 2:
            server.commit(dice.randint(1, 3))
        elif action == 3:
            queued += 1
            server.bodies[queued] = (b"d%d" % queued, dice.choice((1, 2)))
            server.queue.append(queued)
        elif action == 4:
            server.deliver()
        elif action < 7:
            link.exchange()
        elif client.last_id and dice.random() < 0.4:
            losses += 1
            link.lose()
    link.settle()
    assert client.unacknowledged == {}
    assert server.record == {}
    # Everything is there; QoS 2 once, both ways.
    for payload, qos in published:
        assert server.stored.count(payload) >= 1
        assert qos == 1 or server.stored.count(payload) == 1
    for token in range(1, queued + 1):
        payload, qos = server.bodies[token]
        assert client.given.count(payload) >= 1
        assert qos == 1 or client.given.count(payload) == 1
    assert sorted(set(server.completed)) == list(range(1, queued + 1))
    for qos in (1, 2):
        wanted = [b"d%d" % n for n in range(1, queued + 1) if server.bodies[n][1] == qos]
        first = list(dict.fromkeys(payload for payload in client.given if payload in wanted))
        assert first == wanted


@pytest.mark.parametrize("level", LEVELS)
def test_a_goodbye_ends_both_ends_in_peace(level):
    link = Link(level, 1, 5)
    link.client.publish(b"x", 1)
    link.settle()
    link.client.send(Disconnect())
    [closed] = link.server.session.receive_data(b"".join(link.client.to_send), NOW_MS)
    assert closed.reason_code == 0
    assert link.client.acknowledged == [1]
    assert link.server.stored == [b"x"]
