"""Packets in, bytes out.

`encode` serves every packet. What is sent per message has functions of its own:

- A PUBLISH to many subscribers is encoded once as a `PublishFrame`, the bytes before and after the
  packet identifier; each delivery puts its own two bytes between them. Subscribers share a frame if
  they share protocol version, QoS, RETAIN and subscription identifiers.
- A short acknowledgement is four bytes, handled as one integer (`short_ack`); any number of them
  becomes bytes in one call.

        frame  | 3x len topic-length topic |      | properties payload |
        wire   | 3x len topic-length topic | u16  | properties payload |
"""

from __future__ import annotations

from struct import Struct, pack
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec.structs import replace

from adapters.mqtt.codec.data_types import (
    U16,
    encode_binary,
    encode_text,
    encode_u16,
    encode_varint,
)
from adapters.mqtt.codec.errors import LocalProtocolError
from adapters.mqtt.codec.packet_types import (
    DUP_BIT,
    MQTT_3_1,
    MQTT_5,
    PUBACK_FIRST_BYTE,
    PUBCOMP_FIRST_BYTE,
    PUBLISH_FIRST_BYTE,
    PUBREC_FIRST_BYTE,
    PUBREL_FIRST_BYTE,
    QOS_BITS,
    RETAIN_BIT,
    PacketType,
)
from adapters.mqtt.codec.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    FilterOptions,
    Pingreq,
    Pingresp,
    Publish,
    SentPacket,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from adapters.mqtt.codec.properties import (
    NO_PROPERTIES,
    WILL,
    Properties,
    encode_properties,
)
from adapters.mqtt.codec.reason_codes import FAILURE, V3_SUBSCRIPTION_FAILED, carried_by
from adapters.mqtt.limits import PACKET_ID_MAX, TEXT_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PublishFrame: TypeAlias = tuple[bytes, bytes]
"""Bytes before and after the packet identifier; at QoS 0 the first is everything."""

_HEAD_SHORT: Final = Struct(">BBH").pack
_HEAD: Final = Struct(">BBBH").pack
_WORD: Final = Struct(">I").pack
_PASSED_ON: Final = QOS_BITS | RETAIN_BIT

PUBACK_WORD: Final = PUBACK_FIRST_BYTE << 24 | 2 << 16
PUBREC_WORD: Final = PUBREC_FIRST_BYTE << 24 | 2 << 16
PUBREL_WORD: Final = PUBREL_FIRST_BYTE << 24 | 2 << 16
PUBCOMP_WORD: Final = PUBCOMP_FIRST_BYTE << 24 | 2 << 16
"""A successful acknowledgement, to be or-ed with its packet identifier."""


# ---------------------------------------------------------------------------------------------
# The hot ones


def publish_frame(
    level: int, flags: int, topic: bytes, properties: bytes, payload: bytes
) -> PublishFrame:
    """A PUBLISH without its packet identifier and with DUP 0 (MQTT5 3.3).

    `flags` holds QoS and RETAIN where the packet has them (QoS << 1 | RETAIN); nothing else of it
    counts, so that a publisher's DUP is not passed on ([MQTT-3.3.1-3]).
    `topic` is UTF-8, validated by whoever stored it. `properties` is the block without its length
    (`hop_properties(...)` + the message's own) and is ignored before MQTT 5.
    """
    first = PUBLISH_FIRST_BYTE | flags & _PASSED_ON
    if level != MQTT_5:
        tail = payload
    elif not properties:
        tail = b"\0" + payload
    else:
        tail = encode_varint(len(properties)) + properties + payload
    topic_length = len(topic)
    size = 2 + topic_length + len(tail)
    numbered = flags & QOS_BITS
    if numbered:
        size += 2
    if size < 0x80:
        head = _HEAD_SHORT(first, size, topic_length) + topic
    elif size < 0x4000:
        head = _HEAD(first, size & 0x7F | 0x80, size >> 7, topic_length) + topic
    else:
        head = bytes((first,)) + encode_varint(size) + U16.pack(topic_length) + topic
    return (head, tail) if numbered else (head + tail, b"")


def marked_duplicate(frame: PublishFrame) -> PublishFrame:
    """The frame with DUP set, for a delivery that is sent again ([MQTT-3.3.1-1])."""
    head, tail = frame
    return bytes((head[0] | DUP_BIT,)) + head[1:], tail


def encode_words(words: Sequence[int]) -> bytes:
    """The bytes of short acknowledgements given as words (`PUBACK_WORD | packet_id`)."""
    if len(words) == 1:
        return _WORD(words[0])
    return pack(f">{len(words)}I", *words)


# ---------------------------------------------------------------------------------------------
# Any packet


def encode(packet: SentPacket, level: int) -> bytes:
    """The bytes of `packet` in the format of `level` (3, 4 or 5).

    Raises LocalProtocolError for a packet that the format cannot express. A failure code that the
    packet may not carry becomes the nearest one that it may; before MQTT 5 SUBACK says 0x80 for
    every failure.
    """
    first, body = _BODIES[type(packet)](packet, level)
    return bytes((first,)) + encode_varint(len(body)) + body


Explaining: TypeAlias = Connack | Ack | Suback | Unsuback | Disconnect | Auth
"""The packets that may say why, in Reason String and User Properties."""


def encode_within(packet: Explaining, level: int, maximum_packet_size: int) -> bytes | None:
    """`encode`, but of at most so many bytes, or None if that cannot be.

    Reason String goes first, then User Properties ([MQTT-3.2.2-19], [MQTT-3.2.2-20] and the like).
    """
    data = encode(packet, level)
    if len(data) <= maximum_packet_size:
        return data
    lean = replace(packet.properties, reason_string=None)
    data = encode(replace(packet, properties=lean), level)
    if len(data) > maximum_packet_size:
        lean = replace(lean, user_properties=())
        data = encode(replace(packet, properties=lean), level)
    return data if len(data) <= maximum_packet_size else None


_Body: TypeAlias = tuple[int, bytes]


def _block(properties: Properties, owner: int, level: int) -> bytes:
    return encode_properties(properties, owner) if level == MQTT_5 else b""


def _packet_id(packet_id: int) -> bytes:
    if not 0 < packet_id <= PACKET_ID_MAX:
        raise LocalProtocolError(f"{packet_id} is not a packet identifier")
    return U16.pack(packet_id)


def _connect(packet: Connect, level: int) -> _Body:
    if packet.password is not None and packet.username is None and level != MQTT_5:
        raise LocalProtocolError("a password needs a user name before MQTT 5")
    if packet.is_bridge and level == MQTT_5:
        raise LocalProtocolError("bridges have options instead of a mark in MQTT 5")
    will = packet.will
    flags = packet.clean_start << 1
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
    flags |= (packet.username is not None) << 7 | (packet.password is not None) << 6
    name = "MQIsdp" if level == MQTT_3_1 else "MQTT"
    parts = [
        encode_text(name),
        bytes((level | 0x80 * packet.is_bridge, flags)),
        encode_u16(packet.keep_alive_s),
        _block(packet.properties, PacketType.CONNECT, level),
        encode_text(packet.client_id),
    ]
    if will is not None:
        parts += [
            _block(will.properties, WILL, level),
            encode_text(will.topic),
            encode_binary(will.payload),
        ]
    if packet.username is not None:
        parts.append(encode_text(packet.username))
    if packet.password is not None:
        parts.append(encode_binary(packet.password))
    return 0x10, b"".join(parts)


def _connack(packet: Connack, level: int) -> _Body:
    code = packet.reason_code
    if level == MQTT_5:
        code = carried_by(PacketType.CONNACK, code)
    head = bytes((packet.session_present, code))
    return 0x20, head + _block(packet.properties, PacketType.CONNACK, level)


def _publish(packet: Publish, level: int) -> _Body:
    topic = encode_text(packet.topic)
    if len(topic) > TEXT_BYTES_MAX + 2 or packet.qos not in (0, 1, 2):
        raise LocalProtocolError("PUBLISH with an impossible topic or QoS")
    if packet.dup and not packet.qos:
        raise LocalProtocolError("DUP at QoS 0")
    flags = packet.qos << 1 & QOS_BITS | (RETAIN_BIT if packet.retain else 0)
    flags |= DUP_BIT if packet.dup else 0
    packet_id = _packet_id(packet.packet_id) if packet.qos else b""
    block = _block(packet.properties, PacketType.PUBLISH, level)
    return PUBLISH_FIRST_BYTE | flags, topic + packet_id + block + packet.payload


_ACK_FIRST_BYTES: Final = {
    PacketType.PUBACK: PUBACK_FIRST_BYTE,
    PacketType.PUBREC: PUBREC_FIRST_BYTE,
    PacketType.PUBREL: PUBREL_FIRST_BYTE,
    PacketType.PUBCOMP: PUBCOMP_FIRST_BYTE,
}


def _ack(packet: Ack, level: int) -> _Body:
    body = _packet_id(packet.packet_id)
    if level == MQTT_5:
        code = carried_by(packet.type, packet.reason_code)
        if packet.properties is not NO_PROPERTIES:
            body += bytes((code,)) + encode_properties(packet.properties, packet.type)
        elif code:
            body += bytes((code,))
    return _ACK_FIRST_BYTES[packet.type], body


def _options(options: FilterOptions, level: int) -> bytes:
    value = options.qos
    if level == MQTT_5:
        value |= options.no_local << 2 | options.retain_as_published << 3
        value |= options.retain_handling << 4
    return encode_text(options.filter) + bytes((value,))


def _subscribe(packet: Subscribe, level: int) -> _Body:
    if not packet.filters:
        raise LocalProtocolError("SUBSCRIBE without a topic filter")
    block = _block(packet.properties, PacketType.SUBSCRIBE, level)
    filters = b"".join([_options(options, level) for options in packet.filters])
    return 0x82, _packet_id(packet.packet_id) + block + filters


def _suback(packet: Suback, level: int) -> _Body:
    if level == MQTT_5:
        codes = bytes([carried_by(PacketType.SUBACK, code) for code in packet.reason_codes])
    else:
        failed = V3_SUBSCRIPTION_FAILED
        codes = bytes([code if code < FAILURE else failed for code in packet.reason_codes])
    block = _block(packet.properties, PacketType.SUBACK, level)
    return 0x90, _packet_id(packet.packet_id) + block + codes


def _unsubscribe(packet: Unsubscribe, level: int) -> _Body:
    if not packet.filters:
        raise LocalProtocolError("UNSUBSCRIBE without a topic filter")
    block = _block(packet.properties, PacketType.UNSUBSCRIBE, level)
    filters = b"".join([encode_text(text) for text in packet.filters])
    return 0xA2, _packet_id(packet.packet_id) + block + filters


def _unsuback(packet: Unsuback, level: int) -> _Body:
    body = _packet_id(packet.packet_id)
    if level == MQTT_5:
        body += encode_properties(packet.properties, PacketType.UNSUBACK)
        body += bytes([carried_by(PacketType.UNSUBACK, code) for code in packet.reason_codes])
    return 0xB0, body


def _pingreq(_packet: Pingreq, _level: int) -> _Body:
    return 0xC0, b""


def _pingresp(_packet: Pingresp, _level: int) -> _Body:
    return 0xD0, b""


def _disconnect(packet: Disconnect, level: int) -> _Body:
    if level != MQTT_5:
        return 0xE0, b""
    code = carried_by(PacketType.DISCONNECT, packet.reason_code)
    if packet.properties is not NO_PROPERTIES:
        block = encode_properties(packet.properties, PacketType.DISCONNECT)
        return 0xE0, bytes((code,)) + block
    return 0xE0, bytes((code,)) if code else b""


def _auth(packet: Auth, level: int) -> _Body:
    if level != MQTT_5:
        raise LocalProtocolError("AUTH does not exist before MQTT 5")
    if not packet.reason_code and packet.properties is NO_PROPERTIES:
        return 0xF0, b""
    code = carried_by(PacketType.AUTH, packet.reason_code)
    return 0xF0, bytes((code,)) + encode_properties(packet.properties, PacketType.AUTH)


# Each function takes packets of its own class only, which a dictionary cannot say.
_BODIES: Final[dict[type, Callable[[Any, int], _Body]]] = {
    Connect: _connect,
    Connack: _connack,
    Publish: _publish,
    Ack: _ack,
    Subscribe: _subscribe,
    Suback: _suback,
    Unsubscribe: _unsubscribe,
    Unsuback: _unsuback,
    Pingreq: _pingreq,
    Pingresp: _pingresp,
    Disconnect: _disconnect,
    Auth: _auth,
}
