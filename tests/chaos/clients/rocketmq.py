"""rocketmq-python-client, on a FIFO topic."""

from __future__ import annotations

import time
from typing import Any

from rocketmq import (
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    SimpleConsumer,
)

from tests.chaos.clients.port import ANSWER_SECONDS, POLL_SECONDS, Taken

INVISIBLE_SECONDS = 10
BATCH = 16


def configuration(ports: dict[str, int]) -> ClientConfiguration:
    return ClientConfiguration(
        f"127.0.0.1:{ports['rocketmq']}",
        Credentials("weir", "weir-secret"),
        request_timeout=int(ANSWER_SECONDS),
    )


class RocketmqPublisher:
    fifo = True

    def __init__(self, ports: dict[str, int], topic: str, lane: str) -> None:
        self.copies = 1
        self._topic = topic
        self._producer = Producer(configuration(ports), (topic,))
        self._producer.startup()
        # The library repeats by itself what fails; each may be stored.
        rpc = self._producer.rpc_client
        real = rpc.send_message_async

        def counted(*given: Any, **named: Any) -> Any:
            self.copies += 1
            return real(*given, **named)

        rpc.send_message_async = counted

    def send(self, ident: str, key: str) -> None:
        self.copies = 0
        message = Message()
        message.topic = self._topic
        message.body = ident.encode()
        if self.fifo:
            message.message_group = key
        self._producer.send(message)

    def close(self) -> None:
        self._producer.shutdown()


class RocketmqPlainPublisher(RocketmqPublisher):
    """Messages without a key: in whichever queue is next."""

    fifo = False


class RocketmqConsumer:
    def __init__(self, ports: dict[str, int], topic: str, lane: str) -> None:
        self._consumer = SimpleConsumer(
            configuration(ports),
            f"{lane}-group",
            {topic: FilterExpression("*")},
            await_duration=int(POLL_SECONDS),
        )
        self._consumer.startup()

    def take(self) -> list[Taken]:
        began = time.monotonic()
        found = self._consumer.receive(BATCH, INVISIBLE_SECONDS) or []
        at, until = time.monotonic(), began + INVISIBLE_SECONDS
        return [
            Taken(each.body.decode(), each.delivery_attempt > 1, at, each, until) for each in found
        ]

    def ack(self, taken: list[Taken]) -> bool:
        for each in taken:
            self._consumer.ack(each.handle)
        return True

    def close(self) -> None:
        self._consumer.shutdown()
