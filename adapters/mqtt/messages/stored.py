"""MQTT's part of a stored message: its native block, its fields for the kernel, and its reader.

    native = level:u8 | flags:u8 | publisher:u64 | property block          (little-endian)

`level` is 4 or 5, the format that the publisher wrote. `flags` are those of its PUBLISH without
DUP: QoS << 1 | RETAIN. `publisher` is `publisher_hash` of its subscriber name, for No Local. The
property block is what belongs to the message (`codec.properties`), as the bytes that came, without
a length; a 3.1.1 message has none. The topic is `Ext.TREE_NAME`; expiry is the header's ttl.

Four user properties mean something to every protocol and are kernel fields as well
(docs/design/model.md#the-message-contract):

    weir.key  Ext.ORDERING_KEY      weir.tag   Ext.TAG
    weir.keys Ext.KEYS              weir.message_id  Ext.MESSAGE_ID

A message that sets no key has none: the kernel keeps what is published to one name in order.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Final

from adapters.base import Origin
from adapters.mqtt.codec.packet_types import MQTT_5, QOS_BITS, RETAIN_BIT
from adapters.mqtt.codec.properties import message_block, parse_publish_properties
from adapters.mqtt.limits import NAMES_KNOWN_MAX
from kernel.api.message import HEADER, VERSION, Ext, Flag, encode_ext, key_hash, tag_hash

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.mqtt.codec.packets import Will
    from kernel.api.origins import Origins

NATIVE: Final = Struct("<BBQ")
NATIVE_BYTES: Final = NATIVE.size

KERNEL_PROPERTIES: Final = {
    "weir.key": Ext.ORDERING_KEY,
    "weir.tag": Ext.TAG,
    "weir.keys": Ext.KEYS,
    "weir.message_id": Ext.MESSAGE_ID,
}
"""User properties that the kernel keeps as fields of its own, for readers of every protocol."""
_KERNEL_MARK: Final = b"weir."

_ORIGIN: Final = int(Origin.MQTT)
_QOS_1: Final = int(Flag.PERSISTENT | Flag.CLASS_1)
_QOS_2: Final = int(Flag.PERSISTENT | Flag.CLASS_2)
_FLAGS: Final = (0, 0, _QOS_1, 0, _QOS_2, 0, 0)
"""Flags of the header by the bits of the QoS: durable from QoS 1 on, and what the bill asks for."""
_KEPT_FLAGS: Final = QOS_BITS | RETAIN_BIT
_pack_header = HEADER.pack
_pack_native = NATIVE.pack


class NamesKnown(dict[str, bytes]):
    """`names[name]` is the ext block that its messages share. One instance serves a process; a full
    table starts afresh.
    """

    def __missing__(self, name: str) -> bytes:
        ext = encode_ext({Ext.TREE_NAME: name.encode()})
        if len(self) >= NAMES_KNOWN_MAX:
            self.clear()
        self[name] = ext
        return ext


def publisher_hash(subscriber: str) -> int:
    """What a message says of its publisher: 64 bits of a hash of its subscriber name."""
    return int.from_bytes(blake2b(subscriber.encode(), digest_size=8).digest(), "little")


def ttl_of(expiry_s: int | None) -> int:
    """The header's ttl (ms; 0: none) for a Message Expiry Interval.

    An interval of 0 says that the message is never to be delivered (MQTT5 3.3.2.3.3): 1 ms, which
    has passed before anybody can be given it.
    """
    return 0 if expiry_s is None else expiry_s * 1000 or 1


def head_of(
    ext: bytes,
    name: str,
    uid: tuple[int, int],
    now_ms: int,
    level: int,
    flags: int,
    publisher: int,
    block: bytes,
    body_bytes: int,
    ttl_ms: int,
) -> bytes:
    """The slot of a message up to its body (hot)."""
    key = tag = 0
    if block and _KERNEL_MARK in block:
        ext, key, tag = _with_kernel_fields(name, block)
    high, low = uid
    header = _pack_header(
        VERSION,
        _ORIGIN,
        0,
        _FLAGS[flags & QOS_BITS],
        body_bytes,
        NATIVE_BYTES + len(block),
        len(ext),
        high,
        low,
        now_ms,
        ttl_ms,
        0,
        key,
        tag,
        0,
    )
    return header + ext + _pack_native(level, flags & _KEPT_FLAGS, publisher) + block


def _with_kernel_fields(name: str, block: bytes) -> tuple[bytes, int, int]:
    """(ext, key hash, tag hash) of a message whose user properties may hold kernel fields."""
    fields: dict[int, bytes] = {Ext.TREE_NAME: name.encode()}
    for given, value in parse_publish_properties(block).user_properties:
        kind = KERNEL_PROPERTIES.get(given)
        if kind is not None and value:
            fields.setdefault(kind, value.encode())
    key = key_hash(fields[Ext.ORDERING_KEY]) if Ext.ORDERING_KEY in fields else 0
    tag = tag_hash(fields[Ext.TAG]) if Ext.TAG in fields else 0
    return encode_ext(fields), key, tag


def will_slot(
    will: Will, ext: bytes, uid: tuple[int, int], now_ms: int, level: int, publisher: int
) -> bytes:
    """The message that a will becomes (MQTT5 3.1.2.5)."""
    flags = will.qos << 1 | will.retain
    head = head_of(
        ext,
        will.topic,
        uid,
        now_ms,
        level,
        flags,
        publisher,
        message_block(will.properties) if level == MQTT_5 else b"",
        len(will.payload),
        ttl_of(will.properties.message_expiry_interval),
    )
    return head + will.payload


class MqttOrigin:
    """`kernel.api.origins.OriginReader` of messages that MQTT clients wrote."""

    def routing_key(self, native: bytes, /) -> str:
        """None of its own: the key of an MQTT message is its name in the tree."""
        return ""

    def topic_name(self, native: bytes, /) -> str:
        """None of its own, as above."""
        return ""

    def attributes(self, native: bytes, /) -> Mapping[str, object]:
        """The user properties but for what the kernel knows by itself (of a name that stands twice
        the first counts, as everywhere), and the properties that other protocols have too.
        """
        properties = parse_publish_properties(native[NATIVE_BYTES:])
        found: dict[str, object] = {}
        for name, value in properties.user_properties:
            if name not in KERNEL_PROPERTIES:
                found.setdefault(name, value)
        if properties.content_type is not None:
            found["content_type"] = properties.content_type
        if properties.response_topic is not None:
            found["reply_to"] = properties.response_topic
        if properties.correlation_data is not None:
            found["correlation_id"] = _text_or_bytes(properties.correlation_data)
        return found


def _text_or_bytes(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


MQTT_ORIGIN: Final = MqttOrigin()


def register_origin(origins: Origins) -> None:
    """Have the kernel read what MQTT clients wrote: wherever stored messages are."""
    origins.register(Origin.MQTT, MQTT_ORIGIN)


"""The one reader: registering it again is no conflict."""
