"""What two gateways say of a consumer at one of them of a transient topic in the other.

    gateway of the consumer                    gateway of the topic
      ATTACH (number, queue, spec)      ---->  answer: nothing
      PULL (number, queue, messages)    ---->  answer: columns of messages, and how many are left
      STEER (number, what, messages)    ---->  more credit, cancel, or its session is over
      SETTLE (number, how, offsets)     ---->  answer, if called: offsets that it does not hold
             <----  HANDED_OVER: messages for a consumer
             <----  GONE: a consumer has ended

All of it goes in one lane of one connection, so in order. When that breaks, the consumer ends, and
what it held returns.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...api.client import Settlement
from ...api.model import Reason
from ...common.errors import KernelError, error_named
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_numbers import U8, U32, U64, Name
from ..leader_calls.call_wire import WireError, message_of, split
from .mesh_wire import encode

ATTACH = calls.MESH[11]
PULL = calls.MESH[12]
STEER = calls.MESH[13]
SETTLE = calls.MESH[14]
HANDED_OVER = calls.MESH[15]
"""Method of GONE as well: one that has no messages."""

CREDIT = 0
CANCEL = 1
OVER = 2
"""What a STEER says."""


class Attach(msgspec.Struct, frozen=True, array_like=True):
    """An ATTACH asks for a consumer of a queue, with its `client.ConsumerSpec`."""

    number: U64
    queue: U64
    group: Name
    priority: int
    exclusive: bool
    auto_ack: bool
    origin: U8


class Pull(msgspec.Struct, frozen=True, array_like=True):
    """A PULL asks for messages, and says how long it may wait for them."""

    number: U64
    queue: U64
    group: Name
    messages: U32
    wait_ms: U32
    origin: U8


class Steer(msgspec.Struct, frozen=True, array_like=True):
    """A STEER gives a consumer credit, or ends it: `what`."""

    number: U64
    what: U8
    messages: int


class Settle(msgspec.Struct, frozen=True, array_like=True):
    """A SETTLE says what becomes of messages that a consumer holds."""

    number: U64
    how: Settlement
    offsets: list[U64]
    reason: Reason


class HandedOver(msgspec.Struct, frozen=True, array_like=True):
    """Head of a HANDED_OVER, and of the answer of a PULL; bodies: the slots."""

    number: U64
    offsets: list[U64]
    attempts: list[U32] | None
    lengths: list[U32]
    ready: U64 = 0
    code: str = ""
    message: str = ""
    """Of a GONE."""


attaches = msgspec.msgpack.Decoder(Attach)
pulls = msgspec.msgpack.Decoder(Pull)
steers = msgspec.msgpack.Decoder(Steer)
settles = msgspec.msgpack.Decoder(Settle)
strangers = msgspec.msgpack.Decoder(list[U64])
_handed_over = msgspec.msgpack.Decoder(HandedOver)

__all__ = ["encode"]


def encode_handed_over(
    number: int,
    offsets: Sequence[int],
    attempts: Sequence[int] | None,
    slots: Sequence[bytes],
    ready: int = 0,
) -> list[bytes]:
    """A HANDED_OVER, or the answer of a PULL."""
    counts = None if attempts is None else list(attempts)
    return message_of(
        HandedOver(number, list(offsets), counts, list(map(len, slots)), ready), *slots
    )


def encode_gone(number: int, error: KernelError) -> list[bytes]:
    """A GONE."""
    return message_of(HandedOver(number, [], None, [], 0, error.code.wire, error.message))


def decode_handed_over(payload: bytes) -> tuple[HandedOver, list[bytes]]:
    """A HANDED_OVER or GONE, or the answer of a PULL, and its slots. Raises WireError."""
    head, reader = split(payload, _handed_over)
    count = len(head.offsets)
    if len(head.lengths) != count or (head.attempts is not None and len(head.attempts) != count):
        raise WireError("columns of different lengths")
    slots = reader.take_each(head.lengths)
    reader.end()
    return head, slots


def gone_of(head: HandedOver) -> KernelError | None:
    """Why a consumer has ended, if this is a GONE."""
    if not head.code:
        return None
    return error_named(head.code, head.message)
