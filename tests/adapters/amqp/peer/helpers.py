"""What several scenarios do on their way."""

from __future__ import annotations

import time
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

Arguments = dict[str, Any]
"""Of a queue, an exchange or a binding."""


def held(channel: BlockingChannel, queue: str, count: int) -> list[int]:
    """Delivery tags of `count` messages that are got and not settled."""
    tags = []
    while len(tags) < count:
        method, _, _ = channel.basic_get(queue)
        if method is None:
            time.sleep(0.01)
        else:
            tags.append(method.delivery_tag)
    return tags


def fill(channel: BlockingChannel, queue: str, *bodies: str, **properties: Any) -> None:
    """Publish to a queue and wait for the confirms."""
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish("", queue, body.encode(), pika.BasicProperties(**properties))
