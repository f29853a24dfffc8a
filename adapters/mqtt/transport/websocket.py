"""A server's side of one WebSocket that carries MQTT, without I/O (MQTT5 chapter 6, RFC 6455).

The handshake asks for the sub-protocol `mqtt` ([MQTT-6.0.0-3], [MQTT-6.0.0-4]); 3.1 clients ask for
`mqttv3.1`. Only binary frames carry packets ([MQTT-6.0.0-1]); a packet may span frames and a frame
hold many ([MQTT-6.0.0-2]), because only bytes are handed on. The frames are wsproto's.
"""

from __future__ import annotations

from typing import Final

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from adapters.mqtt.limits import WEBSOCKET_HANDSHAKE_BYTES_MAX

SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")


class WebSocket:
    """Bytes of TCP in, bytes of MQTT out, and the other way round."""

    __slots__ = ("_connection", "_is_open", "_out", "_received", "is_over")

    def __init__(self) -> None:
        self._connection = WSConnection(ConnectionType.SERVER)
        self._out: list[bytes] = []
        self._is_open = False
        self._received = 0
        self.is_over = False
        """The handshake was refused or the peer has closed: write what is there and close."""

    @property
    def handshake_bytes(self) -> int:
        """What has come of a handshake that is not whole."""
        return 0 if self._is_open or self.is_over else self._received

    def receive(self, data: bytes) -> list[bytes]:
        """The MQTT bytes in what the peer sent. Nothing is raised."""
        if self.is_over:
            return []
        if not self._is_open:
            self._received += len(data)
            if self._received > WEBSOCKET_HANDSHAKE_BYTES_MAX:
                self.is_over = True
                return []
        found: list[bytes] = []
        try:
            self._connection.receive_data(data)
            for event in self._connection.events():
                self._on_event(event, found)
        except RemoteProtocolError as error:
            if error.event_hint is not None and self._is_open is False:
                self._reject(400, str(error))
            elif self._is_open:
                self._send_event(CloseConnection(CloseReason.PROTOCOL_ERROR, "not a WebSocket"))
            self.is_over = True
        return found

    def _on_event(self, event: object, found: list[bytes]) -> None:
        if isinstance(event, BytesMessage):
            found.append(bytes(event.data))
        elif isinstance(event, TextMessage):
            # [MQTT-6.0.0-1]: anything but binary ends the connection.
            self._send_event(
                CloseConnection(CloseReason.UNSUPPORTED_DATA, "MQTT needs binary frames")
            )
            self.is_over = True
        elif isinstance(event, Request):
            self._on_request(event)
        elif isinstance(event, Ping):
            self._send_event(event.response())
        elif isinstance(event, CloseConnection):
            if not self.is_over:
                self._send_event(event.response())
            self.is_over = True

    def _on_request(self, request: Request) -> None:
        for name in SUBPROTOCOLS:
            if name in request.subprotocols:
                self._send_event(AcceptConnection(subprotocol=name))
                self._is_open = True
                return
        self._reject(400, "this endpoint speaks the WebSocket sub-protocol mqtt\n")

    def _reject(self, status: int, text: str) -> None:
        body = text.encode("ascii", "replace")
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
        self._send_event(RejectConnection(status_code=status, headers=headers, has_body=True))
        self._send_event(RejectData(data=body))
        self.is_over = True

    def send(self, data: bytes) -> None:
        """MQTT bytes for the peer, as one binary frame."""
        if self._is_open and not self.is_over:
            self._send_event(BytesMessage(data))

    def close(self) -> None:
        """Say goodbye. Idempotent."""
        if self._is_open and not self.is_over:
            self._send_event(CloseConnection(CloseReason.NORMAL_CLOSURE))
        self.is_over = True

    def data_to_send(self) -> bytes:
        """The framed bytes since the last call."""
        if not self._out:
            return b""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _send_event(self, event: object) -> None:
        try:
            self._out.append(self._connection.send(event))  # type: ignore[arg-type]
        except LocalProtocolError:
            # The closing handshake is over already: nothing more can be said.
            self.is_over = True
