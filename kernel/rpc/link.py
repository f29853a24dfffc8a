"""Moves the bytes of channels over TCP, with or without TLS: the only module here with a socket.

One connection for each pair of processes and direction of dialling; a `Dialer` keeps one up to an
address and tries again, later each time, when it breaks.

Anybody who can reach the port of an `Acceptor` can connect. Until the other end has proved itself
(`handshake`) it gets no more than

    HANDSHAKE_MS      from being taken until it has proved itself, TLS included
    HELLO_BYTES_MAX   of its bytes kept
    UNPROVEN_MAX      such connections in all; one more, and the oldest of the address with the most
                      of them is closed (`crowd`): members come from others, and get in
    TAKEN_MAX         connections taken in one turn of the event loop: between two turns whatever
                      members say is heard
    CLOSE_SECONDS     to read what was said last

What was turned away is counted by reason (`Turned`), and told of.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import cast

from ..common.crowd import Crowd, address_of
from ..common.listening import ListeningSockets
from ..common.ports import Clock
from .channel import HANDSHAKE_MS, Channel

WRITE_BYTES = 1024 * 1024
"""Handed to the transport in one go, at most about: what it cannot write at once it copies."""

TICK_SECONDS = 0.1

RETRY_SECONDS_MIN = 0.05
RETRY_SECONDS_MAX = 2.0

UNPROVEN_MAX = 256
"""Connections of one listener whose other end has not proved itself: as many as there are processes
in a large cluster, which all come at once when a store has started again. In a TLS handshake each
takes some 75 KB."""

TAKEN_MAX = 16
"""Connections taken in one turn of the event loop: 5 ms at most."""

CLOSE_SECONDS = 5.0
"""So long after it was closed a connection may take to be gone: who does not read what was said
last, or does not answer the end of TLS, costs a socket."""

FULL = "too many connections"
CROWDED = "too many connections that have not proved who they are"
CLOSED = "the other end has closed it"
CLOSED_UNHEARD = f"{CLOSED} without a word: it may want TLS"
CLOSED_UNHEARD_TLS = f"{CLOSED} without a word: it may not take this certificate, or not speak TLS"
"""OpenSSL's side that refuses a certificate says why in an alert, which asyncio does not send."""

Address = tuple[str, int]

TurnedAway = Callable[[Address, str], None]
"""Hears where a connection came from that never opened, and why it did not."""


class Turned(StrEnum):
    """Why a connection was turned away."""

    CROWDED = "crowded"
    """There were UNPROVEN_MAX that had not proved themselves."""
    FULL = "connections_max"
    LATE = "late"
    """It has not proved itself in time."""
    MALFORMED = "malformed"
    """Its bytes were none of this protocol."""
    NOT_LET_IN = "not_let_in"
    """Its secret, its version or who it is: one of both ends has refused the other."""
    TLS = "tls"
    """Its TLS handshake came to nothing."""


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
        address: Address = ("", 0),
        unheard: str = CLOSED,
    ) -> None:
        """`over()`: it was there, and has gone. `address`: of the other end. `unheard`: why, if it
        has closed this and never said anything.
        """
        self._loop = loop
        self._clock = clock
        self._over = over
        self._closed_for = unheard
        self.address = address
        self.said_something = False
        """A word has come, or this end has closed it: a port that is only looked at is no news."""
        self._transport: asyncio.Transport | None = None
        self._may_write = True
        self._flushing = False
        self._ticker: asyncio.TimerHandle | None = None
        self._closing_ticks = 0
        self.has_begun = False
        """It is on its way through the handshake of TLS, or further."""
        self.was_made = False
        """And through it."""
        self.proved: Callable[[], None] | None = None
        """To be called once, when the other end has proved itself."""
        self.turned: Turned | None = None
        """Why it was turned away."""
        self.channel = make(self._wake)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)
        self.was_made = True
        self.channel.start()
        self._tick()

    def data_received(self, data: bytes) -> None:
        self._closed_for = CLOSED
        self.said_something = True
        self.channel.receive(data, self._clock.monotonic_ms())
        if self.proved is not None:
            self._see_proof()
        self._close_if_over()

    def _see_proof(self) -> None:
        channel, proved = self.channel, self.proved
        if channel.was_open and proved is not None:
            self.proved = None
            proved()
        elif channel.is_closed and self.turned is None:
            self.turned = Turned.NOT_LET_IN if channel.was_refused else Turned.MALFORMED

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
        if self.channel.is_closed:
            if self.turned is None:
                self.turned = Turned.LATE
            self._closing_ticks += 1
            if self._closing_ticks * TICK_SECONDS > CLOSE_SECONDS:
                self.abort()

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
    """Takes connections at one address. See the module's head."""

    def __init__(
        self,
        make: MakeChannel,
        clock: Clock,
        tls: ssl.SSLContext | None,
        connections_max: int,
        turned_away: TurnedAway | None = None,
        unproven_max: int = UNPROVEN_MAX,
    ) -> None:
        """`connections_max`: of those that have proved themselves; every process of a cluster has
        one each. `turned_away` is not told of those that fail in their TLS handshake: who watches
        the context hears why.
        """
        self._make = make
        self._clock = clock
        self._tls = tls
        self._connections_max = connections_max
        self._unproven_max = unproven_max
        self._turned_away = turned_away
        self._unproven: Crowd[_Wire] = Crowd()
        self._proved: set[_Wire] = set()
        self._wires: dict[_Wire, asyncio.Task[None]] = {}
        """All that were taken and are not gone; the task sees each through its TLS handshake."""
        self._turned = dict.fromkeys(Turned, 0)
        self._listening: ListeningSockets | None = None

    @property
    def unproven(self) -> int:
        """Connections whose other end has not proved itself."""
        return len(self._unproven)

    @property
    def turned(self) -> Mapping[Turned, int]:
        """Connections turned away since the start."""
        return self._turned

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; the address. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._listening = ListeningSockets(loop, self._take, TAKEN_MAX)
        await self._listening.start(host, port)
        bound: tuple[str, int] = self._listening.sockets[0].getsockname()[:2]
        return bound

    def _take(self, accepted: socket.socket, address: Address) -> None:
        loop = asyncio.get_running_loop()

        def proved() -> None:
            self._unproven.discard(wire)
            if len(self._proved) < self._connections_max:
                self._proved.add(wire)
            else:  # others have proved themselves since it was taken
                self._turned[Turned.FULL] += 1
                wire.close(FULL)

        def over() -> None:
            self._unproven.discard(wire)
            self._proved.discard(wire)
            if self._wires.pop(wire, None) is not None and not wire.channel.was_open:
                self._turn_away(wire)

        wire = _Wire(self._make, self._clock, loop, over, address=address)
        wire.proved = proved
        self._unproven.add(address_of(address[0]), wire)
        self._wires[wire] = loop.create_task(self._begin(wire, accepted, over))
        if len(self._proved) >= self._connections_max:
            self._refuse(wire, Turned.FULL, FULL)
        elif len(self._unproven) > self._unproven_max:
            self._refuse(self._unproven.next_to_go(), Turned.CROWDED, CROWDED)

    async def _begin(self, wire: _Wire, accepted: socket.socket, over: Callable[[], None]) -> None:
        """Make a transport of a socket, through the handshake of TLS."""
        wire.has_begun = True
        if wire.turned is not None:
            accepted.close()
            over()
            return
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: wire,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_MS / 1_000,
            )
        except (OSError, asyncio.CancelledError):
            # `ssl.SSLError` is an OSError. The event loop has closed the socket, which is its own
            # from the first.
            if not wire.was_made:
                if wire.turned is None:
                    wire.turned = Turned.TLS
                over()

    def _refuse(self, wire: _Wire, why: Turned, reason: str) -> None:
        """Close a connection at once, without a word."""
        wire.turned = why
        self._unproven.discard(wire)
        wire.said_something = True
        wire.channel.broken(reason)
        if wire.was_made:
            wire.abort()
        elif wire.has_begun:
            self._wires[wire].cancel()

    def _turn_away(self, wire: _Wire) -> None:
        if wire.turned is not None:
            self._turned[wire.turned] += 1
        if self._turned_away is not None and wire.said_something:
            self._turned_away(wire.address, wire.channel.reason)

    async def stop(self) -> None:
        """Close the listener and every connection, also those that are just being accepted."""
        self._turned_away = None
        if self._listening is not None:
            self._listening.stop()
        # The last that were taken have begun then, and their sockets are the event loop's.
        await asyncio.sleep(0)
        begun = dict(self._wires)
        for wire, task in begun.items():
            if wire.was_made:
                wire.close("shutting down")
            else:
                task.cancel()
        await asyncio.gather(*begun.values(), return_exceptions=True)


class Dialer:
    """Keeps one connection up."""

    def __init__(
        self, host: str, port: int, make: MakeChannel, clock: Clock, tls: ssl.SSLContext | None
    ) -> None:
        self.address = host, port
        """Where the other end should be."""
        self.also: tuple[str, int] | None = None
        """Where it may be instead: tried whenever it is not at `address`. None: nowhere."""
        self.tried = self.address
        """Where it was tried last; while there is a connection, where it is."""
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
        """Begin to connect, and go on until `stop`."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            errors: list[str] = []
            for address in dict.fromkeys((self.address, self.also or self.address)):
                error, was_open = await self._keep(address)
                errors.append(error)
                self.last_error = "; ".join(errors)
                if was_open:
                    self.failures = 0
                    break
            self.failures += 1
            pause = RETRY_SECONDS_MIN * 2 ** min(self.failures - 1, 10)
            await asyncio.sleep(min(pause, RETRY_SECONDS_MAX))

    async def _keep(self, address: tuple[str, int]) -> tuple[str, bool]:
        """Connect; once the connection is gone, or there is none, why, and whether it was open."""
        self.tried = address
        self._lost.clear()
        loop = asyncio.get_running_loop()
        unheard = CLOSED_UNHEARD if self._tls is None else CLOSED_UNHEARD_TLS
        try:
            _transport, wire = await loop.create_connection(
                lambda: _Wire(self._make, self._clock, loop, self._lost.set, unheard=unheard),
                *address,
                ssl=self._tls,
            )
        except OSError as error:  # of the network, or of TLS
            return f"{spelled(address)}: {error.strerror or error}", False
        self._wire = wire
        await self._lost.wait()
        self._wire = None
        return wire.channel.reason, wire.channel.was_open

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


def spelled(address: tuple[str, int]) -> str:
    """`HOST:PORT`, as people write it."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
