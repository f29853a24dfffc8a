"""Unmodified clients against the adapter: paho-mqtt, aiomqtt, amqtt's client, and npm mqtt."""

from __future__ import annotations

import asyncio
import json
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiomqtt
import paho.mqtt.client as paho
import pytest
from amqtt.client import MQTTClient
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests import npm_clients
from tests.adapters.in_process import in_thread
from tests.adapters.mqtt.broker import Broker, serving

LEVELS = [4, 5]
WAIT_S = 10


def broker_in_thread(directory: Path) -> AbstractContextManager[Broker]:
    """A broker on an event loop of its own, for clients that block."""
    return in_thread(partial(serving, directory))


class Paho:
    """A paho client with its loop running, and what it heard."""

    def __init__(self, port: int, name: str, level: int, *, transport: str = "tcp") -> None:
        self.level = level
        self.port = port
        self.messages: queue.SimpleQueue[paho.MQTTMessage] = queue.SimpleQueue()
        self.connected: queue.SimpleQueue[tuple[int, bool]] = queue.SimpleQueue()
        self.disconnected: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.granted: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
        fields: dict[str, Any] = {} if level == 5 else {"clean_session": False}
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            name,
            protocol=paho.MQTTv5 if level == 5 else paho.MQTTv311,
            transport=transport,
            **fields,
        )
        client = self.client
        client.username_pw_set("guest", "guest")
        client.on_message = lambda _c, _u, message: self.messages.put(message)
        client.on_connect = lambda _c, _u, flags, code, _p: self.connected.put(
            (code.value, flags.session_present)
        )
        client.on_disconnect = lambda _c, _u, _f, code, _p: self.disconnected.put(code.value)
        client.on_subscribe = lambda _c, _u, _m, codes, _p: self.granted.put(
            [code.value for code in codes]
        )

    def connect(self, *, kept: bool = False, keep_alive_s: int = 60) -> bool:
        """Whether a session was present."""
        if self.level == 5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 600 if kept else 0
            self.client.connect(
                "127.0.0.1",
                self.port,
                keep_alive_s,
                clean_start=not kept,
                properties=properties,
            )
        else:
            self.client.connect("127.0.0.1", self.port, keep_alive_s)
        self.client.loop_start()
        code, present = self.connected.get(timeout=WAIT_S)
        assert code == 0
        return present

    def subscribe(self, name: str, qos: int = 1, **options: Any) -> None:
        if self.level == 5 and options:
            self.client.subscribe(name, options=SubscribeOptions(qos=qos, **options))
        else:
            self.client.subscribe(name, qos)
        assert self.granted.get(timeout=WAIT_S) == [qos]

    def publish(self, topic: str, payload: bytes, qos: int = 1, **fields: Any) -> None:
        self.client.publish(topic, payload, qos, **fields).wait_for_publish(WAIT_S)

    def take(self) -> paho.MQTTMessage:
        return self.messages.get(timeout=WAIT_S)

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def drop(self) -> None:
        """The connection breaks, and paho does not come back by itself."""
        sock = self.client.socket()
        assert sock is not None
        self.client.loop_stop()
        sock.close()


@contextmanager
def clients(*made: Paho) -> Iterator[None]:
    try:
        yield
    finally:
        for each in made:
            each.stop()


def until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.mark.parametrize("level", LEVELS)
def test_paho_publishes_and_receives_at_every_qos(tmp_path: Path, level: int) -> None:
    with broker_in_thread(tmp_path) as broker:
        recorder, giver = Paho(broker.port, "taker", level), Paho(broker.port, "giver", level)
        with clients(recorder, giver):
            recorder.connect()
            giver.connect()
            recorder.subscribe("a/#", 2)
            for qos in (0, 1, 2):
                giver.publish("a/b", b"%d" % qos, qos)
                message = recorder.take()
                assert (message.topic, message.payload, message.qos) == ("a/b", b"%d" % qos, qos)
            for qos in (1, 2):
                for number in range(300):
                    giver.client.publish("a/many", b"%d" % number, qos)
                got = [recorder.take().payload for _ in range(300)]
                assert got == [b"%d" % number for number in range(300)]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_of_paho_outlives_a_restart_of_the_gateway(
    tmp_path: Path, level: int, qos: int
) -> None:
    with broker_in_thread(tmp_path) as broker:
        recorder, giver = Paho(broker.port, "taker", level), Paho(broker.port, "giver", level)
        with clients(recorder, giver):
            assert not recorder.connect(kept=True)
            recorder.subscribe("a/+", qos)
            recorder.stop()
            giver.connect()
            for number in range(20):
                giver.publish("a/b", b"%d" % number, qos)
            giver.publish("retained", b"kept", retain=True)
    with broker_in_thread(tmp_path) as broker:
        recorder = Paho(broker.port, "taker", level)
        with clients(recorder):
            assert recorder.connect(kept=True)
            assert [recorder.take().payload for _ in range(20)] == [b"%d" % n for n in range(20)]
            recorder.subscribe("retained")
            message = recorder.take()
            assert (message.payload, message.retain) == (b"kept", True)


@pytest.mark.parametrize("level", LEVELS)
def test_a_kept_session_alone_gets_a_large_message(tmp_path: Path, level: int) -> None:
    large = bytes(10 * 2**20)
    with broker_in_thread(tmp_path) as broker:
        recorder, giver = Paho(broker.port, "taker", level), Paho(broker.port, "giver", level)
        with clients(recorder, giver):
            recorder.connect(kept=True)
            recorder.subscribe("large", 1)
            giver.connect()
            giver.publish("large", large)
            assert recorder.take().payload == large


@pytest.mark.parametrize("level", LEVELS)
def test_the_will_of_a_paho_client_that_breaks_off(tmp_path: Path, level: int) -> None:
    with broker_in_thread(tmp_path) as broker:
        watch, client = Paho(broker.port, "watch", level), Paho(broker.port, "client", level)
        client.client.will_set("wills/c", b"gone", 1)
        with clients(watch):
            watch.connect()
            watch.subscribe("wills/#")
            client.connect()
            client.drop()
            assert watch.take().payload == b"gone"


def test_the_will_of_a_paho_client_waits_for_its_delay(tmp_path: Path) -> None:
    with broker_in_thread(tmp_path) as broker:
        watch, client = Paho(broker.port, "watch", 5), Paho(broker.port, "client", 5)
        properties = Properties(PacketTypes.WILLMESSAGE)
        properties.WillDelayInterval = 1
        client.client.will_set("wills/c", b"gone", 1, properties=properties)
        with clients(watch):
            watch.connect()
            watch.subscribe("wills/#")
            client.connect(kept=True)
            began = time.monotonic()
            client.drop()
            assert watch.take().payload == b"gone"
            assert time.monotonic() - began >= 0.9


@pytest.mark.parametrize("level", LEVELS)
def test_paho_clients_share_and_are_taken_over(tmp_path: Path, level: int) -> None:
    with broker_in_thread(tmp_path) as broker:
        members = [Paho(broker.port, f"m{number}", level) for number in range(2)]
        giver = Paho(broker.port, "giver", level)
        with clients(giver, *members):
            for member in members:
                member.connect()
                member.subscribe("$share/g/a/+", 1)
            giver.connect()
            for number in range(40):
                giver.publish("a/1", b"%d" % number)
            until(lambda: sum(member.messages.qsize() for member in members) == 40)
            assert all(member.messages.qsize() for member in members)
            again = Paho(broker.port, "m0", level)
            with clients(again):
                again.connect()
                code = members[0].disconnected.get(timeout=WAIT_S)
                assert code == (0x8E if level == 5 else 0x80)
                members[0].client.loop_stop()


@pytest.mark.parametrize("level", LEVELS)
def test_paho_keeps_itself_alive(tmp_path: Path, level: int) -> None:
    with broker_in_thread(tmp_path) as broker:
        client = Paho(broker.port, "c", level)
        with clients(client):
            client.connect(keep_alive_s=1)
            time.sleep(3.2)
            client.publish("a", b"still here")
            assert client.disconnected.qsize() == 0


def test_properties_as_paho_writes_and_reads_them(tmp_path: Path) -> None:
    with broker_in_thread(tmp_path) as broker:
        recorder, giver = Paho(broker.port, "taker", 5), Paho(broker.port, "giver", 5)
        with clients(recorder, giver):
            recorder.connect()
            giver.connect()
            recorder.subscribe("a", 1, noLocal=True)
            properties = Properties(PacketTypes.PUBLISH)
            properties.ContentType = "text/plain"
            properties.ResponseTopic = "answers/1"
            properties.CorrelationData = b"\x00\x01"
            properties.MessageExpiryInterval = 30
            properties.PayloadFormatIndicator = 1
            properties.UserProperty = [("b", "2"), ("a", "1")]
            giver.publish("a", b"hello", properties=properties)
            got = recorder.take().properties
            assert got.ContentType == "text/plain"
            assert got.ResponseTopic == "answers/1"
            assert got.CorrelationData == b"\x00\x01"
            assert got.MessageExpiryInterval == 30
            assert got.PayloadFormatIndicator == 1
            assert got.UserProperty == [("b", "2"), ("a", "1")]


@pytest.mark.parametrize("level", LEVELS)
def test_paho_over_websocket(tmp_path: Path, level: int) -> None:
    with broker_in_thread(tmp_path) as broker:
        port = broker.websocket_port
        recorder = Paho(port, "taker", level, transport="websockets")
        giver = Paho(broker.port, "giver", level)
        with clients(recorder, giver):
            recorder.connect()
            giver.connect()
            recorder.subscribe("a/#", 2)
            for qos in (0, 1, 2):
                giver.publish("a/b", bytes(70_000 * qos), qos)
                assert len(recorder.take().payload) == 70_000 * qos
            recorder.publish("a/own", b"from a browser", 2)
            assert recorder.take().payload == b"from a browser"


async def test_aiomqtt(broker: Broker) -> None:
    login = {"hostname": "127.0.0.1", "port": broker.port}
    login |= {"username": "guest", "password": "guest"}
    async with aiomqtt.Client(**login) as recorder, aiomqtt.Client(**login) as giver:
        await recorder.subscribe("a/#", qos=2)
        for qos in (0, 1, 2):
            await giver.publish("a/b", b"hello", qos=qos)
            message = await asyncio.wait_for(anext(aiter(recorder.messages)), WAIT_S)
            assert (message.topic.value, message.payload, message.qos) == ("a/b", b"hello", qos)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_the_client_of_amqtt(broker: Broker) -> None:
    recorder, giver = MQTTClient(client_id="taker"), MQTTClient(client_id="giver")
    for client in (recorder, giver):
        await client.connect(f"mqtt://guest:guest@127.0.0.1:{broker.port}/")
    assert await recorder.subscribe([("a/#", 2)]) == [2]
    for qos in (0, 1, 2):
        await giver.publish("a/b", b"%d" % qos, qos=qos)
        message = await recorder.deliver_message(timeout_duration=WAIT_S)
        assert message is not None
        assert (message.topic, bytes(message.data), message.qos) == ("a/b", b"%d" % qos, qos)
    for client in (recorder, giver):
        await client.disconnect()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("scheme", ["mqtt", "ws"])
def test_the_client_of_npm(tmp_path: Path, level: int, scheme: str) -> None:
    program = (npm_clients.FOLDER / "mqtt.cjs").read_text()
    with broker_in_thread(tmp_path) as broker:
        port = broker.port if scheme == "mqtt" else broker.websocket_port
        url = f"{scheme}://127.0.0.1:{port}"
        said = npm_clients.run_with("mqtt", program, url, str(level))
    got = sorted(json.loads(said))
    assert got == [["a/b", f"hello {qos}", qos] for qos in (0, 1, 2)]
