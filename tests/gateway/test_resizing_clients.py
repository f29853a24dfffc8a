"""A topic gets more queues, and fewer, while clients of MQTT and RocketMQ use it (ADR 31)."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from tests.gateway.limited import rocketmq
from tests.gateway.test_resizing import SIZES, resized

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.gateway.conftest import Ran
    from tests.gateway.serving import Process

    Weir = Callable[..., Ran]

SECONDS = 20

BOTH_WAYS = """
import json, pathlib, sys, threading
from rocketmq import (
    ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer,
)

configuration = ClientConfiguration(sys.argv[1], Credentials("weir", "weir-secret"))
producer = Producer(configuration, ("s-rocket",))
producer.startup()
consumer = SimpleConsumer(configuration, "default", {"s-rocket": FilterExpression("*")}, 1)
consumer.startup()
sent, got, home = [0], [], pathlib.Path.home()

def publish():
    while not (home / "over").exists():
        message = Message()
        message.topic, message.body = "s-rocket", b"%d" % sent[0]
        producer.send(message)
        sent[0] += 1
        (home / "began").touch()

publisher = threading.Thread(target=publish)
publisher.start()
quiet = 0
while quiet < 2:
    found = consumer.receive(16, 30) or []
    for each in found:
        got.append(int(each.body))
        consumer.ack(each)
    quiet = 0 if found or publisher.is_alive() else quiet + 1
print(json.dumps([sent[0], got]), flush=True)
consumer.shutdown()
producer.shutdown()
"""


def device(node: Process, name: str) -> mqtt.Client:
    made = mqtt.Client(CallbackAPIVersion.VERSION2, name, protocol=mqtt.MQTTv5)
    made.username_pw_set("guest", "guest")
    return made


def test_mqtt_clients_lose_nothing(node: Process, weir: Weir) -> None:
    assert weir("queue", "create", "s-mqtt", "--tree", "on").code == 0
    got = set[str]()
    ready = threading.Event()

    def take(_client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        got.add(message.payload.decode())

    reader, writer = device(node, "s-reader"), device(node, "s-writer")
    reader.on_message = take
    reader.on_subscribe = lambda *_: ready.set()
    for each in (reader, writer):
        each.connect("127.0.0.1", node.listeners["mqtt.tcp"])
        each.loop_start()
    reader.subscribe("$share/default/s-mqtt", qos=1)
    assert ready.wait(SECONDS)
    resizing = threading.Thread(target=resized, args=(node, "s-mqtt", SIZES))
    resizing.start()
    sent = 0
    while resizing.is_alive():
        writer.publish("s-mqtt", f"{sent}", qos=1).wait_for_publish(SECONDS)
        sent += 1
    until = time.monotonic() + SECONDS
    while len(got) < sent and time.monotonic() < until:
        time.sleep(0.02)
    for each in (writer, reader):
        each.disconnect()
        each.loop_stop()
    assert sent > 20
    assert got == {f"{each}" for each in range(sent)}


def test_rocketmq_clients_lose_nothing(node: Process, weir: Weir, tmp_path: Path) -> None:
    assert weir("queue", "create", "s-rocket").code == 0
    done: list[bool] = []

    def resize() -> None:
        """Only under load: the client needs a second to start."""
        try:
            until = time.monotonic() + SECONDS
            while not (tmp_path / "began").exists() and time.monotonic() < until:
                time.sleep(0.02)
            resized(node, "s-rocket", SIZES)
            done.append(True)
        finally:
            (tmp_path / "over").touch()

    resizing = threading.Thread(target=resize)
    resizing.start()
    sent, got = rocketmq(node, tmp_path, BOTH_WAYS)
    resizing.join()
    assert done
    assert sent > 20
    assert sorted(set(got)) == list(range(sent))
