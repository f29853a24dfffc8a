"""Reading what a request asks, and writing what it gets: bodies as typed JSON, bounded.

Every reader raises KernelError INVALID_ARGUMENT or TOO_LARGE with a sentence for the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from gateway.admin.http.errors import JSON_TYPE
from kernel.common.errors import UNDECODABLE, Code, KernelError

if TYPE_CHECKING:
    from starlette.requests import Request

_T = TypeVar("_T")

BODY_BYTES_MAX = 1024 * 1024
"""Twice the largest policy; nothing but a message is larger."""

PAGE_DEFAULT = 100
PAGE_MAX = 1_000
"""Rows of one listing: a page that a person or a table can take."""

_TRUE = frozenset({"true", "1", ""})
_FALSE = frozenset({"false", "0"})


async def read_body(request: Request, kind: type[_T], bytes_max: int = BODY_BYTES_MAX) -> _T:
    """The body as `kind`; an empty body reads as `{}`."""
    parts = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > bytes_max:
                raise KernelError(Code.TOO_LARGE, f"the request has more than {bytes_max} bytes")
            parts.append(part)
    except ClientDisconnect:
        text = "the client has left, or dawdled, before all of its request had come"
        raise KernelError(Code.INVALID_ARGUMENT, text) from None
    try:
        return msgspec.json.decode(b"".join(parts) or b"{}", type=kind)
    except UNDECODABLE as error:
        reason = str(error).replace("`", "")
        raise KernelError(Code.INVALID_ARGUMENT, f"the request cannot be read: {reason}") from None


def path_name(request: Request, parameter: str) -> str:
    """A name in the path, decoded."""
    text: str = request.path_params[parameter]
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise KernelError(Code.INVALID_ARGUMENT, f"the {parameter} is not UTF-8") from None


def number(
    request: Request, name: str, default: int, *, least: int = 0, most: int | None = None
) -> int:
    """A whole number of the query, `least` to `most`."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise KernelError(Code.INVALID_ARGUMENT, f"{name}={text} is not a whole number")
    value = int(text)
    if value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"{least} to {most}"
        raise KernelError(Code.INVALID_ARGUMENT, f"{name} must be {bounds}")
    return value


def flag(request: Request, name: str) -> bool:
    """A yes-or-no of the query; no if it is not there."""
    text = request.query_params.get(name, "false").lower()
    if text not in _TRUE and text not in _FALSE:
        raise KernelError(Code.INVALID_ARGUMENT, f"{name} is true or false, not {text}")
    return text in _TRUE


def page_of(request: Request) -> tuple[str, str, int]:
    """(prefix, the name after which the page begins, most rows) of a listing."""
    query = request.query_params
    limit = number(request, "limit", PAGE_DEFAULT, least=1, most=PAGE_MAX)
    return query.get("prefix", ""), query.get("after", ""), limit


def answer(value: object, status: int = 200) -> Response:
    """A value as JSON. What JSON cannot say (a time in a header) is said as text."""
    return Response(msgspec.json.encode(value, enc_hook=str), status, media_type=JSON_TYPE)


def nothing() -> Response:
    """Done, and nothing to tell."""
    return Response(status_code=204)
