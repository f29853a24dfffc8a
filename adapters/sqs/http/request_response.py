"""An HTTP request and response as plain values, between the driver and the codecs.

Header names are lower-case bytes, as ASGI has them. The request keeps everything a signature is
computed over as it came: method, raw path, raw query, the list of headers and the body.
"""

from __future__ import annotations

import msgspec

REQUEST_BYTES_MAX = 4 * 1024 * 1024
"""Largest request body. A batch carries at most 1 MiB of message bytes; percent-encoding triples
them, JSON escapes double or triple them, base64 and the frame around them take the rest."""


class HttpRequest(msgspec.Struct, frozen=True, gc=False):
    """One request. `raw_path` and `query` are as on the request line, still percent-encoded."""

    method: str
    raw_path: bytes
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...] | list[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        """Value of the first header of that lower-case name."""
        for key, value in self.headers:
            if key == name:
                return value
        return None


def is_too_long(request: HttpRequest) -> bool:
    """Whether a request says that its body is longer than any valid one; the parser has seen that
    a length is a number.
    """
    length = request.header(b"content-length")
    return length is not None and int(length) > REQUEST_BYTES_MAX


class HttpResponse(msgspec.Struct, frozen=True, gc=False):
    """One response; `headers` are complete but for what the HTTP server adds (date, connection)."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


def response(
    status: int,
    content_type: bytes,
    request_id: str,
    body: bytes,
    *extra: tuple[bytes, bytes],
) -> HttpResponse:
    """A response with the headers that every SQS response has."""
    return HttpResponse(
        status,
        [
            (b"content-type", content_type),
            (b"x-amzn-requestid", request_id.encode()),
            (b"content-length", b"%d" % len(body)),
            *extra,
        ],
        body,
    )
