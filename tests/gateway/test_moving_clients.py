"""Busy gateways, as processes of their own: clients go to the other one, in their protocol's own
way and with nothing lost.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as paho
import pika
import pika.exceptions
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.adapters.rocketmq import test_real_client
from tests.gateway import cluster
from tests.gateway.serving import environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.gateway.serving import Process

HOT_MESSAGES = 2
"""A second: one fifth of what is published at once, for the disk may be slow."""

TRAFFIC_MAX = 400_000
SECONDS = 60
"""For a move: the reading must be over for 5 s."""

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Process]]:
    """Two of them, with bounds that a test can pass."""
    bounds = (
        f"node.cluster.hot_topic_messages={HOT_MESSAGES}",
        f"node.cluster.gateway_traffic_max={TRAFFIC_MAX}",
    )
    folder = tmp_path_factory.mktemp("moving")
    with cluster.gateways_of_one_store(folder, *bounds) as found:
        yield found


def make_topic(gateway: Process, name: str) -> str:
    made = gateway.api("POST", "/topics", {"name": name, "type": "work"})
    assert made.status == 201, made.body
    return name


def seen(gateway: Process) -> list[dict[str, Any]]:
    """The gateways as operators see them, in the order of their names."""
    found: list[dict[str, Any]] = gateway.api("GET", "/cluster/gateways").json["gateways"]
    assert len(found) <= 2
    return found


def consumers(gateway: Process, topic: str) -> Counter[int]:
    """How many each gateway has, by its MQTT port."""
    return Counter(
        {
            int(each["listeners"]["mqtt.tcp"].rpartition(":")[2]): task["amount"]
            for each in seen(gateway)
            for task in each["tasks"]
            if (task["topic"], task["role"]) == (topic, "consume")
        }
    )


class Member:
    """An MQTT client that goes where it is sent (MQTT5 4.11)."""

    def __init__(self, port: int, topic: str, got: set[bytes]) -> None:
        self._filter = f"$share/default/{topic}"
        self._got = got
        self.ports: list[int] = []
        self._clients: list[paho.Client] = []
        self._connect(port)

    def _connect(self, port: int) -> None:
        name = f"member-{next(NUMBERS)}"
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
        client.username_pw_set("guest", "guest")
        subscribed = threading.Event()
        client.on_connect = lambda *_: client.subscribe(self._filter, qos=1)
        client.on_subscribe = lambda *_: subscribed.set()
        client.on_message = lambda _client, _data, message: self._got.add(message.payload)
        client.on_disconnect = self._disconnected
        client.connect("127.0.0.1", port)
        self.ports.append(port)
        self._clients.append(client)
        client.loop_start()
        if threading.current_thread() is threading.main_thread():
            assert subscribed.wait(10)

    def _disconnected(self, client: Any, _data: Any, _flags: Any, _code: Any, said: Any) -> None:
        place = getattr(said, "ServerReference", "")
        if place:
            client.disconnect()  # else paho connects again where it was, a second later
            self._connect(int(place.rpartition(":")[2]))

    def close(self) -> None:
        for each in self._clients:
            each.disconnect()
            each.loop_stop()


class Publisher:
    """An AMQP client with confirms that goes where it is sent."""

    def __init__(self, gateway: Process, topic: str) -> None:
        self._topic = topic
        self._port = gateway.listeners["amqp.tcp"]
        self.sent: list[bytes] = []
        self.moves = 0
        self._open()

    def _open(self) -> None:
        url = f"amqp://guest:guest@127.0.0.1:{self._port}/%2f?heartbeat=0"
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()

    def publish(self, padding: bytes = b"") -> None:
        body = b"%d %s" % (next(NUMBERS), padding)
        while True:
            try:
                self._channel.basic_publish("", self._topic, body, mandatory=True)
            except pika.exceptions.ConnectionClosedByBroker as error:
                said = re.fullmatch(r".*:(\d+) has room", error.reply_text)
                if error.reply_code != 320 or said is None:
                    raise
                self._port = int(said[1])
                self.moves += 1
                self._open()
            else:
                self.sent.append(body)
                return

    def close(self) -> None:
        with contextlib.suppress(pika.exceptions.AMQPError):
            self._connection.close()


def test_consumers_of_a_hot_topic_are_spread_and_no_others_move(gateways: list[Process]) -> None:
    first, second = gateways
    here, there = (each.listeners["mqtt.tcp"] for each in gateways)
    hot, cold = (make_topic(first, name) for name in ("hot", "cold"))
    got: set[bytes] = set()
    with contextlib.ExitStack() as stack:
        stays = [Member(here, cold, set()) for _ in range(4)]
        goes = [Member(here, hot, got) for _ in range(4)]
        publisher = Publisher(second, hot)
        for each in (*stays, *goes, publisher):
            stack.callback(each.close)

        def is_spread() -> bool:
            for _ in range(5 * HOT_MESSAGES):
                publisher.publish()
            return consumers(second, hot) == {here: 2, there: 2}

        cluster.until(is_spread, lambda: f"two consumers each: {seen(second)}", SECONDS)
        assert sorted(each.ports for each in goes) == sorted([[here], [here], *[[here, there]] * 2])
        assert [each.ports for each in stays] == [[here]] * 4
        cluster.until(lambda: got >= set(publisher.sent), "every message comes")


def test_traffic_above_the_bound_moves_clients_to_the_gateway_with_less(
    gateways: list[Process],
) -> None:
    # The first one cools down: its clients have been moved.
    idle, busy = gateways
    topic = make_topic(busy, "traffic")
    with contextlib.ExitStack() as stack:
        publishers = [Publisher(busy, topic) for _ in range(4)]
        for each in publishers:
            stack.callback(each.close)

        def has_moved() -> bool:
            for each in publishers:
                for _ in range(16):
                    each.publish(bytes(16_384))
            return any(each.moves for each in publishers)

        cluster.until(has_moved, "a client moves", SECONDS)
        assert sum(each.moves for each in publishers) < len(publishers)
        reader = idle.amqp()
        stack.callback(reader.close)
        left = set(itertools.chain.from_iterable(each.sent for each in publishers))
        for method, _, body in reader.channel().consume(
            topic, auto_ack=True, inactivity_timeout=10
        ):
            assert method is not None, f"{len(left)} messages are lost"
            left.discard(body)
            if not left:
                break


class RocketmqClient:
    """rocketmq-python-client, unmodified, which sends and receives all the time."""

    def __init__(self, gateway: Process, home: Path) -> None:
        address = f"127.0.0.1:{gateway.listeners['rocketmq.grpc']}"
        self._process = subprocess.Popen(
            [sys.executable, str(test_real_client.PROGRAM), "moving", address],
            env={**os.environ, "HOME": str(home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def sent(self) -> int:
        """How many messages so far."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def result(self) -> dict[str, Any]:
        """What it says at the end."""
        out, _ = self._process.communicate(timeout=60)
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.mark.interop
def test_a_rocketmq_client_goes_on_at_the_other_gateway_while_its_own_is_drained_and_stopped(
    tmp_path: Path,
) -> None:
    with contextlib.ExitStack() as stack:
        found = cluster.gateways_of_one_store(tmp_path, gateway_settings=[])
        first, second = stack.enter_context(found)
        made = first.api("POST", "/topics", {"name": "moving", "type": "normal"})
        assert made.status == 201, made.body
        cluster.until(lambda: len(seen(second)) == 2, "both gateways report")
        name = name_of(first, second)
        client = RocketmqClient(first, tmp_path)
        stack.callback(client.kill)
        cluster.until(lambda: client.sent() > 10, "it sends")
        assert second.api("POST", f"/cluster/gateways/{name}/drain", {}).status == 204

        def stage() -> str:
            return next(each["stage"] for each in seen(second) if each["name"] == name)

        cluster.until(lambda: stage() == "drained", "its clients have gone")
        assert first.terminate() == 0
        before = client.sent()
        cluster.until(lambda: client.sent() > before + 20, "it goes on")
        result = client.result()
        assert result["missing"] == []
        # A machine that is busy may be late.
        assert not [each for each in result["problems"] if "DEADLINE_EXCEEDED" not in each]


def test_a_drain_names_who_comes_straight_back_and_ends_if_it_must(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        found = cluster.gateways_of_one_store(tmp_path, gateway_settings=[])
        first, second = stack.enter_context(found)
        cluster.until(lambda: len(seen(second)) == 2, "both gateways report")
        name = name_of(first, second)
        is_over = threading.Event()
        stubborn = threading.Thread(target=come_back, args=(first, is_over))
        stubborn.start()
        stack.callback(stubborn.join)
        stack.callback(is_over.set)
        cluster.until(lambda: sum(of(second, name)["clients"].values()) > 0, "it is there")
        ran = drain(second, name, "--wait", "12")
        assert ran.returncode == 1
        assert "amqp client guest@127.0.0.1 has come back" in ran.stderr
        assert "--force" in ran.stderr
        forced = drain(second, name, "--wait", "0", "--force", "-o", "name")
        assert (forced.returncode, forced.stdout) == (0, name + "\n")
        assert "cuts off who is left" in forced.stderr


def name_of(gateway: Process, asked: Process) -> str:
    """What the cluster calls a gateway."""
    port = str(gateway.listeners["amqp.tcp"])
    (name,) = [each["name"] for each in seen(asked) if each["listeners"]["amqp.tcp"].endswith(port)]
    return str(name)


def of(gateway: Process, name: str) -> dict[str, Any]:
    return next(each for each in seen(gateway) if each["name"] == name)


def come_back(gateway: Process, is_over: threading.Event) -> None:
    """A client that knows one address."""
    url = f"amqp://guest:guest@127.0.0.1:{gateway.listeners['amqp.tcp']}/%2f?heartbeat=0"
    while not is_over.is_set():
        with contextlib.suppress(pika.exceptions.AMQPError):
            connection = pika.BlockingConnection(pika.URLParameters(url))
            while not is_over.is_set():
                connection.process_data_events(0.1)
            connection.close()


def drain(gateway: Process, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", "node", "drain", name, *options]
    return subprocess.run(
        [*command, "--data", str(gateway.data)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment(),
    )


def test_an_mqtt_message_that_comes_again_after_a_move_is_marked(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        found = cluster.gateways_of_one_store(tmp_path, gateway_settings=[])
        first, second = stack.enter_context(found)
        cluster.until(lambda: len(seen(second)) == 2, "both gateways report")
        name = name_of(first, second)
        got: queue.SimpleQueue[tuple[bytes, bool]] = queue.SimpleQueue()
        moved = threading.Event()

        def client(gateway: Process) -> paho.Client:
            version = paho.CallbackAPIVersion.VERSION2
            made = paho.Client(version, "kept", protocol=paho.MQTTv5, manual_ack=True)
            made.username_pw_set("guest", "guest")
            made.on_message = lambda _client, _data, said: got.put((said.payload, said.dup))
            made.on_disconnect = lambda *_: moved.set()
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 600
            port = gateway.listeners["mqtt.tcp"]
            made.connect("127.0.0.1", port, clean_start=False, properties=properties)
            made.loop_start()
            stack.callback(made.loop_stop)
            return made

        one = client(first)
        subscribed = threading.Event()
        one.on_subscribe = lambda *_: subscribed.set()
        one.subscribe("kept/#", qos=1)
        assert subscribed.wait(10)
        one.publish("kept", b"unacked", qos=1)
        assert got.get(timeout=10) == (b"unacked", False)
        assert second.api("POST", f"/cluster/gateways/{name}/drain", {}).status == 204
        assert moved.wait(20)
        one.disconnect()
        client(second)
        assert got.get(timeout=20) == (b"unacked", True)
