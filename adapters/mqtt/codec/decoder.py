"""Bytes in, packets out: framing, and the loop that decodes a whole chunk.

    fixed header   | type and flags (1 byte) | remaining length (varint, 1..4 bytes) | body ...
    PUBLISH        | topic length | topic | [packet id if QoS > 0] | [properties] | payload
    PUBACK & Co    | packet id | [reason code | [properties]]

Rules of the loop:
- The first byte is looked up in a table of 256 kinds, which checks type, reserved flags, QoS 3, DUP
  at QoS 0 and direction at once. A wrong first byte fails before the rest has arrived.
- A packet's size is checked as soon as its header is known; an oversized body is never buffered.
- Consecutive PUBLISH packets become one `PublishRun`, consecutive acknowledgements one `AckRun`.
  Order between packets is kept, with one exception: a PUBACK may be reported with others of its
  chunk although a PUBLISH stood between; neither side's exchange can see the difference.
- Decoding stops behind CONNECT and AUTH, because the answer decides whether the rest is read at all
  ([MQTT-3.1.4-6]); the rest waits for the next call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.chunks import keep_chunk
from adapters.mqtt.codec.control import (
    READERS,
    read_ack_tail,
    read_level,
    read_packet_id,
)
from adapters.mqtt.codec.data_types import read_varint
from adapters.mqtt.codec.errors import MqttError, malformed, protocol_error
from adapters.mqtt.codec.packet_types import (
    MQTT_5,
    PUBACK_FIRST_BYTE,
    PacketType,
)
from adapters.mqtt.codec.packets import AckRun, ControlPacket, PublishRun, ReceivedPacket
from adapters.mqtt.codec.properties import NO_PROPERTIES, read_publish_block
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.limits import (
    CONNECT_BYTES_MAX,
    PACKET_BYTES_MAX,
    PUBLISH_PROPERTY_BYTES_MAX,
)

if TYPE_CHECKING:
    from adapters.mqtt.codec.topic_names import TopicNames

# Kinds of first byte. The order matters: the loop compares with <=.
_REFUSED: Final = 0
_AT_MOST_ONCE: Final = 1
_AT_LEAST_ONCE: Final = 2
_EXACTLY_ONCE: Final = 3
_ACK: Final = 4
_CONTROL: Final = 5

_FROM_CLIENTS: Final = frozenset({1, 3, 4, 5, 6, 7, 8, 10, 12, 14, 15})
_FROM_SERVERS: Final = frozenset({2, 3, 4, 5, 6, 7, 9, 11, 13, 14, 15})
_ACK_TYPES: Final = {
    0x40: PacketType.PUBACK,
    0x50: PacketType.PUBREC,
    0x62: PacketType.PUBREL,
    0x70: PacketType.PUBCOMP,
}
# Behind these the decoder stops; see the module's head.
_STOPPING: Final = frozenset({0x10, 0xF0})
_FLAGGED: Final = frozenset({PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE})


def _kind(first: int, senders: frozenset[int]) -> int:
    packet_type, flags = first >> 4, first & 0x0F
    if packet_type not in senders:
        return _REFUSED
    if packet_type == PacketType.PUBLISH:
        qos = flags >> 1 & 3
        if qos == 3 or (qos == 0 and flags & 0x08):
            return _REFUSED
        return _AT_MOST_ONCE + qos
    if flags != (0x02 if packet_type in _FLAGGED else 0x00):
        return _REFUSED
    if PacketType.PUBACK <= packet_type <= PacketType.PUBCOMP:
        return _ACK
    return _CONTROL


_SERVER_KINDS: Final = bytes(_kind(first, _FROM_CLIENTS) for first in range(256))
_CLIENT_KINDS: Final = bytes(_kind(first, _FROM_SERVERS) for first in range(256))
# The first packet is CONNECT and nothing else ([MQTT-3.1.0-1]).
_FIRST_KINDS: Final = bytes(_CONTROL if first == 0x10 else _REFUSED for first in range(256))


_ANY_KINDS: Final = bytes(_kind(first, _FROM_CLIENTS | _FROM_SERVERS) for first in range(256))


def _refusal(first: int, kinds: bytes) -> MqttError:
    """Why the table refuses this first byte."""
    packet_type = first >> 4
    if packet_type == 0:
        return malformed("packet type 0 is reserved")
    name = PacketType(packet_type).name
    if _ANY_KINDS[first] == _REFUSED:
        return malformed(f"{name} has the flags {first & 0x0F:04b}")
    if kinds is _FIRST_KINDS:
        return protocol_error(f"the first packet is {name}, not CONNECT")
    return protocol_error(f"{name} is not sent in this direction")


def _read_size(data: bytes, position: int, end: int) -> tuple[int, int]:
    """The remaining length and the position behind it; -1 if its last byte has not arrived."""
    if position < end and data[position] < 0x80:
        return data[position], position + 1
    value = 0
    for shift in (0, 7, 14, 21):
        if position >= end:
            return -1, position
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if not byte:
                raise malformed("the remaining length is not in its shortest form")
            return value, position
    raise malformed("the remaining length is longer than four bytes")


def _too_large(size: int, limit: int) -> MqttError:
    return MqttError(ReasonCode.PACKET_TOO_LARGE, f"{size} bytes where {limit} are allowed")


class Decoder:
    """The receiving half of one connection.

    A server's decoder (the default) learns the protocol level from CONNECT; a client's is told it.
    `maximum_packet_size` counts whole packets, in bytes; a packet of just that size is allowed.
    After an MqttError the decoder is not to be used again.
    """

    __slots__ = (
        "_chunks",
        "_client",
        "_kinds",
        "_missing",
        "_names",
        "buffered_bytes",
        "level",
        "maximum_packet_size",
    )

    def __init__(
        self,
        names: TopicNames,
        *,
        maximum_packet_size: int = CONNECT_BYTES_MAX,
        client_level: int = 0,
    ) -> None:
        self._names = names
        self._client = bool(client_level)
        self._kinds = _CLIENT_KINDS if client_level else _FIRST_KINDS
        self._chunks: list[bytes] = []
        # How many more bytes are needed before decoding can go on; 0: it can.
        self._missing = 0
        self.level = client_level
        self.maximum_packet_size = maximum_packet_size if not client_level else PACKET_BYTES_MAX
        self.buffered_bytes = 0

    @property
    def missing_bytes(self) -> int:
        """How many more must come before there is anything to decode; 0 where that is not known."""
        return self._missing

    def hold(self, data: bytes) -> None:
        """Keeps bytes for later without looking at them."""
        if data:
            keep_chunk(self._chunks, data)
            self.buffered_bytes += len(data)
            self._missing = max(0, self._missing - len(data))

    def discard(self) -> None:
        """Forgets everything that has not been decoded."""
        self._chunks.clear()
        self.buffered_bytes = self._missing = 0

    def receive(self, data: bytes, packets: list[ReceivedPacket]) -> None:
        """Appends every complete packet to `packets`.

        Raises MqttError at the first packet that breaks the format; what came before it is in
        `packets` then.
        """
        if self._chunks:
            self.hold(data)
            if self._missing:
                return
            data = b"".join(self._chunks)
            self.discard()
        position = self._decode(data, packets)
        if position < len(data):
            rest = data[position:] if position else data
            self._chunks.append(rest)
            self.buffered_bytes = len(rest)

    def _decode(self, data: bytes, packets: list[ReceivedPacket]) -> int:
        """Decodes until data or need ends; returns the position of the first byte not used.

        A hot loop: everything that happens for each PUBLISH and each short acknowledgement stands
        here, everything rarer is a call away.
        """
        kinds, names, limit = self._kinds, self._names, self.maximum_packet_size
        five = self.level == MQTT_5
        end = len(data)
        position = 0
        run: PublishRun | None = None
        acks: AckRun | None = None
        acks_first = 0
        while position < end:
            first = data[position]
            kind = kinds[first]
            if not kind:
                raise _refusal(first, kinds)
            body = position + 2
            size = data[position + 1] if body <= end else 0x80
            if size > 0x7F:
                if body < end and 0 < data[body] < 0x80:
                    size += (data[body] << 7) - 0x80
                    body += 1
                else:
                    size, body = _read_size(data, position + 1, end)
                    if size < 0:
                        self._missing = 1
                        break
            stop = body + size
            if stop > end or stop - position > limit:
                if stop - position > limit:
                    raise _too_large(stop - position, limit)
                self._missing = stop - end
                break
            if kind <= _EXACTLY_ONCE:
                if size < 3:
                    raise malformed("PUBLISH ends inside its topic")
                topic_end = body + 2 + (data[body] << 8 | data[body + 1])
                cursor = topic_end + 2 if kind > _AT_MOST_ONCE else topic_end
                if cursor + five > stop:
                    raise malformed("the fields of PUBLISH are longer than the packet")
                packet_id = 0
                if kind > _AT_MOST_ONCE:
                    packet_id = data[topic_end] << 8 | data[topic_end + 1]
                    if not packet_id:
                        raise protocol_error("a packet identifier is 0")
                topic = names[data[body + 2 : topic_end]]
                if run is None:
                    run = PublishRun()
                    packets.append(run)
                    # A PUBACK may be told with those before this PUBLISH; no other packet may.
                    if acks_first != PUBACK_FIRST_BYTE:
                        acks = None
                block = b""
                if five:
                    if data[cursor]:
                        block, cursor = self._read_block(data, cursor, stop, run)
                    else:
                        cursor += 1
                if not topic and len(run.topics) not in run.aliases:
                    raise protocol_error("PUBLISH has neither a topic nor a topic alias")
                run.topics.append(topic)
                run.payloads.append(data[cursor:stop])
                run.flags.append(first)
                run.packet_ids.append(packet_id)
                run.properties.append(block)
                if kind == _EXACTLY_ONCE:
                    run.exactly_once = True
            elif kind == _ACK:
                if acks is None or first != acks_first:
                    acks = AckRun(_ACK_TYPES[first])
                    acks_first = first
                    packets.append(acks)
                    if first != PUBACK_FIRST_BYTE:
                        run = None
                if size == 2:
                    packet_id = data[body] << 8 | data[body + 1]
                    if not packet_id:
                        raise protocol_error("a packet identifier is 0")
                    acks.packet_ids.append(packet_id)
                    acks.reason_codes.append(0)
                else:
                    self._read_long_ack(data, body, stop, acks)
            else:
                packets.append(self._read_control(first >> 4, data, body, stop))
                run = acks = None
                if first in _STOPPING:  # its answer decides whether the rest is read at all
                    return stop
            position = stop
        return position

    def _read_block(
        self, data: bytes, position: int, end: int, run: PublishRun
    ) -> tuple[bytes, int]:
        """A PUBLISH's properties: what is the message's own, and the position behind them."""
        length, position = read_varint(data, position, end)
        stop = position + length
        if stop > end:
            raise malformed("the properties are longer than their packet")
        if length > PUBLISH_PROPERTY_BYTES_MAX:
            raise _too_large(length, PUBLISH_PROPERTY_BYTES_MAX)
        block = read_publish_block(data, position, stop)
        if block.subscription_identifiers and not self._client:
            # Before anything of the packet is in the run, of which the rest is handled.
            raise protocol_error("a client's PUBLISH has a subscription identifier")
        index = len(run.topics)
        if block.message_expiry_interval is not None:
            run.expiries[index] = block.message_expiry_interval
        if block.topic_alias:
            run.aliases[index] = block.topic_alias
        if block.subscription_identifiers:
            run.subscription_identifiers[index] = block.subscription_identifiers
        return block.application, stop

    def _read_long_ack(self, data: bytes, position: int, end: int, acks: AckRun) -> None:
        packet_id, position = read_packet_id(data, position, end)
        if self.level != MQTT_5:
            raise malformed("an acknowledgement has bytes behind its packet identifier")
        code, properties = read_ack_tail(data, position, end, acks.type)
        if properties is not NO_PROPERTIES:
            acks.properties[len(acks.packet_ids)] = properties
        acks.packet_ids.append(packet_id)
        acks.reason_codes.append(code)

    def _read_control(
        self, packet_type: int, data: bytes, position: int, end: int
    ) -> ControlPacket:
        if packet_type == PacketType.CONNECT and not self._client:
            # Known before the rest is read, so that a refusal can be written in its format.
            self.level, _ = read_level(data, position, end)
            self._kinds = _SERVER_KINDS
        return READERS[packet_type](data, position, end, self.level)
