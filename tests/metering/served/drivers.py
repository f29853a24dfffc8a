"""One driver a protocol: sends real traffic, and says what must be counted of it.

A new protocol joins by a class with a `name` and a `drive`, in DRIVERS; the tests ask for nothing
else. `drive` is called twice, with a crash in between, and must leave nothing without an answer:
what was answered is what the bill is held to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import boto3
import pika
from botocore.config import Config

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
    """Fan-out, unroutable, volatile, rejected and acked messages."""

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
            self._volatile(channel, tally)
            self._settled(channel, tally)
            # Behind the acks in the log of the same queue: once it is confirmed, they are there.
            channel.basic_publish("", "am-work", b"barrier")
            tally["amqp", "publish", "store"] += 1
            tally["amqp", "route", "store"] += 1

    def _declare(self, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        channel.exchange_declare("news", "fanout", durable=True)
        for queue in ("am-one", "am-two"):
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "news")
        channel.queue_declare("am-dead", durable=True)
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "am-dead"}
        channel.queue_declare("am-work", durable=True, arguments=letters)

    def _volatile(
        self, channel: pika.adapters.blocking_connection.BlockingChannel, tally: Tally
    ) -> None:
        own = channel.queue_declare("", exclusive=True).method.queue
        for _ in range(4):
            channel.basic_publish("", own, b"transient")
        tally["amqp", "publish", "api"] += 4
        channel.queue_bind(own, "news")
        channel.basic_publish("news", "", b"durable and volatile", PERSISTENT)
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
        sqs = boto3.client(
            "sqs",
            endpoint_url=f"http://127.0.0.1:{node.listeners['sqs.http']}",
            region_name="eu-central-1",
            aws_access_key_id="weir",
            aws_secret_access_key="weir-secret",
            config=Config(retries={"max_attempts": 0}),
        )
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


PERSISTENT = pika.BasicProperties(delivery_mode=2)

DRIVERS: tuple[Callable[[], Driver], ...] = (AmqpDriver, SqsDriver)
