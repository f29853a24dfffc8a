"""Names and keys: how AMQP spells them, and how the kernel does.

Rules:

1. A queue is the kernel topic of its name, an exchange the router of its name; '' is no router: it
   publishes straight to a topic.
2. Every routing and binding key is given to routers in the kernel's spelling, whatever the type of
   the exchange: `.` and `/` change places, and so do `*` and `+`; `#` stays. One rule for all types
   keeps dead-letter keys right, since the type of a dead-letter exchange may change after the
   queue was declared. The exchange of characters undoes itself, so no key is lost by it. The one
   exception is the exchange `weir.topics`, whose keys are names of topics (`router_key`).
3. A virtual host is a tenant: `/` the tenant `default`, another one the tenant that is known by its
   name (`AmqpSettings.virtual_hosts`).
"""

from __future__ import annotations

import base64
from typing import Final

from adapters.amqp.errors import (
    ACCESS_REFUSED,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
    AmqpError,
)
from adapters.amqp.limits import SHORT_STRING_BYTES_MAX
from kernel.api.model import TOPICS_ROUTER
from kernel.common.limits import RESERVED_PREFIXES

DEFAULT_VIRTUAL_HOST: Final = "/"

PREDECLARED: Final[dict[str, str]] = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}
"""Exchanges that every virtual host has, and nobody can declare anew or delete."""

TREE: Final = "amq.topic"
"""The exchange that shares its names with the topic tree (docs/design/model.md#the-topic-tree)."""

DIRECT_REPLY_TO: Final = "amq.rabbitmq.reply-to"
"""RabbitMQ's pseudo-queue for answers (`direct_reply`)."""

REPLY_ADDRESSES: Final = DIRECT_REPLY_TO + "."
"""How the names begin that stand for one consumer of it."""

_TO_KERNEL: Final = str.maketrans("./*+", "/.+*")


def kernel_key(key: str) -> str:
    """A routing or binding key in the kernel's spelling. Octets that are not UTF-8 are replaced:
    they can match no binding.
    """
    swapped = key.translate(_TO_KERNEL)
    if not swapped.isascii():
        swapped = swapped.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return swapped


def router_key(exchange: str, key: str) -> str:
    """The key given to an exchange's router: for `weir.topics`, whose keys are names of topics, as
    it is.
    """
    return amqp_key(kernel_key(key)) if exchange == TOPICS_ROUTER else kernel_key(key)


def amqp_key(key: str) -> str:
    """A key of the kernel in AMQP's spelling: the inverse of `kernel_key`."""
    return key.translate(_TO_KERNEL)


def check_name(name: str, what: str) -> str:
    """A name as RabbitMQ takes it: CR and LF removed. Raises AmqpError 406 if it is not UTF-8."""
    cleaned = name.replace("\r", "").replace("\n", "")
    try:
        size = len(cleaned.encode())
    except UnicodeEncodeError:
        raise AmqpError(PRECONDITION_FAILED, f"the name of a {what} must be UTF-8") from None
    if size > SHORT_STRING_BYTES_MAX:
        raise AmqpError(
            PRECONDITION_FAILED, f"the name of a {what} has over {SHORT_STRING_BYTES_MAX} bytes"
        )
    return cleaned


def check_new_name(name: str, what: str) -> None:
    """Refuse to create what belongs to the server. Raises AmqpError 403."""
    for prefix in RESERVED_PREFIXES:
        if name.startswith(prefix):
            raise AmqpError(
                ACCESS_REFUSED, f"{what} name '{name}' contains reserved prefix '{prefix}*'"
            )


def generated_queue_name(bits: int) -> str:
    """A server-named queue from 128 random bits."""
    return "amq.gen-" + _compact(bits)


def generated_consumer_tag(bits: int) -> str:
    """A server-named consumer tag from 128 random bits."""
    return "amq.ctag-" + _compact(bits)


def generated_reply_address(bits: int) -> str:
    """Where a direct reply is sent, from 128 random bits."""
    return REPLY_ADDRESSES + _compact(bits)


def is_reply_address(name: str) -> bool:
    """Whether a name stands for somebody who waits for direct replies, or did."""
    return name.startswith(REPLY_ADDRESSES)


def _compact(bits: int) -> str:
    return base64.urlsafe_b64encode(bits.to_bytes(16, "big")).decode().rstrip("=")


def resource(kind: str, name: str, virtual_host: str) -> str:
    """A thing as RabbitMQ names it in error texts: queue 'q' in vhost '/'."""
    return f"{kind} '{name}' in vhost '{virtual_host}'"


def locked(name: str, virtual_host: str) -> AmqpError:
    """RabbitMQ's text for an exclusive queue."""
    return AmqpError(
        RESOURCE_LOCKED,
        f"cannot obtain exclusive access to locked {resource('queue', name, virtual_host)}. "
        "It could be originally declared on another connection or the exclusive property value "
        "does not match that of the original declaration.",
    )
