"""RocketMQ messages as stored messages (`kernel.message`): what a send writes, and reads of it.

    RocketMQ                         stored
    body                             body, as it came (gzip stays gzip)
    user_properties, unknown fields  native block, first part: a Message without its other fields
    system_properties                native block, second part: as they came
    message_group                    Ext.ORDERING_KEY
    tag                              Ext.TAG
    keys                             Ext.KEYS, joined by blanks
    message_id                       Ext.MESSAGE_ID; on a topic with a deduplication window also
                                     Ext.DEDUPLICATION_ID: a client that sends again uses it again
    delivery_timestamp               header `delay`

    native = u32 length of the first part, little-endian | first part | second part

so that a delivery is made of slices (`delivered`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from adapters.base import Origin
from kernel import message as messages
from kernel.message import HEADER, VERSION, Ext, Flag

from . import checks
from .stubs import parse_message, parse_system_properties
from .topic_types import MessageType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .settings import RocketmqSettings
    from .stubs import Message, SystemProperties

IDENTITY: Final = 1
GZIP: Final = 2
"""`enum Encoding`."""

LENGTH: Final = struct.Struct("<I")
_EXT: Final = struct.Struct("<BI")
_ORIGIN: Final = int(Origin.ROCKETMQ)
_NORMAL: Final = int(MessageType.NORMAL)
_PERSISTENT: Final = int(Flag.PERSISTENT)
_PERSISTENT_ONCE: Final = int(Flag.PERSISTENT | Flag.DEDUPLICATE)
_ORDERING_KEY: Final = int(Ext.ORDERING_KEY)
_TAG: Final = int(Ext.TAG)
_KEYS: Final = int(Ext.KEYS)
_DEDUPLICATION_ID: Final = int(Ext.DEDUPLICATION_ID)
_MESSAGE_ID: Final = int(Ext.MESSAGE_ID)


class Target(NamedTuple):
    """What must be known of a topic to write to it."""

    name: str
    accepted: Sequence[MessageType]
    body_bytes_max: int
    has_window: bool
    """Whether the topic deduplicates."""


class Draft(NamedTuple):
    """A message that may be stored: all of its slot but the uid."""

    head: bytes
    """Header (with uid 0), ext and native block."""
    body: bytes
    has_key: bool


def draft(message: Message, target: Target, settings: RocketmqSettings, now_ms: int) -> Draft:
    """A message checked and encoded (hot). `message` is changed. Raises RocketmqError."""
    system = message.system_properties
    body = message.body
    checks.check_body(len(body), target.body_bytes_max)
    ident = system.message_id
    checks.check_message_id(ident)
    has_properties = bool(message.user_properties)
    if has_properties or system.tag or system.keys:
        checks.check_properties(message, settings)
    kind = checks.type_of(system)
    checks.check_type(kind, target.accepted, target.name)
    ident_bytes = ident.encode()
    ext = _EXT.pack(_MESSAGE_ID, len(ident_bytes)) + ident_bytes
    flags, key, tag, delay_ms = _PERSISTENT, 0, 0, 0
    if target.has_window:
        flags = _PERSISTENT_ONCE
        ext = _EXT.pack(_DEDUPLICATION_ID, len(ident_bytes)) + ident_bytes + ext
    if system.keys:
        keys = " ".join(system.keys).encode()
        ext = _EXT.pack(_KEYS, len(keys)) + keys + ext
    if system.tag:
        tag_bytes = system.tag.encode()
        tag = messages.tag_hash(tag_bytes)
        ext = _EXT.pack(_TAG, len(tag_bytes)) + tag_bytes + ext
    if kind is MessageType.FIFO:
        checks.check_group(system.message_group, settings)
        group = system.message_group.encode()
        key = messages.key_hash(group)
        ext = _EXT.pack(_ORDERING_KEY, len(group)) + group + ext
    elif kind is MessageType.DELAY:
        delay_ms = checks.delay_ms(system, now_ms, settings.delay_ms_max)
    if not system.message_type:
        system.message_type = kind
    native = _native(message, system, has_properties=has_properties)
    header = HEADER.pack(
        *(VERSION, _ORIGIN, 0, flags, len(body), len(native), len(ext)),
        *(0, 0, now_ms, 0, delay_ms, key, tag, 0),
    )
    return Draft(header + ext + native, body, bool(key))


def _native(message: Message, system: SystemProperties, *, has_properties: bool) -> bytes:
    """The native block; takes the message apart."""
    if not system.body_encoding:
        # Without it the Python client refuses to read (rocketmq.md 4.3).
        system.body_encoding = IDENTITY
    if system.HasField("dead_letter_queue"):
        # The server's to say. All else that is its own comes last on delivery, and so counts.
        system.ClearField("dead_letter_queue")
    second = system.SerializeToString()
    if not has_properties:
        return _NO_PROPERTIES + second
    message.ClearField("body")
    message.ClearField("topic")
    message.ClearField("system_properties")
    first = message.SerializeToString()
    return LENGTH.pack(len(first)) + first + second


_NO_PROPERTIES: Final = LENGTH.pack(0)
_UID: Final = struct.Struct("<QQ")
_UID_AT: Final = 16
"""Where the uid stands in a header."""
_UID_END: Final = _UID_AT + _UID.size


def with_uid(head: bytes, uid: tuple[int, int]) -> bytes:
    """A draft's head with the uid that the kernel gave."""
    return head[:_UID_AT] + _UID.pack(*uid) + head[_UID_END:]


def split(native: bytes) -> tuple[bytes, bytes]:
    """Both parts of a native block that this adapter has stored."""
    end = LENGTH.size + int.from_bytes(native[: LENGTH.size], "little")
    return native[LENGTH.size : end], native[end:]


class RocketmqOrigin:
    """`kernel.origins.OriginReader` of messages that RocketMQ clients wrote."""

    def routing_key(self, native: bytes, /) -> str:
        """RocketMQ has no keys to route by."""
        return ""

    def topic_name(self, native: bytes, /) -> str:
        """RocketMQ has no keys of that kind."""
        return ""

    def attributes(self, native: bytes, /) -> Mapping[str, object]:
        """The user properties; and `content_encoding`, if the client compressed the body."""
        first, second = split(native)
        found: dict[str, object] = {}
        if parse_system_properties(second).body_encoding == GZIP:
            found["content_encoding"] = "gzip"
        if first:
            found.update(parse_message(first).user_properties)
        return found


ORIGIN: Final = RocketmqOrigin()
"""One object: an origin byte has one reader for as long as the client lives."""
