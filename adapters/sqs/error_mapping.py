"""Every error of the kernel and of auth, as SQS words it. Tests prove both tables complete.

What may succeed when tried again is a throttling error or a 503, which SDKs retry with back-off;
everything else is final for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from auth.sign_in.sigv4_form import Refusal, SignatureError
from kernel.common.errors import Code, KernelError

from . import error_codes as errors
from .error_codes import ErrorKind, SqsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from auth.errors import AuthError

KERNEL_KINDS: Final[Mapping[Code, ErrorKind]] = {
    Code.NOT_FOUND: errors.QUEUE_DOES_NOT_EXIST,
    Code.ALREADY_EXISTS: errors.QUEUE_NAME_EXISTS,
    Code.INVALID_ARGUMENT: errors.INVALID_PARAMETER_VALUE,
    Code.NOT_ALLOWED: errors.ACCESS_DENIED,
    Code.LOCKED: errors.UNSUPPORTED_OPERATION,
    Code.IN_USE: errors.UNSUPPORTED_OPERATION,
    Code.TOO_LARGE: errors.INVALID_PARAMETER_VALUE,
    Code.REJECTED: errors.REQUEST_THROTTLED,
    Code.LEASE_LOST: errors.RECEIPT_HANDLE_IS_INVALID,
    Code.LEASE_OVER: errors.RECEIPT_HANDLE_IS_INVALID,
    Code.SESSION_FENCED: errors.SERVICE_UNAVAILABLE,
    Code.LIMIT_EXCEEDED: errors.OVER_LIMIT,
    Code.BUSY: errors.SERVICE_UNAVAILABLE,
    Code.NO_SPACE: errors.SERVICE_UNAVAILABLE,
    Code.NOT_LEADER: errors.SERVICE_UNAVAILABLE,
    Code.UNKNOWN_OUTCOME: errors.SERVICE_UNAVAILABLE,
    Code.NOT_SAME_GROUP: errors.INVALID_PARAMETER_VALUE,
    Code.TIMEOUT: errors.SERVICE_UNAVAILABLE,
    Code.UNAVAILABLE: errors.SERVICE_UNAVAILABLE,
}

SIGNATURE_KINDS: Final[Mapping[Refusal, ErrorKind]] = {
    Refusal.MISSING: errors.MISSING_AUTHENTICATION_TOKEN,
    Refusal.INCOMPLETE: errors.INCOMPLETE_SIGNATURE,
    Refusal.UNKNOWN_KEY: errors.INVALID_CLIENT_TOKEN_ID,
    Refusal.MISMATCH: errors.SIGNATURE_DOES_NOT_MATCH,
    Refusal.EXPIRED: errors.REQUEST_EXPIRED,
}


def from_kernel(error: KernelError) -> SqsError:
    """The error of SQS for one of the kernel."""
    kind = KERNEL_KINDS[error.code]
    # SDK users match on AWS's text for a missing queue; the others' texts are the kernel's own.
    return SqsError(kind, None if error.code is Code.NOT_FOUND else error.message)


def from_auth(error: AuthError) -> SqsError:
    """The error of SQS for a signature that is not accepted, or could not be checked."""
    if isinstance(error, SignatureError):
        return SqsError(SIGNATURE_KINDS[error.refusal], error.message)
    if error.code.caller_fault:
        return SqsError(errors.INVALID_CLIENT_TOKEN_ID)
    return SqsError(errors.SERVICE_UNAVAILABLE if error.code.retryable else errors.INTERNAL_FAILURE)
