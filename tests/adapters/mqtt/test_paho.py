"""The unmodified paho-mqtt client against the session, over a pair of sockets and no network."""

from __future__ import annotations

import socket

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.subscribeoptions import SubscribeOptions

from adapters.mqtt.codec.encoder import publish_frame
from adapters.mqtt.codec.packets import PublishRun
from adapters.mqtt.codec.properties import parse_publish_properties
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.config import SessionConfig
from adapters.mqtt.session.client_session import Session
from adapters.mqtt.session.events import (
    ConnectionClosed,
    ConnectReceived,
    DeliveriesReceived,
    PublishesReleased,
    SubscribeReceived,
    UnsubscribeReceived,
)
from adapters.mqtt.session.handshake import Welcome
from tests.adapters.mqtt.support import LEVELS, NAMES, NOW_MS


class PairedClient(paho.Client):
    """paho with one end of a socket pair where it would open a connection."""

    def __init__(self, near: socket.socket, level: int, **options) -> None:
        protocol = paho.MQTTv5 if level == 5 else paho.MQTTv311
        version = paho.CallbackAPIVersion.VERSION2
        super().__init__(version, client_id="paho", protocol=protocol, **options)
        self.near = near

    def _create_socket(self) -> socket.socket:
        return self.near


class Bench:
    """paho at one end, a session that echoes what it is sent at the other."""

    def __init__(self, level: int, **options) -> None:
        near, self.far = socket.socketpair()
        near.setblocking(False)
        self.far.setblocking(False)
        self.near = near
        self.client = PairedClient(near, level, **options)
        self.session = Session(SessionConfig(), NAMES, NOW_MS)
        self.events: list = []
        self.log: list = []
        self.filters: list = []
        client, log = self.client, self.log
        client.on_connect = lambda _c, _u, _f, code, _p: log.append(("connect", code.value))
        client.on_disconnect = lambda _c, _u, _f, code, _p: log.append(("disconnect", code.value))
        client.on_subscribe = lambda _c, _u, _m, codes, _p: log.append(
            ("subscribe", [code.value for code in codes])
        )
        client.on_unsubscribe = lambda _c, _u, mid, _codes, _p: log.append(("unsubscribe", mid))
        client.on_publish = lambda _c, _u, mid, code, _p: log.append(("publish", mid, code.value))
        client.on_message = lambda _c, _u, message: log.append(
            ("message", message.topic, message.payload, message.qos)
        )

    def pump(self) -> None:
        """Lets bytes flow until nothing moves any more."""
        for _ in range(50):
            self.client.loop_write()
            try:
                data = self.far.recv(65_536)
            except BlockingIOError:
                data = b""
            if data:
                self.take(self.session.receive_data(data, NOW_MS))
            answer = self.session.data_to_send()
            if answer:
                self.far.sendall(answer)
                self.client.loop_read()
                self.client.loop_read()
            if not data and not answer:
                return
        raise AssertionError("it never became quiet")

    def take(self, events: list) -> None:
        session = self.session
        for event in events:
            self.events.append(event)
            if isinstance(event, ConnectReceived):
                self.take(session.accept(Welcome(session_present=False), NOW_MS))
            elif isinstance(event, PublishRun):
                self.echo(event)
            elif isinstance(event, PublishesReleased):
                session.releases_committed(event.packet_ids)
            elif isinstance(event, DeliveriesReceived):
                session.receipts_committed(event.packet_ids)
            elif isinstance(event, SubscribeReceived):
                self.filters += [request.filter for request in event.undecided()]
                session.send_suback(event, [request.qos for request in event.undecided()])
            elif isinstance(event, UnsubscribeReceived):
                session.send_unsuback(event, [0] * len(event.filters))

    def echo(self, run: PublishRun) -> None:
        for index, topic in enumerate(run.topics):
            if any(item.matches(topic) for item in self.filters):
                frame = publish_frame(
                    self.session.level,
                    run.flags[index] & 0x06,
                    topic.encode(),
                    run.properties[index],
                    run.payloads[index],
                )
                self.session.send_frames([frame], [index])
        self.session.publish_committed([token for token in run.tokens if token])

    def close(self) -> None:
        self.near.close()
        self.far.close()


@pytest.fixture(params=LEVELS)
def bench(request):
    bench = Bench(request.param)
    yield bench
    bench.close()


def started(bench: Bench, **options) -> None:
    bench.client.connect("nowhere", 1883, **options)
    bench.pump()
    assert bench.log == [("connect", 0)]
    bench.log.clear()


def test_paho_publishes_and_receives_at_every_qos(bench):
    started(bench)
    bench.client.subscribe([("a/#", 2), ("other/+", 0)])
    bench.pump()
    assert bench.log.pop() == ("subscribe", [2, 0])
    for qos in (0, 1, 2):
        bench.client.publish("a/b", b"payload-%d" % qos, qos)
        bench.pump()
    messages = [entry for entry in bench.log if entry[0] == "message"]
    assert messages == [("message", "a/b", b"payload-%d" % qos, qos) for qos in (0, 1, 2)]
    assert [entry[0] for entry in bench.log].count("publish") == 3
    bench.client.unsubscribe("a/#")
    bench.pump()
    assert bench.log[-1][0] == "unsubscribe"
    assert not any(isinstance(event, ConnectionClosed) for event in bench.events)


def test_paho_takes_large_messages_and_many_at_once(bench):
    started(bench)
    bench.client.subscribe("#", 1)
    bench.pump()
    for number in range(40):
        bench.client.publish("n", b"%d" % number, 1)
    bench.pump()
    bench.client.publish("large", bytes(30_000), 1)
    bench.pump()
    payloads = [entry[2] for entry in bench.log if entry[0] == "message"]
    assert payloads == [*(b"%d" % number for number in range(40)), bytes(30_000)]


def test_paho_says_goodbye(bench):
    started(bench)
    bench.client.disconnect()
    bench.pump()
    assert isinstance(bench.events[-1], ConnectionClosed)
    assert bench.events[-1].reason_code == 0


def test_paho_hears_why_it_is_refused():
    bench = Bench(5)
    bench.client.connect("nowhere", 1883)
    bench.client.loop_write()
    [event] = bench.session.receive_data(bench.far.recv(65_536), NOW_MS)
    assert isinstance(event, ConnectReceived)
    bench.session.refuse(ReasonCode.NOT_AUTHORIZED, "no")
    bench.pump()
    assert bench.log[0] == ("connect", ReasonCode.NOT_AUTHORIZED)
    bench.close()


def test_paho_hears_that_its_session_was_taken_over():
    bench = Bench(5)
    started(bench)
    bench.session.disconnect(ReasonCode.SESSION_TAKEN_OVER)
    bench.pump()
    assert bench.log[0] == ("disconnect", ReasonCode.SESSION_TAKEN_OVER)
    bench.close()


def test_properties_of_paho_arrive_and_come_back_unaltered():
    """[MQTT-3.3.2-4], [MQTT-3.3.2-15] to [MQTT-3.3.2-18], [MQTT-3.3.2-20]."""
    bench = Bench(5)
    received: list = []
    started(bench, clean_start=True)
    bench.client.on_message = lambda _c, _u, message: received.append(message.properties.json())
    bench.client.subscribe("a", options=SubscribeOptions(qos=1, noLocal=False))
    properties = PahoProperties(PacketTypes.PUBLISH)
    properties.ContentType = "text/plain"
    properties.ResponseTopic = "answers/1"
    properties.CorrelationData = b"\x01\x02"
    properties.PayloadFormatIndicator = 1
    properties.UserProperty = [("b", "1"), ("a", "2"), ("b", "3")]
    properties.TopicAlias = 3
    bench.client.publish("a", b"x", 1, properties=properties)
    bench.pump()
    [run] = [event for event in bench.events if isinstance(event, PublishRun)]
    parsed = parse_publish_properties(run.properties[0])
    assert parsed.user_properties == (("b", "1"), ("a", "2"), ("b", "3"))
    expected = properties.json()
    del expected["TopicAlias"]
    assert received == [expected]
    bench.close()


def test_paho_keeps_its_will_with_us():
    bench = Bench(5)
    bench.client.will_set("gone", b"bye", 1, retain=True)
    started(bench, clean_start=True)
    closed = bench.session.connection_lost()
    assert (closed.will.topic, closed.will.payload) == ("gone", b"bye")
    assert (closed.will.qos, closed.will.retain) == (1, True)
    bench.close()
