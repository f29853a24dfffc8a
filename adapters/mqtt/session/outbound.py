"""Outbound publishes to a client: packet identifiers, its receive window, aliases, QoS 1 and 2
exchanges.

A delivery is known by the driver's `token`, an integer that says nothing here. After a reconnect,
and at no other time, what the client has not acknowledged is sent once more with its old identifier
([MQTT-4.4.0-1]), in the order in which the driver gets it again; identifiers that wait for that are
kept from new deliveries. Bodies are not kept here.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from adapters.mqtt.codec.data_types import U16
from adapters.mqtt.codec.encoder import (
    PUBREL_WORD,
    PublishFrame,
    encode_words,
    marked_duplicate,
    publish_frame,
)
from adapters.mqtt.codec.errors import LocalProtocolError, protocol_error
from adapters.mqtt.codec.packet_types import QOS_BITS, PacketType
from adapters.mqtt.codec.properties import hop_properties
from adapters.mqtt.codec.reason_codes import FAILURE, ReasonCode
from adapters.mqtt.limits import PACKET_ID_MAX
from adapters.mqtt.session.states import ON_OUTGOING, Outgoing, OutgoingAction, OutgoingInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from adapters.mqtt.codec.packets import AckRun
    from adapters.mqtt.session.events import DeliveriesCompleted, DeliveriesReceived
    from adapters.mqtt.session.send_buffer import SendBuffer

_pack_id = U16.pack
# Looked up once, like those of `inbound.py`.
_UNKNOWN: Final = Outgoing.UNKNOWN
_AT_LEAST_ONCE: Final = Outgoing.AT_LEAST_ONCE
_SENT: Final = Outgoing.SENT
_RECEIVED: Final = Outgoing.RECEIVED
_RELEASED: Final = Outgoing.RELEASED
_COMPLETE: Final = OutgoingAction.COMPLETE
_RECORD_RECEIPT: Final = OutgoingAction.RECORD_RECEIPT
_SEND_PUBREL: Final = OutgoingAction.SEND_PUBREL
_SEND_PUBREL_NOT_FOUND: Final = OutgoingAction.SEND_PUBREL_NOT_FOUND
_ON_PUBREC: Final = OutgoingInput.PUBREC
_ON_PUBREC_REFUSED: Final = OutgoingInput.PUBREC_REFUSED
_ON_PUBCOMP: Final = OutgoingInput.PUBCOMP
_ON_COMMITTED: Final = OutgoingInput.COMMITTED


class Sent(IntEnum):
    """What became of a delivery that was to be sent."""

    GONE = 0
    NO_CREDIT = 1
    TOO_LARGE = 2
    """To the client it counts as delivered."""


_NO_IDS: Final[frozenset[int]] = frozenset()
_GONE: Final = Sent.GONE
_NO_CREDIT: Final = Sent.NO_CREDIT
_TOO_LARGE: Final = Sent.TOO_LARGE


class InFlight(NamedTuple):
    """A delivery that a client has not ended, as a session's record keeps it."""

    packet_id: int
    token: int
    qos: int
    # QoS 2 and PUBREC is on record: PUBREL is sent again, never PUBLISH ([MQTT-4.3.3-6]).
    released: bool = False


class Outbound:
    """The receiving half of one accepted connection (seen from the client)."""

    __slots__ = (
        "_aliases",
        "_aliases_max",
        "_exactly_once",
        "_in_flight",
        "_kept",
        "_last_id",
        "_send_buffer",
        "window",
    )

    def __init__(self, send_buffer: SendBuffer) -> None:
        self._send_buffer = send_buffer
        self.window = 0
        """How many unacknowledged deliveries the client takes."""
        self._aliases_max = 0
        # Topic -> alias; the first come keep theirs, aliases are never given to another topic.
        self._aliases: dict[str, int] = {}
        # Packet identifier -> token, in the order of sending.
        self._in_flight: dict[int, int] = {}
        # Packet identifier -> state, of those that have QoS 2.
        self._exactly_once: dict[int, Outgoing] = {}
        self._last_id = 0
        # Identifiers of an earlier connection whose messages may be delivered again, and then must
        # be sent with them.
        self._kept: set[int] | frozenset[int] = _NO_IDS

    def open(self, window: int, aliases_max: int) -> None:
        """What the client takes: so many unacknowledged deliveries, so many topic aliases."""
        self.window = window
        self._aliases_max = aliases_max

    # -----------------------------------------------------------------------------------------
    # New deliveries

    @property
    def credit(self) -> int:
        """How many more QoS 1 and 2 deliveries may be sent now."""
        return max(0, self.window - len(self._in_flight))

    @property
    def in_flight_count(self) -> int:
        """QoS 1 and 2 deliveries that the client has not answered to the end."""
        return len(self._in_flight)

    @property
    def uses_aliases(self) -> bool:
        return self._aliases_max > 0

    def send_frames(self, frames: Sequence[PublishFrame], tokens: Sequence[int]) -> list[int]:
        """Sends deliveries that are encoded already; returns the tokens of those too large.

        What is too large for this client is not in flight: to it, it is delivered
        ([MQTT-3.1.2-25]). A hot loop. Raises LocalProtocolError beyond `credit`.
        """
        too_large: list[int] = []
        parts = self._send_buffer.parts
        limit = self._send_buffer.maximum_packet_size
        for frame, token in zip(frames, tokens, strict=True):
            head, tail = frame
            if not head[0] & QOS_BITS:
                if len(head) > limit:
                    too_large.append(token)
                else:
                    parts.append(head)
                continue
            if len(head) + len(tail) + 2 > limit:
                too_large.append(token)
                continue
            parts += (head, _pack_id(self._take_id(token, head[0])), tail)
        return too_large

    def try_frame(self, frame: PublishFrame, token: int) -> Sent:
        """Sends one delivery that is encoded already, if the client takes it now (hot)."""
        head, tail = frame
        send_buffer = self._send_buffer
        if not head[0] & QOS_BITS:
            if len(head) > send_buffer.maximum_packet_size:
                return _TOO_LARGE
            send_buffer.parts.append(head)
            return _GONE
        if len(self._in_flight) >= self.window:
            return _NO_CREDIT
        if len(head) + len(tail) + 2 > send_buffer.maximum_packet_size:
            return _TOO_LARGE
        send_buffer.parts += (head, _pack_id(self._take_id(token, head[0])), tail)
        return _GONE

    def send_publish(
        self, topic: str, flags: int, properties: bytes, payload: bytes, token: int
    ) -> bool:
        """Encodes and sends one delivery, with a topic alias if there is one to have.

        Arguments as in `publish_frame`. Returns False if it is too large for this client, which
        then counts as delivered. Raises LocalProtocolError beyond `credit`.
        """
        alias = self._aliases.get(topic, 0)
        new = not alias and len(self._aliases) < self._aliases_max
        raw_topic = b"" if alias else topic.encode()
        if new:
            alias = len(self._aliases) + 1
        block = hop_properties(topic_alias=alias) + properties if alias else properties
        head, tail = publish_frame(self._send_buffer.level, flags, raw_topic, block, payload)
        numbered = head[0] & QOS_BITS
        if len(head) + len(tail) + (2 if numbered else 0) > self._send_buffer.maximum_packet_size:
            return False
        if numbered:
            self._send_buffer.parts += (head, _pack_id(self._take_id(token, head[0])), tail)
        else:
            self._send_buffer.parts.append(head)
        if new:
            self._aliases[topic] = alias
        return True

    def fits(self, frame: PublishFrame) -> bool:
        """Whether the client takes a packet of that size."""
        head, tail = frame
        numbered = 2 if head[0] & QOS_BITS else 0
        return len(head) + len(tail) + numbered <= self._send_buffer.maximum_packet_size

    def reserve(self, token: int, qos: int) -> int:
        """The packet identifier of a delivery that will be sent by `send_reserved`, once it is on
        record that it has it. Raises LocalProtocolError beyond `credit`.
        """
        return self._take_id(token, qos << 1)

    def send_reserved(self, packet_id: int, frame: PublishFrame) -> None:
        """Sends a delivery that has its identifier, and `fits`."""
        head, tail = frame
        self._send_buffer.parts += (head, _pack_id(packet_id), tail)

    def keep_ids(self, packet_ids: Iterable[int]) -> None:
        """Gives these identifiers to no new delivery: see `send_kept`."""
        self._kept = {*self._kept, *packet_ids}

    def send_kept(self, packet_id: int, token: int, frame: PublishFrame) -> None:
        """Sends again, marked as a duplicate, what an earlier connection of this session sent by
        an identifier that `keep_ids` has kept. It must `fit`. Raises LocalProtocolError beyond
        `credit`, or for an identifier that is not kept.
        """
        if packet_id not in self._kept or len(self._in_flight) >= self.window:
            raise LocalProtocolError(f"delivery {packet_id} is not to be sent again now")
        self.drop_kept(packet_id)
        head, tail = marked_duplicate(frame)
        self._in_flight[packet_id] = token
        if head[0] & 0x04:
            self._exactly_once[packet_id] = _SENT
        self._send_buffer.parts += (head, _pack_id(packet_id), tail)

    def release_kept(self, packet_id: int, token: int) -> None:
        """What was sent by a kept identifier at QoS 2 cannot be sent again. The exchange must be
        brought to its end all the same, because the client may know the identifier: PUBREL.
        """
        self.drop_kept(packet_id)
        self.restore((InFlight(packet_id, token, 2, released=True),))

    def drop_kept(self, packet_id: int) -> None:
        """What was sent by a kept identifier will not be sent again: it is free."""
        if isinstance(self._kept, set):
            self._kept.discard(packet_id)

    def _take_id(self, token: int, first: int) -> int:
        """The next free packet identifier, now of `token` ([MQTT-2.2.1-4])."""
        in_flight = self._in_flight
        if len(in_flight) >= self.window:
            raise LocalProtocolError("the client's receive maximum is used up")
        packet_id = self._last_id % PACKET_ID_MAX + 1
        kept = self._kept
        if kept and len(in_flight) + len(kept) >= PACKET_ID_MAX:
            raise LocalProtocolError("no packet identifier is free")
        while packet_id in in_flight or packet_id in kept:
            packet_id = packet_id % PACKET_ID_MAX + 1
        self._last_id = packet_id
        in_flight[packet_id] = token
        if first & 0x04:
            self._exactly_once[packet_id] = _SENT
        return packet_id

    # -----------------------------------------------------------------------------------------
    # What a client answers

    def acknowledged_one(self, packet_id: int) -> int | None:
        """A plain PUBACK: the token of its QoS 1 delivery; None if it is not so simple (hot)."""
        if packet_id in self._exactly_once:
            return None
        return self._in_flight.pop(packet_id, None)

    def acknowledged(self, run: AckRun, completed: DeliveriesCompleted) -> None:
        """PUBACKs. Raises MqttError 0x82 for one that answers a QoS 2 delivery."""
        in_flight, exactly_once = self._in_flight, self._exactly_once
        for packet_id, code in zip(run.packet_ids, run.reason_codes, strict=True):
            if exactly_once and packet_id in exactly_once:
                raise protocol_error(f"PUBACK for the QoS 2 delivery {packet_id}")
            token = in_flight.pop(packet_id, None)
            if token is None:
                continue
            completed.tokens.append(token)
            if code >= FAILURE:
                completed.refused[token] = code

    def received(
        self, run: AckRun, receipts: DeliveriesReceived, completed: DeliveriesCompleted
    ) -> None:
        """PUBRECs. Raises MqttError 0x82 for one that answers a QoS 1 delivery."""
        for packet_id, code in zip(run.packet_ids, run.reason_codes, strict=True):
            refused = code >= FAILURE
            what = _ON_PUBREC_REFUSED if refused else _ON_PUBREC
            token = self._in_flight.get(packet_id, 0)
            action = self._step(packet_id, what)
            if action is _RECORD_RECEIPT:
                receipts.packet_ids.append(packet_id)
                receipts.tokens.append(token)
            elif action is _COMPLETE:
                completed.tokens.append(token)
                completed.refused[token] = code
            elif action is _SEND_PUBREL:
                self._send_buffer.parts.append(encode_words((PUBREL_WORD | packet_id,)))
            elif action is _SEND_PUBREL_NOT_FOUND:
                self._send_buffer.acknowledge(
                    PacketType.PUBREL, packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
                )

    def receipts_committed(self, packet_ids: Sequence[int]) -> None:
        """The receipts are on record: PUBREL ([MQTT-4.3.3-4])."""
        for packet_id in packet_ids:
            if self._exactly_once.get(packet_id) is not _RECEIVED:
                raise LocalProtocolError(f"delivery {packet_id} has no receipt to record")
            self._step(packet_id, _ON_COMMITTED)
        if packet_ids and not self._send_buffer.closed:
            words = [PUBREL_WORD | packet_id for packet_id in packet_ids]
            self._send_buffer.parts.append(encode_words(words))

    def finished(self, run: AckRun, completed: DeliveriesCompleted) -> None:
        """PUBCOMPs. Raises MqttError 0x82 for one that no PUBREL went before."""
        for packet_id in run.packet_ids:
            token = self._in_flight.get(packet_id, 0)
            if self._step(packet_id, _ON_PUBCOMP) is _COMPLETE:
                completed.tokens.append(token)

    def _step(self, packet_id: int, what: OutgoingInput) -> OutgoingAction:
        state = self._exactly_once.get(packet_id, _UNKNOWN)
        if state is _UNKNOWN and packet_id in self._in_flight:
            state = _AT_LEAST_ONCE
        row = ON_OUTGOING.get((state, what))
        if row is None:
            raise protocol_error(f"{what.name} for delivery {packet_id} is out of order")
        after, action = row
        if after is _UNKNOWN:
            self._exactly_once.pop(packet_id, None)
            self._in_flight.pop(packet_id, None)
        else:
            self._exactly_once[packet_id] = after
        return action

    # -----------------------------------------------------------------------------------------
    # Reconnecting

    def restore(self, released: Iterable[InFlight]) -> None:
        """Takes over the deliveries that an earlier connection had PUBREC for: their PUBRELs go out
        again at once. The others are sent again when the driver has them: see `keep_ids`.
        """
        words: list[int] = []
        for delivery in released:
            if not delivery.released:
                raise LocalProtocolError(f"delivery {delivery.packet_id} was never released")
            self._in_flight[delivery.packet_id] = delivery.token
            self._exactly_once[delivery.packet_id] = _RELEASED
            words.append(PUBREL_WORD | delivery.packet_id)
        if words:
            self._send_buffer.parts.append(encode_words(words))

    def stored(self) -> list[InFlight]:
        """Everything in flight, in the order of sending, for the session's record."""
        return [
            InFlight(
                packet_id,
                token,
                2 if packet_id in self._exactly_once else 1,
                self._exactly_once.get(packet_id) is _RELEASED,
            )
            for packet_id, token in self._in_flight.items()
        ]
