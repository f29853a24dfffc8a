"""What gateways and stores say to each other about pulls, as bytes.

PULL     gateway asks       `PullRequest`; answer: u32 bytes of the head | `Pulled` | slots
HEARD    gateway tells      msgpack of ([numbers taken], [numbers nobody wants])
UNHEARD  store tells        msgpack of [numbers answered before the connection broke]
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from ...broker.delivery.consumers import Handed
from ...common.ids import QUEUES_PER_TOPIC_MAX, QueueId
from ...common.limits import GROUP_NAME_BYTES_MAX
from ..filter_wire import Filter
from ..leader_calls.call_numbers import PULLS, U8, U16, U32, U64
from ..leader_calls.call_wire import WireError, decode
from .lost_leases import NUMBER_BITS

PULL = PULLS.start
HEARD = PULL + 1
UNHEARD = PULL + 2

NUMBERS_MAX = 65_536
"""Numbers in one HEARD or UNHEARD."""

_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
_Queues = Annotated[list[QueueId], Meta(min_length=1, max_length=QUEUES_PER_TOPIC_MAX)]
_Numbers = Annotated[list[U64], Meta(max_length=NUMBERS_MAX)]
_Milliseconds = Annotated[int, Meta(ge=0, lt=1 << 62)]


class PullRequest(msgspec.Struct, frozen=True, array_like=True):
    """A pull from the queues that a topic has in one Raft group."""

    number: Annotated[int, Meta(ge=0, lt=1 << NUMBER_BITS)]
    """Of the question, never used twice by a gateway's process; kept when it is asked again."""
    group: U16
    queues: _Queues
    name: Annotated[str, Meta(max_length=GROUP_NAME_BYTES_MAX)]
    messages: Annotated[int, Meta(ge=1, le=0xFFFF_FFFF)]
    wait_ms: U32
    lease_ms: _Milliseconds | None
    filter: Filter | None
    origin: U8
    fair: bool = False


class Pulled(msgspec.Struct, frozen=True, array_like=True):
    """What it brought, all from one queue; nothing: no offsets."""

    queue: U64
    lease: U64
    offsets: list[U64]
    attempts: list[U32] | None
    lengths: list[U32]
    ready: U64


_pull = msgspec.msgpack.Decoder(PullRequest)
_pulled = msgspec.msgpack.Decoder(Pulled)
_heard = msgspec.msgpack.Decoder(tuple[_Numbers, _Numbers])
_unheard = msgspec.msgpack.Decoder(_Numbers)


def encode_pull(pull: PullRequest) -> list[bytes]:
    """A PULL."""
    return [_encode(pull)]


def decode_pull(payload: bytes) -> PullRequest:
    """A PULL. Raises WireError."""
    return decode(_pull, payload)


def encode_pulled(handed: Handed | None, ready: int) -> list[bytes]:
    """Answer of PULL; `ready`: messages that are still there."""
    if handed is None:
        head, slots = _encode(Pulled(0, 0, [], None, [], ready)), []
    else:
        slots = handed.slots
        lengths = list(map(len, slots))
        columns = Pulled(
            handed.queue, handed.lease, handed.offsets, handed.attempts, lengths, ready
        )
        head = _encode(columns)
    return [_LENGTH.pack(len(head)) + head, *slots]


def decode_pulled(payload: bytes) -> tuple[Handed | None, int]:
    """Answer of PULL. Raises WireError."""
    if len(payload) < _LENGTH.size:
        raise WireError("no head")
    at = _LENGTH.size + _LENGTH.unpack_from(payload)[0]
    head = decode(_pulled, memoryview(payload)[_LENGTH.size : at])
    count = len(head.offsets)
    if len(head.lengths) != count or len(payload) != at + sum(head.lengths):
        raise WireError("the slots of a pull are cut off, or too many")
    if head.attempts is not None and len(head.attempts) != count:
        raise WireError("a pull with columns of different lengths")
    if not count:
        return None, head.ready
    slots: list[bytes] = []
    for length in head.lengths:
        slots.append(payload[at : at + length])
        at += length
    handed = Handed(QueueId(head.queue), head.offsets, slots, head.attempts)
    handed.lease = head.lease
    return handed, head.ready


def encode_heard(taken: Sequence[int], dropped: Sequence[int]) -> list[bytes]:
    """A HEARD."""
    return [_encode((taken, dropped))]


def decode_heard(payload: bytes) -> tuple[list[int], list[int]]:
    """A HEARD. Raises WireError."""
    return decode(_heard, payload)


def encode_unheard(numbers: Sequence[int]) -> list[bytes]:
    """An UNHEARD."""
    return [_encode(numbers)]


def decode_unheard(payload: bytes) -> list[int]:
    """An UNHEARD. Raises WireError."""
    return decode(_unheard, payload)
