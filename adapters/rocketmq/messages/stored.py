"""RocketMQ messages as stored messages (`kernel.api.message`): what a send writes, and reads of it.

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
    priority                         header `priority`

    native = u32 length of the first part, little-endian | first part | second part

so that a delivery is made of slices (`delivered`). Plain messages are stored by `plain_sends`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from adapters.base import Origin
from kernel.api import message as messages
from kernel.api.message import HEADER, VERSION, Ext, Flag

from ..codec.stubs import parse_message, parse_system_properties
from ..errors import Code, RocketmqError
from . import checks
from .topic_types import MessageType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernel.api.origins import Origins

    from ..codec.stubs import Message, Resource
    from ..settings import RocketmqSettings

IDENTITY: Final = 1
GZIP: Final = 2
"""`enum Encoding`."""

LENGTH: Final = struct.Struct("<I")
_EXT: Final = struct.Struct("<BI")
_ORIGIN: Final = int(Origin.ROCKETMQ)
_PERSISTENT: Final = int(Flag.PERSISTENT)
_PERSISTENT_ONCE: Final = int(Flag.PERSISTENT | Flag.DEDUPLICATE)


class Target(NamedTuple):
    """What must be known of a topic to write to it."""

    name: str
    accepted: Sequence[MessageType]
    body_bytes_max: int
    has_window: bool
    """Whether the topic deduplicates."""
    takes_plain: bool
    """Whether what `plain_sends` reads may be stored as it is."""


Draft = tuple[tuple[bytes, bytes], int, bytes, int, int]
"""A message that may be stored: the parts of its slot (header, ext and native block; body) and
their size, the client's message id, the hash of its ordering key (0: it has none), its delay."""


class Drafts:
    """Makes drafts of the messages of one request."""

    __slots__ = ("_now_ms", "_settings", "_target", "_topic")

    def __init__(
        self, topic: Resource, target: Target, settings: RocketmqSettings, now_ms: int
    ) -> None:
        """`topic`: of all messages, as the first one says."""
        self._topic = topic
        self._target = target
        self._settings = settings
        self._now_ms = now_ms

    def of(self, message: Message, uid: tuple[int, int]) -> Draft:
        """A message checked and encoded. `message` is taken apart. Raises RocketmqError."""
        if message.topic != self._topic:
            text = "the messages of a request must be of one topic"
            raise RocketmqError(Code.MESSAGE_CORRUPTED, text)
        system = message.system_properties
        target, settings = self._target, self._settings
        body = message.body
        checks.check_body(len(body), target.body_bytes_max)
        text = system.message_id
        checks.check_message_id(text)
        checks.check_properties(message, settings)
        ident = text.encode()
        flags = _PERSISTENT
        fields = {Ext.MESSAGE_ID: ident}
        kind = checks.type_of(system)
        if target.has_window and kind is not MessageType.TRANSACTION:
            # Of a half message the kernel would have to hold back the id as well.
            flags = _PERSISTENT_ONCE
            fields[Ext.DEDUPLICATION_ID] = ident
        key, tag, delay_ms, level = 0, 0, 0, 0
        if system.keys:
            fields[Ext.KEYS] = " ".join(system.keys).encode()
        if system.tag:
            fields[Ext.TAG] = system.tag.encode()
            tag = messages.tag_hash(fields[Ext.TAG])
        checks.check_type(kind, target.accepted, target.name)
        if kind is MessageType.FIFO:
            checks.check_group(system.message_group, settings)
            fields[Ext.ORDERING_KEY] = system.message_group.encode()
            key = messages.key_hash(fields[Ext.ORDERING_KEY])
        elif kind is MessageType.DELAY:
            delay_ms = checks.delay_ms(system, self._now_ms, settings.delay_ms_max)
        elif kind is MessageType.PRIORITY:
            level = checks.priority(system)
        system.message_type = kind
        if not system.body_encoding:
            # Without it the Python client refuses to read (docs/design/rocketmq.md).
            system.body_encoding = IDENTITY
        # The server's to say. All else that is its own comes last on delivery, and so counts.
        system.ClearField("dead_letter_queue")
        native = _native(message, system.SerializeToString())
        ext = messages.encode_ext({int(name): value for name, value in fields.items()})
        header = HEADER.pack(
            *(VERSION, _ORIGIN, level, flags, len(body), len(native), len(ext), *uid),
            *(self._now_ms, 0, delay_ms, key, tag, 0),
        )
        head = header + ext + native
        return (head, body), len(head) + len(body), ident, key, delay_ms


def _native(message: Message, second: bytes) -> bytes:
    """The native block; takes the message apart."""
    for name in ("topic", "system_properties", "body"):
        message.ClearField(name)
    first = message.SerializeToString()
    return LENGTH.pack(len(first)) + first + second


def split(native: bytes) -> tuple[bytes, bytes]:
    """Both parts of a native block that this adapter has stored."""
    end = LENGTH.size + int.from_bytes(native[: LENGTH.size], "little")
    return native[LENGTH.size : end], native[end:]


class RocketmqOrigin:
    """`kernel.api.origins.OriginReader` of messages that RocketMQ clients wrote."""

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


def register_origin(origins: Origins) -> None:
    """Have the kernel read what RocketMQ clients wrote: wherever stored messages are."""
    origins.register(Origin.ROCKETMQ, ORIGIN)


"""One object: an origin byte has one reader for as long as the client lives."""
