"""SendMessage requests of plain messages, taken apart without looking at every field.

Most messages are plain: a body, an id, and what every client says of itself. Reading these by
slices costs a third of what parsing, asking for each field and encoding it again costs. A request
in which any message is not plain, or holds anything besides, is left to `stored`, which also finds
the error in it.

    message = 0a len  topic  system  body   the same topic in all messages of a request
    topic   = 0a len  12 len name           no namespace
    system  = 1a len  1a len id  tail
    tail    = 28 01  30 01  [3a len time]  [42 len host]        IDENTITY, NORMAL
    body    = 22 len  bytes

All `len` here are of one byte, but for those of message and body. What a tail says is checked by
the generated code once: the messages of some seconds have the same. That nothing stands besides
shows in the sum of the lengths.

Messages of one size, sent together, differ in id and body only. Such a request is cut into columns
by one call of `struct`, and compared with its first message, at a fifth of the cost.
"""

from __future__ import annotations

import operator
import struct
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from google.protobuf.message import DecodeError

from adapters.rocketmq.origin import ORIGIN_BYTE
from kernel.api.message import VERSION, Ext, Flag

from ..settings import MESSAGE_ID_CHARACTERS_MAX, TAILS_KEPT_MAX
from .stubs import parse_system_properties, raw_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel.api.client import Destinations, PublishBatch

HEADER: Final = struct.Struct("<4sIIIQQQ32s")
"""`kernel.api.message.HEADER` with its beginning and end as bytes. A test holds the two equal."""
_START: Final = bytes((VERSION, ORIGIN_BYTE, 0, Flag.PERSISTENT))
_END: Final = bytes(32)
_NO_PROPERTIES: Final = bytes(4)
"""The length of an empty first part of the native block, see `stored`."""
_EXT: Final = struct.Struct("<BI")
_BEFORE_ID: Final = tuple(
    _END + _EXT.pack(Ext.MESSAGE_ID, length) for length in range(MESSAGE_ID_CHARACTERS_MAX + 1)
)
"""End of the header, and head of an ext block that is a message id alone, by its length."""
_BEFORE_PROPERTIES: Final = tuple(
    _NO_PROPERTIES + bytes((0x1A, length)) for length in range(MESSAGE_ID_CHARACTERS_MAX + 1)
)
"""What stands between the id in the ext block and the id in the native block."""
_TAIL_START: Final = b"\x28\x01\x30\x01"
_TAIL_FIELDS: Final = (0x3A, 0x42)
_ONE_BYTE: Final = 0x80
"""Lengths below it take one byte."""


@lru_cache(maxsize=256)
def _layout(ident: int, tail: int) -> struct.Struct:
    """Everything of a slot before its body, with an id and a tail of these lengths."""
    return struct.Struct(f"<4sIIIQQQ{len(_BEFORE_ID[0])}s{ident}s6s{ident}s{tail}s")


class PlainSends(NamedTuple):
    """The messages of one request: columns of equal length."""

    topic: str
    idents: Sequence[bytes]
    tails: Sequence[bytes]
    """Ends of the system properties. One alone: all messages have it."""
    bodies: Sequence[bytes]
    sizes: Sequence[int]
    """Lengths of the bodies. None is empty."""

    @property
    def properties_bytes(self) -> int:
        """Of all messages: about as much as is stored of each beside its body."""
        tails = sum(map(len, self.tails))
        if len(self.tails) == 1:
            tails *= len(self.idents)
        return sum(map(len, self.idents)) + tails

    def add(self, batch: PublishBatch, to: Destinations, now_ms: int) -> None:
        """Add the messages to a batch (hot)."""
        idents, tails, sizes = self.idents, self.tails, self.sizes
        count = len(idents)
        high, low = batch.uids(count)
        if count == 1:
            head = _head(idents[0], tails[0], sizes[0], high, low, now_ms)
            batch.add(to, (head, self.bodies[0]), len(head) + sizes[0])
            return
        lows = range(low, low + count)
        if len(tails) == 1:
            length = len(idents[0])
            layout = _layout(length, len(tails[0]))
            native = layout.size - HEADER.size - _EXT.size - length
            heads = list(
                map(
                    layout.pack,
                    repeat(_START),
                    sizes,
                    repeat(native),
                    repeat(length + _EXT.size),
                    repeat(high),
                    lows,
                    repeat(now_ms),
                    repeat(_BEFORE_ID[length]),
                    idents,
                    repeat(_BEFORE_PROPERTIES[length]),
                    idents,
                    repeat(tails[0]),
                )
            )
            slot_sizes = [layout.size + size for size in sizes]
        else:
            heads = list(map(_head, idents, tails, sizes, repeat(high), lows, repeat(now_ms)))
            slot_sizes = list(map(operator.add, map(len, heads), sizes))
        batch.add_alike(to, heads, self.bodies, slot_sizes)


def _head(ident: bytes, tail: bytes, size: int, high: int, low: int, now_ms: int) -> bytes:
    """Everything of one slot before its body."""
    length = len(ident)
    layout = _layout(length, len(tail))
    native = layout.size - HEADER.size - _EXT.size - length
    return layout.pack(
        _START,
        size,
        native,
        length + _EXT.size,
        high,
        low,
        now_ms,
        _BEFORE_ID[length],
        ident,
        _BEFORE_PROPERTIES[length],
        ident,
        tail,
    )


class Splitter:
    """Reads requests. Belongs to the event loop."""

    def __init__(self) -> None:
        self._tails: set[bytes] = set()

    def split(self, data: bytes) -> PlainSends | None:
        """The messages of a request; None: it is for somebody more careful (hot)."""
        try:
            return self._split_alike(data) or self._split(data)
        except (DecodeError, IndexError, UnicodeDecodeError):
            return None

    def _split_alike(self, data: bytes) -> PlainSends | None:
        """A request of messages of one size, from one client; None if it is another one."""
        if data[0] != 0x0A:
            return None
        size, topic_at = _varint(data, 1)
        stride = topic_at + size
        system_at = topic_at + 2 + data[topic_at + 1]
        ident_at, length = system_at + 4, data[system_at + 3]
        tail_at, body_at = ident_at + length, system_at + 2 + data[system_at + 1]
        size, start = _varint(data, body_at + 1)
        count, rest = divmod(len(data), stride)
        if (
            rest
            or not size
            or start + size != stride
            or not system_at < tail_at <= body_at
            or (data[topic_at], data[system_at], data[body_at]) != (0x0A, 0x1A, 0x22)
            or data[system_at + 2] != 0x1A
            or (data[topic_at + 1] | data[system_at + 1] | length) >= _ONE_BYTE
        ):
            return None
        name = _name_in(data[topic_at + 2 : system_at])
        tail = data[tail_at:body_at]
        if name is None or (tail not in self._tails and not self._learn(tail)):
            return None
        if count == 1:
            ident = data[ident_at:tail_at]
            one = PlainSends(name, (ident,), (tail,), (data[start:],), (size,))
            return one if ident.isalnum() else None
        columns = struct.iter_unpack(f"{ident_at}s{length}s{start - tail_at}s{size}s", data)
        before, idents, between, bodies = zip(*columns, strict=True)
        if (
            before.count(before[0]) != count
            or between.count(between[0]) != count
            or not length
            or not b"".join(idents).isalnum()
        ):
            return None
        return PlainSends(name, idents, (tail,), bodies, (size,) * count)

    def _split(self, data: bytes) -> PlainSends | None:
        known = self._tails
        idents: list[bytes] = []
        tails: list[bytes] = []
        bodies: list[bytes] = []
        sizes: list[int] = []
        topic: bytes | None = None
        total = last_size = last_length = last_total = 0
        for message in raw_messages(data):
            system, body = message.system, message.body
            if topic is None:
                topic = message.topic
            elif message.topic != topic:
                return None
            end = 2 + system[1]
            ident, tail = system[2:end], system[end:]
            if (
                system[0] != 0x1A
                or not ident.isalnum()
                or not body
                or (tail not in known and not self._learn(tail))
            ):
                return None
            size, length = len(body), len(system)
            if size != last_size or length != last_length:
                # What these fields alone take, in the shortest form.
                inner = 2 + len(topic) + 2 + length + 1 + _varint_bytes(size) + size
                last_total = 1 + _varint_bytes(inner) + inner
                last_size, last_length = size, length
            total += last_total
            idents.append(ident)
            tails.append(tail)
            bodies.append(body)
            sizes.append(size)
        name = _name_in(topic) if topic is not None else None
        # A sum that differs: a field besides, or a length in a longer form than it needs.
        if name is None or total != len(data):
            return None
        if len(set(tails)) == 1 and len(set(map(len, idents))) == 1:
            del tails[1:]
        return PlainSends(name, idents, tails, bodies, sizes)

    def _learn(self, tail: bytes) -> bool:
        """Whether system properties may end so; if so it is remembered."""
        if not tail.startswith(_TAIL_START):
            return False
        at, end = len(_TAIL_START), len(tail)
        for tag in _TAIL_FIELDS:
            if at + 1 < end and tail[at] == tag and tail[at + 1] < 0x80:
                at += 2 + tail[at + 1]
        if at != end:
            return False
        try:
            parse_system_properties(tail)
        except DecodeError:
            return False
        if len(self._tails) >= TAILS_KEPT_MAX:
            self._tails.clear()
        self._tails.add(tail)
        return True


def _name_in(topic: bytes) -> str | None:
    """The name in a topic; None if there is more in it, or less."""
    end = len(topic)
    is_name = 2 < end < _ONE_BYTE and topic[0] == 0x12 and topic[1] == end - 2
    return topic[2:].decode() if is_name else None


def _varint_bytes(value: int) -> int:
    """How long a varint is."""
    return (value.bit_length() + 6) // 7


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint of up to four bytes, and where it ends. Longer ones come out wrong."""
    value = data[at]
    if value < _ONE_BYTE:
        return value, at + 1
    value, shift = value & 0x7F, 7
    for end in range(at + 1, at + 4):
        byte = data[end]
        value |= (byte & 0x7F) << shift
        if byte < _ONE_BYTE:
            return value, end + 1
        shift += 7
    return 0, at + 1
