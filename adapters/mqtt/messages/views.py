"""A stored message, by whatever protocol it was written, as MQTT clients see it
(docs/design/model.md#the-message-contract).

What MQTT wrote comes back as it was. Of a message from elsewhere the typed attributes become user
properties, content type, reply address and correlation id the properties of MQTT 5 that mean the
same, and the writer's own fields `weir.key`, `weir.tag`, `weir.keys` and `weir.message_id`; its QoS
is 1, and its topic is its name in the tree, or else the topic that it lies in.
"""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from adapters.base import Origin
from adapters.mqtt.codec.encoder import PublishFrame, publish_frame
from adapters.mqtt.codec.packet_types import MQTT_5, QOS_BITS, RETAIN_BIT
from adapters.mqtt.codec.properties import Properties, hop_properties, message_block
from adapters.mqtt.limits import FOREIGN_PROPERTY_BYTES_MAX, TEXT_BYTES_MAX
from adapters.mqtt.messages.stored import KERNEL_PROPERTIES, NATIVE, NATIVE_BYTES
from kernel.api import message as messages
from kernel.api.message import HEADER, HEADER_BYTES, TTL_AT_ONCE, Ext, decode_ext

if TYPE_CHECKING:
    from kernel.api.message import Message
    from kernel.api.origins import Origins

_ORIGIN: Final = int(Origin.MQTT)
_FOREIGN_FLAGS: Final = 1 << 1
_TREE_NAME: Final = int(Ext.TREE_NAME)
_EXT_FIELD_BYTES: Final = 5
_ATTRIBUTES: Final = msgspec.msgpack.Decoder(dict[str, object])
_unpack_header = HEADER.unpack_from
_unpack_native = NATIVE.unpack_from


class FrameKind(NamedTuple):
    """What deliveries of one message must have in common to be the same bytes."""

    level: int
    qos: int
    """The most that the subscription grants."""
    keeps_retain: bool
    """Retain As Published."""
    identifiers: tuple[int, ...]
    tells_uid: bool
    """The subscriber asked for the user property `weir.uid`."""
    no_local: bool = False


class View:
    """One message on its way to any number of clients. Its frames are made once each."""

    __slots__ = (
        "_frames",
        "body",
        "flags",
        "properties",
        "published_ms",
        "publisher",
        "size_bytes",
        "topic",
        "ttl_ms",
        "uid",
    )

    flags: int
    published_ms: int
    publisher: int
    ttl_ms: int

    def __init__(self, slot: bytes, origins: Origins, fallback: str = "") -> None:
        """`fallback`: the topic of a message that has no name in the tree."""
        (
            _version,
            origin,
            _priority,
            _flags,
            body_bytes,
            native_bytes,
            ext_bytes,
            high,
            low,
            self.published_ms,
            self.ttl_ms,
            _delay_ms,
            _key,
            _tag,
            _reserved,
        ) = _unpack_header(slot)
        self._frames: dict[FrameKind, PublishFrame] = {}
        self.uid = (high, low)
        # As it is metered: properties and body.
        self.size_bytes = len(slot) - HEADER_BYTES
        native_at = HEADER_BYTES + ext_bytes
        body_at = native_at + native_bytes
        self.body = slot[body_at : body_at + body_bytes]
        if origin == _ORIGIN:
            _level, self.flags, self.publisher = _unpack_native(slot, native_at)
            self.properties = slot[native_at + NATIVE_BYTES : body_at]
            self.topic = _tree_name(slot, native_at) or fallback.encode()
        else:
            message = messages.decode(slot)
            self.flags = _FOREIGN_FLAGS
            self.publisher = 0
            self.properties = foreign_properties(message, origins)
            self.topic = message.ext.get(_TREE_NAME) or fallback.encode()

    def expired(self, now_ms: int) -> bool:
        """Whether it must not be delivered any more. `now_ms`: milliseconds since the epoch."""
        ttl_ms = self.ttl_ms
        return ttl_ms != 0 and (ttl_ms == 1 or now_ms - self.published_ms >= ttl_ms)

    def frame(self, kind: FrameKind, waited_ms: int) -> PublishFrame:
        """The PUBLISH for deliveries of `kind`, made once for all of them (hot).

        `waited_ms`: how long the message has been stored. With an expiry interval frames are kept
        all the same: a view lives for one fan-out.
        """
        frame = self._frames.get(kind)
        if frame is None:
            frame = self._frames[kind] = self._made(kind, waited_ms)
        return frame

    def fresh_frame(self, kind: FrameKind, waited_ms: int) -> PublishFrame:
        """The same, later: with an expiry interval it is not the same bytes any more."""
        return self._made(kind, waited_ms) if self.ttl_ms else self.frame(kind, waited_ms)

    def retained_frame(self, kind: FrameKind, waited_ms: int) -> PublishFrame:
        """The PUBLISH that hands over a retained message, marked so ([MQTT-3.3.1-8])."""
        flags = min(self.flags & QOS_BITS, kind.qos << 1) | RETAIN_BIT
        return publish_frame(kind.level, flags, self.topic, self.block(kind, waited_ms), self.body)

    def qos_for(self, granted: int) -> int:
        """QoS of a delivery: the lesser of what was published and what was granted."""
        return min((self.flags & QOS_BITS) >> 1, granted)

    def delivery_flags(self, kind: FrameKind) -> int:
        """QoS and RETAIN of a delivery of `kind`."""
        flags = min(self.flags & QOS_BITS, kind.qos << 1)
        return flags | self.flags & RETAIN_BIT if kind.keeps_retain else flags

    def _made(self, kind: FrameKind, waited_ms: int) -> PublishFrame:
        block = self.block(kind, waited_ms)
        return publish_frame(kind.level, self.delivery_flags(kind), self.topic, block, self.body)

    def block(self, kind: FrameKind, waited_ms: int) -> bytes:
        """The properties of a delivery of `kind`."""
        if kind.level != MQTT_5:
            return b""
        block = self.properties
        if self.ttl_ms or kind.identifiers:
            expiry_s = None
            if self.ttl_ms:
                # What is left, a started second counting as one ([MQTT-3.3.2-6]).
                ttl_ms = 0 if self.ttl_ms == TTL_AT_ONCE else self.ttl_ms
                expiry_s = min(max(1, -(-(ttl_ms - waited_ms) // 1000)), 0xFFFF_FFFF)
            block = hop_properties(expiry_s, kind.identifiers) + block
        if kind.tells_uid:
            high, low = self.uid
            text = uid_text(high, low)
            block += message_block(Properties(user_properties=(("weir.uid", text),)))
        return block


def uid_text(high: int, low: int) -> str:
    """A uid in the form of RFC 9562: 8-4-4-4-12 hexadecimal digits."""
    digits = f"{high:016x}{low:016x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _tree_name(slot: bytes, native_at: int) -> bytes:
    if native_at > HEADER_BYTES and slot[HEADER_BYTES] == _TREE_NAME:
        # The first field, and nearly always the only one.
        at = HEADER_BYTES + _EXT_FIELD_BYTES
        length = int.from_bytes(slot[HEADER_BYTES + 1 : at], "little")
        return slot[at : at + length]
    return decode_ext(slot[HEADER_BYTES:native_at]).get(_TREE_NAME, b"")


def foreign_properties(message: Message, origins: Origins) -> bytes:
    """The property block of a message that another protocol wrote.

    What no property can hold (a text of over 65,535 bytes) is left out, and everything beyond
    FOREIGN_PROPERTY_BYTES_MAX, so that the packet stays one that clients take.
    """
    attributes = dict(origins.attributes(message.origin, message.native))
    typed = message.ext.get(Ext.ATTRIBUTES)
    if typed is not None:
        attributes |= _ATTRIBUTES.decode(typed)
    reply_to = attributes.get("reply_to")
    if not (isinstance(reply_to, str) and _is_topic_name(reply_to)):
        reply_to = None
    content_type = attributes.get("content_type")
    content_type = content_type if isinstance(content_type, str) else None
    correlation = attributes.get("correlation_id")
    data = correlation.encode() if isinstance(correlation, str) else correlation
    data = data if isinstance(data, bytes) and len(data) <= TEXT_BYTES_MAX else None
    pairs: list[tuple[str, str]] = []
    for name, kind in KERNEL_PROPERTIES.items():
        if kind in message.ext:
            pairs.append((name, message.ext[kind].decode("utf-8", "replace")))
    taken = {"content_type": content_type, "reply_to": reply_to, "correlation_id": data}
    for name, value in attributes.items():
        if taken.get(name) is None:
            pairs.append((name, text_of_value(value)))
    return message_block(
        Properties(
            content_type=_clean(content_type) if content_type is not None else None,
            response_topic=reply_to,
            correlation_data=data,
            user_properties=tuple(_fitting(pairs)),
        )
    )


def text_of_value(value: object) -> str:
    """An attribute as the text of a user property: text as it is, octets as Base64, numbers as
    they are written, the rest as JSON.
    """
    match value:
        case str():
            return value
        case bytes():
            return base64.b64encode(value).decode()
        case bool() | None:
            return json.dumps(value)
        case int() | float() | Decimal():
            return str(value)
        case _:
            return json.dumps(
                value, default=text_of_value, ensure_ascii=False, separators=(",", ":")
            )


def _is_topic_name(text: str) -> bool:
    return (
        bool(text)
        and not any(character in text for character in "+#\0")
        and len(text.encode("utf-8", "replace")) <= TEXT_BYTES_MAX
        and _clean(text) == text
    )


def _clean(text: str) -> str:
    """The text without what UTF-8 text of MQTT must not hold (MQTT5 1.5.4)."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _fitting(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    kept: list[tuple[str, str]] = []
    room = FOREIGN_PROPERTY_BYTES_MAX
    for raw_name, raw_value in pairs:
        name, value = _clean(raw_name), _clean(raw_value)
        sizes = (len(name.encode()), len(value.encode()))
        if max(sizes) <= TEXT_BYTES_MAX and sum(sizes) <= room:
            kept.append((name, value))
            room -= sum(sizes)
    return kept
