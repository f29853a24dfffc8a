"""Errors of the kernel and of auth as HTTP answers: one table, every member in it.

{"error": {"code": "not_found", "message": "no topic orders", "retryable": false}}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import structlog
from starlette.responses import Response

from auth.errors import AuthCode, AuthError
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.exceptions import HTTPException
    from starlette.requests import Request

JSON_TYPE: Final = "application/json"

STATUS: Final[Mapping[Code | AuthCode, int]] = {
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.INVALID_ARGUMENT: 400,
    Code.NOT_ALLOWED: 403,
    Code.LOCKED: 423,
    Code.IN_USE: 409,
    Code.TOO_LARGE: 413,
    Code.REJECTED: 429,
    Code.LEASE_LOST: 410,
    Code.LEASE_OVER: 410,
    Code.SESSION_FENCED: 409,
    Code.LIMIT_EXCEEDED: 429,
    Code.BUSY: 503,
    Code.NO_SPACE: 507,
    Code.NOT_LEADER: 503,
    Code.UNKNOWN_OUTCOME: 504,
    Code.NOT_SAME_GROUP: 400,
    Code.TIMEOUT: 504,
    Code.UNAVAILABLE: 503,
    AuthCode.BAD_CREDENTIALS: 401,
    AuthCode.BUSY: 503,
    AuthCode.UNAVAILABLE: 503,
    AuthCode.INVALID_ARGUMENT: 400,
    AuthCode.NOT_FOUND: 404,
    AuthCode.ALREADY_EXISTS: 409,
    AuthCode.CONFLICT: 409,
    AuthCode.IN_USE: 409,
    AuthCode.LIMIT_EXCEEDED: 409,
    AuthCode.UNSAFE_FILE: 500,
    AuthCode.DAMAGED: 500,
}

_HTTP_CODES: Final = {404: "no_such_path", 405: "method_not_allowed"}
"""Answers of the router itself."""

_log = structlog.get_logger("weir.admin")


class ErrorFacts(msgspec.Struct, frozen=True):
    code: str
    message: str
    retryable: bool = False


class ErrorBody(msgspec.Struct, frozen=True):
    """What every answer but 2xx holds."""

    error: ErrorFacts


def error_answer(status: int, code: str, message: str, *, retryable: bool = False) -> Response:
    """An error as an HTTP answer."""
    body = ErrorBody(ErrorFacts(code, message, retryable))
    headers = {"www-authenticate": 'Bearer realm="weir"'} if status == 401 else None
    return Response(msgspec.json.encode(body), status, headers, JSON_TYPE)


def answer_to(error: KernelError | AuthError) -> Response:
    """The HTTP answer to an error of the kernel or of auth."""
    code = error.code
    return error_answer(STATUS[code], code.wire, error.message, retryable=code.retryable)


async def kernel_or_auth_error(_request: Request, error: Exception) -> Response:
    """Handler of KernelError and AuthError."""
    assert isinstance(error, KernelError | AuthError)
    return answer_to(error)


async def http_error(request: Request, error: Exception) -> Response:
    """Handler of what the router refuses: paths and methods that are not there."""
    refused: HTTPException = error  # type: ignore[assignment] # registered for HTTPException only
    code = _HTTP_CODES.get(refused.status_code, "refused")
    path = request.scope["path"]
    return error_answer(refused.status_code, code, f"{refused.detail}: {request.method} {path}")


async def internal_error(request: Request, error: Exception) -> Response:
    """Handler of everything else, which is a defect: logged, and told without its inside."""
    _log.error("internal error", method=request.method, path=request.scope["path"], exc_info=error)
    return error_answer(500, "internal", "internal error: see the log of the server")
