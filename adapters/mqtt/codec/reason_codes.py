"""Reason codes of MQTT 5 (MQTT5 2.4), where each may be used, and what MQTT 3.1.1 says instead.

One failure has one reason code inside the adapter. A 5 client is told the code itself; a 3.1.1
client is told one of five return codes in CONNACK, 0x80 in SUBACK, or nothing before the close
(MQTT3.1.1 3.2.2.3, 3.9.3, 4.8).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from adapters.mqtt.codec.packet_types import PacketType


class ReasonCode(IntEnum):
    """MQTT5 2.4. Codes below 0x80 are success."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


FAILURE: Final = 0x80
"""The lowest code that means failure."""

_PUBLISH_ANSWERS: Final = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})

ALLOWED: Final[dict[PacketType, frozenset[int]]] = {
    PacketType.CONNACK: frozenset(
        {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97} | {0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F}
    ),
    PacketType.PUBACK: _PUBLISH_ANSWERS,
    PacketType.PUBREC: _PUBLISH_ANSWERS,
    PacketType.PUBREL: frozenset({0x00, 0x92}),
    PacketType.PUBCOMP: frozenset({0x00, 0x92}),
    PacketType.SUBACK: frozenset(
        {0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2}
    ),
    PacketType.UNSUBACK: frozenset({0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91}),
    PacketType.DISCONNECT: frozenset(
        {0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B}
        | {*range(0x8D, 0x91), *range(0x93, 0xA3)}
    ),
    PacketType.AUTH: frozenset({0x00, 0x18, 0x19}),
}
"""The codes that a packet may carry (the tables of MQTT5 3.2.2.2 to 3.15.2.1)."""

CLIENT_DISCONNECTS: Final = frozenset(
    {0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99}
)
"""The DISCONNECT codes that a client may send (MQTT5 3.14.2.1)."""

# The nearest code that the packet may carry, where a failure's own is not among them. Everything
# else becomes 0x80, "unspecified".
_NEAREST: Final[dict[PacketType, dict[int, int]]] = {
    PacketType.CONNACK: {0x8B: 0x88, 0x8D: 0x82, 0x93: 0x82, 0x94: 0x82, 0x96: 0x97, 0x98: 0x8A},
    PacketType.DISCONNECT: {0x84: 0x82, 0x85: 0x82, 0x86: 0x87, 0x88: 0x8B, 0x8A: 0x98, 0x8C: 0x87},
    PacketType.PUBACK: {0x88: 0x83, 0x89: 0x97, 0x95: 0x97, 0x96: 0x97},
    PacketType.PUBREC: {0x88: 0x83, 0x89: 0x97, 0x95: 0x97, 0x96: 0x97},
    PacketType.SUBACK: {0x88: 0x83, 0x89: 0x83},
    PacketType.UNSUBACK: {0x88: 0x83, 0x89: 0x83},
}


def carried_by(packet_type: PacketType, code: int) -> int:
    """`code`, or the nearest one that the table of `packet_type` allows ([MQTT-3.2.2-8])."""
    if code in ALLOWED[packet_type]:
        return int(code)
    return _NEAREST.get(packet_type, {}).get(code, int(ReasonCode.UNSPECIFIED_ERROR))


V3_ACCEPTED: Final = 0
V3_SUBSCRIPTION_FAILED: Final = 0x80

_V3_RETURN_CODES: Final[dict[int, int]] = {
    # 1: unacceptable protocol level.
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: 1,
    # 2: identifier rejected.
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: 2,
    # 3: server unavailable, which a client takes as "try again".
    ReasonCode.UNSPECIFIED_ERROR: 3,
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR: 3,
    ReasonCode.SERVER_UNAVAILABLE: 3,
    ReasonCode.SERVER_BUSY: 3,
    ReasonCode.SERVER_SHUTTING_DOWN: 3,
    ReasonCode.MESSAGE_RATE_TOO_HIGH: 3,
    ReasonCode.QUOTA_EXCEEDED: 3,
    ReasonCode.USE_ANOTHER_SERVER: 3,
    ReasonCode.SERVER_MOVED: 3,
    ReasonCode.CONNECTION_RATE_EXCEEDED: 3,
    # 4: bad user name or password.
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: 4,
    # 5: not authorized.
    ReasonCode.NOT_AUTHORIZED: 5,
    ReasonCode.BANNED: 5,
    ReasonCode.RETAIN_NOT_SUPPORTED: 5,
    ReasonCode.QOS_NOT_SUPPORTED: 5,
}


def v3_return_code(code: int) -> int | None:
    """The CONNACK return code of MQTT 3.1.1 for a refusal, or None: close without an answer.

    A CONNECT that breaks the format gets no answer at all ([MQTT-3.1.4-1] of 3.1.1).
    """
    return _V3_RETURN_CODES.get(code)
