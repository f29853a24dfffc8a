"""A stored message, by whatever protocol it was written, as a Message of RocketMQ
(docs/design/model.md#the-message-contract).

    topic  user properties  system properties  body

What RocketMQ wrote is put together from slices: behind the stored system properties the server's
own are appended, and of a field that occurs twice the last one counts (protobuf, "Last One Wins").
One message of system properties is written, never two to be merged: the JavaScript runtime replaces
where others merge. So that clients can read it, every delivery holds an MD5 digest in upper-case
hexadecimal, a body encoding and an attempt of at least 1 (docs/design/rocketmq.md).

Of what another protocol wrote, the typed attributes become user properties, as text: numbers and
booleans as JSON spells them, bytes as UTF-8 or else base64, lists and tables as JSON.
"""

from __future__ import annotations

import binascii
import json
from hashlib import md5
from typing import TYPE_CHECKING, Final

import msgspec

from adapters.rocketmq.origin import ORIGIN_BYTE
from kernel.api import message as messages
from kernel.api.message import HEADER, HEADER_BYTES, Ext, Flag

from ..codec import answer_encoding as wire
from ..names import shown_topic
from .stored import IDENTITY, LENGTH
from .topic_types import MessageType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel.api.message import Message
    from kernel.api.origins import Origins

    from ..codec.answer_encoding import Name

_ROCKETMQ: Final = ORIGIN_BYTE
_DEAD_LETTER: Final = int(Flag.DEAD_LETTER)
_LENGTH_BYTES: Final = LENGTH.size

_SYSTEM_PROPERTIES: Final = b"\x1a"
_BODY: Final = b"\x22"
_MESSAGE: Final = b"\x12"
_DIGEST: Final = b"\x22\x24\x08\x02\x12\x20"
"""Field 4 of system properties: a Digest of type MD5, of whose checksum 32 characters follow."""
_HANDLE: Final = b"\x62"
_QUEUE_ID: Final = b"\x68"
_OFFSET: Final = b"\x70"
_FIRST_ATTEMPT: Final = b"\x80\x01\x01"
_ATTEMPT: Final = b"\x80\x01"

_ATTRIBUTES: Final = msgspec.msgpack.Decoder(dict[str, object])


class Death(msgspec.Struct, frozen=True):
    """What is told of an entry of the dead-letter history, which is newest first."""

    topic: str


_DEATHS: Final = msgspec.msgpack.Decoder(list[Death])


class Writer:
    """Writes the deliveries of one receive: one topic, one queue, one invisible time."""

    __slots__ = ("_origins", "_tail", "_topic")

    def __init__(
        self, topic: Name, queue: int, invisible_ms: int, store_host: str, origins: Origins
    ) -> None:
        self._topic = wire.resource(1, topic)
        self._tail = (
            wire.text(10, store_host)
            + _QUEUE_ID
            + wire.varint(queue)
            + wire.moment(15, invisible_ms)
        )
        self._origins = origins

    def message(self, slot: bytes, offset: int, attempt: int, handle: bytes) -> bytes:
        """A ReceiveMessageResponse with the message in `slot` (hot)."""
        data = self._message(
            slot,
            _HANDLE
            + wire.varint(len(handle))
            + handle
            + _OFFSET
            + wire.varint(offset)
            + (_FIRST_ATTEMPT if attempt == 1 else _ATTEMPT + wire.varint(max(attempt, 1)))
            + self._tail,
        )
        return b"".join((_MESSAGE, wire.varint(len(data)), data))

    def half(self, slot: bytes) -> bytes:
        """A Message that its producer is asked about: in no queue, delivered to nobody."""
        return self._message(slot, _FIRST_ATTEMPT)

    def _message(self, slot: bytes, place: bytes) -> bytes:
        """A Message; `place`: the system properties that the slot does not decide (hot)."""
        head = HEADER.unpack_from(slot)
        native_at = HEADER_BYTES + head[6]
        body_at = native_at + head[5]
        body = slot[body_at : body_at + head[4]]
        own = (
            _DIGEST
            + md5(body, usedforsecurity=False).hexdigest().upper().encode()
            + wire.moment(9, head[9])
            + place
        )
        if head[3] & _DEAD_LETTER:
            own += _dead_letter(messages.decode(slot))
        if head[1] == _ROCKETMQ:
            user_at = native_at + _LENGTH_BYTES
            user_end = user_at + int.from_bytes(slot[native_at:user_at], "little")
            user = slot[user_at:user_end]
            system = slot[user_end:body_at]
        else:
            user, system = _foreign(messages.decode(slot), self._origins)
        return b"".join(
            (
                self._topic,
                user,
                _SYSTEM_PROPERTIES,
                wire.varint(len(system) + len(own)),
                system,
                own,
                _BODY,
                wire.varint(len(body)),
                body,
            )
        )


def _dead_letter(message: Message) -> bytes:
    """Field 20: where the message was when it was given up."""
    history = message.ext.get(Ext.DEAD_LETTER)
    if history is None:
        return b""
    topic = shown_topic(_DEATHS.decode(history)[0].topic)
    return wire.block(20, wire.text(1, topic) + wire.text(2, _message_id(message)))


def _message_id(message: Message) -> str:
    given = message.ext.get(Ext.MESSAGE_ID, b"").decode("utf-8", "replace")
    if given:
        return given
    digits = message.uid.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _foreign(message: Message, origins: Origins) -> tuple[bytes, bytes]:
    """(user properties, system properties) of a message that another protocol wrote."""
    attributes = dict(origins.attributes(message.origin, message.native))
    if (typed := message.ext.get(Ext.ATTRIBUTES)) is not None:
        attributes |= _ATTRIBUTES.decode(typed)
    user = b"".join(
        wire.block(2, wire.text(1, name) + wire.text(2, property_text(value)))
        for name, value in attributes.items()
    )
    return user, _system(message)


def _system(message: Message) -> bytes:
    ext = message.ext
    kind = MessageType.NORMAL
    system = b""
    if (tag := ext.get(Ext.TAG)) is not None:
        system += wire.block(1, _utf8(tag))
    if (keys := ext.get(Ext.KEYS)) is not None:
        system += b"".join(wire.block(2, key) for key in _utf8(keys).split(b" ") if key)
    system += wire.text(3, _message_id(message)) + wire.number(5, IDENTITY)
    group = b""
    if (key := ext.get(Ext.ORDERING_KEY)) is not None:
        kind = MessageType.FIFO
        group = wire.block(17, _utf8(key))
    elif message.delay_ms:
        kind = MessageType.DELAY
        group = wire.moment(11, message.published_ms + message.delay_ms)
    elif message.priority:
        kind = MessageType.PRIORITY
    priority = wire.number(22, message.priority)
    return system + wire.number(6, kind) + wire.moment(7, message.published_ms) + group + priority


def _utf8(data: bytes) -> bytes:
    """Bytes of another protocol as text: protobuf readers refuse what is not UTF-8."""
    return data.decode("utf-8", "replace").encode()


def property_text(value: object) -> str:
    """An attribute's value as a user property."""
    match value:
        case str():
            return value
        case None:
            return ""
        case bytes():
            return _bytes_text(value)
        case dict() | list() | tuple():
            return json.dumps(_plain(value), separators=(",", ":"))
        case bool() | int() | float():
            return json.dumps(value)
        case _:
            return str(value)


def _bytes_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return binascii.b2a_base64(value, newline=False).decode()


def _plain(value: object) -> object:
    """A value that JSON can spell."""
    if isinstance(value, dict):
        return _plain_table(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str | bool | int | float) or value is None:
        return value
    return property_text(value)


def _plain_table(value: Mapping[object, object]) -> dict[str, object]:
    return {str(name): _plain(item) for name, item in value.items()}
