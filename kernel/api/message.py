"""The stored message: what a slot of the log holds, and how it is read.

    header (72 bytes, little-endian) | ext | native | body

    u8  version (1)     u8 origin       u8 priority     u8 flags
    u32 body length     u32 native length               u32 ext length
    u64 uid high        u64 uid low     u64 published (ms since the epoch, wall of the gateway)
    u64 ttl (ms, 0: none, 2^64-1: 0)    u64 delay (ms, 0: none)
    u64 ordering-key hash (0: no key)   u32 tag hash (0: no tag)        u32 age (s)

`origin` is an opaque byte that an adapter declares (docs/adapter.md lists them). `native` is
the writer's property block as the bytes that came: the same protocol reads back exactly what was
written. `ext` holds the kernel's own variable fields (`Ext`), each at most once, in ascending type
order: `u8 type | u32 length | bytes`. ttl and delay count from the log time at which the message
is appended; a ttl of 0 ms, at once or never, is spelled `TTL_AT_ONCE`. The age is 0 but for dead
letters: how long they had been stored before they came here.
Nothing here is parsed again on the way through the log.

The hot path calls `HEADER.pack` / `LENGTHS.unpack_from` directly; the functions below are for the
rest.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from hashlib import blake2b

HEADER = struct.Struct("<BBBBIIIQQQQQQII")
HEADER_BYTES = HEADER.size
UNIT_BYTES = 4_096
"""What a message is counted in: every begun 4 KiB of properties and body."""
SLOT_BYTES_SMALL = UNIT_BYTES + HEADER_BYTES
"""A slot up to so many bytes is one unit."""
LENGTHS = struct.Struct("<III")
LENGTHS_AT = 4
"""Where body, native and ext length stand in a header."""
VERSION = 1

UNIT_BYTES = 4_096
"""Messages are billed in units of so many bytes behind the header, at least one."""
SLOT_BYTES_SMALL = UNIT_BYTES + HEADER_BYTES
"""A slot up to so many bytes is one unit."""

BODY_BYTES_MAX = 16 * 1024 * 1024
"""Largest body: a hard limit (docs/design/model.md#the-stored-message); a topic may set less."""
TTL_AT_ONCE = (1 << 64) - 1
"""How a header spells a TTL of 0 ms: whoever waits for the message gets it, or it expires."""

PROPERTIES_BYTES_MAX = 256 * 1024
"""Largest ext + native: twice the largest block a frame of 128 KiB can carry."""

_UID = struct.Struct("<QQ")
_UID_AT = 16
UID_END = _UID_AT + _UID.size
"""Where a message's uid ends in its slot."""
_EXT_FIELD = struct.Struct("<BI")


class Flag(IntFlag):
    """Header flags."""

    PERSISTENT = 1
    """The writer asked for durability (kept for reading back; a durable queue stores all)."""
    DEAD_LETTER = 2
    """Moved here by a dead-letter policy; `Ext.DEAD_LETTER` tells why."""
    INTERNAL = 4
    """Moved by the server itself: never billed (docs/design/billing.md)."""
    DEDUPLICATE = 8
    """`Ext.DEDUPLICATION_ID` is there: the topic's window applies."""
    CLASS_1 = 16
    CLASS_2 = 32
    """How its protocol grades the publishing: for the bill only."""


class Ext(IntEnum):
    """Types of the kernel's own variable fields."""

    ORDERING_KEY = 1
    TAG = 2
    KEYS = 3
    DEDUPLICATION_ID = 4
    MESSAGE_ID = 5
    FAIRNESS_KEY = 6
    TREE_NAME = 7
    """Name in the topic tree that the message was published to."""
    DEAD_LETTER = 8
    """msgpack of the dead-letter history, newest first."""
    ATTRIBUTES = 9
    """msgpack of typed attributes of a writer without a native block."""


@dataclass(frozen=True, slots=True)
class Message:
    """A stored message, taken apart. `ext` maps `Ext` types to raw bytes."""

    origin: int
    priority: int
    flags: Flag
    uid: bytes
    published_ms: int
    ttl_ms: int
    delay_ms: int
    key_hash: int
    tag_hash: int
    ext: Mapping[int, bytes]
    native: bytes
    body: bytes
    age_s: int = 0


def key_hash(key: bytes) -> int:
    """64-bit hash of an ordering key; never 0, which stands for "no key". Same on every node."""
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "little") or 1


def tag_hash(tag: bytes) -> int:
    """32-bit hash of a tag; never 0, which stands for "no tag". Same on every node."""
    return int.from_bytes(blake2b(tag, digest_size=4).digest(), "little") or 1


def encode_ext(fields: Mapping[int, bytes]) -> bytes:
    """The ext block of the fields given, in ascending type order; empty for none."""
    return b"".join(
        _EXT_FIELD.pack(kind, len(fields[kind])) + fields[kind] for kind in sorted(fields)
    )


def decode_ext(block: bytes) -> dict[int, bytes]:
    """Fields of an ext block. Unknown types are kept: a newer node may have written them."""
    fields: dict[int, bytes] = {}
    at = 0
    while at < len(block):
        kind, length = _EXT_FIELD.unpack_from(block, at)
        at += _EXT_FIELD.size
        fields[kind] = block[at : at + length]
        at += length
    return fields


def encode(message: Message) -> bytes:
    """One slot's bytes. Not for the hot path, which appends header, native and body apart."""
    ext = encode_ext(message.ext)
    header = HEADER.pack(
        VERSION,
        message.origin,
        message.priority,
        message.flags,
        len(message.body),
        len(message.native),
        len(ext),
        int.from_bytes(message.uid[:8], "big"),
        int.from_bytes(message.uid[8:], "big"),
        message.published_ms,
        message.ttl_ms,
        message.delay_ms,
        message.key_hash,
        message.tag_hash,
        message.age_s,
    )
    return header + ext + message.native + message.body


def decode(slot: bytes) -> Message:
    """The message in a slot."""
    (
        _version,
        origin,
        priority,
        flags,
        body_bytes,
        native_bytes,
        ext_bytes,
        uid_high,
        uid_low,
        published_ms,
        ttl_ms,
        delay_ms,
        key,
        tag,
        age_s,
    ) = HEADER.unpack_from(slot)
    native_at = HEADER_BYTES + ext_bytes
    body_at = native_at + native_bytes
    return Message(
        origin=origin,
        priority=priority,
        flags=Flag(flags),
        uid=uid_high.to_bytes(8, "big") + uid_low.to_bytes(8, "big"),
        published_ms=published_ms,
        ttl_ms=ttl_ms,
        delay_ms=delay_ms,
        key_hash=key,
        tag_hash=tag,
        ext=decode_ext(slot[HEADER_BYTES:native_at]),
        native=slot[native_at:body_at],
        body=slot[body_at : body_at + body_bytes],
        age_s=age_s,
    )


def uid_at(content: bytes, start: int) -> bytes:
    """Uid of the message whose slot begins at `start`. struct.error if nothing is there."""
    high, low = _UID.unpack_from(content, start + _UID_AT)
    return struct.pack(">QQ", high, low)


def split(slot: bytes) -> tuple[bytes, bytes]:
    """(native, body) of a slot: all that a reader of the writer's own protocol needs."""
    body_bytes, native_bytes, ext_bytes = LENGTHS.unpack_from(slot, LENGTHS_AT)
    native_at = HEADER_BYTES + ext_bytes
    body_at = native_at + native_bytes
    return slot[native_at:body_at], slot[body_at : body_at + body_bytes]
