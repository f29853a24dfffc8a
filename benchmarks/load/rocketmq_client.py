"""A connection of the load tester: calls of MessagingService, in bytes.

grpc.aio has no types: here is all of it that the tester uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import grpc

from benchmarks.load.errors import BenchError
from benchmarks.load.rocketmq_wire import OK, SERVICE, group_request, headers, parse_url, status_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

CALL_TIMEOUT_S = 30.0  # longer than any sync; a broker that does not answer by then is stuck


class _Unary(Protocol):
    def __call__(self, request: bytes, **options: object) -> Awaitable[bytes]:
        """Call it."""


class _Stream(Protocol):
    def __call__(self, request: bytes, **options: object) -> AsyncIterator[bytes]:
        """Call it."""


class _Channel(Protocol):
    def unary_unary(self, method: str) -> _Unary:
        """A call with one answer."""

    def unary_stream(self, method: str) -> _Stream:
        """A call whose answer is a stream."""

    async def close(self) -> None:
        """End every call."""


class Connection:
    """One gRPC channel with a connection of its own."""

    def __init__(self, url: str, client_id: str) -> None:
        parsed = parse_url(url)
        self.address = parsed.address
        self._metadata = headers(parsed, client_id)
        # Channels to one address share a connection unless told otherwise.
        options = (
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", -1),
        )
        self._channel: _Channel = grpc.aio.insecure_channel(parsed.address, options=options)
        self._send = self._channel.unary_unary(SERVICE + "SendMessage")
        self._ack = self._channel.unary_unary(SERVICE + "AckMessage")
        self._receive = self._channel.unary_stream(SERVICE + "ReceiveMessage")

    async def check(self, topic: str) -> None:
        """Raise BenchError unless the broker is there and knows the topic."""
        call = self._channel.unary_unary(SERVICE + "QueryRoute")
        expect_ok(await self._answer(call, group_request(topic)), self.address)

    async def send(self, request: bytes) -> bytes:
        """SendMessage. Raises BenchError if the call fails; its status is the caller's."""
        return await self._answer(self._send, request)

    async def ack(self, request: bytes) -> bytes:
        """Call AckMessage; its answer."""
        return await self._answer(self._ack, request)

    async def _answer(self, call: _Unary, request: bytes) -> bytes:
        try:
            return await call(request, metadata=self._metadata, timeout=CALL_TIMEOUT_S)
        except grpc.RpcError as error:
            raise BenchError(f"{self.address}: {error.code().name}: {error.details()}") from None

    async def receive(self, request: bytes) -> list[bytes]:
        """The parts of one ReceiveMessage."""
        try:
            stream = self._receive(request, metadata=self._metadata, timeout=CALL_TIMEOUT_S)
            return [part async for part in stream]
        except grpc.RpcError as error:
            raise BenchError(f"{self.address}: {error.code().name}: {error.details()}") from None

    async def close(self) -> None:
        await self._channel.close()


def expect_ok(answer: bytes, address: str) -> None:
    """Raise BenchError with the broker's own words unless an answer says OK."""
    code, said = status_of(answer)
    if code != OK:
        raise BenchError(f"{address} refused: {code} {said}")
