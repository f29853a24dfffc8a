"""The fifteen packet types and the two wire formats (MQTT5 2.1.2, 3.1.2.2)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class PacketType(IntEnum):
    """The high nibble of a packet's first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


MQTT_3_1: Final = 3
"""The level of MQTT 3.1 ("MQIsdp"), which is served in the format of 3.1.1."""
MQTT_3_1_1: Final = 4
MQTT_5: Final = 5

# The first byte of a PUBLISH, below its type: what the flags mean (MQTT5 3.3.1).
RETAIN_BIT: Final = 0x01
QOS_BITS: Final = 0x06
DUP_BIT: Final = 0x08
PUBLISH_FIRST_BYTE: Final = 0x30

# The first byte of each acknowledgement, flags included (MQTT5 3.6.1 for PUBREL's).
PUBACK_FIRST_BYTE: Final = 0x40
PUBREC_FIRST_BYTE: Final = 0x50
PUBREL_FIRST_BYTE: Final = 0x62
PUBCOMP_FIRST_BYTE: Final = 0x70
