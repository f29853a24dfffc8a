"""The life of one client's connection: CONNECT, AUTH, keep alive, DISCONNECT, and every error.

What flows while a connection is accepted is `client_session.py`, which builds on this. The states
are the tables of `states.py`; what CONNECT may ask for is `handshake.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from adapters.mqtt.codec.control import UnsupportedLevelError
from adapters.mqtt.codec.decoder import Decoder
from adapters.mqtt.codec.errors import LocalProtocolError, MqttError, protocol_error
from adapters.mqtt.codec.packet_types import MQTT_3_1, MQTT_3_1_1, MQTT_5, PacketType
from adapters.mqtt.codec.packets import (
    AckRun,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    PublishRun,
    Subscribe,
    Unsubscribe,
)
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.codec.reason_codes import (
    CLIENT_DISCONNECTS,
    FAILURE,
    ReasonCode,
    v3_return_code,
)
from adapters.mqtt.limits import HELD_BYTES_MAX, HELD_BYTES_PAUSE, KEEP_ALIVE_PROGRESS_BYTES
from adapters.mqtt.session import handshake
from adapters.mqtt.session.events import (
    AuthenticationReceived,
    ConnectionClosed,
    ConnectReceived,
    Event,
    Initiator,
)
from adapters.mqtt.session.send_buffer import SendBuffer
from adapters.mqtt.session.states import (
    ON_AUTH_RECEIVED,
    ON_AUTH_SENT,
    ON_PACKET,
    AuthState,
    ConnectionState,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from adapters.mqtt.codec.packets import ReceivedPacket, Will
    from adapters.mqtt.codec.topic_names import TopicNames
    from adapters.mqtt.config import SessionConfig
    from adapters.mqtt.session.handshake import Agreement, Welcome
    from adapters.mqtt.session.outbound import InFlight

# Looking a member up in its Enum costs 0.1 microseconds (CPython 3.11), and these are looked up for
# every chunk of bytes.
_DECIDING: Final = ConnectionState.DECIDING
_CONNECTED: Final = ConnectionState.CONNECTED
_CLOSED: Final = ConnectionState.CLOSED
_TRAFFIC: Final = (PublishRun, AckRun, Subscribe, Unsubscribe)


class Connection(ABC):
    """The server's side of one connection, without its traffic."""

    __slots__ = (
        "_auth",
        "_auth_method",
        "_config",
        "_deadline_ms",
        "_decoder",
        "_request",
        "_request_bytes",
        "_send_buffer",
        "_session_expiry_s",
        "_silence_ms",
        "_state",
        "_will",
        "ended",
    )

    def __init__(self, config: SessionConfig, names: TopicNames, now_ms: int) -> None:
        self._config = config
        self._state = ConnectionState.WAITING
        self._auth = AuthState.NONE
        self._decoder = Decoder(names, maximum_packet_size=config.connect_bytes_max)
        self._send_buffer = SendBuffer()
        # CONNECT with its terms, until it is decided; it holds the password, so no longer.
        self._request: tuple[Connect, Agreement] | None = None
        self._request_bytes = 0
        self._auth_method: str | None = None
        self._will: Will | None = None
        self.ended: ConnectionClosed | None = None
        """How it ended, once it has."""
        self._session_expiry_s = 0
        self._deadline_ms: int | None = now_ms + config.connect_timeout_ms
        # How long an accepted client may be silent; None: for ever.
        self._silence_ms: int | None = None

    # -----------------------------------------------------------------------------------------
    # What the driver may ask at any time

    @property
    def state(self) -> ConnectionState:
        return self._state

    @property
    def level(self) -> int:
        """The wire format: 5, or 4 for everything before it."""
        return self._send_buffer.level

    @property
    def deadline_ms(self) -> int | None:
        """When to call `check_deadline`; it moves with every packet. None: never.

        While the driver decides, the client is not the one who is late.
        """
        return None if self._state is _DECIDING else self._deadline_ms

    @property
    def reading_paused(self) -> bool:
        """True while the transport should not be read: too much waits for the driver.

        When it is read again, tell `reading_resumed`.
        """
        if self._state is _DECIDING:
            return self._decoder.buffered_bytes >= HELD_BYTES_PAUSE
        return self._traffic_paused

    @property
    def unfinished_bytes(self) -> int:
        """What is held of a packet that is not whole, of CONNECT until it is decided, and of what
        came behind it.
        """
        return self._decoder.buffered_bytes + self._request_bytes

    @property
    def missing_bytes(self) -> int:
        """How many more must come before there is anything to decode; 0 where that is not known."""
        return self._decoder.missing_bytes

    def data_to_send(self) -> bytes:
        """All bytes since the last call, b"" if none."""
        return self._send_buffer.take()

    # -----------------------------------------------------------------------------------------
    # Bytes and time in

    def receive_data(self, data: bytes, now_ms: int) -> list[Event]:
        """What the client sent, as bytes and in chunks of any size.

        The last event may be `ConnectionClosed`; nothing is raised.
        """
        events: list[Event] = []
        if self._state is _DECIDING:
            self._decoder.hold(data)
            if self._decoder.buffered_bytes > HELD_BYTES_MAX:
                detail = f"more than {HELD_BYTES_MAX} bytes before CONNACK"
                events.append(self._fail(MqttError(ReasonCode.QUOTA_EXCEEDED, detail)))
        elif self._state is not _CLOSED:
            alive = self._decode(data, events)
            if alive or len(data) >= KEEP_ALIVE_PROGRESS_BYTES:
                self._heard(now_ms)
        return events

    def check_deadline(self, now_ms: int) -> ConnectionClosed | None:
        """Closes a connection whose client has been silent too long ([MQTT-3.1.2-22])."""
        deadline_ms = self.deadline_ms
        if deadline_ms is None or now_ms < deadline_ms or self.reading_paused:
            return None
        detail = "the client was silent for too long"
        return self._fail(MqttError(ReasonCode.KEEP_ALIVE_TIMEOUT, detail))

    def reading_resumed(self, now_ms: int) -> None:
        """The transport is read again after a pause: the client could not be heard until now."""
        self._heard(now_ms)

    def connection_lost(self) -> ConnectionClosed | None:
        """The transport is gone. None if the connection was over already."""
        if self._state is _CLOSED:
            return None
        code = ReasonCode.UNSPECIFIED_ERROR
        return self._close(Initiator.NETWORK, code, "the transport was closed", None)

    def _heard(self, now_ms: int) -> None:
        if self._silence_ms is not None and self._state is _CONNECTED:
            self._deadline_ms = now_ms + self._silence_ms

    def _decode(self, data: bytes, events: list[Event]) -> bool:
        """Decodes and handles what may be handled now; whether a whole packet was in it."""
        alive = False
        while True:
            packets: list[ReceivedPacket] = []
            failure: MqttError | None = None
            try:
                self._decoder.receive(data, packets)
            except MqttError as error:
                failure = error
            try:
                for packet in packets:
                    self._handle(packet, events)
                    if self._state is _CLOSED:
                        return True
            except MqttError as error:
                failure = error
            if failure is not None:
                events.append(self._fail(failure))
                return True
            alive = alive or bool(packets)
            # The decoder stops behind AUTH; on an accepted connection reading goes on.
            if not (packets and isinstance(packets[-1], Auth)):
                return alive
            if self._state is not _CONNECTED:
                return alive
            data = b""

    # -----------------------------------------------------------------------------------------
    # Packets

    def _handle(self, packet: ReceivedPacket, events: list[Event]) -> None:
        after = ON_PACKET.get((self._state, packet.type))
        if after is None:
            raise protocol_error(f"{packet.type.name} while {self._state.name}")
        if isinstance(packet, _TRAFFIC):
            self._on_traffic(packet, events)
        elif isinstance(packet, Pingreq):
            self._send_buffer.ping_answer()
        elif isinstance(packet, Connect):
            events.append(self._on_connect(packet))
        elif isinstance(packet, Auth):
            events.append(self._on_auth(packet))
        elif isinstance(packet, Disconnect):
            events.append(self._on_disconnect(packet))
        self._state = after

    @property
    @abstractmethod
    def _traffic_paused(self) -> bool:
        """`reading_paused` for an accepted connection."""

    @abstractmethod
    def _on_traffic(
        self, packet: PublishRun | AckRun | Subscribe | Unsubscribe, events: list[Event]
    ) -> None:
        """Handles a packet that only an accepted connection has."""

    @abstractmethod
    def _on_accepted(
        self, agreement: Agreement, in_flight: Iterable[InFlight], received_ids: Iterable[int]
    ) -> None:
        """CONNACK is sent: opens the traffic, with what a resumed session has pending."""

    def _on_connect(self, connect: Connect) -> ConnectReceived:
        properties = connect.properties
        self._send_buffer.addressed(
            MQTT_5 if connect.level == MQTT_5 else MQTT_3_1_1,
            properties.maximum_packet_size,
            properties.request_problem_information != 0,
        )
        agreement = handshake.agree(connect, self._config)
        if agreement.authentication_method is not None:
            self._auth = AuthState.OUR_TURN
        self._auth_method = agreement.authentication_method
        self._request = (connect, agreement)
        self._request_bytes = connect.size_bytes
        self._session_expiry_s = agreement.session_expiry_s
        return ConnectReceived(connect, agreement.client_id_needed, agreement.session_expiry_s)

    def _on_auth(self, packet: Auth) -> AuthenticationReceived:
        after = ON_AUTH_RECEIVED.get((self._auth, packet.reason_code))
        method = packet.properties.authentication_method
        if after is None or method is None or method != self._auth_method:
            raise protocol_error("AUTH without a method, with another one, or out of turn")
        self._auth = after
        again = self._state is _CONNECTED
        return AuthenticationReceived(method, packet.properties.authentication_data, again)

    def _on_disconnect(self, packet: Disconnect) -> ConnectionClosed:
        code = packet.reason_code
        if code not in CLIENT_DISCONNECTS:
            raise protocol_error(f"a client sends DISCONNECT with 0x{code:02X}")
        expiry_s = packet.properties.session_expiry_interval
        if expiry_s is not None:
            if expiry_s and not self._session_expiry_s:
                raise protocol_error("a session that was to end now is to be kept")
            self._session_expiry_s = min(expiry_s, self._config.session_expiry_s_max)
        detail = packet.properties.reason_string or "the client disconnected"
        # Only a plain goodbye takes the will back ([MQTT-3.14.4-3]).
        keep_will = code != ReasonCode.SUCCESS
        return self._close(Initiator.CLIENT, code, detail, None, keep_will=keep_will)

    # -----------------------------------------------------------------------------------------
    # The driver's decisions about the connection

    def accept(
        self,
        welcome: Welcome,
        now_ms: int,
        *,
        in_flight: Iterable[InFlight] = (),
        received_ids: Iterable[int] = (),
    ) -> list[Event]:
        """Lets the client in: CONNACK, then what the session had pending, then what waited.

        `in_flight` (the deliveries that were released) and `received_ids` are the record of the
        session that is resumed. Returns the
        events of the packets that the client sent behind CONNECT. Raises LocalProtocolError if
        the acceptance contradicts the request. No-op if the client is gone already.
        """
        if self._state is _CLOSED:
            return []
        connect, agreement = self._deciding()
        if welcome.session_present and connect.clean_start:
            raise LocalProtocolError("a clean start has no session ([MQTT-3.2.2-2])")
        if agreement.client_id_needed != bool(welcome.assigned_client_id):
            raise LocalProtocolError("exactly a client without an identifier is given one")
        if not welcome.session_present:
            in_flight, received_ids = (), ()
        self._state = _CONNECTED
        self._request, self._request_bytes = None, 0
        self._will = connect.will
        if self._auth != AuthState.NONE:
            self._auth = AuthState.DONE
        answer = handshake.connack(agreement, self._config, welcome)
        if connect.level == MQTT_3_1:
            # The flag came with 3.1.1; in 3.1 the byte is reserved.
            answer = Connack(0)
        self._send_buffer.send(answer)
        self._decoder.maximum_packet_size = self._config.maximum_packet_size
        self._on_accepted(agreement, in_flight, received_ids)
        self._silence_ms = agreement.silence_ms_max
        self._deadline_ms = None
        self._heard(now_ms)
        events: list[Event] = []
        self._decode(b"", events)
        return events

    def refuse(
        self, code: ReasonCode, reason_string: str = "", server_reference: str | None = None
    ) -> ConnectionClosed | None:
        """CONNACK with `code`, and the end; what waited behind CONNECT is dropped.

        `server_reference` goes with 0x9C and 0x9D. None if the client is gone already.
        """
        if self._state is _CLOSED:
            return None
        self._deciding()
        return self.disconnect(code, reason_string, server_reference)

    def disconnect(
        self, code: ReasonCode, reason_string: str = "", server_reference: str | None = None
    ) -> ConnectionClosed | None:
        """Ends the connection: DISCONNECT, or CONNACK if it was not accepted yet.

        Takeover is 0x8E, shutdown 0x8B, moving clients away 0x9D with `server_reference`. An
        MQTT 3.1.1 client sees the connection close. None if it was over already.
        """
        if self._state is _CLOSED:
            return None
        goodbye = self._goodbye(code, reason_string, server_reference)
        return self._close(Initiator.SERVER, code, reason_string or code.name, goodbye)

    def send_authentication(
        self, data: bytes | None, code: ReasonCode = ReasonCode.CONTINUE_AUTHENTICATION
    ) -> list[Event]:
        """AUTH: one more step (0x18), or the good end of authenticating again (0x00).

        Raises LocalProtocolError out of turn, and for 0x00 before acceptance, which is `accept`.
        """
        if self._state is _CLOSED:
            return []
        after = ON_AUTH_SENT.get((self._auth, code))
        deciding = self._state is _DECIDING
        if after is None or (deciding and after == AuthState.DONE):
            raise LocalProtocolError(f"AUTH 0x{code:02X} while {self._auth.name}")
        self._auth = after
        properties = Properties(authentication_method=self._auth_method, authentication_data=data)
        self._send_buffer.send(Auth(code, properties))
        events: list[Event] = []
        if deciding:
            self._state = ConnectionState.AUTHENTICATING
            self._decode(b"", events)
        return events

    def _deciding(self) -> tuple[Connect, Agreement]:
        if self._state is not _DECIDING or self._request is None:
            raise LocalProtocolError(f"there is no CONNECT to decide while {self._state.name}")
        return self._request

    def _goodbye(
        self, code: int, reason_string: str, server_reference: str | None = None
    ) -> Connack | Disconnect | None:
        five = self._send_buffer.level == MQTT_5
        if self._state is _CONNECTED:
            if not five:
                return None
            explanation = self._send_buffer.explanation(
                PacketType.DISCONNECT, reason_string, (), server_reference
            )
            return Disconnect(code, explanation)
        if not self._decoder.level:
            # CONNECT has not named a format to answer in.
            return None
        if five:
            explanation = self._send_buffer.explanation(
                PacketType.CONNACK, reason_string, (), server_reference
            )
            return Connack(max(code, FAILURE), False, explanation)
        return_code = v3_return_code(code)
        return None if return_code is None else Connack(return_code)

    def _fail(self, error: MqttError) -> ConnectionClosed:
        """The client's error: the goodbye that its version and state have for it."""
        if self._state == ConnectionState.WAITING:
            if isinstance(error, UnsupportedLevelError):
                self._decoder.level = error.answer_level
            self._send_buffer.level = MQTT_5 if self._decoder.level == MQTT_5 else MQTT_3_1_1
        goodbye = self._goodbye(error.reason_code, error.detail)
        return self._close(Initiator.SERVER, error.reason_code, error.detail, goodbye)

    def _close(
        self,
        initiator: Initiator,
        code: int,
        detail: str,
        goodbye: Connack | Disconnect | None,
        *,
        keep_will: bool = True,
    ) -> ConnectionClosed:
        accepted = self._state is _CONNECTED
        will = self._will if keep_will else None
        delay_s = 0 if will is None else will.properties.will_delay_interval or 0
        self._send_buffer.close(goodbye)
        self._decoder.discard()
        self._request, self._request_bytes = None, 0
        self._state = _CLOSED
        self._deadline_ms = None
        self.ended = ConnectionClosed(
            initiator=initiator,
            reason_code=int(code),
            detail=detail,
            accepted=accepted,
            will=will,
            will_delay_s=min(delay_s, self._session_expiry_s),
            session_expiry_s=self._session_expiry_s if accepted else 0,
        )
        return self.ended
