"""One driver a protocol: sends real traffic, and says what must be counted of it.

A new protocol joins by a class with a `name` and a `drive`, in DRIVERS; the tests ask for nothing
else. `drive` is called twice, with a crash in between, and must leave nothing without an answer:
what was answered is what the bill is held to.
"""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import paho.mqtt.client as paho
import pika

from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from tests.gateway.serving import Process

Tally = Counter[tuple[str, str, str]]
"""Messages by (protocol, action, kind): of kind `store` they must be exact, whatever happens; of
kind `api` those before a crash may be lost."""


class Driver(Protocol):
    name: str

    def drive(self, node: Process, tally: Tally) -> None:
        """One round of traffic; adds to the tally what it must be counted as."""


class AmqpDriver:
    """Fan-out, unroutable, transient, rejected and acked messages."""

    name = "amqp"

    def drive(self, node: Process, tally: Tally) -> None:
        with node.amqp() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            self._declare(channel)
            for number in range(5):
                channel.basic_publish("news", "", b"to both %d" % number, PERSISTENT)
            tally["amqp", "publish", "store"] += 5
            tally["amqp", "route", "store"] += 10
            for _ in range(3):
                channel.basic_publish("", "nobody", b"unroutable")
            tally["amqp", "unroutable", "api"] += 3
            self._transient(channel, tally)
            self._settled(channel, tally)
            # Behind the acks in the log of the same queue: once it is confirmed, they are there.
            channel.basic_publish("", "am-work", b"barrier")
            tally["amqp", "publish", "store"] += 1
            tally["amqp", "route", "store"] += 1

    def _declare(self, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        channel.exchange_declare("news", "fanout", durable=True)
        for name in ("am-one", "am-two"):
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, "news")
        channel.queue_declare("am-dead", durable=True)
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "am-dead"}
        channel.queue_declare("am-work", durable=True, arguments=letters)

    def _transient(
        self, channel: pika.adapters.blocking_connection.BlockingChannel, tally: Tally
    ) -> None:
        own = channel.queue_declare("", exclusive=True).method.queue
        for _ in range(4):
            channel.basic_publish("", own, b"transient")
        tally["amqp", "publish", "api"] += 4
        channel.queue_bind(own, "news")
        channel.basic_publish("news", "", b"durable and transient", PERSISTENT)
        channel.queue_unbind(own, "news")
        tally["amqp", "publish", "store"] += 1
        tally["amqp", "route", "store"] += 2
        for method, _, _ in channel.consume(own, auto_ack=True, inactivity_timeout=5):
            assert method is not None
            tally["amqp", "deliver", "api"] += 1
            if method.delivery_tag == 5:
                break
        channel.cancel()

    def _settled(
        self, channel: pika.adapters.blocking_connection.BlockingChannel, tally: Tally
    ) -> None:
        for body in (b"good", b"bad", b"good too"):
            channel.basic_publish("", "am-work", body, PERSISTENT)
        tally["amqp", "publish", "store"] += 3
        tally["amqp", "route", "store"] += 3
        for _ in range(3):
            method, _, body = channel.basic_get("am-work")
            assert method is not None
            tally["amqp", "deliver", "api"] += 1
            if body == b"bad":
                channel.basic_reject(method.delivery_tag, requeue=False)
                tally["internal", "route", "store"] += 1
            else:
                channel.basic_ack(method.delivery_tag)
                tally["amqp", "ack", "store"] += 1


class SqsDriver:
    """Batches, large messages, a duplicate, receives with and without messages, deletions."""

    name = "sqs"

    def drive(self, node: Process, tally: Tally) -> None:
        sqs = sqs_client(f"http://127.0.0.1:{node.listeners['sqs.http']}")
        try:
            self._standard(sqs, tally)
            self._fifo(sqs, tally)
        finally:
            sqs.close()

    def _standard(self, sqs, tally: Tally) -> None:
        url = sqs.create_queue(QueueName="sqs-jobs")["QueueUrl"]
        entries = [{"Id": str(number), "MessageBody": f"job {number}"} for number in range(3)]
        assert len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 3
        sqs.send_message(QueueUrl=url, MessageBody="x" * 9_000)
        tally["sqs", "publish", "store"] += 4
        tally["sqs", "route", "store"] += 4
        while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            tally["sqs", "deliver", "store"] += len(messages)
            for message in messages:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                tally["sqs", "ack", "store"] += 1
        tally["sqs", "empty", "api"] += 1

    def _fifo(self, sqs, tally: Tally) -> None:
        url = sqs.create_queue(QueueName="sqs-order.fifo", Attributes={"FifoQueue": "true"})[
            "QueueUrl"
        ]
        identity = f"d{tally['sqs', 'publish', 'store']}"
        for _ in range(2):  # the second one is a duplicate
            sqs.send_message(
                QueueUrl=url,
                MessageBody="once",
                MessageGroupId="g",
                MessageDeduplicationId=identity,
            )
        tally["sqs", "publish", "store"] += 1
        tally["sqs", "route", "store"] += 1


class MqttDriver:
    """QoS 0 to a live subscriber, QoS 1 and 2 to a session that is away, and one to nobody."""

    name = "mqtt"

    def drive(self, node: Process, tally: Tally) -> None:
        away = MqttClient(node, "away", clean=False)
        away.subscribe("stored/+", 1)
        away.end()
        live, giver = MqttClient(node, "live"), MqttClient(node, "giver")
        live.subscribe("live/+", 0)
        for number in range(4):
            giver.publish(f"live/{number}", 0)
            live.take()
            tally["mqtt", "publish", "api"] += 1
            tally["mqtt", "deliver", "api"] += 1
        for number in range(4):
            giver.publish(f"stored/{number}", 2 if number == 3 else 1)
            tally["mqtt", "publish", "store"] += 1
            tally["mqtt", "route", "store"] += 1
        giver.publish("nobody/at/all", 1)
        tally["mqtt", "unroutable", "api"] += 1
        back = MqttClient(node, "away", clean=False)
        for _ in range(4):
            back.take()
            tally["mqtt", "deliver", "api"] += 1
            tally["mqtt", "ack", "store"] += 1
        for client in (back, giver, live):
            client.end()


class MqttClient:
    """paho, one step at a time."""

    def __init__(self, node: Process, name: str, *, clean: bool = True) -> None:
        self._events: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        version = paho.CallbackAPIVersion.VERSION2
        self._client = paho.Client(version, client_id=name, clean_session=clean)
        self._client.username_pw_set("guest", "guest")
        self._client.on_connect = lambda *_: self._events.put("connected")
        self._client.on_subscribe = lambda *_: self._events.put("subscribed")
        self._client.on_message = lambda _c, _u, message: self._messages.put(message.payload)
        self._client.connect("127.0.0.1", node.listeners["mqtt.tcp"])
        self._client.loop_start()
        assert self._events.get(timeout=ANSWER_S) == "connected"

    def subscribe(self, pattern: str, qos: int) -> None:
        self._client.subscribe(pattern, qos)
        assert self._events.get(timeout=ANSWER_S) == "subscribed"

    def publish(self, name: str, qos: int, body: str = "x" * 10) -> None:
        self._client.publish(name, body, qos).wait_for_publish(ANSWER_S)

    def take(self) -> bytes:
        return self._messages.get(timeout=ANSWER_S)

    def end(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class RocketmqDriver:
    """Sends, receives and acks."""

    name = "rocketmq"

    def drive(self, node: Process, tally: Tally) -> None:
        # gRPC's stubs live beside the tests of the adapter, and cost 12 MB.
        from tests.adapters.rocketmq.support import Wire, message, resource, service_pb2

        for name, kind in (("rmq-orders", "normal"), ("rmq-deals", "transaction")):
            made = node.api("POST", "/topics", {"name": name, "type": kind})
            assert made.status in (200, 201, 409), made.body
        wire = Wire(f"127.0.0.1:{node.listeners['rocketmq.grpc']}")
        try:
            # Makes the group, which begins at the end of the topic.
            wire.receive("rmq-orders", "workers")
            tally["rocketmq", "empty", "api"] += 1
            for number in range(3):
                sent = wire.send(message("rmq-orders", b"order %d" % number))
                assert sent.status.code == 20_000, sent.status
            tally["rocketmq", "publish", "store"] += 3
            tally["rocketmq", "route", "store"] += 3
            for resolution in (1, 2):  # commit, rollback
                (entry,) = wire.send(message("rmq-deals", message_type=4)).entries
                ended = service_pb2.EndTransactionRequest(
                    topic=resource("rmq-deals"),
                    transaction_id=entry.transaction_id,
                    resolution=resolution,
                )
                assert wire.call("EndTransaction", ended).status.code == 20_000
            tally["rocketmq", "publish", "store"] += 1
            tally["rocketmq", "route", "store"] += 1
            left = 3
            while left:
                received = wire.receive("rmq-orders", "workers", wait_s=5)
                assert received.handles
                for handle in received.handles:
                    wire.ack("rmq-orders", "workers", handle)
                    tally["rocketmq", "deliver", "store"] += 1
                    tally["rocketmq", "ack", "store"] += 1
                    left -= 1
        finally:
            wire.close()


PERSISTENT = pika.BasicProperties(delivery_mode=2)

ANSWER_S = 20

DRIVERS: tuple[Callable[[], Driver], ...] = (AmqpDriver, SqsDriver, MqttDriver, RocketmqDriver)
