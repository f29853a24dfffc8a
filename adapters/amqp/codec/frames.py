"""Frames: the envelopes of AMQP 0-9-1 (section 2.3.5), and the frames that need no method codec.

    type:u8  channel:u16  size:u32 | payload of `size` octets | 0xCE

    1 method     class-id:u16 method-id:u16 arguments                      (methods.py)
    2 header     class-id:u16 weight:u16 body-size:u64 property block      (properties.py)
    3 body       the octets themselves
    8 heartbeat  empty, on channel 0

A message is a method frame, a header frame and, unless its body is empty, body frames that add up
to body-size. `scan` walks over complete frames; the connection's own loop does the same inline,
because one call a frame is what it can least afford.

Malformed envelopes raise `AmqpError` 501 FRAME_ERROR.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from adapters.amqp.errors import FRAME_ERROR, AmqpError

if TYPE_CHECKING:
    from collections.abc import Iterator

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
# The header of 0-9 proper; RabbitMQ answers it with connection.start as well, and so do we.
PROTOCOL_HEADER_0_9: Final = b"AMQP\x01\x01\x00\x09"

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
FRAME_TYPES: Final = frozenset({FRAME_METHOD, FRAME_HEADER, FRAME_BODY, FRAME_HEARTBEAT})

ENVELOPE_BYTES: Final = 8
"""Octets of a frame beside its payload."""
HEAD_BYTES: Final = 7
"""Octets of a frame before its payload."""
CONTENT_HEAD_BYTES: Final = 12
"""Octets of a header frame's payload before the property block."""

HEAD: Final = struct.Struct(">BHI")
CONTENT_HEAD: Final = struct.Struct(">HHQ")
CONTENT_START: Final = struct.Struct(">BHIHHQ")
"""A header frame up to its property block."""
CLASS_BASIC: Final = 60

HEARTBEAT: Final = HEAD.pack(FRAME_HEARTBEAT, 0, 0) + b"\xce"
END: Final = b"\xce"


class Frame(NamedTuple):
    """A complete frame inside `data`: its payload is `data[start:end]`."""

    type: int
    channel: int
    start: int
    end: int


def scan(data: bytes, frame_max: int, offset: int = 0) -> Iterator[Frame]:
    """Complete frames of `data` from `offset`; what follows the last one is cut off.

    Raises AmqpError 501 for an unknown type, a payload longer than `frame_max` octets or a frame
    that does not end with 0xCE.
    """
    limit = len(data)
    while limit - offset >= HEAD_BYTES:
        kind, channel, size = HEAD.unpack_from(data, offset)
        check_head(kind, size, frame_max)
        start = offset + HEAD_BYTES
        end = start + size
        if end >= limit:
            return
        if data[end] != FRAME_END:
            raise bad_end(data[end])
        yield Frame(kind, channel, start, end)
        offset = end + 1


def check_head(kind: int, size: int, frame_max: int) -> None:
    """Refuse a frame by its first seven octets, before its payload has come.

    `frame_max` counts the envelope (spec 1.2.9), but some clients cut bodies as if it did not
    (amqpstorm, aiorabbit, aioamqp): as RabbitMQ does, take their frames, 8 octets longer.
    """
    if kind not in FRAME_TYPES:
        raise AmqpError(FRAME_ERROR, f"unknown frame type {kind}")
    if size > frame_max:
        raise AmqpError(
            FRAME_ERROR, f"a frame of {size + ENVELOPE_BYTES} octets, the limit is {frame_max}"
        )


def bad_end(octet: int) -> AmqpError:
    """The error for a frame whose last octet is not 0xCE."""
    return AmqpError(FRAME_ERROR, f"a frame ends with {octet:#04x}, not 0xce")


def encode_content(channel: int, properties: bytes, body: bytes, frame_max: int) -> list[bytes]:
    """Header frame and body frames of a message, to be sent behind its method.

    `frame_max` is the agreed frame size in octets, envelope included.
    """
    body_bytes = len(body)
    size = CONTENT_HEAD_BYTES + len(properties)
    frames = [
        CONTENT_START.pack(FRAME_HEADER, channel, size, CLASS_BASIC, 0, body_bytes),
        properties,
        END,
    ]
    room = frame_max - ENVELOPE_BYTES
    for start in range(0, body_bytes, room):
        piece = body[start : start + room]
        frames += (HEAD.pack(FRAME_BODY, channel, len(piece)), piece, END)
    return frames
