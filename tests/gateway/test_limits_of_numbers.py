"""Limits of a number (connections, largest message, topics, groups), as real clients meet them."""

from __future__ import annotations

import queue
import socket
from typing import TYPE_CHECKING, Any

import botocore.exceptions
import paho.mqtt.client as mqtt
import pika.exceptions
import pytest

from tests.gateway.cluster import until
from tests.gateway.limited import SERVER_UNAVAILABLE, TOO_MUCH, connect_311, limited, rocketmq
from tests.gateway.serving import Process, serving
from tests.gateway.test_mqtt import client
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FEW = """
tenants: {acme: {}}
limits:
  tenants:
    default: {connections: 3, message_bytes: 1000}
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A node whose tenant may have three connections, and messages of 1,000 bytes."""
    directory = tmp_path_factory.mktemp("few")
    config = directory / "weir.yaml"
    config.write_text(FEW)
    with serving(directory / "data", config=config) as process:
        yield process


def test_a_tenant_has_so_many_connections_of_all_protocols(small: Process, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{small.listeners['sqs.http']}"
    with small.amqp() as first, client(small, "device"):
        with small.amqp():
            with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="connection limit"):
                small.amqp()
            with client(small, "another") as another:
                assert another.connected == TOO_MUCH
            with socket.create_connection(("127.0.0.1", small.listeners["mqtt.tcp"])) as old:
                old.sendall(connect_311("old"))
                assert old.recv(4) == bytes([0x20, 2, 0, SERVER_UNAVAILABLE])
                assert old.recv(4) == b""
            with pytest.raises(botocore.exceptions.ClientError) as refused_sqs:
                sqs_client(url).list_queues()
            assert refused_sqs.value.response["Error"]["Code"] == "RequestThrottled"
            with client(small, "device") as again:
                assert again.connected == 0, "in place of itself"
        until(lambda: "error" not in tried(sqs_client(url)), "one is free")
        assert first.is_open
    assert limited(small, "tenant.connections", "refused") >= 3


def tried(sqs: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = sqs.list_queues()
    except botocore.exceptions.ClientError as error:
        return {"error": error}
    return found


TOGETHER = """
import json, sys
from rocketmq import ClientConfiguration, Credentials, Message, Producer

def started():
    producer = Producer(ClientConfiguration(sys.argv[1], Credentials("weir", "weir-secret")))
    try:
        producer.startup()
    except Exception as error:
        return repr(error)
    message = Message()
    message.topic, message.body = "bodies", b"a body"
    try:
        producer.send(message)
    except Exception as error:
        return repr(error)
    return "sent"

print(json.dumps([started() for _ in range(5)]), flush=True)
import os
os._exit(0)
"""


def test_rocketmq_clients_beyond_their_number_are_not_served(tmp_path: Path) -> None:
    config = tmp_path / "weir.yaml"
    config.write_text("limits: {users: {'default:*': {connections: 3}}}")
    with serving(tmp_path / "data", config=config) as node:
        assert node.api("POST", "/topics", {"name": "bodies"}).status == 201
        came = rocketmq(node, tmp_path, TOGETHER)
        assert came[:3] == ["sent"] * 3
        assert all("limit of connections" in each or "42900" in each for each in came[3:]), came
        assert limited(node, "user.connections", "refused") >= 2


LARGE = """
import json, sys
from rocketmq import ClientConfiguration, Credentials, Message, Producer

producer = Producer(ClientConfiguration(sys.argv[1], Credentials("weir", "weir-secret")))
producer.startup()
came = []
for size in (1000, 1001):
    message = Message()
    message.topic, message.body = "bodies", bytes(size)
    try:
        producer.send(message)
        came.append("sent")
    except Exception as error:
        came.append(repr(error))
print(json.dumps(came), flush=True)
producer.shutdown()
"""


def test_a_tenant_has_a_largest_message_in_all_protocols(small: Process, tmp_path: Path) -> None:
    with small.amqp() as connection:
        channel = connection.channel()
        channel.queue_declare("bodies", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "bodies", bytes(1_000))
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as raised:
            channel.basic_publish("", "bodies", bytes(1_001))
        assert raised.value.reply_code == 406
    with client(small, "large") as publisher:
        assert publisher.publish("bodies/mqtt", bytes(1_001)) == TOO_MUCH
        assert publisher.publish("bodies/mqtt", bytes(1_000)) in {0, 0x10}
    sqs = sqs_client(f"http://127.0.0.1:{small.listeners['sqs.http']}")
    queue = sqs.get_queue_url(QueueName="bodies")["QueueUrl"]
    sqs.send_message(QueueUrl=queue, MessageBody="a" * 1_000)
    with pytest.raises(botocore.exceptions.ClientError, match="1000 bytes"):
        sqs.send_message(QueueUrl=queue, MessageBody="a" * 1_001)
    sent, refused_one = rocketmq(small, tmp_path, LARGE)
    assert sent == "sent"
    assert "at most 1000 bytes" in refused_one


def test_an_old_mqtt_client_hears_of_its_largest_message_by_what_becomes_of_it(
    small: Process,
) -> None:
    """MQTT 3.1.1 has no word for no: QoS 0 is dropped, QoS 1 ends the connection unacknowledged."""
    before = limited(small, "tenant.message_bytes", "dropped")
    topic = b"\x00\x06bodies"
    dropped = bytes([0x30]) + variable(len(topic) + 1_001) + topic + bytes(1_001)
    refused_one = bytes([0x32]) + variable(len(topic) + 1_003) + topic + bytes(1_003)
    with socket.create_connection(("127.0.0.1", small.listeners["mqtt.tcp"])) as old:
        old.settimeout(20)
        old.sendall(connect_311("old"))
        assert old.recv(4)[3] == 0
        old.sendall(dropped + bytes([0xC0, 0]))
        assert old.recv(2) == bytes([0xD0, 0]), "it goes on"
        assert limited(small, "tenant.message_bytes", "dropped") == before + 1
        old.sendall(refused_one)
        assert old.recv(4) == b""


def variable(length: int) -> bytes:
    """A remaining length of two bytes."""
    return bytes([length & 127 | 128, length >> 7])


DEFINING = """
import json, os, sys
from rocketmq import (
    ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer,
)

configuration = ClientConfiguration(sys.argv[1], Credentials("weir", "weir-secret"), "", 5)
came = []


def tries(action):
    try:
        action()
        came.append("done")
    except Exception as error:
        came.append(repr(error))


def send():
    message = Message()
    message.topic, message.body = TOPIC, b"a body"
    producer.send(message)


def receive():
    consumer = SimpleConsumer(configuration, GROUP, {"receipts": FilterExpression()}, 2)
    consumer.startup()
    consumer.receive(1, 10)


producer = Producer(configuration)
producer.startup()
TOPIC, GROUP = "by-rocketmq", "readers-by-rocketmq"
tries(send)
tries(receive)
TOPIC = "receipts"
tries(send)
print(json.dumps(came), flush=True)
os._exit(0)
"""


def defined_by_clients(node: Process, home: Path, share: str) -> tuple[list[str], int]:
    """What RocketMQ's client hears of a new topic, a new group and a known topic; and MQTT's of a
    new group.
    """
    with client(node, "sharer") as sharer:
        return rocketmq(node, home, DEFINING), sharer.subscribe(f"$share/{share}/receipts")


def test_clients_of_rocketmq_and_mqtt_define_no_more_than_a_tenant_may(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        assert node.api("POST", "/topics", {"name": "receipts"}).status == 201
        assert node.api("POST", "/topics/receipts/groups", {"name": "known"}).status == 201
        assert node.api("PATCH", "/limits/tenant/default", {"topics": 999, "groups": 999}).json
        used = {each["kind"]: each["used"] for each in node.api("GET", "/limits").json["used"]}
        now = {kind: used[kind] for kind in ("topics", "groups")}
        assert node.api("PATCH", "/limits/tenant/default", now).status == 200

        heard, share = defined_by_clients(node, tmp_path, "mine")
        # The client does not tell why it has got no route. The group's dead letters are a topic.
        assert "failed to fetch topic:by-rocketmq route" in heard[0]
        assert "TooManyRequests" in heard[1]
        assert "may have no more" in heard[1]
        assert heard[2] == "done", "what there is goes on"
        assert node.api("GET", "/topics/by-rocketmq").status == 404
        assert share == TOO_MUCH
        with client(node, "knows") as knows:
            assert knows.subscribe("$share/known/receipts") == 1

        lifted = {"topics": None, "groups": None}
        assert node.api("PATCH", "/limits/tenant/default", lifted).status == 200
        assert defined_by_clients(node, tmp_path, "mine") == (["done"] * 3, 1)


def test_paho_by_mqtt_311_at_limits_of_connections_and_message_bytes(tmp_path: Path) -> None:
    config = tmp_path / "weir.yaml"
    config.write_text("limits: {tenants: {default: {connections: 1, message_bytes: 1000}}}")
    with serving(tmp_path / "data", config=config) as node:
        first, second = (OldClient(node, each) for each in ("first", "second"))
        try:
            assert first.codes.get(timeout=20) == "Success"
            assert second.codes.get(timeout=20) == "Server unavailable"
            first.client.publish("a", bytes(1_001), 0)
            first.client.publish("a", bytes(1_000), 1).wait_for_publish(20)
            assert first.client.is_connected(), "at QoS 0 it is dropped"
            first.client.publish("a", bytes(1_001), 1)
            assert first.gone.get(timeout=20) is not None, "it has no word for no"
        finally:
            for each in (first, second):
                each.client.disconnect()
                each.client.loop_stop()


class OldClient:
    """paho, by MQTT 3.1.1."""

    def __init__(self, node: Process, name: str) -> None:
        self.codes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.gone: queue.SimpleQueue[Any] = queue.SimpleQueue()
        version = mqtt.CallbackAPIVersion.VERSION2
        self.client = mqtt.Client(version, name, protocol=mqtt.MQTTv311)
        self.client.username_pw_set("guest", "guest")
        self.client.on_connect = lambda _c, _u, _f, code, _p: self.codes.put(str(code))
        self.client.on_disconnect = lambda _c, _u, _f, code, _p: self.gone.put(code)
        self.client.connect("127.0.0.1", node.listeners["mqtt.tcp"])
        self.client.loop_start()


def test_a_tenant_has_so_many_topics_and_groups(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        sqs = sqs_client(f"http://127.0.0.1:{node.listeners['sqs.http']}")
        first = sqs.create_queue(QueueName="first")["QueueUrl"]
        topics = len(node.api("GET", "/topics").json["topics"])
        changes: dict[str, int | None] = {"topics": topics + 1}
        assert node.api("PATCH", "/limits/tenant/default", changes).status == 200
        with node.amqp() as connection:
            channel = connection.channel()
            channel.queue_declare("second", durable=True)
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="may have no more"):
                channel.queue_declare("third", durable=True)
            channel = connection.channel()
            channel.queue_declare("second", durable=True)
            channel.queue_declare("", exclusive=True)
        with pytest.raises(botocore.exceptions.ClientError) as raised:
            sqs.create_queue(QueueName="fourth")
        assert raised.value.response["Error"]["Code"] == "OverLimit"
        for changes, status in (({"topics": None, "groups": 1}, 429), ({"groups": 100}, 201)):
            assert node.api("PATCH", "/limits/tenant/default", changes).status == 200
            made = node.api("POST", "/topics/first/groups", {"name": "one"})
            assert made.status == status, made.body
        sqs.send_message(QueueUrl=first, MessageBody="what there is goes on")
        sqs.create_queue(QueueName="fourth")
