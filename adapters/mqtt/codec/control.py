"""Readers of the packets that are not hot: everything but PUBLISH and acknowledgements.

A reader takes the packet's body data[position:end] and the protocol level, and returns the packet.
The fixed header's flags have been checked before (decoder.py). Each body must end where its last
field ends.

    CONNECT  | name | level (0x80: bridge) | flags | keep alive | [properties] | payload:
             | client id | [will properties] | [will topic | will payload] | [user] | [password]
    flags    | user 0x80 | password 0x40 | will retain 0x20 | will QoS 0x18 | will 0x04 |
             | clean start 0x02 | reserved 0x01
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.mqtt.codec.data_types import read_binary, read_text, read_u8, read_u16
from adapters.mqtt.codec.errors import MqttError, malformed, protocol_error
from adapters.mqtt.codec.packet_types import MQTT_3_1, MQTT_3_1_1, MQTT_5, PacketType
from adapters.mqtt.codec.packets import (
    Auth,
    Connack,
    Connect,
    ControlPacket,
    Disconnect,
    FilterOptions,
    Pingreq,
    Pingresp,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from adapters.mqtt.codec.properties import NO_PROPERTIES, WILL, Properties, read_properties
from adapters.mqtt.codec.reason_codes import ALLOWED, ReasonCode
from adapters.mqtt.codec.topic_names import validated_name
from adapters.mqtt.limits import FILTERS_READ_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

# Before MQTT 5 a client sets this bit of the level to say that it is a bridge, Mosquitto's for one:
# no part of the standard, and what such clients try first.
BRIDGE_BIT: Final = 0x80
_BRIDGED: Final = (MQTT_3_1, MQTT_3_1_1)
# The names of the protocol with the levels that each may have (MQTT5 3.1.2.1, MQTT 3.1 3.1).
_LEVELS: Final = {b"MQTT": (MQTT_3_1_1, MQTT_5), b"MQIsdp": (MQTT_3_1,)}
_PINGREQ: Final = Pingreq()
_PINGRESP: Final = Pingresp()


class UnsupportedLevelError(MqttError):
    """A CONNECT of a level that is not served; `answer_level` is the format to say so in."""

    def __init__(self, answer_level: int, detail: str) -> None:
        super().__init__(ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, detail)
        self.answer_level = answer_level


def read_level(data: bytes, position: int, end: int) -> tuple[int, int]:
    """The protocol level of a CONNECT, without the mark of a bridge.

    Raises MqttError 0x81 for another protocol's name, and UnsupportedLevelError for a level that
    does not belong to the name ([MQTT-3.1.2-1], [MQTT-3.1.2-2]).
    """
    name, position = read_binary(data, position, end)
    level, position = read_u8(data, position, end)
    levels = _LEVELS.get(name)
    if levels is None:
        raise malformed("the protocol name is not MQTT")
    if level & ~BRIDGE_BIT in _BRIDGED:
        level &= ~BRIDGE_BIT
    if level not in levels:
        answer_level = MQTT_5 if name == b"MQTT" and level > MQTT_5 else MQTT_3_1_1
        raise UnsupportedLevelError(answer_level, f"protocol level {level} is not served")
    return level, position


def read_connect(data: bytes, position: int, end: int, _level: int) -> Connect:
    level, position = read_level(data, position, end)
    # `read_level` ends with the byte of the level.
    is_bridge = bool(data[position - 1] & BRIDGE_BIT)
    flags, position = read_u8(data, position, end)
    _check_connect_flags(flags, level)
    keep_alive_s, position = read_u16(data, position, end)
    properties, position = _read_block(data, position, end, PacketType.CONNECT, level)
    client_id, position = read_text(data, position, end)
    will = username = password = None
    if flags & 0x04:
        will_properties, position = _read_block(data, position, end, WILL, level)
        topic, position = read_binary(data, position, end)
        payload, position = read_binary(data, position, end)
        if not topic:
            raise malformed("the will topic is empty")
        will = Will(
            topic=validated_name(topic),
            payload=payload,
            qos=flags >> 3 & 3,
            retain=bool(flags & 0x20),
            properties=will_properties,
        )
    if flags & 0x80:
        username, position = read_text(data, position, end)
    if flags & 0x40:
        password, position = read_binary(data, position, end)
    _check_end(position, end)
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise protocol_error("authentication data without an authentication method")
    return Connect(
        client_id=client_id,
        level=level,
        clean_start=bool(flags & 0x02),
        keep_alive_s=keep_alive_s,
        username=username,
        password=password,
        will=will,
        properties=properties,
        is_bridge=is_bridge,
    )


def _check_connect_flags(flags: int, level: int) -> None:
    if flags & 0x01:
        raise malformed("the reserved flag of CONNECT is set")
    if flags & 0x04:
        if flags & 0x18 == 0x18:
            raise malformed("the will has QoS 3")
    elif flags & 0x38:
        raise malformed("will QoS or will retain without a will")
    if flags & 0xC0 == 0x40 and level != MQTT_5:
        raise malformed("a password without a user name")


def _read_connack(data: bytes, position: int, end: int, level: int) -> Connack:
    flags, position = read_u8(data, position, end)
    code, position = read_u8(data, position, end)
    properties, position = _read_block(data, position, end, PacketType.CONNACK, level)
    _check_end(position, end)
    if flags > 1:
        raise malformed("a reserved flag of CONNACK is set")
    if level == MQTT_5:
        check_reason(PacketType.CONNACK, code)
    elif code > 5:
        raise protocol_error(f"CONNACK has return code {code}")
    if flags and code:
        raise protocol_error("a refusal claims that a session is present")
    return Connack(code, bool(flags), properties)


def _too_many(packet: str) -> MqttError:
    return MqttError(ReasonCode.QUOTA_EXCEEDED, f"more than {FILTERS_READ_MAX} filters in {packet}")


def _read_subscribe(data: bytes, position: int, end: int, level: int) -> Subscribe:
    packet_id, position = read_packet_id(data, position, end)
    properties, position = _read_block(data, position, end, PacketType.SUBSCRIBE, level)
    # Bits that must be zero: all but the QoS before version 5 ([MQTT-3.8.3-5]).
    reserved = 0xC0 if level == MQTT_5 else 0xFC
    filters: list[FilterOptions] = []
    while position < end:
        text, position = read_text(data, position, end)
        options, position = read_u8(data, position, end)
        if options & reserved or options & 0x03 == 0x03:
            raise malformed("subscription options hold reserved bits or QoS 3")
        if options & 0x30 == 0x30:
            raise protocol_error("retain handling is 3")
        filters.append(
            FilterOptions(
                text, options & 0x03, bool(options & 0x04), bool(options & 0x08), options >> 4
            )
        )
        if len(filters) > FILTERS_READ_MAX:
            raise _too_many("SUBSCRIBE")
    if not filters:
        raise protocol_error("SUBSCRIBE without a topic filter")
    return Subscribe(packet_id, tuple(filters), properties)


def _read_suback(data: bytes, position: int, end: int, level: int) -> Suback:
    packet_id, position = read_packet_id(data, position, end)
    properties, position = _read_block(data, position, end, PacketType.SUBACK, level)
    codes = tuple(data[position:end])
    if not codes:
        raise protocol_error("SUBACK without a code")
    for code in codes:
        if level == MQTT_5:
            check_reason(PacketType.SUBACK, code)
        elif code not in (0, 1, 2, 0x80):
            raise protocol_error(f"SUBACK has return code {code}")
    return Suback(packet_id, codes, properties)


def _read_unsubscribe(data: bytes, position: int, end: int, level: int) -> Unsubscribe:
    packet_id, position = read_packet_id(data, position, end)
    properties, position = _read_block(data, position, end, PacketType.UNSUBSCRIBE, level)
    filters: list[str] = []
    while position < end:
        text, position = read_text(data, position, end)
        filters.append(text)
        if len(filters) > FILTERS_READ_MAX:
            raise _too_many("UNSUBSCRIBE")
    if not filters:
        raise protocol_error("UNSUBSCRIBE without a topic filter")
    return Unsubscribe(packet_id, tuple(filters), properties)


def _read_unsuback(data: bytes, position: int, end: int, level: int) -> Unsuback:
    packet_id, position = read_packet_id(data, position, end)
    if level != MQTT_5:
        _check_end(position, end)
        return Unsuback(packet_id)
    properties, position = _read_block(data, position, end, PacketType.UNSUBACK, level)
    codes = tuple(data[position:end])
    if not codes:
        raise protocol_error("UNSUBACK without a code")
    for code in codes:
        check_reason(PacketType.UNSUBACK, code)
    return Unsuback(packet_id, codes, properties)


def _read_pingreq(_data: bytes, position: int, end: int, _level: int) -> Pingreq:
    _check_end(position, end)
    return _PINGREQ


def _read_pingresp(_data: bytes, position: int, end: int, _level: int) -> Pingresp:
    _check_end(position, end)
    return _PINGRESP


def _read_disconnect(data: bytes, position: int, end: int, level: int) -> Disconnect:
    if level != MQTT_5:
        _check_end(position, end)
        return Disconnect()
    if position == end:
        return Disconnect()
    code, properties = read_ack_tail(data, position, end, PacketType.DISCONNECT)
    return Disconnect(code, properties)


def _read_auth(data: bytes, position: int, end: int, level: int) -> Auth:
    if level != MQTT_5:
        raise malformed("AUTH does not exist before MQTT 5")
    if position == end:
        return Auth()
    code, position = read_u8(data, position, end)
    check_reason(PacketType.AUTH, code)
    # Unlike the others, AUTH with a code has properties too (MQTT5 3.15.2.2).
    properties, position = read_properties(data, position, end, PacketType.AUTH)
    _check_end(position, end)
    if code and properties.authentication_method is None:
        raise protocol_error("AUTH without an authentication method")
    return Auth(code, properties)


READERS: Final[dict[int, Callable[[bytes, int, int, int], ControlPacket]]] = {
    PacketType.CONNECT: read_connect,
    PacketType.CONNACK: _read_connack,
    PacketType.SUBSCRIBE: _read_subscribe,
    PacketType.SUBACK: _read_suback,
    PacketType.UNSUBSCRIBE: _read_unsubscribe,
    PacketType.UNSUBACK: _read_unsuback,
    PacketType.PINGREQ: _read_pingreq,
    PacketType.PINGRESP: _read_pingresp,
    PacketType.DISCONNECT: _read_disconnect,
    PacketType.AUTH: _read_auth,
}


def read_ack_tail(
    data: bytes, position: int, end: int, packet_type: PacketType
) -> tuple[int, Properties]:
    """Reason code and, unless left out, properties (MQTT5 3.4.2, 3.14.2)."""
    code, position = read_u8(data, position, end)
    check_reason(packet_type, code)
    if position == end:
        return code, NO_PROPERTIES
    properties, position = read_properties(data, position, end, packet_type)
    _check_end(position, end)
    return code, properties


def _read_block(
    data: bytes, position: int, end: int, owner: int, level: int
) -> tuple[Properties, int]:
    if level != MQTT_5:
        return NO_PROPERTIES, position
    return read_properties(data, position, end, owner)


def read_packet_id(data: bytes, position: int, end: int) -> tuple[int, int]:
    packet_id, position = read_u16(data, position, end)
    if not packet_id:
        raise protocol_error("a packet identifier is 0")
    return packet_id, position


def check_reason(packet_type: PacketType, code: int) -> None:
    """A code outside its packet's table is a protocol error ([MQTT-3.4.2-1] and its like)."""
    if code not in ALLOWED[packet_type]:
        raise protocol_error(f"{packet_type.name} has reason code 0x{code:02X}")


def _check_end(position: int, end: int) -> None:
    if position != end:
        raise malformed("bytes are left over at the end of a packet")
