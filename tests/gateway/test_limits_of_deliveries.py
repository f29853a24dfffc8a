"""Limits of what is delivered, as real clients meet them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import botocore.exceptions
import pytest

from tests.gateway.limited import limited, rocketmq
from tests.gateway.serving import Process, serving
from tests.gateway.test_mqtt import client
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
