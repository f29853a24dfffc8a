"""Limits of a node, as its real clients meet them: a little over is delayed, far over refused."""

from __future__ import annotations

import asyncio
import contextlib
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
from tests.gateway.limited import TOO_MUCH, connect_311, limited, rocketmq
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


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    directory = tmp_path_factory.mktemp("limits")
    config = directory / "weir.yaml"
    config.write_text(CONFIG)
    with serving(directory / "data", config=config) as process:
        yield process


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
    # Paho leaves when nobody answers its pings, comes back, and sends again what it had sent.
    assert limited(node, "listener.published_bytes", "dropped") in {1, 2}


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
