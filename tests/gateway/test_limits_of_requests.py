"""Limits of requests a second, and what no limit of a rate refuses, with real clients."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import botocore.exceptions
import paho.mqtt.client as paho
import pytest

from tests.gateway.cluster import until
from tests.gateway.limited import limited, rocketmq
from tests.gateway.serving import Process, serving
from tests.gateway.test_limits_walked_round import (
    amqp,
    amqp_publish,
    connections,
    depth,
    limit,
    made,
)
from tests.gateway.test_mqtt import client
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ONCE: dict[str, Any] = {"retries": {"total_max_attempts": 1}}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("requests") / "data") as process:
        yield process


def test_amqp_methods_that_wait_are_delayed(node: Process) -> None:
    with node.amqp() as connection, limit(node, "user/guest", requests=10):
        channel = connection.channel()
        began = time.monotonic()
        for _ in range(30):
            channel.queue_declare("asked", durable=True)
        assert 1.5 < time.monotonic() - began < 20, "30 at 10 a second, of which 10 at once"
        assert limited(node, "user.requests", "delayed") > 0


def test_mqtt_subscribes_are_delayed(node: Process) -> None:
    with client(node, "asks") as asking, limit(node, "user/guest", requests=10):
        began = time.monotonic()
        for number in range(30):
            assert asking.subscribe(f"asked/{number}") == 1
        assert 1.5 < time.monotonic() - began < 20


def said(sqs: Any) -> str:
    """The error of a call; empty: it is answered."""
    try:
        sqs.get_queue_url(QueueName="calls")
    except botocore.exceptions.ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def test_sqs_calls_are_delayed_then_throttled_and_deletes_never(node: Process) -> None:
    url = f"http://127.0.0.1:{node.listeners['sqs.http']}"
    first = sqs_client(url)
    queue = first.create_queue(QueueName="calls")["QueueUrl"]
    for _ in range(5):
        first.send_message(QueueUrl=queue, MessageBody="a body")
    got: list[Any] = []
    while len(got) < 5:
        got += first.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
    clients = [sqs_client(url, **ONCE) for _ in range(10)]
    with limit(node, "listener/sqs.http", requests=3):
        told = [said(each) for each in (*clients, *clients)]
        throttled = told.count("RequestThrottled")
        assert set(told) == {"", "RequestThrottled"}
        for each, message in zip(clients, got, strict=False):
            each.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        patient = sqs_client(url, retries={"total_max_attempts": 10, "mode": "standard"})
        patient.get_queue_url(QueueName="calls")
    assert limited(node, "listener.requests", "refused") >= throttled


ROCKETMQ = """
import json, sys, threading
from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer
from rocketmq import SimpleConsumer

configuration = ClientConfiguration(sys.argv[1], Credentials("weir", "weir-secret"))
producer = Producer(configuration)
producer.startup()
consumer = SimpleConsumer(configuration, "askers")
consumer.startup()
consumer.subscribe("calls-of-rocketmq", FilterExpression())


def send():
    message = Message()
    message.topic, message.body = "calls-of-rocketmq", b"a body"
    try:
        producer.send(message)
        came.append("sent")
    except Exception as error:
        came.append(str(error)[:5])


came = []
for _ in range(5):
    send()
got = []
while len(got) < 5:
    got += consumer.receive(16, 30)
threads = [threading.Thread(target=send) for _ in range(60)]
for thread in threads:
    thread.start()
for message in got:
    consumer.ack(message)
for thread in threads:
    thread.join()
print(json.dumps(came), flush=True)
producer.shutdown()
consumer.shutdown()
"""


def test_rocketmq_calls_are_answered_later_then_refused_and_acks_never(
    node: Process, tmp_path: Path
) -> None:
    assert node.api("POST", "/topics", {"name": "calls-of-rocketmq"}).status == 201
    with limit(node, "listener/rocketmq.grpc", requests=10):
        came = rocketmq(node, tmp_path, ROCKETMQ)
    assert came[:5] == ["sent"] * 5
    assert set(came) == {"sent", "42900"}


def test_wills_and_dead_letters_are_not_refused_however_much_is_owed(node: Process) -> None:
    made(node, "owing")
    with node.amqp() as connection, client(node, "heir") as heir, amqp(node) as owing:
        channel = connection.channel()
        channel.queue_declare("dead", durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("alive", durable=True, arguments=arguments)
        channel.basic_publish("", "alive", b"a body")
        tag = None
        while tag is None:
            tag = channel.basic_get("alive")[0]
        assert heir.subscribe("wills/#") == 1
        with limit(node, "tenant/default", published_bytes=1_000):
            owing.sendall(amqp_publish("owing", bytes(100_000)))
            until(lambda: depth(node, "owing") == 1, "100 s are owed")
            leaving = paho.Client(paho.CallbackAPIVersion.VERSION2, "leaving")
            leaving.username_pw_set("guest", "guest")
            leaving.will_set("wills/leaving", b"gone", 1)
            leaving.connect("127.0.0.1", node.listeners["mqtt.tcp"])
            leaving.loop_start()
            until(leaving.is_connected, "it is connected")
            leaving.loop_stop()
            leaving.socket().close()  # type: ignore[union-attr]
            assert heir.take().payload == b"gone"
            channel.basic_reject(tag.delivery_tag, requeue=False)
            until(lambda: depth(node, "dead") == 1, "dead letters are the server's own")


def test_limits_of_a_user_hold_by_whichever_listener_it_comes(node: Process) -> None:
    made(node, "by-any")
    before = limited(node, "user.connections", "refused")
    with limit(node, "user/guest", connections=2):
        with node.amqp():
            websocket = paho.Client(
                paho.CallbackAPIVersion.VERSION2, "by-websocket", transport="websockets"
            )
            websocket.username_pw_set("guest", "guest")
            websocket.ws_set_options("/mqtt")
            websocket.connect("127.0.0.1", node.listeners["mqtt.websocket"])
            websocket.loop_start()
            until(websocket.is_connected, "it is the second")
            with client(node, "third") as third:
                assert third.connected == 0x97
            websocket.disconnect()
            websocket.loop_stop()
        until(lambda: not connections(node, "mqtt"), "they have gone")
        with client(node, "fourth") as fourth:
            assert fourth.connected == 0
    assert limited(node, "user.connections", "refused") > before
