"""AMQP 0-9-1 as a load tester needs it: set-up methods, and publishes made once and patched.

    frame    type u8 | channel u16 | size u32 | payload | 0xCE          AMQP 0-9-1 4.2.3
    method   class u16 | method u16 | arguments                         4.2.4
    header   class u16 | weight u16 | body size u64 | flags u16 | ...   4.2.6.1

The first 16 bytes of every body are the stamp: key u64 (see verify) and the time it was sent,
u64 ns of CLOCK_MONOTONIC, which all processes of one machine share.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from benchmarks.load.errors import BenchError

FRAME_METHOD = 1
FRAME_HEADER = 2
FRAME_BODY = 3
FRAME_HEARTBEAT = 8
FRAME_END = 0xCE
FRAME_END_BYTE = b"\xce"
FRAME_HEAD = struct.Struct(">BHI")
FRAME_OVERHEAD = FRAME_HEAD.size + 1
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"

# Methods, as class << 16 | method (AMQP 0-9-1 1.1; confirm is RabbitMQ's extension).
CONNECTION_START = 10 << 16 | 10
CONNECTION_START_OK = 10 << 16 | 11
CONNECTION_TUNE = 10 << 16 | 30
CONNECTION_TUNE_OK = 10 << 16 | 31
CONNECTION_OPEN = 10 << 16 | 40
CONNECTION_OPEN_OK = 10 << 16 | 41
CONNECTION_CLOSE = 10 << 16 | 50
CONNECTION_CLOSE_OK = 10 << 16 | 51
CHANNEL_OPEN = 20 << 16 | 10
CHANNEL_OPEN_OK = 20 << 16 | 11
CHANNEL_CLOSE = 20 << 16 | 40
EXCHANGE_DECLARE = 40 << 16 | 10
EXCHANGE_DECLARE_OK = 40 << 16 | 11
EXCHANGE_DELETE = 40 << 16 | 20
EXCHANGE_DELETE_OK = 40 << 16 | 21
QUEUE_DECLARE = 50 << 16 | 10
QUEUE_DECLARE_OK = 50 << 16 | 11
QUEUE_BIND = 50 << 16 | 20
QUEUE_BIND_OK = 50 << 16 | 21
QUEUE_DELETE = 50 << 16 | 40
QUEUE_DELETE_OK = 50 << 16 | 41
BASIC_QOS = 60 << 16 | 10
BASIC_QOS_OK = 60 << 16 | 11
BASIC_CONSUME = 60 << 16 | 20
BASIC_CANCEL = 60 << 16 | 30
BASIC_PUBLISH = 60 << 16 | 40
BASIC_DELIVER = 60 << 16 | 60
BASIC_ACK = 60 << 16 | 80
BASIC_NACK = 60 << 16 | 120
CONFIRM_SELECT = 85 << 16 | 10
CONFIRM_SELECT_OK = 85 << 16 | 11

STAMP = struct.Struct(">QQ")
SIZE_MIN = STAMP.size
SIZE_MAX = 16 << 20  # RabbitMQ 4's and Weir's own limit of a body.
FRAME_SIZE_MAX = 131_072  # RabbitMQ's default; a larger offer gains nothing here.

_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_CLOSE_HEAD = struct.Struct(">HB")


@dataclass(frozen=True, slots=True)
class AmqpUrl:
    host: str
    port: int
    user: str
    password: str
    vhost: str


def parse_url(url: str) -> AmqpUrl:
    """Read amqp://user:password@host:port/vhost; what is left out is RabbitMQ's default.

    Raises BenchError for another scheme, TLS among them, and for a bad port.
    """
    parts = urlsplit(url)
    if parts.scheme != "amqp":
        raise BenchError(f"{url!r} is not an amqp:// URL (this tester speaks no TLS)")
    try:
        port = parts.port or 5672
    except ValueError as error:
        raise BenchError(f"{url!r}: {error}") from None
    return AmqpUrl(
        host=parts.hostname or "127.0.0.1",
        port=port,
        user=unquote(parts.username or "guest"),
        password=unquote(parts.password or "guest"),
        vhost=unquote(parts.path[1:]) or "/",
    )


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return FRAME_HEAD.pack(kind, channel, len(payload)) + payload + FRAME_END_BYTE


def method(channel: int, number: int, arguments: bytes = b"") -> bytes:
    return frame(FRAME_METHOD, channel, _U32.pack(number) + arguments)


def short_string(text: str) -> bytes:
    """A short string (4.2.5.3). Raises BenchError above 255 bytes of UTF-8."""
    data = text.encode()
    if len(data) > 255:
        raise BenchError(f"{text[:40]!r}... is longer than the 255 bytes of an AMQP short string")
    return bytes((len(data),)) + data


def long_string(data: bytes) -> bytes:
    return _U32.pack(len(data)) + data


def table(entries: dict[str, str]) -> bytes:
    """A field table (4.2.5.5) of long strings."""
    items = b"".join(
        short_string(name) + b"S" + long_string(value.encode()) for name, value in entries.items()
    )
    return long_string(items)


def start_ok(url: AmqpUrl) -> bytes:
    """connection.start-ok with SASL PLAIN.

    The one capability asks for words instead of a silent close when the login fails.
    """
    capabilities = short_string("authentication_failure_close") + b"t\x01"
    properties = table({"product": "weir bench"})[4:]
    properties += short_string("capabilities") + b"F" + long_string(capabilities)
    response = f"\x00{url.user}\x00{url.password}".encode()
    arguments = (
        long_string(properties)
        + short_string("PLAIN")
        + long_string(response)
        + short_string("en_US")
    )
    return method(0, CONNECTION_START_OK, arguments)


def queue_declare(channel: int, queue: str, flags: int, arguments: dict[str, str]) -> bytes:
    """queue.declare; flags: 1 passive, 2 durable, 4 exclusive, 8 auto-delete, 16 no-wait."""
    content = b"\x00\x00" + short_string(queue) + bytes((flags,)) + table(arguments)
    return method(channel, QUEUE_DECLARE, content)


def basic_consume(channel: int, queue: str, *, no_ack: bool) -> bytes:
    """basic.consume with the tag "c" and no-wait, so that deliveries are all that comes back."""
    flags = (2 if no_ack else 0) | 8
    content = b"\x00\x00" + short_string(queue) + short_string("c") + bytes((flags,)) + table({})
    return method(channel, BASIC_CONSUME, content)


def close_reason(number: int, payload: bytes) -> str | None:
    """The broker's words if `payload` is a connection.close, channel.close or basic.cancel."""
    if number in (CONNECTION_CLOSE, CHANNEL_CLOSE):
        code, length = _CLOSE_HEAD.unpack_from(payload, 4)
        return f"{code} {payload[7 : 7 + length].decode(errors='replace')}"
    if number == BASIC_CANCEL:
        return "the broker cancelled a consumer (its queue is gone)"
    return None


@dataclass(frozen=True, slots=True)
class Template:
    """All frames of one publish, with a stamp of zeros at `stamp_at`."""

    data: bytes
    stamp_at: int


def publish_template(
    exchange: str, routing_key: str, size: int, *, persistent: bool, frame_size_max: int
) -> Template:
    """Build a publish on channel 1 with a body of `size` bytes (SIZE_MIN..SIZE_MAX).

    Its only property is the delivery mode (2 persistent, 1 transient), as a client's would be
    that cares about nothing else.
    """
    publish = b"\x00\x00" + short_string(exchange) + short_string(routing_key) + b"\x00"
    properties = struct.pack(">HHQHB", 60, 0, size, 0x1000, 2 if persistent else 1)
    head = method(1, BASIC_PUBLISH, publish) + frame(FRAME_HEADER, 1, properties)
    body = bytes(SIZE_MIN) + bytes(i & 0x7F for i in range(SIZE_MIN, size))
    step = frame_size_max - FRAME_OVERHEAD
    parts = [frame(FRAME_BODY, 1, body[at : at + step]) for at in range(0, size, step)]
    return Template(head + b"".join(parts), len(head) + FRAME_HEAD.size)


class PublishBatch:
    """Joins publishes to lanes (routing keys) taken in turn, stamped, in one buffer.

    The templates of all lanes have one length, so the stamps of a buffer lie at equal distances
    and making n publishes is one copy and n calls of `pack_into`.
    """

    BYTES_MAX = 256 << 10  # More in one write gains nothing: a socket buffer takes about this.

    __slots__ = ("_block", "_key", "_lane", "_lanes", "_length", "_stamp_at", "count_max")

    def __init__(self, templates: list[Template], first_key: int, first_lane: int) -> None:
        first = templates[0]
        if any(len(t.data) != len(first.data) or t.stamp_at != first.stamp_at for t in templates):
            raise BenchError("all routing keys of a producer must have one length")
        self._lanes = len(templates)
        self._length = len(first.data)
        self._stamp_at = first.stamp_at
        self._key = first_key
        self._lane = first_lane
        self.count_max = max(self.BYTES_MAX // self._length, 1)
        tiles = self._lanes + self.count_max
        self._block = b"".join(templates[i % self._lanes].data for i in range(tiles))

    def _take(self, count: int) -> tuple[bytearray, range, range]:
        """A fresh buffer of the next `count` publishes, its keys, and where its stamps lie."""
        length = self._length
        start = self._lane * length
        buffer = bytearray(memoryview(self._block)[start : start + count * length])
        self._lane = (self._lane + count) % self._lanes
        keys = range(self._key, self._key + count)
        self._key += count
        return buffer, keys, range(self._stamp_at, count * length, length)

    def make(self, count: int, sent_ns: int) -> bytearray:
        """The next `count` (1..count_max) publishes, all sent at `sent_ns`."""
        buffer, keys, places = self._take(count)
        put = STAMP.pack_into
        for key, place in zip(keys, places, strict=True):
            put(buffer, place, key, sent_ns)
        return buffer

    def make_scheduled(self, due_ns: list[int]) -> bytearray:
        """One publish for each time in `due_ns` (1..count_max of them)."""
        buffer, keys, places = self._take(len(due_ns))
        for key, place, due in zip(keys, places, due_ns, strict=True):
            STAMP.pack_into(buffer, place, key, due)
        return buffer


def read_string_table(payload: bytes, at: int) -> dict[str, str]:
    """The leading string entries of the field table at `at`; nested tables are stepped over.

    Reading stops at the first type it does not know: this is for a broker's product and version.
    """
    end = at + 4 + _U32.unpack_from(payload, at)[0]
    at += 4
    found: dict[str, str] = {}
    while at < end:
        name_end = at + 1 + payload[at]
        name = payload[at + 1 : name_end].decode(errors="replace")
        kind = payload[name_end : name_end + 1]
        at = name_end + 1
        if kind in (b"S", b"F"):
            value_end = at + 4 + _U32.unpack_from(payload, at)[0]
            if kind == b"S":
                found[name] = payload[at + 4 : value_end].decode(errors="replace")
            at = value_end
        elif kind == b"t":
            at += 1
        else:
            break
    return found


def read_counts(payload: bytes) -> tuple[int, int]:
    """Messages and consumers of a queue.declare-ok payload (method number included)."""
    at = 5 + payload[4]
    messages: int
    consumers: int
    messages, consumers = struct.unpack_from(">II", payload, at)
    return messages, consumers


def tune_ok(payload: bytes) -> tuple[bytes, int, int]:
    """Answer a connection.tune: (frame, frame size, channels), with heartbeats off.

    A limit of 0 in the offer means none.
    """
    channel_max, frame_max, _heartbeat = struct.unpack_from(">HIH", payload, 4)
    frame_max = min(frame_max or FRAME_SIZE_MAX, FRAME_SIZE_MAX)
    channel_max = channel_max or 0xFFFF
    answer = struct.pack(">HIH", channel_max, frame_max, 0)
    return method(0, CONNECTION_TUNE_OK, answer), frame_max, channel_max
