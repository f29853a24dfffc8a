"""Why connections end, told to the operator: what a client did is counted by reason and in the log
so often a minute (`adapters.refused`), a goodbye or a broken line is one of so many lines a minute.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import structlog

from adapters.line_budget import LineBudget
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.session.events import Initiator
from adapters.refused import TEXT_CHARACTERS_MAX, Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from adapters.mqtt.host import MqttHost
    from adapters.mqtt.session.events import ConnectionClosed
    from kernel.common.ports import Clock

LINES_MAX: Final = 60
"""A minute, of connections that ended as any does: who comes and goes can be seen on a small
server, and a large one is not flooded."""


class CloseReason(StrEnum):
    """What a client did, or was refused."""

    MALFORMED = "malformed"
    PROTOCOL_ERROR = "protocol_error"
    VERSION = "version"
    CLIENT_ID = "client_id"
    LOGIN = "login"
    NOT_AUTHORIZED = "not_authorized"
    SILENT = "silent"
    TOO_LARGE = "too_large"
    RECEIVE_MAXIMUM = "receive_maximum"
    QUOTA = "quota"
    NOT_OFFERED = "not_offered"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"


_R = ReasonCode
_W = CloseReason

REASONS: Final[dict[int, CloseReason]] = {
    _R.UNSPECIFIED_ERROR: _W.INTERNAL,
    _R.MALFORMED_PACKET: _W.MALFORMED,
    _R.PROTOCOL_ERROR: _W.PROTOCOL_ERROR,
    _R.IMPLEMENTATION_SPECIFIC_ERROR: _W.INTERNAL,
    _R.UNSUPPORTED_PROTOCOL_VERSION: _W.VERSION,
    _R.CLIENT_IDENTIFIER_NOT_VALID: _W.CLIENT_ID,
    _R.BAD_USER_NAME_OR_PASSWORD: _W.LOGIN,
    _R.NOT_AUTHORIZED: _W.NOT_AUTHORIZED,
    _R.SERVER_UNAVAILABLE: _W.UNAVAILABLE,
    _R.SERVER_BUSY: _W.UNAVAILABLE,
    _R.BAD_AUTHENTICATION_METHOD: _W.NOT_OFFERED,
    _R.KEEP_ALIVE_TIMEOUT: _W.SILENT,
    _R.TOPIC_FILTER_INVALID: _W.PROTOCOL_ERROR,
    _R.TOPIC_NAME_INVALID: _W.PROTOCOL_ERROR,
    _R.RECEIVE_MAXIMUM_EXCEEDED: _W.RECEIVE_MAXIMUM,
    _R.TOPIC_ALIAS_INVALID: _W.PROTOCOL_ERROR,
    _R.PACKET_TOO_LARGE: _W.TOO_LARGE,
    _R.QUOTA_EXCEEDED: _W.QUOTA,
    _R.ADMINISTRATIVE_ACTION: _W.NOT_AUTHORIZED,
    _R.PAYLOAD_FORMAT_INVALID: _W.PROTOCOL_ERROR,
    _R.RETAIN_NOT_SUPPORTED: _W.NOT_OFFERED,
    _R.QOS_NOT_SUPPORTED: _W.NOT_OFFERED,
}
"""What the server closes a connection with that is the client's doing, or its bad luck. The others
(a takeover, a move, the server's own end) are no refusals."""

_log = structlog.get_logger("weir.mqtt")


class Closings:
    """Counts and logs why the connections of one adapter end."""

    def __init__(self, clock: Clock, listeners: Iterable[str]) -> None:
        self._refused: Refused[CloseReason] = Refused(_log, clock, "mqtt", listeners, CloseReason)
        self._budget = LineBudget(clock, LINES_MAX)
        self._count = 0

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        """By (listener, reason), all since the start."""
        return self._refused.counts

    def note(self, host: MqttHost, client_id: str, event: ConnectionClosed) -> None:
        """A connection has ended."""
        if event.initiator is Initiator.SERVER and event.reason_code in REASONS:
            reason = REASONS[event.reason_code]
            code = f"0x{event.reason_code:02X}"
            more = {"client_id": client_id, "code": code, "detail": event.detail}
            self._refused.note(host.listener, reason, host.peer, **more)
            return
        self._count += 1
        if self._budget.allows(self._count):
            _log.info(
                "connection closed",
                peer=host.peer,
                client_id=client_id[:TEXT_CHARACTERS_MAX],
                by=event.initiator.value,
                reason=event.detail[:TEXT_CHARACTERS_MAX],
                unlogged=self._budget.unlogged(),
            )
