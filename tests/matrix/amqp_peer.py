"""pika."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any, ClassVar

import pika

from tests.gateway.serving import Process
from tests.matrix.contract import Can, Got, Neutral

HEADERS = {"tag": "weir.tag", "ordering_key": "x-message-group-id"}
PROPERTIES = ("message_id", "content_type", "correlation_id", "reply_to")


class AmqpPeer:
    name = "amqp"
    can = Can.BINARY | Can.EMPTY | Can.ORDERING_KEY | Can.MESSAGE_ID | Can.NO_MESSAGE_ID | Can.DELAY
    values: ClassVar[dict[str, object]] = {
        "text": "grüße",
        "whole": 5,
        "decimal": Decimal("2.5"),
        "yes": True,
        "bytes": b"\x00\xff",
        "list": [1, "a"],
        "table": {"in": "side"},
    }

    def __init__(self, node: Process, home: str) -> None:
        self._connection = node.amqp()
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()

    def close(self) -> None:
        self._connection.close()

    def write(self, topic: str, message: Neutral, *, delay_s: int = 0) -> str | None:
        headers = dict(message.attributes)
        for field, header in HEADERS.items():
            if (given := getattr(message, field)) is not None:
                headers[header] = given
        if message.keys:
            headers["weir.keys"] = " ".join(sorted(message.keys))
        if delay_s:
            headers["x-delay"] = delay_s * 1000
        given = {name: getattr(message, name) for name in PROPERTIES}
        properties = pika.BasicProperties(delivery_mode=2, headers=headers or None, **given)
        self._channel.basic_publish("", topic, message.body, properties, mandatory=True)
        return message.message_id

    def _take(self, topic: str, seconds: float) -> tuple[Any, Any, bytes]:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            method, properties, body = self._channel.basic_get(topic)
            if method is not None:
                return method, properties, body
            time.sleep(0.02)
        raise AssertionError(f"nothing came over AMQP within {seconds} s")

    def read(self, topic: str, *, seconds: float = 10) -> Got:
        method, properties, body = self._take(topic, seconds)
        self._channel.basic_ack(method.delivery_tag)
        headers = dict(properties.headers or {})
        return Got(
            body=body,
            keys=frozenset(str(headers.pop("weir.keys", "")).split()),
            attempt=1 + method.redelivered,
            **{field: headers.pop(header, None) for field, header in HEADERS.items()},
            **{name: getattr(properties, name) for name in PROPERTIES},
            uid=properties.message_id,
            attributes=headers,
        )

    def refuse(self, topic: str, *, seconds: float = 10) -> None:
        method, _, _ = self._take(topic, seconds)
        self._channel.basic_nack(method.delivery_tag, requeue=True)

    def shows(self, value: object) -> object:
        # pika makes a whole number of every double.
        return int(value) if isinstance(value, float) else value
