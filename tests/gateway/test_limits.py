"""Limits of a node, as its real clients meet them: a little over is delayed, far over refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import aiormq
import aiormq.exceptions
import botocore.exceptions
import msgspec
import paho.mqtt.client as mqtt
import pika.exceptions
import pytest

from gateway.access import limit_records
from kernel.quotas.limits import Entity, LimitSet, Scope
from tests.gateway.cluster import until
from tests.gateway.serving import Process, environment, refused, serving
from tests.gateway.test_mqtt import client
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = """
limits:
  listeners:
    amqp.tcp: {published_messages: 400}
    mqtt.tcp: {published_bytes: 4000}
    sqs.http: {published_messages: 10}
    rocketmq.grpc: {published_messages: 10}
  topics:
    default:slow: {published_messages: 200}
    default:heavy: {published_bytes: 1000}
    default:firm: {published_messages: 100}
    default:full: {stored_messages: 3}
  users:
    default:nobody: {requests: 1}
"""

ROCKETMQ = """
import json, sys, threading, time
from rocketmq import ClientConfiguration, Credentials, Message, Producer

producer = Producer(ClientConfiguration(sys.argv[1], Credentials("weir", "weir-secret")))
producer.startup()


def send():
    message = Message()
    message.topic, message.body = "receipts", b"a body"
    try:
        producer.send(message)
        came.append("sent")
    except Exception as error:
        came.append(repr(error))


came = []
began = time.monotonic()
for _ in range(25):
    send()
alone, seconds = came, time.monotonic() - began
came = []
threads = [threading.Thread(target=send) for _ in range(60)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps({"alone": alone, "seconds": seconds, "together": came}), flush=True)
producer.shutdown()
"""

TOO_MUCH = 0x97
SERVER_UNAVAILABLE = 3
"""Of MQTT 3.1.1."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    directory = tmp_path_factory.mktemp("limits")
    config = directory / "weir.yaml"
    config.write_text(CONFIG)
    with serving(directory / "data", config=config) as process:
        yield process


def limited(node: Process, limit: str, outcome: str) -> float:
    """What a limit has done, by the metric."""
    labels = f'weir_limited_total{{limit="{limit}",outcome="{outcome}",tenant="default"}} '
    lines = node.http("GET", "/metrics").body.decode().splitlines()
    return sum(float(each.removeprefix(labels)) for each in lines if each.startswith(labels))


def publish(node: Process, queue: str, count: int) -> float:
    """Seconds that it takes pika to publish so many, and hear that they are there."""
    with node.amqp() as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        began = time.monotonic()
        for _ in range(count):
            channel.basic_publish("", queue, b"a body")
        assert channel.queue_declare(queue, passive=True).method.message_count == count
        return time.monotonic() - began


def test_amqp_publishers_are_not_read_from_above_their_limit(node: Process) -> None:
    seconds = publish(node, "orders", 1_200)
    assert 1.7 < seconds < 5, "1,200 at 400 a second, of which 400 may come at once"
    assert limited(node, "listener.published_messages", "delayed") > 0


def test_a_topic_has_a_limit_of_its_own(node: Process) -> None:
    seconds = publish(node, "slow", 800)
    assert 1.7 < seconds < 6, "800 at 200 a second, of which 200 may come at once"
    assert limited(node, "topic.published_messages", "delayed") > 0


async def test_a_queue_that_refuses_when_full_nacks_what_is_far_over_a_limit(
    node: Process,
) -> None:
    connection = await aiormq.connect(
        f"amqp://guest:guest@127.0.0.1:{node.listeners['amqp.tcp']}/%2f"
    )
    channel = await connection.channel(publisher_confirms=True)
    arguments = {"x-overflow": "reject-publish"}
    await channel.queue_declare("firm", durable=True, arguments=arguments)
    began = time.monotonic()
    told = await asyncio.gather(
        *(channel.basic_publish(b"a body", routing_key="firm") for _ in range(900)),
        return_exceptions=True,
    )
    assert time.monotonic() - began < 5, "nobody is held, where 900 at 100 a second take 8 s"
    nacked = [each for each in told if isinstance(each, aiormq.exceptions.DeliveryError)]
    counted = await channel.queue_declare("firm", durable=True, passive=True)
    assert counted.message_count == len(told) - len(nacked)
    assert 200 <= counted.message_count < 700, "a second's worth, and another that is owed"
    assert limited(node, "topic.published_messages", "refused") == len(nacked)

    # Who has not asked to hear of it is held: nothing is lost unheard.
    plain = await connection.channel(publisher_confirms=False)
    for _ in range(20):
        await plain.basic_publish(b"a body", routing_key="firm")
    after = await plain.queue_declare("firm", durable=True, passive=True)
    assert after.message_count == counted.message_count + 20
    await connection.close()


def test_an_amqp_publisher_that_is_held_is_not_taken_for_gone(node: Process) -> None:
    port = node.listeners["amqp.tcp"]
    url = f"amqp://guest:guest@127.0.0.1:{port}/%2f?heartbeat=1&blocked_connection_timeout=30"
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare("heavy", durable=True)
        channel.basic_publish("", "heavy", bytes(6_000))
        began = time.monotonic()
        connection.sleep(0.3)
        assert channel.queue_declare("heavy", passive=True).method.message_count == 1
        assert time.monotonic() - began > 3.5, "5,000 bytes at 1,000 a second are waited for"
        assert connection.is_open


def test_mqtt_refuses_delays_or_drops_by_what_the_client_can_hear(node: Process) -> None:
    codes: list[Any] = []
    old = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "old", protocol=mqtt.MQTTv311)
    old.username_pw_set("guest", "guest")
    old.on_publish = lambda _c, _u, _m, code, _p: codes.append(code)
    old.connect("127.0.0.1", node.listeners["mqtt.tcp"], keepalive=1)
    old.loop_start()
    with (
        client(node, "reader") as reader,
        client(node, "flood") as flood,
        client(node, "second") as second,
    ):
        reader.subscribe("kitchen/#")
        assert flood.publish("kitchen/oven", bytes(20_000)) == 0, "one message always passes"
        began = time.monotonic()
        assert second.publish("kitchen/oven", b"refused") == TOO_MUCH
        old.publish("kitchen/oven", b"dropped", 0)
        assert old.publish("kitchen/oven", b"late", 1).is_published() is False
        while not codes[1:] and time.monotonic() < began + 20:
            time.sleep(0.01)
        assert flood.publish("kitchen/oven", b"last") == 0
        assert time.monotonic() - began > 2.5, "20,000 bytes at 4,000 a second are owed for 4 s"
        bodies = [reader.take().payload for _ in range(3)]
    assert bodies == [bytes(20_000), b"late", b"last"]
    assert old.is_connected(), "who is not read from cannot be late"
    old.loop_stop()
    old.disconnect()
    assert limited(node, "listener.published_bytes", "refused") == 1
    assert limited(node, "listener.published_bytes", "dropped") == 1


def test_nobody_publishes_more_by_leaving_and_coming_back(tmp_path: Path) -> None:
    config = tmp_path / "weir.yaml"
    config.write_text("limits: {tenants: {default: {published_messages: 100}}}")
    with serving(tmp_path / "data", config=config) as node, client(node, "counter") as counter:
        counter.subscribe("flood/#")
        port = node.listeners["mqtt.tcp"]
        publish = bytes([0x32, 15, 0, 8]) + b"flood/it" + bytes([0, 1]) + b"abc"
        for number in range(20):
            with socket.create_connection(("127.0.0.1", port)) as sock:
                sock.sendall(connect_311(f"runaway-{number}"))
                assert sock.recv(4)[3] == 0
                sock.sendall(publish * 400)
        time.sleep(2)
        stored = 0
        with contextlib.suppress(queue.Empty):
            while True:
                counter.messages.get(timeout=1.5)
                stored += 1
    assert stored < 1_200, "8,000 were sent, and 100 a second are allowed"


def connect_311(name: str) -> bytes:
    fields = (name.encode(), b"guest", b"guest")
    body = b"\x00\x04MQTT\x04\xc2\x00\x3c" + b"".join(
        len(each).to_bytes(2, "big") + each for each in fields
    )
    return bytes([0x10, len(body)]) + body


def test_sqs_throttles_who_is_far_over_and_sdks_try_again(node: Process) -> None:
    url = f"http://127.0.0.1:{node.listeners['sqs.http']}"
    clients = [sqs_client(url) for _ in range(3)]
    queue = clients[0].create_queue(QueueName="parcels")["QueueUrl"]
    entries = [{"Id": str(number), "MessageBody": "a body"} for number in range(10)]
    for each in clients:
        each.send_message_batch(QueueUrl=queue, Entries=entries)
    other = sqs_client(url)
    with pytest.raises(botocore.exceptions.ClientError) as raised:
        other.send_message(QueueUrl=queue, MessageBody="too much")
    assert raised.value.response["Error"]["Code"] == "RequestThrottled"
    got = other.receive_message(QueueUrl=queue)["Messages"][0]
    other.delete_message(QueueUrl=queue, ReceiptHandle=got["ReceiptHandle"])
    patient = sqs_client(url, retries={"total_max_attempts": 8, "mode": "standard"})
    patient.send_message(QueueUrl=queue, MessageBody="in time")
    assert limited(node, "listener.published_messages", "refused") > 0


def test_rocketmq_answers_later_then_too_many_requests(node: Process, tmp_path: Path) -> None:
    before = limited(node, "listener.published_messages", "refused")
    made = node.api("POST", "/topics", {"name": "receipts"})
    assert made.status in {200, 201}, made.body
    got = rocketmq(node, tmp_path, ROCKETMQ)
    assert got["alone"] == ["sent"] * 25
    assert 1.2 < got["seconds"] < 6, "25 at 10 a second, of which 10 may come at once"
    assert got["together"].count("sent") >= 10
    assert limited(node, "listener.published_messages", "refused") > before


ROCKETMQ_ONCE = """
import json, sys
from rocketmq import ClientConfiguration, Credentials, Message, Producer

producer = Producer(ClientConfiguration(sys.argv[1], Credentials("weir", "weir-secret")))
producer.startup()
message = Message()
message.topic, message.body = "full", b"a body"
try:
    producer.send(message)
    came = "sent"
except Exception as error:
    came = str(error)
print(json.dumps(came), flush=True)
producer.shutdown()
"""


def test_who_stores_as_much_as_it_may_is_refused_as_by_a_full_queue(
    node: Process, tmp_path: Path
) -> None:
    sqs = sqs_client(f"http://127.0.0.1:{node.listeners['sqs.http']}")
    url = sqs.create_queue(QueueName="full")["QueueUrl"]
    time.sleep(1.2)
    with node.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_bind("full", "amq.topic", "full")
        for _ in range(3):
            channel.basic_publish("", "full", b"a body")
        with pytest.raises(pika.exceptions.NackError):
            channel.basic_publish("", "full", b"a body")
        with client(node, "device") as device:
            assert device.publish("full", b"a body") == TOO_MUCH
            channel.queue_declare("still-there", durable=True)
        with pytest.raises(botocore.exceptions.ClientError) as raised:
            sqs.send_message(QueueUrl=url, MessageBody="a body")
        assert raised.value.response["Error"]["Code"] == "RequestThrottled"
        assert "42900" in rocketmq(node, tmp_path, ROCKETMQ_ONCE)
        assert limited(node, "topic.stored_messages", "refused") >= 4
        listed = weir(node, "limit", "ls").stdout.splitlines()
        assert [each.split() for each in listed if "stored_messages" in each] == [
            ["topic.stored_messages", "default:full", "3", "3"]
        ]
        method, _, _ = channel.basic_get("full")
        channel.basic_ack(method.delivery_tag)
        time.sleep(0.2)  # nobody is told when an ack is settled
        channel.basic_publish("", "full", b"there is room again")


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


def rocketmq(node: Process, home: Path, script: str) -> Any:
    """What a script for RocketMQ's own Python client prints, which is JSON."""
    ran = subprocess.run(
        [sys.executable, "-c", script, f"127.0.0.1:{node.listeners['rocketmq.grpc']}"],
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


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


DELIVERIES = """
limits:
  tenants:
    default: {delivered_messages: 50}
  topics:
    default:slow: {delivered_bytes: 1000}
"""

RECEIVING = """
import json, sys, time
from rocketmq import ClientConfiguration, Credentials, FilterExpression, SimpleConsumer

consumer = SimpleConsumer(
    ClientConfiguration(sys.argv[1], Credentials("weir", "weir-secret")), "group",
    {"backlog-rocketmq": FilterExpression()}, 5)
consumer.startup()
began, got, refused = time.monotonic(), 0, 0
while got < 120:
    try:
        messages = consumer.receive(32, 30)
    except Exception as error:
        assert "42900" in str(error) or "TOO_MANY" in str(error).upper(), repr(error)
        refused += 1
        time.sleep(0.1)
        continue
    for each in messages:
        consumer.ack(each)
    got += len(messages)
print(json.dumps([time.monotonic() - began, refused]), flush=True)
consumer.shutdown()
"""


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A node whose tenant is delivered 50 messages a second."""
    directory = tmp_path_factory.mktemp("slow")
    config = directory / "weir.yaml"
    config.write_text(DELIVERIES)
    with serving(directory / "data", config=config) as process:
        yield process


def fill(node: Process, queue: str, count: int, body: bytes = b"a body") -> None:
    with node.amqp() as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        for _ in range(count):
            channel.basic_publish("", queue, body)
        channel.queue_declare(queue, passive=True)


def consumed(node: Process, queue: str, count: int, *, no_ack: bool) -> float:
    """Seconds until pika has got so many."""
    with node.amqp() as connection:
        channel = connection.channel()
        began = time.monotonic()
        for number, (method, _, _) in enumerate(channel.consume(queue, auto_ack=no_ack), start=1):
            if not no_ack:
                channel.basic_ack(method.delivery_tag)
            if number == count:
                break
        return time.monotonic() - began


def calm(seconds: float = 1.2) -> None:
    """Until a second's worth may come at once again."""
    time.sleep(seconds)


@pytest.mark.parametrize("no_ack", [True, False])
def test_amqp_consumers_get_no_more_than_is_allowed(slow: Process, no_ack: bool) -> None:
    fill(slow, f"backlog-{no_ack}", 150)
    calm()
    seconds = consumed(slow, f"backlog-{no_ack}", 150, no_ack=no_ack)
    assert 1.7 < seconds < 5, "150 at 50 a second, of which 50 may come at once"
    assert limited(slow, "tenant.delivered_messages", "delayed") > 0


def test_basic_get_waits_too(slow: Process) -> None:
    fill(slow, "fetched", 120)
    calm()
    with slow.amqp() as connection:
        channel = connection.channel()
        began = time.monotonic()
        for _ in range(120):
            assert channel.basic_get("fetched", auto_ack=True)[0] is not None
        assert 1.2 < time.monotonic() - began < 5


def test_a_topic_has_a_limit_of_what_is_got_from_it(slow: Process) -> None:
    fill(slow, "slow", 30, bytes(100))
    fill(slow, "quick", 20, bytes(100))
    calm()
    assert consumed(slow, "slow", 30, no_ack=True) > 1.7, "3,000 bytes at 1,000 a second"
    calm()
    assert consumed(slow, "quick", 20, no_ack=True) < 1
    assert limited(slow, "topic.delivered_bytes", "delayed") > 0


def test_mqtt_subscribers_get_no_more_than_is_allowed(slow: Process) -> None:
    calm()
    with client(slow, "subscriber") as subscriber, client(slow, "publisher") as publisher:
        assert subscriber.subscribe("flood/#") == 1
        began = time.monotonic()
        for _ in range(150):
            publisher.client.publish("flood/it", b"a body", 1)
        for _ in range(150):
            subscriber.take()
        assert 1.7 < time.monotonic() - began < 6


def test_sqs_receivers_are_throttled_when_they_get_too_much(slow: Process) -> None:
    fill(slow, "backlog-sqs", 200)
    calm()
    url = f"http://127.0.0.1:{slow.listeners['sqs.http']}"
    clients = [sqs_client(url) for _ in range(4)]
    queue = clients[0].get_queue_url(QueueName="backlog-sqs")["QueueUrl"]
    got, codes, began = 0, set(), time.monotonic()
    while got < 200:
        sqs = clients[got % len(clients)]
        try:
            messages = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
        except botocore.exceptions.ClientError as error:
            codes.add(error.response["Error"]["Code"])
            time.sleep(0.05)
            continue
        for each in messages:
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=each["ReceiptHandle"])
        got += len(messages)
    assert time.monotonic() - began > 1.5
    assert codes <= {"RequestThrottled"}


def test_rocketmq_receivers_wait_when_they_get_too_much(slow: Process, tmp_path: Path) -> None:
    made = slow.api("POST", "/topics", {"name": "backlog-rocketmq"})
    assert made.status == 201, made.body
    fill(slow, "backlog-rocketmq", 120)
    calm()
    seconds, _ = rocketmq(slow, tmp_path, RECEIVING)
    assert 0.8 < seconds < 15


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


def weir(node: Process, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        env=environment(WEIR_NODE__DATA=str(node.data)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_limits_are_set_and_lifted_at_run_time_and_last(tmp_path: Path) -> None:
    data = tmp_path / "data"
    config = tmp_path / "weir.yaml"
    config.write_text("limits: {tenants: {default: {published_messages: 100000, requests: 9999}}}")
    with serving(data, config=config) as node, node.amqp() as connection:
        channel = connection.channel()
        channel.queue_declare("changes", durable=True)

        def publish_some() -> float:
            began = time.monotonic()
            for _ in range(60):
                channel.basic_publish("", "changes", b"a body")
            channel.queue_declare("changes", passive=True)
            return time.monotonic() - began

        assert publish_some() < 1.5
        done = weir(node, "limit", "set", "tenant", "default", "published_messages=20")
        assert done.returncode == 0, done.stderr
        assert 1.5 < publish_some() < 10, "of who is connected: 60 at 20 a second, 20 at once"
        listed = node.api("GET", "/limits").json
        assert listed["limits"] == [
            {
                "scope": "tenant",
                "tenant": "default",
                "name": "",
                "limits": {"published_messages": 20, "requests": 9999},
                "origin": "record",
            }
        ]
        assert {each["kind"] for each in listed["used"]} == {"published_messages", "requests"}
        assert listed["limited"][0]["outcome"] == "delayed"
        done = weir(node, "limit", "ls")
        assert done.stdout.splitlines()[1].split()[:3] == [
            "tenant.published_messages",
            "default",
            "20",
        ]
        assert weir(node, "limit", "set", "tenant", "default", "frobs=2").returncode == 2
        assert node.api("PATCH", "/limits/topic/orders", {"requests": 1}).status == 400
        assert node.api("PATCH", "/limits/listener/amqp", {"requests": 1}).status == 400
        assert node.api("PATCH", "/limits/shop/amqp", {}).status == 404
        connection.close()
        assert node.terminate() == 0
        said = [each for each in node.logged() if each["event"] == "limit set"]
        assert said[0]["limits"] == {"published_messages": 20, "requests": 9999}
        assert said[0]["by"] == "the operator"
    with serving(data, config=config) as node:
        seconds = publish(node, "changes-2", 60)
        assert seconds > 1.5, "what was set at run time holds after a restart"
        assert weir(node, "limit", "rm", "tenant", "default", "--yes").returncode == 0
        assert weir(node, "limit", "rm", "tenant", "default", "--yes").returncode == 4
        limits = node.api("GET", "/limits").json["limits"]
        assert limits[0]["limits"] == {"published_messages": 100000, "requests": 9999}
        assert limits[0]["origin"] == "settings"


def test_a_damaged_limit_leaves_the_others() -> None:
    entity = Entity(Scope.USER, "acme", "b/ob")
    key = limit_records.key_of(entity)
    assert key == "limits/user/acme/b%2Fob"
    value = limit_records.encode(LimitSet(requests=5))
    assert limit_records.decode(key, value) == (entity, LimitSet(requests=5), [])
    newer = msgspec.msgpack.encode({"requests": 5, "frobs": 7, "connections": 0})
    assert limit_records.decode(key, newer) == (
        entity,
        LimitSet(requests=5),
        ["connections", "frobs"],
    )
    for bad_key, bad_value in (
        ("limits/user/acme", value),
        ("limits/shop/acme/bob", value),
        ("limits/user/acme/%ff", value),
        ("limits/user/acme/bob", b"\xc1"),
        ("limits/user/acme/bob", msgspec.msgpack.encode({"requests": "many"})),
    ):
        with pytest.raises(ValueError, match=r"."):
            limit_records.decode(bad_key, bad_value)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("limits: {tenants: {acme: {requests: 0}}}", "limits.tenants.acme.requests"),
        ("limits: {listeners: {amqp.nowhere: {requests: 1}}}", "is no listener"),
        ("limits: {topics: {orders: {published_bytes: 1}}}", "names none"),
        ("limits: {topics: {default:orders: {requests: 1}}}", "is not a setting"),
    ],
)
def test_a_limit_that_could_not_hold_is_refused(tmp_path: Path, config: str, said: str) -> None:
    (tmp_path / "weir.yaml").write_text(config)
    code, told = refused(tmp_path / "data", config=tmp_path / "weir.yaml")
    assert code != 0
    assert said in told
