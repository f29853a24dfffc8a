"""Delays, long polls and bursts of each protocol, with real clients that remember what they got."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tests.metering.served.drivers import ANSWER_S, PERSISTENT, MqttClient
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.gateway.serving import Process

POLLERS = 4
DELAYED = 10
BURSTS = 6
BURST = 20
ALL = DELAYED + BURSTS * BURST
PAUSE_S = 0.02
LARGE = 5_000
"""Two units of 4 KiB: every fifth message."""
ALL_UNITS = ALL + len(range(0, ALL, 5))


def body(number: int) -> str:
    return f"{number}:".ljust(LARGE if number % 5 == 0 else 20, "x")


class Inbox:
    """What clients received: how often each message."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.got: Counter[int] = Counter()

    def take(self, text: str) -> None:
        with self._lock:
            self.got[int(text.partition(":")[0])] += 1

    @property
    def full(self) -> bool:
        return len(self.got) == ALL

    def poll(self, receive: Callable[[], None]) -> None:
        """Receive until everything has come."""
        until = time.monotonic() + 3 * ANSWER_S
        while not self.full:
            assert time.monotonic() < until, f"{ALL - len(self.got)} messages have not come"
            receive()


def deliver(inbox: Inbox, poll: Callable[[], None], send: Callable[[], None]) -> None:
    """Poll with several clients while messages are sent."""
    with ThreadPoolExecutor(POLLERS) as pool:
        polls = [pool.submit(inbox.poll, poll) for _ in range(POLLERS)]
        send()
        for each in polls:
            each.result()


def numbers() -> tuple[range, list[range]]:
    """Those that are delayed, and the bursts."""
    return range(DELAYED), [range(at, at + BURST) for at in range(DELAYED, ALL, BURST)]


def sqs_traffic(node: Process) -> Inbox:
    inbox, local = Inbox(), threading.local()
    url = f"http://127.0.0.1:{node.listeners['sqs.http']}"
    main = sqs_client(url)
    queue = main.create_queue(QueueName="once")["QueueUrl"]
    clients = []

    def poll() -> None:
        if not hasattr(local, "client"):
            local.client = sqs_client(url)
            clients.append(local.client)
        got = local.client.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=1
        ).get("Messages", [])
        for message in got:
            inbox.take(message["Body"])
            local.client.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])

    def send() -> None:
        delayed, bursts = numbers()
        for at in delayed:
            main.send_message(QueueUrl=queue, MessageBody=body(at), DelaySeconds=1 + at % 2)
        for burst in bursts:
            for first in burst[::2]:
                some = range(first, first + 2)
                entries = [{"Id": str(at), "MessageBody": body(at)} for at in some]
                main.send_message_batch(QueueUrl=queue, Entries=entries)
            time.sleep(PAUSE_S)

    deliver(inbox, poll, send)
    for client in (main, *clients):
        client.close()
    return inbox


def rocketmq_traffic(node: Process) -> Inbox:
    from tests.adapters.rocketmq.support import Wire, message

    inbox, local = Inbox(), threading.local()
    for name, kind in (("rmq-once", "normal"), ("rmq-later", "delay")):
        assert node.api("POST", "/topics", {"name": name, "type": kind}).status in (200, 201)
    address = f"127.0.0.1:{node.listeners['rocketmq.grpc']}"
    main = Wire(address)
    wires = [main]
    for name in ("rmq-once", "rmq-later"):
        main.receive(name, "workers")
    turns = itertools.count()

    def poll() -> None:
        if not hasattr(local, "wire"):
            local.wire = Wire(address)
            wires.append(local.wire)
        name = ("rmq-once", "rmq-later")[next(turns) % 2]
        got = local.wire.receive(name, "workers", wait_s=0.5, batch=8)
        for text in got.bodies:
            inbox.take(text.decode())
        if got.handles:
            local.wire.ack(name, "workers", *got.handles)

    def send() -> None:
        delayed, bursts = numbers()
        for at in delayed:
            due_ms = int(time.time() * 1000) + 1_000 + 50 * at
            made = message("rmq-later", body(at).encode(), message_type=3, delivery_ms=due_ms)
            assert main.send(made).status.code == 20_000
        for burst in bursts:
            for at in burst:
                main.send(message("rmq-once", body(at).encode()))
            time.sleep(PAUSE_S)

    deliver(inbox, poll, send)
    for wire in wires:
        wire.close()
    return inbox


def amqp_traffic(node: Process) -> Inbox:
    inbox = Inbox()

    def consume(number: int) -> None:
        with node.amqp() as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=7)
            until = time.monotonic() + 3 * ANSWER_S
            if number:
                for method, _, text in channel.consume("am-once", inactivity_timeout=0.2):
                    if method is not None:
                        inbox.take(text.decode())
                        channel.basic_ack(method.delivery_tag)
                    if inbox.full or time.monotonic() > until:
                        break
            else:
                while not inbox.full and time.monotonic() < until:
                    method, _, text = channel.basic_get("am-once", auto_ack=True)
                    if method is not None:
                        inbox.take(text.decode())

    with node.amqp() as connection, ThreadPoolExecutor(POLLERS) as pool:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("am-once", durable=True)
        consumers = [pool.submit(consume, number) for number in range(POLLERS)]
        slow, bursts = numbers()
        for at in slow:
            channel.basic_publish("", "am-once", body(at).encode(), PERSISTENT)
            time.sleep(PAUSE_S)
        for at in itertools.chain(*bursts):
            channel.basic_publish("", "am-once", body(at).encode(), PERSISTENT)
        for each in consumers:
            each.result()
    return inbox


def mqtt_traffic(node: Process) -> Inbox:
    """To a session that comes and goes: what it missed comes when it is back."""
    inbox = Inbox()
    giver, away = MqttClient(node, "giver"), MqttClient(node, "once", clean=False)
    away.subscribe("once/+", 1)
    away.end()
    delayed, bursts = numbers()
    for at in delayed:
        giver.publish(f"once/{at}", 1, body(at))
    back = MqttClient(node, "once", clean=False)
    for burst in bursts:
        for at in burst:
            giver.publish(f"once/{at}", 1, body(at))
    for _ in range(ALL):
        inbox.take(back.take().decode())
    giver.end()
    back.end()
    return inbox


TRAFFIC = {
    "sqs": sqs_traffic,
    "rocketmq": rocketmq_traffic,
    "amqp": amqp_traffic,
    "mqtt": mqtt_traffic,
}
