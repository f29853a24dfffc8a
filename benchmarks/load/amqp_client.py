"""A small blocking AMQP client: everything before and after the measured part.

It signs in, declares, and then either closes, or hands its socket to the event loop of a
generator (`detach`). One call at a time, in the order of the protocol; nothing here is fast.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from benchmarks.load.amqp_wire import (
    BASIC_QOS,
    BASIC_QOS_OK,
    CHANNEL_OPEN,
    CHANNEL_OPEN_OK,
    CONFIRM_SELECT,
    CONFIRM_SELECT_OK,
    CONNECTION_CLOSE,
    CONNECTION_CLOSE_OK,
    CONNECTION_OPEN,
    CONNECTION_OPEN_OK,
    CONNECTION_START,
    CONNECTION_TUNE,
    EXCHANGE_DECLARE,
    EXCHANGE_DECLARE_OK,
    EXCHANGE_DELETE,
    EXCHANGE_DELETE_OK,
    FRAME_HEAD,
    FRAME_METHOD,
    FRAME_OVERHEAD,
    PROTOCOL_HEADER,
    QUEUE_BIND,
    QUEUE_BIND_OK,
    QUEUE_DECLARE_OK,
    QUEUE_DELETE,
    QUEUE_DELETE_OK,
    AmqpUrl,
    close_reason,
    method,
    queue_declare,
    read_counts,
    read_string_table,
    short_string,
    start_ok,
    table,
    tune_ok,
)
from benchmarks.load.errors import BenchError

CALL_TIMEOUT_S = 60.0  # declaring a quorum queue waits for an election on a busy machine
READ_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Identity:
    """What the broker says of itself in connection.start."""

    product: str
    version: str


class SetupConnection:
    """One signed-in connection. Every method raises BenchError when the broker refuses."""

    def __init__(self, url: AmqpUrl) -> None:
        self._rest = b""
        try:
            self._socket = socket.create_connection((url.host, url.port), timeout=CALL_TIMEOUT_S)
        except OSError as error:
            raise BenchError(f"cannot connect to {url.host}:{url.port}: {error}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._sign_in(url)
        except BaseException:
            self._socket.close()
            raise

    def _sign_in(self, url: AmqpUrl) -> None:
        self._send(PROTOCOL_HEADER)
        start = self._wait(CONNECTION_START)
        about = read_string_table(start, 6)
        self.identity = Identity(about.get("product", "unknown"), about.get("version", "unknown"))
        self._send(start_ok(url))
        answer, self.frame_size_max, self.channels_max = tune_ok(self._wait(CONNECTION_TUNE))
        self._send(answer)
        self._call(0, CONNECTION_OPEN, short_string(url.vhost) + b"\x00\x00", CONNECTION_OPEN_OK)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise BenchError(f"the connection broke: {error}") from None

    def _read(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise BenchError(f"the broker did not answer for {CALL_TIMEOUT_S:.0f} s") from None
        except OSError as error:
            raise BenchError(f"the connection broke: {error}") from None
        if not data:
            raise BenchError("the broker closed the connection (wrong password or virtual host?)")
        self._rest += data

    def _frame(self) -> tuple[int, bytes]:
        while len(self._rest) < FRAME_HEAD.size:
            self._read()
        kind, _channel, size = FRAME_HEAD.unpack_from(self._rest)
        while len(self._rest) < size + FRAME_OVERHEAD:
            self._read()
        payload = self._rest[FRAME_HEAD.size : FRAME_HEAD.size + size]
        self._rest = self._rest[size + FRAME_OVERHEAD :]
        return kind, payload

    def _wait(self, expected: int) -> bytes:
        """The payload of the next method frame, which must be `expected`."""
        while True:
            kind, payload = self._frame()
            if kind != FRAME_METHOD:
                continue
            number = int.from_bytes(payload[:4], "big")
            if number == expected:
                return payload
            reason = close_reason(number, payload)
            raise BenchError(
                f"the broker refused: {reason}"
                if reason
                else f"the broker sent method {number >> 16}.{number & 0xFFFF} out of turn"
            )

    def _call(self, channel: int, number: int, arguments: bytes, answer: int) -> bytes:
        self._send(method(channel, number, arguments))
        return self._wait(answer)

    def open_channel(self, channel: int) -> None:
        self._call(channel, CHANNEL_OPEN, b"\x00", CHANNEL_OPEN_OK)

    def select_confirms(self, channel: int) -> None:
        self._call(channel, CONFIRM_SELECT, b"\x00", CONFIRM_SELECT_OK)

    def set_prefetch(self, channel: int, count: int) -> None:
        self._call(channel, BASIC_QOS, struct.pack(">IHB", 0, count, 0), BASIC_QOS_OK)

    def declare_queue(self, queue: str, *, durable: bool, arguments: dict[str, str]) -> int:
        """Declare a queue on channel 1; return how many messages it holds."""
        self._send(queue_declare(1, queue, 2 if durable else 0, arguments))
        return read_counts(self._wait(QUEUE_DECLARE_OK))[0]

    def queue_depth(self, queue: str) -> int:
        """The ready messages of an existing queue (a passive declare)."""
        self._send(queue_declare(1, queue, 1, {}))
        return read_counts(self._wait(QUEUE_DECLARE_OK))[0]

    def delete_queue(self, queue: str) -> None:
        """Delete a queue; one that does not exist is fine."""
        arguments = b"\x00\x00" + short_string(queue) + b"\x00"
        self._call(1, QUEUE_DELETE, arguments, QUEUE_DELETE_OK)

    def declare_fanout(self, exchange: str, *, durable: bool) -> None:
        arguments = (
            b"\x00\x00"
            + short_string(exchange)
            + short_string("fanout")
            + bytes((2 if durable else 0,))
            + table({})
        )
        self._call(1, EXCHANGE_DECLARE, arguments, EXCHANGE_DECLARE_OK)

    def delete_exchange(self, exchange: str) -> None:
        """Delete an exchange; one that does not exist is fine."""
        arguments = b"\x00\x00" + short_string(exchange) + b"\x00"
        self._call(1, EXCHANGE_DELETE, arguments, EXCHANGE_DELETE_OK)

    def bind(self, queue: str, exchange: str) -> None:
        arguments = (
            b"\x00\x00"
            + short_string(queue)
            + short_string(exchange)
            + short_string("")
            + b"\x00"
            + table({})
        )
        self._call(1, QUEUE_BIND, arguments, QUEUE_BIND_OK)

    def detach(self) -> socket.socket:
        """Give the socket away, without a time limit. No answer may be outstanding."""
        if self._rest:
            raise BenchError("the broker sent frames before anything was asked of it")
        self._socket.settimeout(None)
        return self._socket

    def close(self) -> None:
        """Say goodbye and close; a broker that is gone already is fine."""
        try:
            reason = struct.pack(">HBHH", 200, 0, 0, 0)
            self._call(0, CONNECTION_CLOSE, reason, CONNECTION_CLOSE_OK)
        except BenchError:
            pass
        finally:
            self._socket.close()
