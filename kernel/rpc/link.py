"""Moves the bytes of channels over TCP, with or without TLS: the only module here with a socket.

One connection for each pair of processes and direction of dialling; a `Dialer` keeps one up to an
address and tries again, later each time, when it breaks.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from ..common.listening import stop_listening
from ..common.ports import Clock
from .channel import Channel

WRITE_BYTES = 1024 * 1024
"""Handed to the transport in one go, at most about: what it cannot write at once it copies."""

TICK_SECONDS = 0.1

RETRY_SECONDS_MIN = 0.05
RETRY_SECONDS_MAX = 2.0

HANDSHAKE_SECONDS = 10
"""For TLS: who does not finish it costs a socket."""

CLOSED = "the other end has closed it"
CLOSED_UNHEARD = f"{CLOSED} without a word: it may want TLS"
CLOSED_UNHEARD_TLS = f"{CLOSED} without a word: it may not take this certificate, or not speak TLS"
"""OpenSSL's side that refuses a certificate says why in an alert, which asyncio does not send."""

Address = tuple[str, int]

TurnedAway = Callable[[Address, str], None]
"""Hears where a connection came from that never opened, and why it did not."""

MakeChannel = Callable[[Callable[[], None]], Channel]
"""A new channel that calls the argument when there is something to write."""


class _Wire(asyncio.Protocol):
    """One connection: bytes to and from its channel."""

    def __init__(
        self,
        make: MakeChannel,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        over: Callable[[], None],
        *,
        made: Callable[[], None] | None = None,
        unheard: str = CLOSED,
    ) -> None:
        """`made()`: the connection is there, after a TLS handshake; `over()`: it was there, and has
        gone. `unheard`: why, if the other end has closed it and never said anything.
        """
        self._loop = loop
        self._clock = clock
        self._over = over
        self._made = made
        self._closed_for = unheard
        self.address: Address = "", 0
        """Of the other end."""
        self.said_something = False
        """A word has come, or this end has closed it: a port that is only looked at is no news."""
        self._transport: asyncio.Transport | None = None
        self._may_write = True
        self._flushing = False
        self._ticker: asyncio.TimerHandle | None = None
        self.channel = make(self._wake)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)
        self.address = (transport.get_extra_info("peername") or self.address)[:2]
        if self._made is not None:
            self._made()
        self.channel.start()
        self._tick()

    def data_received(self, data: bytes) -> None:
        self._closed_for = CLOSED
        self.said_something = True
        self.channel.receive(data, self._clock.monotonic_ms())
        self._close_if_over()

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        self._transport = None
        self.said_something = self.said_something or self.channel.is_closed
        try:
            self.channel.broken(self._closed_for if exc is None else str(exc))
        finally:
            self._over()

    def _wake(self) -> None:
        if not self._flushing and self._may_write:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write what is queued, once a turn of the loop and connection."""
        self._flushing = False
        transport = self._transport
        while transport is not None and self._may_write and self.channel.has_output:
            transport.writelines(self.channel.take(WRITE_BYTES))
        self._close_if_over()

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(TICK_SECONDS, self._tick)
        self.channel.tick(self._clock.monotonic_ms())
        self._close_if_over()

    def _close_if_over(self) -> None:
        transport = self._transport
        if self.channel.is_closed and transport is not None and not transport.is_closing():
            if self._may_write and self.channel.has_output:
                transport.writelines(self.channel.take(WRITE_BYTES))
            transport.close()

    def abort(self) -> None:
        """Close without a word."""
        if self._transport is not None:
            self._transport.abort()

    def close(self, reason: str) -> None:
        """Say goodbye and close."""
        self.channel.close(reason)
        self._close_if_over()


class Acceptor:
    """Takes connections at one address."""

    def __init__(
        self,
        make: MakeChannel,
        clock: Clock,
        tls: ssl.SSLContext | None,
        connections_max: int,
        turned_away: TurnedAway | None = None,
    ) -> None:
        """`connections_max`: more are closed at once. Every process of a cluster has one each.
        `turned_away` is not told of those that fail in their TLS handshake: asyncio tells nobody.
        """
        self._make = make
        self._clock = clock
        self._tls = tls
        self._connections_max = connections_max
        self._turned_away = turned_away
        self._wires: set[_Wire] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; the address. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._accept,
            host,
            port,
            ssl=self._tls,
            ssl_handshake_timeout=HANDSHAKE_SECONDS if self._tls is not None else None,
        )
        bound: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return bound

    def _accept(self) -> _Wire:
        def made() -> None:
            # Not before: nothing is heard of those that fail in their TLS handshake.
            if len(self._wires) >= self._connections_max:
                wire.channel.broken("too many connections")
            self._wires.add(wire)

        def over() -> None:
            self._wires.discard(wire)
            channel = wire.channel
            if self._turned_away is None or channel.was_open or not wire.said_something:
                return
            self._turned_away(wire.address, channel.reason)

        wire = _Wire(self._make, self._clock, asyncio.get_running_loop(), over, made=made)
        return wire

    async def stop(self) -> None:
        """Close the listener and every connection, also those that are just being accepted."""
        self._connections_max = 0
        self._turned_away = None
        if self._server is not None:
            await stop_listening(self._server)
        for wire in list(self._wires):
            wire.close("shutting down")
        if self._server is not None:
            await self._server.wait_closed()


class Dialer:
    """Keeps one connection up."""

    def __init__(
        self, host: str, port: int, make: MakeChannel, clock: Clock, tls: ssl.SSLContext | None
    ) -> None:
        self.address = host, port
        self._make = make
        self._clock = clock
        self._tls = tls
        self._wire: _Wire | None = None
        self._task: asyncio.Task[None] | None = None
        self._lost: asyncio.Event = asyncio.Event()
        self.failures = 0
        """In a row."""
        self.last_error = ""

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        host, port = self.address
        unheard = CLOSED_UNHEARD if self._tls is None else CLOSED_UNHEARD_TLS
        while True:
            self._lost.clear()
            try:
                _transport, wire = await loop.create_connection(
                    lambda: _Wire(self._make, self._clock, loop, self._lost.set, unheard=unheard),
                    host,
                    port,
                    ssl=self._tls,
                )
            except OSError as error:  # of the network, or of TLS
                self.last_error = error.strerror or str(error)
            else:
                self._wire = wire
                await self._lost.wait()
                self._wire = None
                self.last_error = wire.channel.reason
                if wire.channel.was_open:
                    self.failures = 0
            self.failures += 1
            pause = RETRY_SECONDS_MIN * 2 ** min(self.failures - 1, 10)
            await asyncio.sleep(min(pause, RETRY_SECONDS_MAX))

    @property
    def channel(self) -> Channel | None:
        """The open channel, if there is one."""
        wire = self._wire
        return wire.channel if wire is not None and wire.channel.is_open else None

    async def stop(self) -> None:
        """Close the connection; dial no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._wire is not None:
            self._wire.close("shutting down")
