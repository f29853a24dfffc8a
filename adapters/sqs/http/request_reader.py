"""HTTP/1.1 requests from bytes: httptools' parser (llhttp) with bounds. Bytes in, requests out.

    feed(bytes) -> the requests that are complete, in order
    fault       -> why nothing more is read: what came is no HTTP, or more than we read

Where a request ends is the parser's decision alone, and it is strict: two lengths, a length beside
chunks, bare line feeds, folded headers and blanks before a colon are faults (RFC 9112, 2.2, 5.1,
6.1), so that no proxy in front of us can see other requests in the same bytes. Beyond the parser:

* A request is of HTTP/1.1 with one Host, or of HTTP/1.0 without chunks (RFC 9112, 3.2, 6.1).
* A head has at most HEAD_BYTES_MAX and HEADERS_MAX headers.
* Trailers are dropped: they cannot add to the headers that a signature was checked over.
* The head of a request whose body has not come in the same read is given out first (`head`), so
  that it can be refused before any more is read (`cut_short`).
* A body over REQUEST_BYTES_MAX ends its request at once, with what was read thrown away: the
  request is given out with `is_whole` false, so that it can be answered in its own protocol, and
  nothing after it is read.
* Nothing is read after a request that says it is the last (RFC 9112, 9.6), that is of HTTP/1.0, or
  that asks to change the protocol, which we do not do: it is answered as if it had not asked.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import httptools

from adapters.chunks import keep_chunk

from ..settings import HEAD_BYTES_MAX
from .request_response import REQUEST_BYTES_MAX, HttpRequest

REQUEST_WIRE_BYTES_MAX: Final = HEAD_BYTES_MAX + 2 * REQUEST_BYTES_MAX
"""Bytes of a request with all its framing: the sizes of chunks, their extensions and trailers may
double a body. Both bounds on bytes are met to within one read of the socket."""

_CONTINUE: Final = b"100-continue"

HEADERS_MAX: Final = 256
"""An SDK sends fifteen, proxies add a few. Very many short ones take 30 times their bytes in
memory, and a call of ours each."""

HEADER_BYTES: Final = 160
"""What a header takes beside its text: two bytes objects in a tuple."""


class HttpFault(NamedTuple):
    """Why bytes are refused without looking at what they ask for."""

    status: int
    message: str


class Arrived(NamedTuple):
    """One request."""

    request: HttpRequest
    keeps_alive: bool
    """Another may follow on the connection."""
    is_whole: bool
    """False: its body is longer than any valid one, and left out."""


class HttpReader:
    """Reads the requests of one connection."""

    __slots__ = (
        "_arrived",
        "_body",
        "_body_bytes",
        "_feed_bytes",
        "_first_bytes",
        "_has_ended",
        "_has_head",
        "_headers",
        "_is_in_head",
        "_is_last",
        "_parser",
        "_url",
        "_wire_bytes",
        "awaits_continue",
        "fault",
        "is_midway",
    )

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._arrived: list[Arrived] = []
        self._headers: list[tuple[bytes, bytes]] = []
        self._url = b""
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._feed_bytes = 0
        self._first_bytes = 0
        self._wire_bytes = 0
        self._is_in_head = False
        self._is_last = False
        self._has_ended = False
        self._has_head = False
        self.fault: HttpFault | None = None
        """Set once: nothing is read after it."""
        self.is_midway = False
        """A request has begun and is not complete."""
        self.awaits_continue = False
        """The client waits for `100 Continue` before it sends the body (RFC 9110, 10.1.1)."""

    @property
    def unfinished_bytes(self) -> int:
        """Memory that a request takes which is not complete; of the read in which it began all is
        counted.
        """
        if not self.is_midway:
            return 0
        return self._first_bytes + self._wire_bytes + HEADER_BYTES * len(self._headers)

    def take_head(self) -> HttpRequest | None:
        """The request that is being read, without its body, once all of its head is there; then
        None, until the next.
        """
        if not self._has_head:
            return None
        self._has_head = False
        return self._request(b"")

    def give_up(self, status: int, message: str) -> None:
        """Read nothing more, and forget what was read of a request."""
        self._refuse(status, message)
        self._headers = []

    def feed(self, data: bytes) -> list[Arrived]:
        """The requests that these bytes complete; look at `fault` afterwards."""
        if self._has_ended:
            return []
        self._arrived = []
        self._feed_bytes = len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._end()
        except httptools.HttpParserError:
            # Bytes after the last request are an error to the parser and nothing to us.
            self._refuse(400, "This is no HTTP request.")
        if self.is_midway:
            self._wire_bytes += len(data)
            if self._is_in_head and self._wire_bytes > HEAD_BYTES_MAX:
                self._refuse(431, "The request line and headers are too long.")
            elif self._wire_bytes > REQUEST_WIRE_BYTES_MAX:
                self._refuse(413, "The request is too long.")
        return self._arrived

    def _refuse(self, status: int, message: str) -> None:
        if not self._has_ended:
            self.fault = HttpFault(status, message)
            self._end()

    def _end(self) -> None:
        self._has_ended = True
        self._has_head = False
        self.is_midway = False
        self.awaits_continue = False
        self._is_in_head = False
        self._body = []

    # --- called by the parser ---------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._headers = []
        self._url = b""
        self._body = []
        self._body_bytes = 0
        # What is before its first byte in this read belongs to other requests.
        self._wire_bytes = -self._feed_bytes
        self._first_bytes = self._feed_bytes
        self._is_in_head = self.is_midway = not self._has_ended

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:
            self._headers.append((name.lower(), value))
            if len(self._headers) > HEADERS_MAX:
                self.give_up(431, f"There are more than {HEADERS_MAX} headers.")
                raise ValueError  # nothing more of this read is parsed

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        hosts = 0
        is_chunked = False
        length = 0
        for name, value in self._headers:
            if name == b"host":
                hosts += 1
            elif name == b"content-length":
                length = int(value)
            elif name == b"transfer-encoding":
                is_chunked = True
            elif name == b"expect":
                self.awaits_continue = value.lower() == _CONTINUE
        version = self._parser.get_http_version()
        self._is_last = version != "1.1"
        if version == "1.1":
            if hosts != 1:
                self._refuse(400, "A request has one Host header.")
        elif version != "1.0":
            self._refuse(505, "HTTP/1.1 is spoken here.")
        elif is_chunked or hosts > 1:
            self._refuse(400, "A request of HTTP/1.0 has no chunks and at most one Host header.")
        self._has_head = not self._has_ended
        if length > REQUEST_BYTES_MAX:
            self._arrived += self.cut_short()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > REQUEST_BYTES_MAX:
            self._arrived += self.cut_short()
        elif not self._has_ended:
            keep_chunk(self._body, body)

    def on_message_complete(self) -> None:
        if self._has_ended:
            return
        parser = self._parser
        keeps_alive = (
            parser.should_keep_alive() and not parser.should_upgrade() and not self._is_last
        )
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._arrived.append(Arrived(self._request(body), keeps_alive, is_whole=True))
        self.is_midway = False
        self._has_head = False
        self.awaits_continue = False
        if not keeps_alive:
            self._end()

    def cut_short(self) -> list[Arrived]:
        """The request that is being read, without its body, of which no more is read."""
        if self._has_ended:
            return []
        arrived = Arrived(self._request(b""), keeps_alive=False, is_whole=False)
        self._end()
        return [arrived]

    def _request(self, body: bytes) -> HttpRequest:
        path, _, query = self._url.partition(b"?")
        if not path.startswith(b"/") and b"://" in path:
            # A request through a proxy names the whole URL (RFC 9112, 3.2.2).
            path = b"/" + path.split(b"/", 3)[3] if path.count(b"/") > 2 else b"/"
        method = self._parser.get_method().decode("ascii")
        return HttpRequest(method, path, query, self._headers, body)
