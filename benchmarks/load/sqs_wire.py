"""SQS on the wire, as a client: AWS JSON 1.0 requests made and signed before they are needed.

    POST / HTTP/1.1 | Host | X-Amz-Target: AmazonSQS.<Action> | X-Amz-Date | Authorization | body

Signature Version 4 (docs.aws.amazon.com, "Create a signed AWS API request") over host, date,
target, content type and the body's hash. It is good for 15 minutes, so every request of a run can
be bytes by the time that the run starts.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httptools
import msgspec

from benchmarks.load.errors import BenchError
from kernel.common.errors import UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

KEY_CHARS: Final = 16  # of a message: its key in hexadecimal, then padding
SIZE_MIN: Final = KEY_CHARS
SIZE_MAX: Final = 1 << 20  # the service's limit on a message
SERVICE: Final = "sqs"
CONTENT_TYPE: Final = "application/x-amz-json-1.0"
ALGORITHM: Final = "AWS4-HMAC-SHA256"
SIGNED_HEADERS: Final = "content-type;host;x-amz-date;x-amz-target"
ANSWER_BYTES_MAX: Final = (
    16 << 20
)  # ten messages of 1 MiB, escaped; a server that sends more is ill

_KEY_DIGITS: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an SQS service listens."""

    host: str
    port: int
    is_tls: bool

    @property
    def authority(self) -> str:
        """The Host header: with the port unless it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"


def parse_endpoint(url: str) -> Endpoint:
    """Raises BenchError for what is no http or https URL of a host."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BenchError(f"{url!r} is no URL: {error}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise BenchError(f"{url!r} is not an http:// or https:// URL")
    is_tls = parts.scheme == "https"
    return Endpoint(parts.hostname, port or (443 if is_tls else 80), is_tls)


class Signer:
    """Makes signed requests of one key, in one region, at one moment."""

    def __init__(
        self, endpoint: Endpoint, key_id: str, secret: str, region: str, now: datetime
    ) -> None:
        """`now`: in UTC; the service takes the requests for 15 minutes after it."""
        self._authority = endpoint.authority
        self._stamp = now.strftime("%Y%m%dT%H%M%SZ")
        day = self._stamp[:8]
        self._scope = f"{day}/{region}/{SERVICE}/aws4_request"
        self._credential = f"{key_id}/{self._scope}"
        key = b"AWS4" + secret.encode()
        for part in (day, region, SERVICE, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self._key = key

    def request(self, action: str, params: Mapping[str, object]) -> bytes:
        """A whole request."""
        body = msgspec.json.encode(params)
        target = f"AmazonSQS.{action}"
        canonical = (
            f"POST\n/\n\ncontent-type:{CONTENT_TYPE}\nhost:{self._authority}\n"
            f"x-amz-date:{self._stamp}\nx-amz-target:{target}\n\n{SIGNED_HEADERS}\n"
            f"{hashlib.sha256(body).hexdigest()}"
        )
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"{ALGORITHM}\n{self._stamp}\n{self._scope}\n{digest}"
        signature = hmac.digest(self._key, text.encode(), "sha256").hex()
        head = (
            f"POST / HTTP/1.1\r\nHost: {self._authority}\r\nContent-Type: {CONTENT_TYPE}\r\n"
            f"X-Amz-Target: {target}\r\nX-Amz-Date: {self._stamp}\r\nAuthorization: {ALGORITHM} "
            f"Credential={self._credential}, SignedHeaders={SIGNED_HEADERS}, "
            f"Signature={signature}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class Answer(msgspec.Struct, frozen=True, gc=False):
    """One HTTP response."""

    status: int
    body: bytes
    server: str
    keeps_alive: bool
    """The service takes another request on the connection."""

    def check(self, action: str) -> None:
        """Raises BenchError with the service's words unless the call succeeded."""
        if self.status != 200:
            text = self.body[:400].decode(errors="replace")
            raise BenchError(f"{action} was answered with {self.status}: {text}")


class AnswerReader:
    """Responses of one connection, one at a time."""

    __slots__ = ("_answer", "_body", "_bytes", "_parser", "_server")

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._bytes = 0
        self._server = ""
        self._answer: Answer | None = None

    def feed(self, data: bytes) -> Answer | None:
        """The response that these bytes complete. Raises BenchError for what is no HTTP."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise BenchError(f"the service does not speak HTTP: {error}") from None
        if self._bytes > ANSWER_BYTES_MAX:
            raise BenchError(f"the service sent an answer over {ANSWER_BYTES_MAX:,} bytes")
        answer, self._answer = self._answer, None
        return answer

    # --- called by the parser ---------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._body = []
        self._bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"server":
            self._server = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._bytes += len(body)
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        keeps_alive = self._parser.should_keep_alive()
        self._answer = Answer(status, b"".join(self._body), self._server, keeps_alive)


class Message(msgspec.Struct, frozen=True, gc=False):
    """A received message."""

    body: str = msgspec.field(name="Body")
    handle: str = msgspec.field(name="ReceiptHandle")

    @property
    def key(self) -> int:
        """The key at its start; -1 for a message of somebody else's."""
        text = self.body[:KEY_CHARS]
        return int(text, 16) if len(text) == KEY_CHARS and _KEY_DIGITS.issuperset(text) else -1


class _Messages(msgspec.Struct, frozen=True):
    messages: list[Message] = msgspec.field(name="Messages", default_factory=list)


_MESSAGES = msgspec.json.Decoder(_Messages)


def messages_of(answer: Answer) -> list[Message]:
    """What a ReceiveMessage brought. Raises BenchError."""
    answer.check("ReceiveMessage")
    try:
        return _MESSAGES.decode(answer.body).messages
    except UNDECODABLE as error:
        raise BenchError(f"ReceiveMessage was answered with other JSON: {error}") from None


def body_of(key: int, size: int) -> str:
    """The text of a message: its key and padding."""
    return f"{key:016x}".ljust(size, "x")
