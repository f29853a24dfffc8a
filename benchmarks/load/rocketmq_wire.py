"""RocketMQ 5 as a load tester needs it: signed headers, and requests made once and patched.

Bodies begin with a stamp, so that a run can be verified and its latency be known:

    key u64 (see verify) | sent u64, ns of CLOCK_MONOTONIC | run u64, of this run alone
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from adapters.rocketmq.codec.answer_encoding import Name, block, moment, number, resource, text
from adapters.rocketmq.codec.stubs import parse_message
from benchmarks.load.errors import BenchError

if TYPE_CHECKING:
    from collections.abc import Sequence

SERVICE = "/apache.rocketmq.v2.MessagingService/"
OK = 20000
MESSAGE_NOT_FOUND = 40401

STAMP = struct.Struct(">QQQ")

ID_CHARACTERS = 34  # what RocketMQ's clients make
INVISIBLE_MS = 30_000  # far longer than a consumer of this tester keeps a message
POLL_MS = 1_000  # a consumer looks this often whether the run is over


@dataclass(frozen=True, slots=True)
class RocketmqUrl:
    """Where to, and as whom: `rocketmq://KEY:SECRET@HOST:PORT`."""

    address: str
    key_id: str
    secret: str


def parse_url(url: str) -> RocketmqUrl:
    """Raises BenchError for a URL of another form."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BenchError(f"{url!r} is not a URL: {error}") from None
    if parts.scheme != "rocketmq" or not parts.hostname:
        raise BenchError(f"{url!r} is not rocketmq://KEY:SECRET@HOST:PORT")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return RocketmqUrl(
        f"{host}:{port or 8081}", unquote(parts.username or ""), unquote(parts.password or "")
    )


def headers(url: RocketmqUrl, client_id: str) -> tuple[tuple[str, str], ...]:
    """The headers of every call. They sign the time, so one signature serves a whole run."""
    date_time = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    digest = hmac.new(url.secret.encode(), date_time.encode(), hashlib.sha1).hexdigest()
    return (
        ("x-mq-client-id", client_id),
        ("x-mq-language", "PYTHON"),
        ("x-mq-protocol", "v2"),
        ("x-mq-client-version", "5.1.2"),
        ("x-mq-date-time", date_time),
        (
            "authorization",
            (
                f"MQv2-HMAC-SHA1 Credential={url.key_id}, SignedHeaders=x-mq-date-time, "
                f"Signature={digest}"
            ),
        ),
    )


def group_request(topic: str) -> bytes:
    """QueryRouteRequest without endpoints."""
    return resource(1, Name("", topic))


# --- Sending ------------------------------------------------------------------------------------


class SendRequests:
    """SendMessageRequests of `batch` messages, each with an id and a stamp of its own."""

    def __init__(self, topic: str, size_bytes: int, batch: int, run: int, producer: int) -> None:
        system = (
            text(3, "0" * ID_CHARACTERS)
            + number(5, 1)
            + number(6, 1)
            + moment(7, 0)
            + text(8, "127.0.0.1")
        )
        body = bytes(STAMP.size) + b"x" * (size_bytes - STAMP.size)
        message = block(1, resource(1, Name("", topic)) + block(3, system) + block(4, body))
        length = len(message)
        id_at = message.index(b"0" * ID_CHARACTERS)
        stamp_at = length - size_bytes
        self._buffer = bytearray(message * batch)
        self._id_places = range(id_at, length * batch, length)
        self._stamp_places = range(stamp_at, length * batch, length)
        self._run = run
        self._prefix = f"01{run & 0xFFFF_FFFF:08X}{producer:08X}".encode()

    def make(self, key: int, now_ns: int) -> bytes:
        """A request whose messages have the keys from `key` on."""
        buffer, prefix, run = self._buffer, self._prefix, self._run
        pack_into = STAMP.pack_into
        for place, stamp_place in zip(self._id_places, self._stamp_places, strict=True):
            buffer[place : place + ID_CHARACTERS] = b"%s%016X" % (prefix, key)
            pack_into(buffer, stamp_place, key, now_ns, run)
            key += 1
        return bytes(buffer)


# --- Receiving ----------------------------------------------------------------------------------


def receive_request(topic: str, group: str, batch: int, poll_ms: int = POLL_MS) -> bytes:
    """ReceiveMessageRequest for up to `batch` messages."""
    return (
        resource(1, Name("", group))
        + block(2, resource(1, Name("", topic)))
        + block(3, number(1, 1) + text(2, "*"))
        + number(4, batch)
        + moment(5, INVISIBLE_MS)
        + moment(7, poll_ms)
    )


def ack_request(topic: str, group: str, entries: Sequence[tuple[str, str]]) -> bytes:
    """AckMessageRequest of (message id, receipt handle) pairs."""
    return (
        resource(1, Name("", group))
        + resource(2, Name("", topic))
        + b"".join(block(3, text(1, ident) + text(2, handle)) for ident, handle in entries)
    )


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message that was received."""

    ident: str
    handle: str
    body: bytes
    attempt: int


def delivery_of(part: bytes) -> Delivery | None:
    """The message in a part of a ReceiveMessage stream; None: it is a status or a time."""
    if part[:1] != b"\x12":
        return None
    _, at = _varint(part, 1)
    message = parse_message(part[at:])
    system = message.system_properties
    return Delivery(system.message_id, system.receipt_handle, message.body, system.delivery_attempt)


# --- Answers ------------------------------------------------------------------------------------


def status_of(answer: bytes) -> tuple[int, str]:
    """(code, text) of an answer's status, which is its first field; (0, "") if it has none."""
    if answer[:1] != b"\x0a":
        return 0, ""
    length, at = _varint(answer, 1)
    end = at + length
    code, said = 0, ""
    while at < end:
        tag, at = _varint(answer, at)
        value, at = _varint(answer, at)
        if tag == 0x08:
            code = value
        elif tag == 0x12:
            said = answer[at : at + value].decode("utf-8", "replace")
            at += value
        else:
            break
    return code, said


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, place behind it). Raises BenchError for bytes that end within it."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise BenchError("the broker's answer is no message of apache.rocketmq.v2")
