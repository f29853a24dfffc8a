"""MQTT as `weir serve` serves it: its users, its neighbours, a kill."""

from __future__ import annotations

import queue
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import paho.mqtt.client as mqtt
import pika
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import gateway.cli
from tests.gateway.cluster import until
from tests.gateway.serving import Process, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S = 20


class Client:
    """A paho client, and what it heard."""

    def __init__(self, node: Process, name: str, user: str, password: str, kept: bool) -> None:
        self.messages: queue.SimpleQueue[mqtt.MQTTMessage] = queue.SimpleQueue()
        self.codes: queue.SimpleQueue[Any] = queue.SimpleQueue()
        version = mqtt.CallbackAPIVersion.VERSION2
        self.client = mqtt.Client(version, name, protocol=mqtt.MQTTv5)
        self.client.username_pw_set(user, password)
        self.client.on_message = lambda _c, _u, message: self.messages.put(message)
        self.client.on_connect = lambda _c, _u, _f, code, _p: self.codes.put(code.value)
        self.client.on_subscribe = lambda _c, _u, _m, codes, _p: self.codes.put(codes[0].value)
        self.client.on_publish = lambda _c, _u, _m, code, _p: self.codes.put(code.value)
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 600 if kept else 0
        port = node.listeners["mqtt.tcp"]
        self.client.connect("127.0.0.1", port, clean_start=not kept, properties=properties)
        self.client.loop_start()
        self.connected = self.codes.get(timeout=WAIT_S)

    def subscribe(self, name: str) -> int:
        self.client.subscribe(name, 1)
        return self.codes.get(timeout=WAIT_S)

    def publish(self, name: str, payload: bytes, **fields: Any) -> int:
        self.client.publish(name, payload, 1, **fields)
        return self.codes.get(timeout=WAIT_S)

    def take(self) -> mqtt.MQTTMessage:
        return self.messages.get(timeout=WAIT_S)


@contextmanager
def client(
    node: Process, name: str, user: str = "guest", password: str = "guest", *, kept: bool = False
) -> Iterator[Client]:
    made = Client(node, name, user, password, kept)
    try:
        yield made
    finally:
        made.client.disconnect()
        made.client.loop_stop()


def test_a_device_may_use_only_what_its_policy_says(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        rules = ["allow publish,consume tree:devices/${clientid}/#", "allow consume tree:news"]
        assert node.api("PUT", "/policies/device", {"rules": rules}).status < 300
        user = {"password": "a long password", "policies": ["device"]}
        assert node.api("POST", "/users", {"name": "device", **user}).status < 300
        with client(node, "d1", "device", "a long password") as device:
            assert device.connected == 0
            assert device.subscribe("devices/d1/#") == 1
            assert device.subscribe("devices/d2/#") == 0x87
            assert device.subscribe("news") == 1
            assert device.publish("devices/d1/up", b"up") == 0
            assert device.take().payload == b"up"
            assert device.publish("devices/d2/up", b"up") == 0x87
            assert device.publish("news", b"fake") == 0x87


def documented_rules() -> list[str]:
    """The rules of the policy in docs/mqtt.md."""
    page = Path("docs/mqtt.md").read_text()
    return re.findall(r"--rule '([^']+)'", page.split("weir policy create device", 1)[1])[:2]


def test_the_documented_policy_keeps_users_apart(tmp_path: Path) -> None:
    password = "a long password"
    with serving(tmp_path) as node:
        rules = documented_rules()
        assert node.api("PUT", "/policies/device", {"rules": rules}).status < 300
        for name in ("oven", "lamp"):
            user = {"name": name, "password": password, "policies": ["device"]}
            assert node.api("POST", "/users", user).status < 300
        with client(node, "oven:1", "oven", password, kept=True) as oven:
            assert oven.connected == 0
            assert oven.subscribe("devices/oven/#") == 1
            assert oven.subscribe("devices/lamp/#") == 0x87
            assert oven.subscribe("devices/#") == 0x87
            for taken in ("oven:1", "oven:2", "oven", "squatted"):
                with client(node, taken, "lamp", password) as lamp:
                    assert lamp.connected == 0x87
            with client(node, "lamp:1", "lamp", password) as lamp:
                assert lamp.connected == 0
                assert lamp.publish("devices/oven/x", b"fake") == 0x87
                assert lamp.publish("devices/lamp/x", b"mine") in {0, 0x10}
            assert oven.publish("devices/oven/x", b"mine") == 0
            assert oven.take().payload == b"mine"


def test_an_administrator_drops_a_session(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        with client(node, "a/b:1", kept=True) as device:
            assert device.subscribe("x") == 1
        path = "/sessions/" + quote("a/b:1", safe="")
        assert node.api("DELETE", path).status == 204
        assert node.api("DELETE", path).status == 404
        assert node.api("DELETE", path + "?tenant=nobody").status == 404


def test_kept_sessions_are_listed_with_what_waits_for_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path) as node:
        for name in ("b/1", "a", "c"):
            with client(node, name, kept=True) as device:
                assert device.subscribe("home/#") == 1
                assert device.subscribe("$share/crew/yard") == 1
        with client(node, "giver") as giver:
            for number in range(3):
                assert giver.publish(f"home/{number}", b"x") == 0
            assert giver.publish("yard", b"x") == 0
            listed = node.api("GET", "/sessions?limit=2").json
            assert [each["client"] for each in listed["sessions"]] == ["a", "b/1"]
            rest = node.api("GET", f"/sessions?limit=2&after={quote(listed['next'])}").json
            assert [each["client"] for each in rest["sessions"]] == ["c"]
            assert rest["next"] is None
            assert node.api("GET", "/sessions?prefix=b/").json["sessions"][0]["client"] == "b/1"
            found = node.api("GET", "/sessions/" + quote("b/1", safe="")).json
            assert found["waiting"] == 3
            assert found["session"]["connected"] is False
            assert found["session"]["ends_in_s"] is None or found["session"]["ends_in_s"] > 0
            assert found["subscriptions"] == [
                {"filter": "home/#", "share": "", "waiting": 3},
                {"filter": "yard", "share": "crew", "waiting": 1},
            ]
        with client(node, "b/1", kept=True) as device:
            assert {device.take().topic for _ in range(4)} == {
                "yard",
                *(f"home/{n}" for n in range(3)),
            }
            path = "/sessions/" + quote("b/1", safe="")
            until(lambda: node.api("GET", path).json["waiting"] == 0, "acks are counted")
            assert node.api("GET", path).json["session"]["connected"] is True
        assert node.api("GET", "/sessions/giver").status == 404
        assert node.api("GET", "/sessions?tenant=nobody").status == 404
        with pytest.MonkeyPatch.context() as variables:
            variables.setenv("WEIR_NODE__DATA", str(node.data))
            for words in (("ls",), ("info", "a")):
                with pytest.raises(SystemExit) as left:
                    gateway.cli.main(("session", *words))
                assert left.value.code == 0
        said = capsys.readouterr().out
        assert "b/1" in said
        assert "3 waiting" in said


def test_what_was_acknowledged_outlives_a_kill(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        with client(node, "taker", kept=True) as recorder:
            assert recorder.subscribe("a/#") == 1
        with client(node, "giver") as giver:
            for number in range(20):
                assert giver.publish("a/b", b"%d" % number) == 0
            assert giver.publish("r", b"kept", retain=True) == 0
            node.kill()
    with serving(tmp_path) as node, client(node, "taker", kept=True) as recorder:
        assert [recorder.take().payload for _ in range(20)] == [b"%d" % n for n in range(20)]
        assert recorder.subscribe("r") == 1
        assert recorder.take().payload == b"kept"


def fetched(connection: pika.BlockingConnection, name: str) -> tuple[Any, bytes]:
    """The next message of an AMQP queue."""
    channel = connection.channel()
    for _ in range(500):
        method, _, body = channel.basic_get(name, auto_ack=True)
        if method is not None:
            return method, body
        connection.sleep(0.02)
    raise AssertionError("no message came")


def test_mqtt_and_amqp_meet_at_a_topic(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        connection = node.amqp()
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        with client(node, "worker") as worker:
            assert worker.subscribe("$share/default/orders") == 1
            channel.basic_publish("", "orders", b"from AMQP")
            message = worker.take()
            assert (message.topic, message.payload) == ("orders", b"from AMQP")
        channel.queue_declare("mirror", durable=True)
        channel.queue_bind("mirror", "amq.topic", "home.*.temperature")
        with client(node, "sensor") as sensor:
            assert sensor.subscribe("home/#") == 1
            assert sensor.publish("home/kitchen/temperature", b"21.5") == 0
            assert sensor.take().payload == b"21.5"
            method, body = fetched(connection, "mirror")
            assert body == b"21.5"
            assert method.exchange == "amq.topic"
            assert method.routing_key == "home.kitchen.temperature"
            channel.basic_publish("amq.topic", "home.cellar.temperature", b"12")
            message = sensor.take()
            assert (message.topic, message.payload) == ("home/cellar/temperature", b"12")
        connection.close()


def anonymous(node: Process, name: str) -> tuple[mqtt.Client, queue.SimpleQueue[Any]]:
    """A client without user name and password, and the codes that it hears."""
    codes: queue.SimpleQueue[Any] = queue.SimpleQueue()
    made = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name, protocol=mqtt.MQTTv5)
    made.on_connect = lambda _c, _u, _f, code, _p: codes.put(code.value)
    made.on_subscribe = lambda _c, _u, _m, each, _p: codes.put(each[0].value)
    made.on_publish = lambda _c, _u, _m, code, _p: codes.put(code.value)
    made.connect("127.0.0.1", node.listeners["mqtt.tcp"])
    made.loop_start()
    return made, codes


def test_clients_without_a_name_are_the_user_that_is_named_for_them(tmp_path: Path) -> None:
    with serving(tmp_path, "mqtt.options.anonymous_user=anybody") as node:
        early, codes = anonymous(node, "early")
        assert codes.get(timeout=WAIT_S) == 0x86  # there is no such user yet
        early.loop_stop()
        rules = ["allow publish tree:sensors/${clientid}/#", "allow consume tree:news"]
        assert node.api("PUT", "/policies/anybody", {"rules": rules}).status < 300
        user = {"password": "that nobody is told", "policies": ["anybody"]}
        assert node.api("POST", "/users", {"name": "anybody", **user}).status < 300
        sensor, codes = anonymous(node, "s1")
        assert codes.get(timeout=WAIT_S) == 0
        for wanted, code in (("news", 1), ("#", 0x87)):
            sensor.subscribe(wanted, 1)
            assert codes.get(timeout=WAIT_S) == code
        for name, code in (("sensors/s1/t", 0x10), ("sensors/s2/t", 0x87)):
            sensor.publish(name, b"x", 1)
            assert codes.get(timeout=WAIT_S) == code
        sensor.loop_stop()
        with client(node, "c", "anybody", "") as guessing:
            assert guessing.connected == 0x86
