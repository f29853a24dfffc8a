"""One client's connection to a server: bytes and decisions in, events and bytes out.

    events = session.receive_data(data, now_ms)      what the client wants
    session.accept(...), .publish_committed(...)     what the driver decided or finished
    transport.write(session.data_to_send())          once a loop turn, whatever was decided in it

Rules:
- The session decides everything that MQTT decides; the driver authenticates, stores, delivers.
  Whatever must be durable before the client may hear of it is an event now and an answer later.
- Every `send_*` and every answer puts bytes into one buffer, so their order is the order of calls.
- A client's error never raises: it ends in a `ConnectionClosed` event, with the goodbye in the
  buffer. `LocalProtocolError` is raised for calls that the state does not allow: a bug of ours.
- After `ConnectionClosed` no event and no byte comes any more; late answers are ignored.
- There is no clock: times are milliseconds of any monotonic clock, given by the caller.

The states are tables in `states.py`; coming, going and errors are `connection.py`; the two halves
of the traffic are `inbound.py` and `outbound.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.mqtt.codec.errors import LocalProtocolError, MqttError, protocol_error
from adapters.mqtt.codec.packet_types import MQTT_5, PUBACK_FIRST_BYTE, PacketType
from adapters.mqtt.codec.packets import AckRun, PublishRun, Suback, Subscribe, Unsuback, Unsubscribe
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.session.connection import Connection
from adapters.mqtt.session.events import (
    ConnectionClosed,
    DeliveriesCompleted,
    DeliveriesReceived,
    Event,
    PublishesReleased,
    SubscribeReceived,
    UnsubscribeReceived,
)
from adapters.mqtt.session.inbound import Inbound
from adapters.mqtt.session.outbound import InFlight, Outbound, Sent
from adapters.mqtt.session.states import ConnectionState
from adapters.mqtt.session.subscribing import subscribe_received, unsubscribe_received

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from adapters.mqtt.codec.encoder import PublishFrame
    from adapters.mqtt.codec.topic_names import TopicNames
    from adapters.mqtt.config import SessionConfig
    from adapters.mqtt.session.handshake import Agreement

# Looked up once, like those of `connection.py`.
_NO_IDS: Final[frozenset[int]] = frozenset()
_CONNECTED: Final = ConnectionState.CONNECTED
_CLOSED: Final = ConnectionState.CLOSED
PUBACK_BYTES: Final = 4
"""A PUBACK without a reason code."""
_PUBACK: Final = PacketType.PUBACK
_PUBREC: Final = PacketType.PUBREC
_PUBREL: Final = PacketType.PUBREL


class Session(Connection):
    """The server's side of one MQTT connection; see the module's head."""

    __slots__ = ("_inbound", "_is_bridge", "_outbound", "_requests")

    def __init__(self, config: SessionConfig, names: TopicNames, now_ms: int) -> None:
        super().__init__(config, names, now_ms)
        self._inbound = Inbound(config, self._send_buffer)
        self._outbound = Outbound(self._send_buffer)
        self._is_bridge = False
        # Packet identifiers of SUBSCRIBE and UNSUBSCRIBE that wait for the driver.
        # Made for the first, because most connections have none most of the time.
        self._requests: set[int] | frozenset[int] = _NO_IDS

    @property
    def _traffic_paused(self) -> bool:
        # An MQTT 5 client that keeps to its Receive Maximum is never paused for its messages,
        # because its other packets must be answered all the same ([MQTT-4.9.0-3]).
        if len(self._requests) >= self._config.requests_pending_max:
            return True
        enforced = self._send_buffer.level == MQTT_5 and self._config.enforce_receive_maximum
        return not enforced and self._inbound.answers_due >= self._config.receive_maximum

    @property
    def is_over(self) -> bool:
        """Whether the connection was closed; nothing can be sent any more."""
        return self._state is _CLOSED

    @property
    def has_output(self) -> bool:
        """Whether `data_to_send` has bytes."""
        return bool(self._send_buffer.parts)

    @property
    def credit(self) -> int:
        """How many QoS 1 and 2 deliveries the client takes now."""
        return self._outbound.credit if self._state is _CONNECTED else 0

    @property
    def in_flight_count(self) -> int:
        """QoS 1 and 2 deliveries that the client has not answered to the end."""
        return self._outbound.in_flight_count

    @property
    def delivery_window(self) -> int:
        """How many of these it takes at once."""
        return self._outbound.window

    @property
    def uses_aliases(self) -> bool:
        """True if `send_publish` is worth its while beside `send_frames`."""
        return self._outbound.uses_aliases

    # -----------------------------------------------------------------------------------------
    # Packets

    def _on_accepted(
        self, agreement: Agreement, in_flight: Iterable[InFlight], received_ids: Iterable[int]
    ) -> None:
        self._is_bridge = agreement.is_bridge
        self._outbound.open(agreement.delivery_window, agreement.topic_aliases_out)
        self._inbound.restore(received_ids)
        self._outbound.restore(in_flight)

    def _on_traffic(
        self, packet: PublishRun | AckRun | Subscribe | Unsubscribe, events: list[Event]
    ) -> None:
        if isinstance(packet, PublishRun):
            admitted = self._inbound.admit(packet)
            if admitted is not None:
                events.append(admitted)
        elif isinstance(packet, AckRun):
            self._on_acks(packet, events)
        else:
            self._on_request(packet, events)

    def _on_acks(self, run: AckRun, events: list[Event]) -> None:
        if run.type is _PUBREL:
            to_record = self._inbound.release(run.packet_ids)
            if to_record:
                events.append(PublishesReleased(to_record))
            return
        completed = DeliveriesCompleted()
        receipts = DeliveriesReceived([], [])
        try:
            if run.type is _PUBACK:
                self._outbound.acknowledged(run, completed)
            elif run.type is _PUBREC:
                self._outbound.received(run, receipts, completed)
            else:
                self._outbound.finished(run, completed)
        finally:
            # An error in the run does not undo what came before it.
            if completed.tokens:
                events.append(completed)
            if receipts.packet_ids:
                events.append(receipts)

    def _on_request(self, packet: Subscribe | Unsubscribe, events: list[Event]) -> None:
        packet_id = packet.packet_id
        if packet_id in self._requests:
            if self._send_buffer.level != MQTT_5:
                raise protocol_error(f"packet identifier {packet_id} is in use")
            codes = (int(ReasonCode.PACKET_IDENTIFIER_IN_USE),) * len(packet.filters)
            answer = Suback if isinstance(packet, Subscribe) else Unsuback
            self._send_buffer.send(answer(packet_id, codes))
            return
        if isinstance(packet, Subscribe):
            level, is_bridge = self._send_buffer.level, self._is_bridge
            events.append(subscribe_received(packet, self._config, level, is_bridge=is_bridge))
        else:
            events.append(unsubscribe_received(packet, self._send_buffer.level))
        if not isinstance(self._requests, set):
            self._requests = set()
        self._requests.add(packet_id)

    def receive_puback(self, data: bytes, now_ms: int) -> int | None:
        """The token of the delivery that a chunk which is one plain PUBACK ends (hot).

        None, and nothing is done, if it is not as simple as that: then `receive_data`. A fan-out
        at QoS 1 brings such a chunk for each delivery.
        """
        if (
            len(data) != PUBACK_BYTES
            or data[0] != PUBACK_FIRST_BYTE
            or data[1] != PUBACK_BYTES - 2
            or self._state is not _CONNECTED
            or self._decoder.buffered_bytes
        ):
            return None
        token = self._outbound.acknowledged_one(data[2] << 8 | data[3])
        if token is not None and self._silence_ms is not None:
            self._deadline_ms = now_ms + self._silence_ms
        return token

    # -----------------------------------------------------------------------------------------
    # Answers to a client's requests

    def publish_committed(
        self, tokens: Sequence[int], code: int = 0, reason_string: str = ""
    ) -> ConnectionClosed | None:
        """The messages of `tokens`, ascending, are durable, or refused with `code` >= 0x80.

        Acknowledgements leave in the order in which the messages came, whatever the order of
        calls. 0x10 says that nobody subscribes. An MQTT 3.1.1 client cannot be told of a refusal:
        its connection is closed, and the event returned.
        """
        try:
            self._inbound.committed(tokens, code, reason_string)
        except MqttError as error:
            return None if self._state is _CLOSED else self._fail(error)
        return None

    def releases_committed(self, packet_ids: Sequence[int]) -> None:
        """The identifiers of a `PublishesReleased` are forgotten on record: PUBCOMP."""
        self._inbound.released(packet_ids)

    def send_suback(
        self, request: SubscribeReceived, codes: Sequence[int], reason_string: str = ""
    ) -> None:
        """SUBACK with one code for each of `request.undecided()`: QoS granted, or >= 0x80."""
        decided = iter(codes)
        if len(codes) != len(request.undecided()):
            raise LocalProtocolError("SUBACK needs a code for each undecided filter")
        merged = tuple(item.refusal or next(decided) for item in request.requests)
        if self._takes_answer(request.packet_id):
            explanation = self._send_buffer.explanation(PacketType.SUBACK, reason_string)
            self._send_buffer.send(Suback(request.packet_id, merged, explanation))

    def send_unsuback(
        self, request: UnsubscribeReceived, codes: Sequence[int], reason_string: str = ""
    ) -> None:
        """UNSUBACK with one code a filter: 0x00, 0x11 for no such subscription, or >= 0x80."""
        if len(codes) != len(request.filters):
            raise LocalProtocolError("UNSUBACK needs a code for each filter")
        if self._takes_answer(request.packet_id):
            explanation = self._send_buffer.explanation(PacketType.UNSUBACK, reason_string)
            self._send_buffer.send(Unsuback(request.packet_id, tuple(codes), explanation))

    def _takes_answer(self, packet_id: int) -> bool:
        if self._state is _CLOSED:
            return False
        if packet_id not in self._requests:
            raise LocalProtocolError(f"request {packet_id} was never made or is answered already")
        if isinstance(self._requests, set):
            self._requests.discard(packet_id)
            self._requests = self._requests or _NO_IDS
        return True

    # -----------------------------------------------------------------------------------------
    # Deliveries

    def send_frames(self, frames: Sequence[PublishFrame], tokens: Sequence[int]) -> list[int]:
        """Delivers messages encoded by `publish_frame`; see `Outbound.send_frames`."""
        self._must_be_connected()
        return self._outbound.send_frames(frames, tokens)

    def try_frame(self, frame: PublishFrame, token: int) -> Sent:
        """Delivers a message encoded by `publish_frame`, if there is credit for it now (hot)."""
        self._must_be_connected()
        return self._outbound.try_frame(frame, token)

    def send_publish(
        self, topic: str, flags: int, properties: bytes, payload: bytes, token: int
    ) -> bool:
        """Encodes and delivers one message, by topic alias; see `Outbound.send_publish`."""
        self._must_be_connected()
        return self._outbound.send_publish(topic, flags, properties, payload, token)

    def fits(self, frame: PublishFrame) -> bool:
        """Whether the client takes a packet of that size."""
        return self._outbound.fits(frame)

    def reserve(self, token: int, qos: int) -> int:
        """The packet identifier of a delivery to be sent later; see `Outbound.reserve`."""
        self._must_be_connected()
        return self._outbound.reserve(token, qos)

    def send_reserved(self, packet_id: int, frame: PublishFrame) -> None:
        """Sends a delivery that has its identifier; see `Outbound.send_reserved`."""
        self._must_be_connected()
        self._outbound.send_reserved(packet_id, frame)

    def keep_ids(self, packet_ids: Iterable[int]) -> None:
        """Gives these identifiers to no new delivery; see `Outbound.keep_ids`."""
        self._outbound.keep_ids(packet_ids)

    def send_kept(self, packet_id: int, token: int, frame: PublishFrame) -> None:
        """Sends a kept delivery again; see `Outbound.send_kept`."""
        self._must_be_connected()
        self._outbound.send_kept(packet_id, token, frame)

    def release_kept(self, packet_id: int, token: int) -> None:
        """A kept QoS 2 delivery cannot be sent again; see `Outbound.release_kept`."""
        self._must_be_connected()
        self._outbound.release_kept(packet_id, token)

    def drop_kept(self, packet_id: int) -> None:
        """A kept identifier is free; see `Outbound.drop_kept`."""
        self._outbound.drop_kept(packet_id)

    def receipts_committed(self, packet_ids: Sequence[int]) -> None:
        """The receipts of a `DeliveriesReceived` are on record: PUBREL."""
        self._outbound.receipts_committed(packet_ids)

    def in_flight(self) -> list[InFlight]:
        """The deliveries that the client has not ended, for the session's record."""
        return self._outbound.stored()

    def received_ids(self) -> list[int]:
        """The QoS 2 identifiers that the session must remember, for its record."""
        return self._inbound.received_ids()

    def _must_be_connected(self) -> None:
        if self._state is not _CONNECTED:
            raise LocalProtocolError(f"nothing is delivered while {self._state.name}")
