"""The properties of MQTT 5 (MQTT5 2.2.2): one table, read and written by it.

    property length (varint) | identifier | value | identifier | value ...

A property that its packet may not carry, or that is unknown, makes the packet malformed; one that
stands twice where it may stand once, or has a value that its rule forbids, is a protocol error.

PUBLISH has a reader of its own because it is the hot one: it walks the block once, builds nothing,
and parts it in two. What belongs to the message (payload format, content type, response topic,
correlation data, user properties) is kept as the bytes that came, in their order; what belongs to
this hop (expiry interval, topic alias, subscription identifiers) is taken out and read.
"""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from adapters.mqtt.codec.data_types import (
    encode_binary,
    encode_text,
    encode_u16,
    encode_u32,
    encode_varint,
    read_binary,
    read_text,
    read_u8,
    read_u16,
    read_u32,
    read_varint,
    text_of,
)
from adapters.mqtt.codec.errors import LocalProtocolError, MqttError, malformed, protocol_error
from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.limits import PROPERTY_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

WILL: Final = 16
"""Stands for "the will inside CONNECT", which has a property block of its own (MQTT5 3.1.3.2)."""


class Properties(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of one packet; None or an empty tuple means absent.

    Flags are 0 or 1 as on the wire. Intervals are seconds. `maximum_packet_size` is bytes.
    """

    payload_format_indicator: int | None = None
    message_expiry_interval: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    session_expiry_interval: int | None = None
    assigned_client_identifier: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_interval: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifiers_available: int | None = None
    shared_subscription_available: int | None = None


NO_PROPERTIES: Final = Properties()

REMEMBERED_MAX: Final = 256
"""Blocks that are read, and such that are written, once for all: as many as there are kinds of
clients, and some that say what no other does."""

REMEMBERED_BYTES_MAX: Final = 64
"""Of a block that is remembered: what clients say of themselves takes a dozen. Bounds both tables
to a few hundred kilobytes."""


# ---------------------------------------------------------------------------------------------
# Values: how each kind is read and written


def _read_flag(data: bytes, position: int, end: int) -> tuple[int, int]:
    value, position = read_u8(data, position, end)
    if value > 1:
        raise protocol_error(f"a property that is 0 or 1 has the value {value}")
    return value, position


def _read_pair(data: bytes, position: int, end: int) -> tuple[tuple[str, str], int]:
    name, position = read_text(data, position, end)
    value, position = read_text(data, position, end)
    return (name, value), position


def _read_topic(data: bytes, position: int, end: int) -> tuple[str, int]:
    """A response topic is a name to publish to, so it holds no wildcards ([MQTT-3.3.2-14])."""
    text, position = read_text(data, position, end)
    if not text or "+" in text or "#" in text:
        raise protocol_error("the response topic is not a topic name")
    return text, position


def _encode_flag(value: int) -> bytes:
    if value not in (0, 1):
        raise LocalProtocolError(f"a property that is 0 or 1 cannot be {value}")
    return bytes((value,))


def _encode_pair(value: tuple[str, str]) -> bytes:
    return encode_text(value[0]) + encode_text(value[1])


class _Kind(NamedTuple):
    """How values of one kind are read and written; `Any` because a kind fixes its own type."""

    read: Callable[[bytes, int, int], tuple[Any, int]]
    encode: Callable[[Any], bytes]


_FLAG = _Kind(_read_flag, _encode_flag)
_U16 = _Kind(read_u16, encode_u16)
_U32 = _Kind(read_u32, encode_u32)
_VARINT = _Kind(read_varint, encode_varint)
_TEXT = _Kind(read_text, encode_text)
_TOPIC = _Kind(_read_topic, encode_text)
_BINARY = _Kind(read_binary, encode_binary)
_PAIR = _Kind(_read_pair, _encode_pair)


# ---------------------------------------------------------------------------------------------
# The table


class PropertyRow(NamedTuple):
    """One property: its identifier, its field in `Properties`, its kind, and who may carry it."""

    identifier: int
    field: str
    kind: _Kind
    owners: frozenset[int]
    # More than once, in the packets named.
    repeats_in: frozenset[int] = frozenset()
    # What the value 0 is answered with, where it is forbidden.
    zero_is: ReasonCode | None = None


_T = PacketType
_MESSAGE: Final = frozenset({_T.PUBLISH, WILL})
_ANSWERS: Final = frozenset(
    {_T.CONNACK, _T.PUBACK, _T.PUBREC, _T.PUBREL, _T.PUBCOMP, _T.SUBACK, _T.UNSUBACK}
)
_ALL: Final = (
    _ANSWERS | _MESSAGE | {_T.CONNECT, _T.SUBSCRIBE, _T.UNSUBSCRIBE, _T.DISCONNECT, _T.AUTH}
)
_HANDSHAKE: Final = frozenset({_T.CONNECT, _T.CONNACK})
_SIGN_IN: Final = frozenset({_T.CONNECT, _T.CONNACK, _T.AUTH})
_CONNECT: Final = frozenset({_T.CONNECT})
_CONNACK: Final = frozenset({_T.CONNACK})
_PUBLISH: Final = frozenset({_T.PUBLISH})
_ZERO: Final = ReasonCode.PROTOCOL_ERROR

_Row = PropertyRow
PROPERTIES: Final = (
    _Row(0x01, "payload_format_indicator", _FLAG, _MESSAGE),
    _Row(0x02, "message_expiry_interval", _U32, _MESSAGE),
    _Row(0x03, "content_type", _TEXT, _MESSAGE),
    _Row(0x08, "response_topic", _TOPIC, _MESSAGE),
    _Row(0x09, "correlation_data", _BINARY, _MESSAGE),
    _Row(0x0B, "subscription_identifiers", _VARINT, _PUBLISH | {_T.SUBSCRIBE}, _PUBLISH, _ZERO),
    _Row(0x11, "session_expiry_interval", _U32, _HANDSHAKE | {_T.DISCONNECT}),
    _Row(0x12, "assigned_client_identifier", _TEXT, _CONNACK),
    _Row(0x13, "server_keep_alive", _U16, _CONNACK),
    _Row(0x15, "authentication_method", _TEXT, _SIGN_IN),
    _Row(0x16, "authentication_data", _BINARY, _SIGN_IN),
    _Row(0x17, "request_problem_information", _FLAG, _CONNECT),
    _Row(0x18, "will_delay_interval", _U32, frozenset({WILL})),
    _Row(0x19, "request_response_information", _FLAG, _CONNECT),
    _Row(0x1A, "response_information", _TEXT, _CONNACK),
    _Row(0x1C, "server_reference", _TEXT, _CONNACK | {_T.DISCONNECT}),
    _Row(0x1F, "reason_string", _TEXT, _ANSWERS | {_T.DISCONNECT, _T.AUTH}),
    _Row(0x21, "receive_maximum", _U16, _HANDSHAKE, zero_is=_ZERO),
    _Row(0x22, "topic_alias_maximum", _U16, _HANDSHAKE),
    _Row(0x23, "topic_alias", _U16, _PUBLISH, zero_is=ReasonCode.TOPIC_ALIAS_INVALID),
    _Row(0x24, "maximum_qos", _FLAG, _CONNACK),
    _Row(0x25, "retain_available", _FLAG, _CONNACK),
    _Row(0x26, "user_properties", _PAIR, _ALL, _ALL),
    _Row(0x27, "maximum_packet_size", _U32, _HANDSHAKE, zero_is=_ZERO),
    _Row(0x28, "wildcard_subscription_available", _FLAG, _CONNACK),
    _Row(0x29, "subscription_identifiers_available", _FLAG, _CONNACK),
    _Row(0x2A, "shared_subscription_available", _FLAG, _CONNACK),
)
"""All 27 properties (MQTT5 table 2-4)."""

_BY_IDENTIFIER: Final = {row.identifier: row for row in PROPERTIES}
# A field that may repeat anywhere is a tuple everywhere.
_COLLECTED: Final = frozenset(row.field for row in PROPERTIES if row.repeats_in)
_values_of: Final = attrgetter(*(row.field for row in PROPERTIES))


# ---------------------------------------------------------------------------------------------
# Blocks of control packets


def read_properties(data: bytes, position: int, end: int, owner: int) -> tuple[Properties, int]:
    """The property block at `position` of a packet of type `owner` (or `WILL`)."""
    length, position = read_varint(data, position, end)
    stop = position + length
    if stop > end:
        raise malformed("the properties are longer than their packet")
    if not length:
        return NO_PROPERTIES, stop
    if length > PROPERTY_BYTES_MAX:
        detail = f"{length} bytes of properties where {PROPERTY_BYTES_MAX} are allowed"
        raise MqttError(ReasonCode.PACKET_TOO_LARGE, detail)
    if length <= REMEMBERED_BYTES_MAX:
        return _remembered(data[position:stop], owner), stop
    return _read_rows(data, position, stop, owner), stop


@lru_cache(maxsize=REMEMBERED_MAX)
def _remembered(block: bytes, owner: int) -> Properties:
    """A short block; a fleet of clients connects and subscribes with the same ones."""
    return _read_rows(block, 0, len(block), owner)


def parse_publish_properties(block: bytes) -> Properties:
    """The properties in the bytes that `PublishRun.properties` holds, when somebody asks."""
    if not block:
        return NO_PROPERTIES
    return _read_rows(block, 0, len(block), PacketType.PUBLISH)


def _read_rows(data: bytes, position: int, stop: int, owner: int) -> Properties:
    values: dict[str, Any] = {}
    while position < stop:
        row = _BY_IDENTIFIER.get(data[position])
        if row is None or owner not in row.owners:
            raise malformed(f"property 0x{data[position]:02X} does not belong in this packet")
        value, position = row.kind.read(data, position + 1, stop)
        if row.zero_is is not None and value == 0:
            raise MqttError(row.zero_is, f"{row.field} must not be 0")
        if row.field in values and owner not in row.repeats_in:
            raise protocol_error(f"{row.field} stands twice")
        if row.field in _COLLECTED:
            values.setdefault(row.field, []).append(value)
        else:
            values[row.field] = value
    for name in _COLLECTED & values.keys():
        values[name] = tuple(values[name])
    return Properties(**values)


def encode_properties(properties: Properties, owner: int) -> bytes:
    """The block with its length, in the order of the table.

    Raises LocalProtocolError for a property that `owner` may not carry.
    """
    if properties is NO_PROPERTIES:
        return b"\0"
    if owner == _T.CONNACK:
        return _welcome(properties)
    return _block(properties, owner)


@lru_cache(maxsize=REMEMBERED_MAX)
def _welcome(properties: Properties) -> bytes:
    """What nearly every client of a server is told alike."""
    return _block(properties, _T.CONNACK)


def _block(properties: Properties, owner: int) -> bytes:
    block = _encode_rows(properties, owner)
    return encode_varint(len(block)) + block


def message_block(properties: Properties) -> bytes:
    """What belongs to the message itself, as `PublishRun.properties` has it, without a length.

    For wills, and for messages that did not come as PUBLISH. What belongs to a hop, such as the
    expiry interval, or to the will, such as its delay, is left out.
    """
    own = Properties(
        payload_format_indicator=properties.payload_format_indicator,
        content_type=properties.content_type,
        response_topic=properties.response_topic,
        correlation_data=properties.correlation_data,
        user_properties=properties.user_properties,
    )
    return _encode_rows(own, PacketType.PUBLISH)


def _encode_rows(properties: Properties, owner: int) -> bytes:
    parts: list[bytes] = []
    for row, value in zip(PROPERTIES, _values_of(properties), strict=True):
        if value is None or value == ():
            continue
        if owner not in row.owners:
            raise LocalProtocolError(f"this packet cannot carry {row.field}")
        identifier = bytes((row.identifier,))
        if row.field in _COLLECTED:
            if len(value) > 1 and owner not in row.repeats_in:
                raise LocalProtocolError(f"{row.field} cannot stand twice")
            parts += [identifier + row.kind.encode(item) for item in value]
        else:
            parts.append(identifier + row.kind.encode(value))
    return b"".join(parts)


# ---------------------------------------------------------------------------------------------
# The block of PUBLISH


class PublishBlock(NamedTuple):
    """A PUBLISH property block in its two parts."""

    # The message's own properties, as they came, without a length.
    application: bytes
    # Seconds, or None if absent. 0 means: never deliver (MQTT5 3.3.2.3.3).
    message_expiry_interval: int | None
    # 0 if absent.
    topic_alias: int
    subscription_identifiers: tuple[int, ...]


# The properties that stay with the message and stand once, with what validates them.
_MESSAGE_READERS: Final[dict[int, Callable[[bytes, int, int], tuple[object, int]]]] = {
    0x01: _read_flag,
    0x03: read_text,
    0x08: _read_topic,
    0x09: read_binary,
}
_ONCE_BITS: Final = {0x01: 1, 0x02: 2, 0x03: 4, 0x08: 8, 0x09: 16, 0x23: 32}


def read_publish_block(data: bytes, position: int, stop: int) -> PublishBlock:
    """Validates and parts the properties in data[position:stop]; see the module's head."""
    kept: list[bytes] = []
    kept_from = position
    seen = alias = 0
    expiry: int | None = None
    identifiers: list[int] = []
    while position < stop:
        start = position
        identifier = data[position]
        position += 1
        if identifier == 0x26:  # a user property may stand any number of times
            for _ in (0, 1):
                raw, position = read_binary(data, position, stop)
                text_of(raw)
            continue
        if identifier != 0x0B:
            bit = _ONCE_BITS.get(identifier, 0)
            if not bit:
                raise malformed(f"property 0x{identifier:02X} does not belong in PUBLISH")
            if seen & bit:
                raise protocol_error(f"property 0x{identifier:02X} stands twice")
            seen |= bit
        if (reader := _MESSAGE_READERS.get(identifier)) is not None:
            _, position = reader(data, position, stop)
            continue
        # For this hop alone: cut out of what is passed on.
        kept.append(data[kept_from:start])
        if identifier == 0x02:
            expiry, position = read_u32(data, position, stop)
        elif identifier == 0x23:
            alias, position = read_u16(data, position, stop)
            if not alias:
                raise MqttError(ReasonCode.TOPIC_ALIAS_INVALID, "a topic alias must not be 0")
        else:
            value, position = read_varint(data, position, stop)
            if not value:
                raise protocol_error("a subscription identifier must not be 0")
            identifiers.append(value)
        kept_from = position
    kept.append(data[kept_from:stop])
    return PublishBlock(b"".join(kept), expiry, alias, tuple(identifiers))


def hop_properties(
    message_expiry_interval: int | None = None,
    subscription_identifiers: tuple[int, ...] = (),
    topic_alias: int = 0,
) -> bytes:
    """The properties of one delivery, without a length, to stand before the message's own.

    `message_expiry_interval` is what remains, in seconds ([MQTT-3.3.2-6]); 0 as `topic_alias`
    means none.
    """
    block = b""
    if message_expiry_interval is not None:
        block += b"\x02" + encode_u32(message_expiry_interval)
    for identifier in subscription_identifiers:
        block += b"\x0b" + encode_varint(identifier)
    if topic_alias:
        block += b"\x23" + encode_u16(topic_alias)
    return block
