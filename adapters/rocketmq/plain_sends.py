"""SendMessage requests of plain messages, taken apart without looking at every field.

Most messages are plain: a body, an id, and what every client says of itself. Reading these by
slices costs a third of what parsing, asking for each field and encoding it again costs. A request
in which any message is not plain, or holds anything besides, is left to `stored`, which also finds
the error in it.

    message = topic  system  body           the same topic in all messages of a request
    topic   = 12 len name                   no namespace
    system  = 1a len id  tail
    tail    = 28 01  30 01  [3a len time]  [42 len host]        IDENTITY, NORMAL

All `len` here are of one byte. What a tail says is checked by the generated code once: the messages
of some seconds have the same. That nothing stands besides shows in the sum of the lengths.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from google.protobuf.message import DecodeError

from adapters.base import Origin
from kernel.message import VERSION, Ext, Flag

from .settings import MESSAGE_ID_CHARACTERS_MAX, TAILS_KEPT_MAX
from .stubs import parse_system_properties, raw_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel.client import Destinations, PublishBatch

HEADER: Final = struct.Struct("<4sIIIQQQ32s")
"""`kernel.message.HEADER` with its beginning and end as bytes. A test holds the two equal."""
_START: Final = bytes((VERSION, Origin.ROCKETMQ, 0, Flag.PERSISTENT))
_END: Final = bytes(32)
_NO_PROPERTIES: Final = bytes(4)
"""The length of an empty first part of the native block, see `stored`."""
_EXT: Final = struct.Struct("<BI")
_BEFORE_ID: Final = tuple(
    _EXT.pack(Ext.MESSAGE_ID, length) for length in range(MESSAGE_ID_CHARACTERS_MAX + 1)
)
"""Head of the ext block, by the length of the message id that is all of it."""
_TAIL_START: Final = b"\x28\x01\x30\x01"
_TAIL_FIELDS: Final = (0x3A, 0x42)
_ONE_BYTE: Final = 0x80
"""Lengths below it take one byte."""


class PlainSends(NamedTuple):
    """The messages of one request: columns of equal length."""

    topic: str
    idents: Sequence[bytes]
    systems: Sequence[bytes]
    """System properties as they came."""
    bodies: Sequence[bytes]
    body_bytes_max: int
    """Of the largest body. None is empty."""

    def add(self, batch: PublishBatch, to: Destinations, now_ms: int) -> None:
        """Add the messages to a batch (hot)."""
        pack, start, end = HEADER.pack, _START, _END
        uid, add = batch.uid, batch.add
        for ident, system, body in zip(self.idents, self.systems, self.bodies, strict=True):
            size = len(body)
            length = len(ident)
            high, low = uid()
            head = b"".join(
                (
                    pack(start, size, len(system) + 4, length + 5, high, low, now_ms, end),
                    _BEFORE_ID[length],
                    ident,
                    _NO_PROPERTIES,
                    system,
                )
            )
            add(to, (head, body), len(head) + size)


class Splitter:
    """Reads requests. Belongs to the event loop."""

    def __init__(self) -> None:
        self._tails: set[bytes] = set()

    def split(self, data: bytes) -> PlainSends | None:
        """The messages of a request; None: it is for somebody more careful (hot)."""
        try:
            return self._split(data)
        except (DecodeError, IndexError, UnicodeDecodeError):
            return None

    def _split(self, data: bytes) -> PlainSends | None:
        known = self._tails
        idents: list[bytes] = []
        systems: list[bytes] = []
        bodies: list[bytes] = []
        topic: bytes | None = None
        total = body_max = last_size = last_length = last_total = 0
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
                body_max = max(body_max, size)
            total += last_total
            idents.append(ident)
            systems.append(system)
            bodies.append(body)
        name = _name_in(topic) if topic is not None else None
        if name is None or total != len(data):
            return None
        return PlainSends(name, idents, systems, bodies, body_max)

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
