"""How the kernel's and the sign-in's errors are told to MQTT clients: two tables, held complete.

One failure has one reason code; a packet that cannot carry it says the nearest one, and MQTT 3.1.1
what it has for it (`codec.reason_codes`). The sentence goes along as Reason String.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.mqtt.codec.reason_codes import ReasonCode
from auth.errors import AuthCode
from kernel.common.errors import Code

if TYPE_CHECKING:
    from auth.errors import AuthError
    from kernel.common.errors import KernelError

_R = ReasonCode

KERNEL_REASONS: Final[dict[Code, ReasonCode]] = {
    Code.NOT_FOUND: _R.TOPIC_NAME_INVALID,
    Code.ALREADY_EXISTS: _R.IMPLEMENTATION_SPECIFIC_ERROR,
    Code.INVALID_ARGUMENT: _R.IMPLEMENTATION_SPECIFIC_ERROR,
    Code.NOT_ALLOWED: _R.NOT_AUTHORIZED,
    Code.LOCKED: _R.QUOTA_EXCEEDED,
    Code.IN_USE: _R.IMPLEMENTATION_SPECIFIC_ERROR,
    Code.TOO_LARGE: _R.PACKET_TOO_LARGE,
    Code.REJECTED: _R.QUOTA_EXCEEDED,
    Code.LEASE_LOST: _R.IMPLEMENTATION_SPECIFIC_ERROR,
    Code.LEASE_OVER: _R.IMPLEMENTATION_SPECIFIC_ERROR,
    # Another connection has the session by now.
    Code.SESSION_FENCED: _R.SESSION_TAKEN_OVER,
    Code.LIMIT_EXCEEDED: _R.QUOTA_EXCEEDED,
    # Of transactions, which MQTT does not have.
    Code.NOT_SAME_GROUP: _R.IMPLEMENTATION_SPECIFIC_ERROR,
    Code.BUSY: _R.SERVER_BUSY,
    Code.NO_SPACE: _R.QUOTA_EXCEEDED,
    # Whether it was done is not known; "unspecified" promises neither.
    Code.NOT_LEADER: _R.SERVER_UNAVAILABLE,
    Code.UNKNOWN_OUTCOME: _R.UNSPECIFIED_ERROR,
    Code.TIMEOUT: _R.UNSPECIFIED_ERROR,
    Code.UNAVAILABLE: _R.SERVER_UNAVAILABLE,
}

_CANNOT_DECIDE: Final = _R.SERVER_UNAVAILABLE
AUTH_REASONS: Final[dict[AuthCode, ReasonCode]] = {
    AuthCode.BAD_CREDENTIALS: _R.BAD_USER_NAME_OR_PASSWORD,
    AuthCode.BUSY: _R.SERVER_BUSY,
    AuthCode.UNAVAILABLE: _CANNOT_DECIDE,
    # A login that names nobody, in whatever way: not told apart from a wrong password.
    AuthCode.INVALID_ARGUMENT: _R.BAD_USER_NAME_OR_PASSWORD,
    AuthCode.NOT_FOUND: _R.BAD_USER_NAME_OR_PASSWORD,
    AuthCode.ALREADY_EXISTS: _CANNOT_DECIDE,
    AuthCode.CONFLICT: _CANNOT_DECIDE,
    AuthCode.IN_USE: _CANNOT_DECIDE,
    AuthCode.LIMIT_EXCEEDED: _R.QUOTA_EXCEEDED,
    AuthCode.UNSAFE_FILE: _CANNOT_DECIDE,
    AuthCode.DAMAGED: _CANNOT_DECIDE,
}


def reason_of(error: KernelError) -> ReasonCode:
    """What an MQTT client is told of a kernel error."""
    return KERNEL_REASONS[error.code]


def sign_in_reason(error: AuthError) -> ReasonCode:
    """What CONNACK says of a refused login."""
    return AUTH_REASONS[error.code]
