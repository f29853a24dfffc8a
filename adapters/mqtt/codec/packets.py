"""The packets, for both versions and both directions (MQTT5 chapter 3).

Control packets are values. PUBLISH and the four acknowledgements of the QoS 1 and 2 exchanges
arrive as *runs*: columns over consecutive packets of one kind in one chunk of bytes, because an
object per message is the dearest thing a hot path can do. A 3.1.1 packet simply has no properties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeAlias

import msgspec

from adapters.mqtt.codec.packet_types import DUP_BIT, QOS_BITS, RETAIN_BIT, PacketType
from adapters.mqtt.codec.properties import (
    NO_PROPERTIES,
    Properties,
    parse_publish_properties,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class Will(msgspec.Struct, frozen=True):
    """What the server publishes for a client that is gone (MQTT5 3.1.2.5)."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


class Connect(msgspec.Struct, frozen=True):
    """MQTT5 3.1. `level` is 3, 4 or 5; `clean_start` is Clean Session in 3.1 and 3.1.1. A bridge
    says that it is one before MQTT 5 only.
    """

    type: ClassVar[PacketType] = PacketType.CONNECT
    client_id: str
    level: int = 5
    clean_start: bool = True
    keep_alive_s: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = NO_PROPERTIES
    is_bridge: bool = False

    @property
    def size_bytes(self) -> int:
        """Of what its sender has put into it."""
        size = len(self.client_id) + len(self.username or "") + len(self.password or b"")
        for each in (self.properties, self.will.properties if self.will else NO_PROPERTIES):
            size += sum(len(name) + len(value) for name, value in each.user_properties)
            size += len(each.authentication_data or b"") + len(each.correlation_data or b"")
        return size + (len(self.will.payload) if self.will is not None else 0)


class Connack(msgspec.Struct, frozen=True):
    """MQTT5 3.2. In 3.1.1 `reason_code` is the return code, 0 to 5."""

    type: ClassVar[PacketType] = PacketType.CONNACK
    reason_code: int = 0
    session_present: bool = False
    properties: Properties = NO_PROPERTIES


class Publish(msgspec.Struct, frozen=True):
    """One PUBLISH (MQTT5 3.3). `packet_id` is 0 at QoS 0. An empty topic needs a topic alias."""

    type: ClassVar[PacketType] = PacketType.PUBLISH
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NO_PROPERTIES


class PublishRun(msgspec.Struct):
    """Consecutive PUBLISH packets of one chunk, a column per field, all of equal length.

    `flags` holds the first byte of each packet: DUP, QoS and RETAIN in its low nibble.
    `properties` holds the message's own properties as raw, validated bytes (`properties.py` says
    which, and parses them on request). What is rare is in the dictionaries, keyed by position.
    """

    type: ClassVar[PacketType] = PacketType.PUBLISH
    topics: list[str] = msgspec.field(default_factory=list)
    payloads: list[bytes] = msgspec.field(default_factory=list)
    flags: list[int] = msgspec.field(default_factory=list)
    packet_ids: list[int] = msgspec.field(default_factory=list)
    properties: list[bytes] = msgspec.field(default_factory=list)
    # Position -> message expiry interval in seconds.
    expiries: dict[int, int] = msgspec.field(default_factory=dict)
    # Position -> topic alias; the topic is "" if the packet gave only the alias.
    aliases: dict[int, int] = msgspec.field(default_factory=dict)
    # Position -> subscription identifiers; only servers send them.
    subscription_identifiers: dict[int, tuple[int, ...]] = msgspec.field(default_factory=dict)
    # True if a packet of the run has QoS 2.
    exactly_once: bool = False
    # Given by the session: what `publish_committed` wants back; 0 where nothing is answered.
    tokens: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.topics)

    def only(self, kept: Sequence[int]) -> PublishRun:
        """The packets at these positions: what a server that has taken the run apart needs of
        them.
        """
        return PublishRun(
            topics=[self.topics[each] for each in kept],
            payloads=[self.payloads[each] for each in kept],
            flags=[self.flags[each] for each in kept],
            packet_ids=[self.packet_ids[each] for each in kept],
            properties=[self.properties[each] for each in kept],
            expiries={
                place: self.expiries[each]
                for place, each in enumerate(kept)
                if each in self.expiries
            },
            exactly_once=self.exactly_once,
            tokens=[self.tokens[each] for each in kept],
        )

    def packet(self, index: int) -> Publish:
        """One packet of the run, with everything parsed; for tests and tools, not for speed."""
        flags = self.flags[index]
        own = parse_publish_properties(self.properties[index])
        return Publish(
            topic=self.topics[index],
            payload=self.payloads[index],
            qos=(flags & QOS_BITS) >> 1,
            retain=bool(flags & RETAIN_BIT),
            dup=bool(flags & DUP_BIT),
            packet_id=self.packet_ids[index],
            properties=Properties(
                payload_format_indicator=own.payload_format_indicator,
                message_expiry_interval=self.expiries.get(index),
                content_type=own.content_type,
                response_topic=own.response_topic,
                correlation_data=own.correlation_data,
                subscription_identifiers=self.subscription_identifiers.get(index, ()),
                topic_alias=self.aliases.get(index),
                user_properties=own.user_properties,
            ),
        )


class Ack(msgspec.Struct, frozen=True):
    """One PUBACK, PUBREC, PUBREL or PUBCOMP (MQTT5 3.4 to 3.7), to be encoded."""

    type: PacketType
    packet_id: int
    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


class AckRun(msgspec.Struct):
    """Consecutive acknowledgements of one type, as columns; see `Ack`."""

    type: PacketType
    packet_ids: list[int] = msgspec.field(default_factory=list)
    reason_codes: list[int] = msgspec.field(default_factory=list)
    # Position -> properties, of the few that have any.
    properties: dict[int, Properties] = msgspec.field(default_factory=dict)


class FilterOptions(msgspec.Struct, frozen=True):
    """One filter of a SUBSCRIBE with its options (MQTT5 3.8.3.1). In 3.1.1 only `qos` exists."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(msgspec.Struct, frozen=True):
    """MQTT5 3.8."""

    type: ClassVar[PacketType] = PacketType.SUBSCRIBE
    packet_id: int
    filters: tuple[FilterOptions, ...]
    properties: Properties = NO_PROPERTIES


class Suback(msgspec.Struct, frozen=True):
    """MQTT5 3.9: one code for each filter, in order."""

    type: ClassVar[PacketType] = PacketType.SUBACK
    packet_id: int
    reason_codes: tuple[int, ...]
    properties: Properties = NO_PROPERTIES


class Unsubscribe(msgspec.Struct, frozen=True):
    """MQTT5 3.10."""

    type: ClassVar[PacketType] = PacketType.UNSUBSCRIBE
    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


class Unsuback(msgspec.Struct, frozen=True):
    """MQTT5 3.11. A 3.1.1 UNSUBACK has no codes."""

    type: ClassVar[PacketType] = PacketType.UNSUBACK
    packet_id: int
    reason_codes: tuple[int, ...] = ()
    properties: Properties = NO_PROPERTIES


class Pingreq(msgspec.Struct, frozen=True):
    """MQTT5 3.12."""

    type: ClassVar[PacketType] = PacketType.PINGREQ


class Pingresp(msgspec.Struct, frozen=True):
    """MQTT5 3.13."""

    type: ClassVar[PacketType] = PacketType.PINGRESP


class Disconnect(msgspec.Struct, frozen=True):
    """MQTT5 3.14. In 3.1.1 only a client sends it, and always means code 0."""

    type: ClassVar[PacketType] = PacketType.DISCONNECT
    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


class Auth(msgspec.Struct, frozen=True):
    """MQTT5 3.15; MQTT 5 only."""

    type: ClassVar[PacketType] = PacketType.AUTH
    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


ControlPacket: TypeAlias = (
    Connect
    | Connack
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
ReceivedPacket: TypeAlias = ControlPacket | PublishRun | AckRun
SentPacket: TypeAlias = ControlPacket | Publish | Ack
