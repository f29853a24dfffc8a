"""Why requests are refused before anybody is asked to carry them out: counted and logged
(`adapters.refused`). What an action says of its parameters is an answer, and none of these.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from .. import error_codes as errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..error_codes import ErrorKind, SqsError
    from .request_response import HttpRequest


class Refusal(StrEnum):
    """Reasons, as the metric and the log have them."""

    SKEW = "skew"
    """The signature's time is too far from ours, or it has expired."""
    UNKNOWN_KEY = "unknown_key"
    SIGNATURE = "signature"
    """It does not fit the request: mostly a wrong secret."""
    UNSIGNED = "unsigned"
    MALFORMED = "malformed"
    """No HTTP, no signature that could be read, no action, no JSON."""
    TOO_LARGE = "too_large"
    SLOW = "slow"
    """It did not come in time."""
    MEMORY = "memory"
    """It was not complete, and all such requests together were too large."""
    CONNECTIONS = "connections"
    """Too many connections: refused unread."""


_BY_KIND: Final[Mapping[ErrorKind, Refusal]] = {
    errors.MISSING_AUTHENTICATION_TOKEN: Refusal.UNSIGNED,
    errors.INVALID_CLIENT_TOKEN_ID: Refusal.UNKNOWN_KEY,
    errors.SIGNATURE_DOES_NOT_MATCH: Refusal.SIGNATURE,
    errors.REQUEST_EXPIRED: Refusal.SKEW,
    errors.REQUEST_TOO_LARGE: Refusal.TOO_LARGE,
}

_BY_STATUS: Final[Mapping[int, Refusal]] = {
    408: Refusal.SLOW,
    413: Refusal.TOO_LARGE,
    431: Refusal.TOO_LARGE,
    503: Refusal.MEMORY,
}

_ACCESS_KEY: Final = re.compile(rb"Credential=([^/,& %]{1,128})")


def of_error(error: SqsError) -> Refusal | None:
    """The reason that a request was not admitted for; None: the server could not tell."""
    if not error.kind.sender:
        return None
    return _BY_KIND.get(error.kind, Refusal.MALFORMED)


def of_status(status: int) -> Refusal:
    """The reason for what `http_reader` refuses."""
    return _BY_STATUS.get(status, Refusal.MALFORMED)


def access_key(request: HttpRequest) -> str:
    """The access key that a request names, for an operator to find its program; else nothing."""
    found = _ACCESS_KEY.search(request.header(b"authorization") or request.query)
    return found[1].decode("ascii", "replace") if found is not None else ""
