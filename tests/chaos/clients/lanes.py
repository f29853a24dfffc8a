"""The lanes: which library works on what, and what it is promised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.chaos.checker import Promise


@dataclass(frozen=True, slots=True)
class Lane:
    """See the package's head."""

    protocol: str
    publisher_name: str
    consumer_name: str
    promise: Promise
    topic: str
    topic_type: str = ""
    """Of a topic that the administrator makes; empty: the protocol makes it."""
    queues: int = 1
    """Of such a topic."""
    resizable: bool = False
    """Whether it may get more queues; else that is refused by design (docs/capacity.md)."""
    order: bool = False
    """Its group is ordered by key."""

    def _of(self, name: str) -> Any:
        # One library a process: each is imported by its own lane alone.
        from importlib import import_module

        return getattr(import_module(f"tests.chaos.clients.{self.protocol}"), name)

    @property
    def publisher(self) -> Any:
        return self._of(self.publisher_name)

    @property
    def consumer(self) -> Any:
        return self._of(self.consumer_name)


LANES = {
    "sqs": Lane(
        "sqs",
        "SqsPublisher",
        "SqsConsumer",
        Promise(stored_once=True, blocking=True),
        "chaos.fifo",
    ),
    "amqp": Lane(
        "amqp",
        "AmqpPublisher",
        "AmqpConsumer",
        Promise(late_returns=True),
        "chaos-amqp",
        "work",
        resizable=True,
    ),
    "tx": Lane(
        "amqp",
        "AmqpTxPublisher",
        "AmqpTxConsumer",
        Promise(late_returns=True),
        "chaos-tx",
        "work",
        resizable=True,
    ),
    "mqtt": Lane("mqtt", "MqttPublisher", "MqttConsumer", Promise(), "chaos/one"),
    "exact": Lane(
        "mqtt",
        "MqttExactPublisher",
        "MqttConsumer",
        Promise(stored_once=True, comes_once=True),
        "chaos/two",
    ),
    "rocketmq": Lane(
        "rocketmq",
        "RocketmqPublisher",
        "RocketmqConsumer",
        Promise(blocking=True),
        "chaos-rocketmq",
        "fifo",
    ),
    "groups": Lane(
        "sqs",
        "SqsPublisher",
        "SqsConsumer",
        Promise(stored_once=True, blocking=True),
        "chaos-groups.fifo",
        "work",
        queues=2,
        resizable=True,
        order=True,
    ),
    "plain": Lane(
        "rocketmq",
        "RocketmqPlainPublisher",
        "RocketmqConsumer",
        Promise(unordered=True),
        "chaos-plain",
        "work",
        resizable=True,
    ),
}

USUAL = ("sqs", "amqp", "tx", "mqtt", "exact", "rocketmq")
"""Those of a cluster that does not change: the others are what a topic of SQS (ids belong to a
message group) and of RocketMQ (a queue; FIFO topics are streams) has to be to be resized."""
