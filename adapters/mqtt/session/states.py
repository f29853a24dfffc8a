"""The state machines of an MQTT server, as tables. Every change of state is a row here.

Four machines, each small:

- *Connection*: what packet may come when (MQTT5 3.1.0, 3.1.4). A pair that has no row is a protocol
  error. In DECIDING nothing is decoded: bytes are held until the driver has accepted or refused.

      WAITING --CONNECT--> DECIDING --accept--> CONNECTED --DISCONNECT--> CLOSED
                            |    ^                              (and every error, from anywhere)
               we send AUTH v    | AUTH
                        AUTHENTICATING

- *Authentication*: whose turn it is in an exchange of AUTH packets (MQTT5 4.12).
- *Incoming exactly once*: one machine for each packet identifier of a QoS 2 PUBLISH that we receive
  (MQTT5 4.3.3). The identifier is remembered from the PUBLISH until PUBREL is settled, so that a
  repeat is answered and not stored again.
- *Outgoing exactly once*: one for each QoS 2 PUBLISH that we send. PUBREL goes out only after the
  session's record says that it may, because PUBLISH must not follow it ([MQTT-4.3.3-6]).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.reason_codes import ReasonCode


class ConnectionState(IntEnum):
    """Where a connection stands."""

    WAITING = 0
    DECIDING = 1
    AUTHENTICATING = 2
    CONNECTED = 3
    CLOSED = 4


_C = ConnectionState
_P = PacketType
ON_PACKET: Final[dict[tuple[ConnectionState, PacketType], ConnectionState]] = {
    (_C.WAITING, _P.CONNECT): _C.DECIDING,
    (_C.AUTHENTICATING, _P.AUTH): _C.DECIDING,
    (_C.AUTHENTICATING, _P.DISCONNECT): _C.CLOSED,
    (_C.CONNECTED, _P.PUBLISH): _C.CONNECTED,
    (_C.CONNECTED, _P.PUBACK): _C.CONNECTED,
    (_C.CONNECTED, _P.PUBREC): _C.CONNECTED,
    (_C.CONNECTED, _P.PUBREL): _C.CONNECTED,
    (_C.CONNECTED, _P.PUBCOMP): _C.CONNECTED,
    (_C.CONNECTED, _P.SUBSCRIBE): _C.CONNECTED,
    (_C.CONNECTED, _P.UNSUBSCRIBE): _C.CONNECTED,
    (_C.CONNECTED, _P.PINGREQ): _C.CONNECTED,
    (_C.CONNECTED, _P.AUTH): _C.CONNECTED,
    (_C.CONNECTED, _P.DISCONNECT): _C.CLOSED,
}


class AuthState(IntEnum):
    """Whose turn it is. NONE: CONNECT named no method, so AUTH never comes ([MQTT-4.12.0-7])."""

    NONE = 0
    OUR_TURN = 1
    THEIR_TURN = 2
    DONE = 3


_A = AuthState
_R = ReasonCode
ON_AUTH_RECEIVED: Final[dict[tuple[AuthState, int], AuthState]] = {
    (_A.THEIR_TURN, _R.CONTINUE_AUTHENTICATION): _A.OUR_TURN,
    (_A.DONE, _R.REAUTHENTICATE): _A.OUR_TURN,
}
# Success is said by CONNACK the first time, and by AUTH 0x00 when authenticating again.
ON_AUTH_SENT: Final[dict[tuple[AuthState, int], AuthState]] = {
    (_A.OUR_TURN, _R.CONTINUE_AUTHENTICATION): _A.THEIR_TURN,
    (_A.OUR_TURN, _R.SUCCESS): _A.DONE,
}


class Incoming(IntEnum):
    """A QoS 2 PUBLISH that we receive, by packet identifier; UNKNOWN is not stored."""

    UNKNOWN = 0
    # With the kernel; PUBREC is owed.
    STORING = 1
    # PUBREC is sent; PUBREL is awaited.
    STORED = 2
    # PUBREL is here, the record of it is with the kernel; PUBCOMP is owed.
    RELEASING = 3
    # An earlier connection of the session received it; whether it came to be stored is not known.
    NOTED = 4


class IncomingInput(IntEnum):
    """What happens to an incoming exchange."""

    PUBLISH = 0
    PUBREL = 1
    COMMITTED = 2
    REFUSED = 3


class IncomingAction(IntEnum):
    """What is to be done about it."""

    NOTHING = 0
    STORE = 1
    SEND_PUBREC = 2
    SEND_REFUSAL = 3
    RECORD_RELEASE = 4
    SEND_PUBCOMP = 5
    SEND_PUBCOMP_NOT_FOUND = 6


_I, _II, _IA = Incoming, IncomingInput, IncomingAction
ON_INCOMING: Final[dict[tuple[int, int], tuple[Incoming, IncomingAction]]] = {
    (_I.UNKNOWN, _II.PUBLISH): (_I.STORING, _IA.STORE),
    # The PUBREC that is owed comes after both and acknowledges both ([MQTT-4.3.3-10]).
    (_I.STORING, _II.PUBLISH): (_I.STORING, _IA.NOTHING),
    (_I.STORING, _II.COMMITTED): (_I.STORED, _IA.SEND_PUBREC),
    # After a refusal the identifier means a new message ([MQTT-4.3.3-9]).
    (_I.STORING, _II.REFUSED): (_I.UNKNOWN, _IA.SEND_REFUSAL),
    (_I.STORED, _II.PUBLISH): (_I.STORED, _IA.SEND_PUBREC),
    (_I.STORED, _II.PUBREL): (_I.RELEASING, _IA.RECORD_RELEASE),
    (_I.RELEASING, _II.PUBREL): (_I.RELEASING, _IA.NOTHING),
    (_I.RELEASING, _II.COMMITTED): (_I.UNKNOWN, _IA.SEND_PUBCOMP),
    # Storing it again is the driver's: under the same number, so that it is there once.
    (_I.NOTED, _II.PUBLISH): (_I.STORING, _IA.STORE),
    (_I.NOTED, _II.PUBREL): (_I.RELEASING, _IA.RECORD_RELEASE),
    (_I.UNKNOWN, _II.PUBREL): (_I.UNKNOWN, _IA.SEND_PUBCOMP_NOT_FOUND),
}


class Outgoing(IntEnum):
    """A delivery that we sent, by packet identifier; UNKNOWN is not stored."""

    UNKNOWN = 0
    # QoS 1; PUBACK is awaited.
    AT_LEAST_ONCE = 1
    # QoS 2; PUBREC is awaited.
    SENT = 2
    # PUBREC is here, the record of it is with the kernel; PUBREL is owed.
    RECEIVED = 3
    # PUBREL is sent; PUBCOMP is awaited.
    RELEASED = 4


class OutgoingInput(IntEnum):
    """What happens to an outgoing exchange."""

    PUBACK = 0
    PUBREC = 1
    PUBREC_REFUSED = 2
    PUBCOMP = 3
    COMMITTED = 4


class OutgoingAction(IntEnum):
    """What is to be done about it."""

    NOTHING = 0
    COMPLETE = 1
    RECORD_RECEIPT = 2
    SEND_PUBREL = 3
    SEND_PUBREL_NOT_FOUND = 4


_O, _OI, _OA = Outgoing, OutgoingInput, OutgoingAction
ON_OUTGOING: Final[dict[tuple[int, int], tuple[Outgoing, OutgoingAction]]] = {
    (_O.AT_LEAST_ONCE, _OI.PUBACK): (_O.UNKNOWN, _OA.COMPLETE),
    (_O.SENT, _OI.PUBREC): (_O.RECEIVED, _OA.RECORD_RECEIPT),
    # A refusal ends the exchange ([MQTT-4.4.0-2]).
    (_O.SENT, _OI.PUBREC_REFUSED): (_O.UNKNOWN, _OA.COMPLETE),
    (_O.RECEIVED, _OI.PUBREC): (_O.RECEIVED, _OA.NOTHING),
    (_O.RECEIVED, _OI.PUBREC_REFUSED): (_O.RECEIVED, _OA.NOTHING),
    (_O.RECEIVED, _OI.COMMITTED): (_O.RELEASED, _OA.SEND_PUBREL),
    (_O.RELEASED, _OI.PUBREC): (_O.RELEASED, _OA.SEND_PUBREL),
    (_O.RELEASED, _OI.PUBREC_REFUSED): (_O.RELEASED, _OA.SEND_PUBREL),
    (_O.RELEASED, _OI.PUBCOMP): (_O.UNKNOWN, _OA.COMPLETE),
    # Left over from a session that is no more: let the client come to its end of it.
    (_O.UNKNOWN, _OI.PUBACK): (_O.UNKNOWN, _OA.NOTHING),
    (_O.UNKNOWN, _OI.PUBREC): (_O.UNKNOWN, _OA.SEND_PUBREL_NOT_FOUND),
    (_O.UNKNOWN, _OI.PUBREC_REFUSED): (_O.UNKNOWN, _OA.NOTHING),
    (_O.UNKNOWN, _OI.PUBCOMP): (_O.UNKNOWN, _OA.NOTHING),
}
