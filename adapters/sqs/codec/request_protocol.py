"""The protocol that a request speaks: AWS JSON 1.0 if it has a target and is no form, else Query.

A driver needs three steps, and the protocol also when the second fails:

    protocol = wire.select(request)
    call = protocol.decode(request)                         # raises SqsError
    response = protocol.encode_result(call.action, result, request_id)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .json_codec import JSON, TARGET_HEADER
from .query_codec import FORM_CONTENT_TYPE, JSON_CONTENT_TYPE, QUERY_JSON, QUERY_XML

if TYPE_CHECKING:
    from ..error_codes import SqsError
    from ..http.request_response import HttpRequest, HttpResponse
    from .shape_base import Shape
    from .shapes import Action, Call


class WireProtocol(Protocol):
    """One way to read requests and to word answers."""

    name: str
    """`json` or `query`, for counters."""

    def decode(self, request: HttpRequest) -> Call:
        """The call in a request. Raises SqsError, and nothing else."""

    def encode_result(self, action: Action, result: Shape | None, request_id: str) -> HttpResponse:
        """The answer to a call that succeeded. `result` None: nothing to say."""

    def encode_error(self, error: SqsError, request_id: str) -> HttpResponse:
        """The answer to a call that failed."""


def select(request: HttpRequest) -> WireProtocol:
    """The protocol of a request. Never fails: what is neither is answered as Query."""
    if request.header(TARGET_HEADER) is not None:
        # Of a form with a target, or of JSON that curl or urllib calls a form, the body says which.
        content_type = request.header(b"content-type") or b""
        if not content_type.startswith(FORM_CONTENT_TYPE) or request.body.startswith(b"{"):
            return JSON
    if JSON_CONTENT_TYPE in (request.header(b"accept") or b""):
        return QUERY_JSON
    return QUERY_XML
