"""Connections to an SQS service: raw ones for the load, and calls for what is around it."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from benchmarks.load.errors import BenchError
from benchmarks.load.sqs_wire import Answer, AnswerReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.load.sqs_wire import Endpoint, Signer

CONNECT_TIMEOUT_S = 30.0


class Load(Protocol):
    """Whose requests a connection carries."""

    def answered(self, connection: SqsConnection, answer: Answer, now_ns: int) -> None:
        """A request was answered at `now_ns` (CLOCK_MONOTONIC)."""

    def fail(self, reason: str) -> None:
        """The run is over."""


class _Link(asyncio.Protocol):
    """One TCP connection of an `SqsConnection`."""

    def __init__(self, owner: SqsConnection) -> None:
        self.transport: asyncio.Transport | None = None
        self.reader = AnswerReader()
        self._owner = owner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, not a check: uvloop's transports do not derive from asyncio's.
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._owner.arrived(self, data, time.monotonic_ns())

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.lost(self, exc)


class SqsConnection:
    """One connection, one request at a time; opened again when the service closes it in between."""

    def __init__(self, endpoint: Endpoint, load: Load) -> None:
        self._endpoint = endpoint
        self._load = load
        self._loop = asyncio.get_running_loop()
        self._link: _Link | None = None
        self._opening: asyncio.Task[None] | None = None
        self._is_waiting = False
        self.step = 0
        """Free for the load: where in its round the connection is."""
        self.sent_ns = 0
        """When the request under way was sent, or was due."""
        self.reconnects = 0

    async def open(self) -> None:
        """Connect. Raises BenchError."""
        endpoint = self._endpoint
        context = ssl.create_default_context() if endpoint.is_tls else None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, self._link = await self._loop.create_connection(
                    lambda: _Link(self), endpoint.host, endpoint.port, ssl=context
                )
        except OSError as error:
            raise BenchError(f"cannot connect to {endpoint.authority}: {error}") from None

    def send(self, request: bytes) -> None:
        """Send a request; the one before must have been answered."""
        self._is_waiting = True
        link = self._link
        if link is not None and link.transport is not None:
            link.transport.write(request)
        else:
            self._opening = self._loop.create_task(self._open_and_send(request))

    async def _open_and_send(self, request: bytes) -> None:
        self.reconnects += 1
        try:
            await self.open()
        except BenchError as error:
            self._load.fail(str(error))
        else:
            self.send(request)

    def close(self) -> None:
        """Close; what is under way is not waited for."""
        if self._opening is not None:
            self._opening.cancel()
        self._drop()

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None and link.transport is not None:
            link.transport.abort()

    def arrived(self, link: _Link, data: bytes, now_ns: int) -> None:
        """Bytes came at `now_ns`."""
        if link is not self._link:
            return
        try:
            answer = link.reader.feed(data)
        except BenchError as error:
            self._load.fail(str(error))
            return
        if answer is not None:
            if not self._is_waiting:
                self._load.fail("the service answered a request that was not sent")
                return
            self._is_waiting = False
            if not answer.keeps_alive:
                self._drop()
            self._load.answered(self, answer, now_ns)

    def lost(self, link: _Link, error: Exception | None) -> None:
        """A TCP connection is gone."""
        if link is self._link:
            self._link = None
            if self._is_waiting:
                reason = error or "closed by the service"
                self._load.fail(f"a connection was lost before its answer: {reason}")


class Caller:
    """Single calls over one connection, awaited (`Load` of it)."""

    def __init__(self, endpoint: Endpoint, signer: Signer) -> None:
        self._signer = signer
        self._connection = SqsConnection(endpoint, self)
        self._answer: asyncio.Future[Answer] | None = None
        self._is_open = False

    def answered(self, connection: SqsConnection, answer: Answer, now_ns: int) -> None:
        """See `Load`."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def fail(self, reason: str) -> None:
        """See `Load`."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(BenchError(reason))

    async def ask(self, action: str, params: Mapping[str, object]) -> Answer:
        """Send a call; its answer, whatever it says. Raises BenchError without one."""
        if not self._is_open:
            await self._connection.open()
            self._is_open = True
        self._answer = asyncio.get_running_loop().create_future()
        self._connection.send(self._signer.request(action, params))
        return await self._answer

    async def call(self, action: str, params: Mapping[str, object]) -> dict[str, Any]:
        """The result of a call that must succeed. Raises BenchError."""
        answer = await self.ask(action, params)
        answer.check(action)
        return msgspec.json.decode(answer.body, type=dict[str, Any]) if answer.body else {}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
