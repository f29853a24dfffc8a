"""A client of `weir bench mqtt`: one connection to any MQTT broker, with nothing between it and the
socket but the codec.

It publishes with a bounded number of messages open, and acknowledges at once what it is sent. A
message begins with its key (`verify`) and the time it was sent, both big-endian u64.
"""

from __future__ import annotations

import asyncio
import time
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from adapters.mqtt.codec.decoder import Decoder
from adapters.mqtt.codec.encoder import (
    PUBACK_WORD,
    PUBCOMP_WORD,
    PUBREC_WORD,
    PUBREL_WORD,
    encode,
    encode_words,
    publish_frame,
)
from adapters.mqtt.codec.errors import MqttError
from adapters.mqtt.codec.packet_types import MQTT_5, PacketType
from adapters.mqtt.codec.packets import (
    AckRun,
    Connack,
    Connect,
    Disconnect,
    FilterOptions,
    PublishRun,
    Suback,
    Subscribe,
)
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.codec.topic_names import TopicNames
from benchmarks.load.errors import BenchError
from benchmarks.load.stats import Histogram
from benchmarks.load.verify import Ledger, first_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from adapters.mqtt.codec.packets import ReceivedPacket

HEAD = Struct(">QQ")
SESSION_S = 600  # a kept session that a run leaves behind ends by itself
ANSWER_TIMEOUT_S = 30.0
RECEIVE_MAXIMUM = 1_000  # of a subscriber: what brokers grant by default, or more
WRITE_BUFFER_BYTES = 8 << 20
_MASK_16 = 0xFFFF
_unpack_head = HEAD.unpack_from
_names = TopicNames()


class Address(NamedTuple):
    """Where a broker listens, and who comes."""

    host: str
    port: int
    username: str | None
    password: bytes | None


def parse_url(url: str) -> Address:
    """The parts of `mqtt://user:password@host:port`. Raises BenchError."""
    parts = urlsplit(url)
    try:
        port = parts.port or 1883
    except ValueError:
        port = 0
    if parts.scheme != "mqtt" or not parts.hostname or not port:
        raise BenchError(f"not an address of MQTT: {url}; it looks like mqtt://user:pw@host:1883")
    password = unquote(parts.password).encode() if parts.password is not None else None
    username = unquote(parts.username) if parts.username is not None else None
    return Address(parts.hostname, port, username, password)


class Login(NamedTuple):
    """How a client presents itself."""

    client_id: str
    level: int
    kept: bool
    """Whether its session outlives the connection."""


class BenchClient(asyncio.Protocol):
    """One connection."""

    def __init__(self, login: Login, on_failure: Callable[[str], None]) -> None:
        self.login = login
        self.latency = Histogram()
        self.ledger = Ledger()
        self.expected = -1
        self.received = 0
        self.source: BenchClient | None = None
        """Whose QoS 0 messages it gets: receiving them stands for their acknowledgement."""
        self.sent = 0
        self.answered = 0
        self.refused = 0
        self.is_over = False
        self._on_failure = on_failure
        self._decoder = Decoder(_names, client_level=login.level)
        self._transport: asyncio.WriteTransport | None = None
        self._waiting: asyncio.Future[ReceivedPacket] | None = None
        self._window = 0
        self._limit = 0
        self._head = b""
        self._tail = b""
        self._prefix = b""
        self._key = 0
        self._qos = 0
        self._packet_id = 0
        self._running = False

    # --- The connection ---------------------------------------------------------------------

    async def open(self, address: Address, *, clean: bool = True) -> Connack:
        """Connect and be let in. Raises BenchError."""
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self, address.host, address.port)
        except OSError as error:
            raise BenchError(f"cannot connect to {address.host}:{address.port}: {error}") from None
        level, kept = self.login.level, self.login.kept
        properties = Properties(receive_maximum=RECEIVE_MAXIMUM)
        if kept:
            properties = Properties(
                receive_maximum=RECEIVE_MAXIMUM, session_expiry_interval=SESSION_S
            )
        connect = Connect(
            self.login.client_id,
            level,
            clean if level == MQTT_5 else not kept,
            username=address.username,
            password=address.password,
            properties=properties if level == MQTT_5 else Properties(),
        )
        answer = await self._ask(encode(connect, level))
        if not isinstance(answer, Connack) or answer.reason_code:
            code = getattr(answer, "reason_code", -1)
            raise BenchError(f"the broker refuses the connection with code {code}")
        return answer

    async def subscribe(self, name: str, qos: int) -> None:
        """Subscribe. Raises BenchError if it is refused."""
        packet = Subscribe(1, (FilterOptions(name, qos),))
        answer = await self._ask(encode(packet, self.login.level))
        if not isinstance(answer, Suback) or answer.reason_codes[0] != qos:
            raise BenchError(f"the broker refuses a subscription: {answer}")

    async def _ask(self, data: bytes) -> ReceivedPacket:
        self._waiting = asyncio.get_running_loop().create_future()
        self._write(data)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self._waiting
        except TimeoutError:
            raise BenchError("the broker does not answer") from None
        finally:
            self._waiting = None

    def close(self) -> None:
        """Say goodbye; a kept session ends."""
        self._running = False
        self.is_over = True
        if self._transport is not None and not self._transport.is_closing():
            level = self.login.level
            properties = Properties(session_expiry_interval=0 if self.login.kept else None)
            self._write(encode(Disconnect(0, properties), level))
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, not a check: uvloop's transports do not derive from asyncio's.
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(BenchError("the broker has closed the connection"))
        elif not self.is_over:
            self._on_failure(f"a client lost its connection: {exc or 'closed by the broker'}")

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    # --- Publishing -------------------------------------------------------------------------

    def publish_to(self, name: str, number: int, size_bytes: int, qos: int, window: int) -> None:
        """What `start` publishes: messages of producer `number`, at most `window` open."""
        self._qos = qos
        self._window = window
        self._key = first_key(number)
        body = bytes(size_bytes)
        head, tail = publish_frame(self.login.level, qos << 1, name.encode(), b"", body)
        if qos:
            self._head, tail = head, tail[: len(tail) - size_bytes]
        else:
            self._head, tail = head[: len(head) - size_bytes], b""
        self._prefix = tail
        self._tail = body[HEAD.size :]

    def start(self, messages: int = 0) -> None:
        """Publish; so many messages (0: until `stop`)."""
        self._limit = messages or 1 << 62
        self._running = True
        self._pump()

    def stop(self) -> None:
        """Publish nothing more."""
        self._running = False

    @property
    def is_done(self) -> bool:
        """Nothing more is published, and everything is answered."""
        return not self._running and self.answered >= self.sent

    def was_received(self, messages: int) -> None:
        """So many QoS 0 messages have arrived."""
        self.answered += messages
        self._pump()

    def _pump(self) -> None:
        if not self._running:
            return
        count = min(self._window - (self.sent - self.answered), self._limit - self.sent)
        if count <= 0:
            if self.sent >= self._limit:
                self._running = False
            return
        now_ns = time.monotonic_ns()
        parts: list[bytes] = []
        for _ in range(count):
            body = HEAD.pack(self._key + self.sent, now_ns)
            self.sent += 1
            if self._qos:
                packet_id = self._packet_id = self._packet_id % _MASK_16 + 1
                parts += (
                    self._head,
                    packet_id.to_bytes(2, "big"),
                    self._prefix,
                    body,
                    self._tail,
                )
            else:
                parts += (self._head, body, self._tail)
        self._write(b"".join(parts))

    # --- What comes -------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        packets: list[ReceivedPacket] = []
        try:
            self._decoder.receive(data, packets)
        except MqttError as error:
            self._on_failure(f"the broker sends what is not MQTT: {error}")
            return
        for packet in packets:
            if isinstance(packet, PublishRun):
                self._messages(packet)
            elif isinstance(packet, AckRun):
                self._acknowledged(packet)
            elif isinstance(packet, Disconnect):
                self._on_failure(f"the broker says goodbye with 0x{packet.reason_code:02X}")
            elif self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(packet)

    def _messages(self, run: PublishRun) -> None:
        now_ns = time.monotonic_ns()
        expected, ledger, latency = self.expected, self.ledger, self.latency
        for payload in run.payloads:
            key, sent_ns = _unpack_head(payload)
            expected = expected + 1 if key == expected else ledger.turn(key, expected)
            latency.record(now_ns - sent_ns)
        self.expected = expected
        self.received += len(run.payloads)
        if self.source is not None:
            self.source.was_received(len(run.payloads))
        words: list[int] = []
        for flags, packet_id in zip(run.flags, run.packet_ids, strict=True):
            if packet_id:
                words.append((PUBREC_WORD if flags & 0x04 else PUBACK_WORD) | packet_id)
        if words:
            self._write(encode_words(words))

    def _acknowledged(self, run: AckRun) -> None:
        if run.type is PacketType.PUBREC:
            self._write(encode_words([PUBREL_WORD | each for each in run.packet_ids]))
            return
        if run.type is PacketType.PUBREL:
            self._write(encode_words([PUBCOMP_WORD | each for each in run.packet_ids]))
            return
        self.answered += len(run.packet_ids)
        self.refused += sum(code >= 0x80 for code in run.reason_codes)
        self._pump()
