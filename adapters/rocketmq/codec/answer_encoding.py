"""Answers of apache.rocketmq.v2 as bytes: a protobuf writer, and every answer made with it.

    field = varint(number << 3 | wire type)  value
    wire type 0: varint        wire type 2: varint(length) bytes

Every answer of every call begins with its status as field 1, so that one refusal serves all calls.
proto3 leaves out what has its default value; where one message is appended to another (`delivered`)
defaults are written, because the last value of a field counts. Tests read all of it back with the
generated code.
"""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, Final, NamedTuple

from ..errors import Code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..errors import RocketmqError

_SHORT: Final = tuple(bytes((value,)) for value in range(0x80))
"""Varints of one byte."""
_LOW: Final = tuple(bytes((value | 0x80,)) for value in range(0x80))
"""First bytes of longer ones."""


def varint(value: int) -> bytes:
    """A number from 0 on (negative ones take ten bytes and never occur here)."""
    if value < 0x80:
        return _SHORT[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A field of type int32, int64, enum or bool; nothing for its default, 0."""
    return varint(field << 3) + varint(value) if value else b""


def block(field: int, data: bytes) -> bytes:
    """A field of type bytes or of a message type; also an empty one is written."""
    return varint(field << 3 | 2) + varint(len(data)) + data


def text(field: int, value: str) -> bytes:
    """A field of type string; nothing for its default. What UTF-8 cannot spell becomes `?`."""
    return block(field, value.encode("utf-8", "replace")) if value else b""


def moment(field: int, time_ms: int) -> bytes:
    """A Timestamp or Duration. Both its numbers are written (see above)."""
    seconds, rest_ms = divmod(time_ms, 1000)
    return block(field, b"\x08" + varint(seconds) + b"\x10" + varint(rest_ms * 1_000_000))


# --- Status -------------------------------------------------------------------------------------


def status(code: Code, message: str = "", field: int = 1) -> bytes:
    """The first field of any answer."""
    return block(field, number(1, code) + text(2, message))


OK: Final = status(Code.OK, "OK")
_ACKED: Final = status(Code.OK, "OK", 3)
_MULTIPLE: Final = status(Code.MULTIPLE_RESULTS, "see the results of the entries")
NOTHING_RECEIVED: Final = status(Code.MESSAGE_NOT_FOUND, "no message came in time")


def refusal(error: RocketmqError) -> bytes:
    """An answer that holds nothing but why the request is refused."""
    return status(error.code, error.message)


def common_status(errors: Sequence[RocketmqError | None]) -> bytes:
    """Status of an answer with entries: theirs if they have the same code, else
    MULTIPLE_RESULTS. Clients with one entry look at nothing else.
    """
    first = errors[0]
    code = first.code if first is not None else Code.OK
    if any((error.code if error is not None else Code.OK) != code for error in errors):
        return _MULTIPLE
    return OK if first is None else refusal(first)


# --- Routes -------------------------------------------------------------------------------------


class AnswerPlace(NamedTuple):
    """Where a client reaches the broker. `scheme`: 1 IPv4, 2 IPv6, 3 a name."""

    scheme: int
    addresses: tuple[tuple[str, int], ...]


class Name(NamedTuple):
    """A topic or group as the client spells it."""

    namespace: str
    name: str


READ: Final = 2
READ_WRITE: Final = 4
"""`enum Permission`."""


def resource(field: int, name: Name) -> bytes:
    """A Resource."""
    return block(field, text(1, name.namespace) + text(2, name.name))


def broker(name: str, place: AnswerPlace) -> bytes:
    """The broker of a queue. Its id is 0, the leader's: clients look for that one."""
    endpoints = number(1, place.scheme) + b"".join(
        block(2, text(1, host) + number(2, port)) for host, port in place.addresses
    )
    return block(4, text(1, name) + block(3, endpoints))


def queue(
    topic: Name, ident: int, server: bytes, accepts: Sequence[int], permission: int = READ_WRITE
) -> bytes:
    """A MessageQueue without its own field number. `ident` -1: any queue; `server`: `broker`."""
    shown = number(2, ident) if ident >= 0 else _ANY_QUEUE
    types = b"".join(map(varint, accepts))
    return resource(1, topic) + shown + number(3, permission) + server + block(5, types)


_ANY_QUEUE: Final = b"\x10" + b"\xff" * 9 + b"\x01"
"""Field 2, int32 -1."""


def route_answer(queues: Sequence[bytes]) -> bytes:
    """QueryRouteResponse of `queue`s."""
    return OK + b"".join(block(2, each) for each in queues)


def assignment_answer(queues: Sequence[bytes]) -> bytes:
    """QueryAssignmentResponse of `queue`s."""
    return OK + b"".join(block(2, block(1, each)) for each in queues)


def offset_answer(offset: int) -> bytes:
    """GetOffsetResponse, QueryOffsetResponse."""
    return OK + number(2, offset)


def next_offset(offset: int) -> bytes:
    """A PullMessageResponse: where to go on. The field of a oneof is written, also if it is 0."""
    return b"\x18" + varint(offset)


# --- Results of entries -------------------------------------------------------------------------


def sent(message_id: bytes, offset: int) -> bytes:
    """An entry of SendMessageResponse: stored, at an offset of its queue (-1: not known)."""
    return block(2, OK + block(2, message_id) + number(4, max(offset, 0)))


def sent_delayed(message_id: bytes, offset: int, handle: bytes) -> bytes:
    """The same of a delayed message; `handle`: to recall it."""
    return block(2, OK + block(2, message_id) + number(4, max(offset, 0)) + block(5, handle))


def sent_in_a_row(message_ids: Sequence[bytes], first: int) -> bytes:
    """The same of messages that lie side by side, from an offset on (hot)."""
    count, length = len(message_ids), len(message_ids[0])
    if len(set(map(len, message_ids))) > 1:
        return b"".join(map(sent, message_ids, range(first, first + count)))
    start = OK + _MESSAGE_ID + varint(length)
    out: list[bytes] = []
    at = 0
    while at < count:
        # Of the entries whose offsets have one high part, only id and low part differ.
        high, low = divmod(first + at, len(_LOW))
        rest = varint(high) if high else b""
        head = _ENTRY + varint(len(start) + length + 2 + len(rest)) + start
        lows = (_OFFSET_LOW if high else _OFFSET_SHORT)[low : low + count - at]
        out += (head, (rest + head).join(map(add, message_ids[at:], lows)), rest)
        at += len(lows)
    return b"".join(out)


_ENTRY: Final = b"\x12"
_MESSAGE_ID: Final = b"\x12"
_OFFSET_SHORT: Final = tuple(b"\x20" + value for value in _SHORT)
"""Field 4, an offset of one byte."""
_OFFSET_LOW: Final = tuple(b"\x20" + value for value in _LOW)
"""Its beginning, if it is longer."""


def prepared(message_id: bytes, transaction_id: str) -> bytes:
    """An entry of SendMessageResponse: stored, to be committed or rolled back."""
    return block(2, OK + block(2, message_id) + text(3, transaction_id))


def not_sent(message_id: bytes, error: RocketmqError) -> bytes:
    """An entry of SendMessageResponse: refused."""
    return block(2, refusal(error) + block(2, message_id))


def acked(message_id: str, handle: str, error: RocketmqError | None) -> bytes:
    """An entry of AckMessageResponse."""
    result = _ACKED if error is None else status(error.code, error.message, 3)
    return block(2, text(1, message_id) + text(2, handle) + result)


def changed_answer(handle: str) -> bytes:
    """A ChangeInvisibleDurationResponse with the receipt handle that counts from now on."""
    return OK + text(2, handle)


# --- Telemetry ----------------------------------------------------------------------------------


def transaction_check(message: bytes, transaction_id: str) -> bytes:
    """TelemetryCommand with a RecoverOrphanedTransactionCommand: what became of this message?"""
    return block(5, block(1, message) + text(2, transaction_id))


RECONNECT: Final = block(8, b"")
"""TelemetryCommand with a ReconnectEndpointsCommand: connect anew."""
