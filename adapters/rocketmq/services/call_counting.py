"""Every call is counted, with the octets of its messages and how it ended: for the bill.

The messages in it are counted by the store, which holds them; a receive that brought none is a call
and nothing else. Calls whose caller is not known (no signature that is accepted) are nobody's, and
not counted. gRPC does not tell of its connections: a telemetry stream, of which every client opens
one to each address, stands for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from metering.schema import Action, Outcome

from ..errors import Code

if TYPE_CHECKING:
    from collections.abc import Mapping

ACTIONS: Final[Mapping[str, str]] = {
    "AckMessage": Action.ACK,
    "ChangeInvisibleDuration": Action.EXTEND,
    "EndTransaction": Action.PUBLISH,
    "ForwardMessageToDeadLetterQueue": Action.ACK,
    "Heartbeat": Action.PING,
    "PullMessage": Action.RECEIVE,
    "ReceiveMessage": Action.RECEIVE,
    "SendMessage": Action.PUBLISH,
}
"""All others administer."""

# Plain texts: members of an enum are hashed by Python code, 0.2 us a call.
EMPTY: Final = Outcome.EMPTY.value
_CLIENT_ERROR, _SERVER_ERROR = Outcome.CLIENT_ERROR.value, Outcome.SERVER_ERROR.value
_THROTTLED = Outcome.THROTTLED.value


def outcome_of(code: Code) -> str:
    """How a call ended that was refused with a code. What is not served is not our failure."""
    if code is Code.TOO_MANY_REQUESTS:
        return _THROTTLED
    if code is Code.UNSUPPORTED or code < Code.INTERNAL_SERVER_ERROR:
        return _CLIENT_ERROR
    return _SERVER_ERROR
