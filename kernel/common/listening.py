"""Listening sockets: how connections are taken, and how one is closed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Sequence
from typing import Final

PAUSE_S: Final = 1.0
"""Nothing is taken for so long when the process has no file, or the system no memory, for it."""

BACKLOG: Final = 4_096
"""Connections that the system keeps while the process is busy, and its own bound for them since
Linux 5.4. Where that is full, the next has to try again a second later: 10,000 that come at once
fill 1,024 places in a tenth of a second."""

TAKEN_MAX: Final = 512
"""Connections taken in one turn of the event loop, which is some 15 ms."""

_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Taken = Callable[[socket.socket, tuple[str, int]], None]
"""Gets each connection, with the address that it came from."""


class ListeningSockets:
    """The sockets of one listener that takes its connections itself: where only so many may be
    taken in one turn of the loop, and for those that begin with a TLS handshake, of which the
    event loop's own server tells nobody until it is over.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, taken: Taken, taken_max: int = TAKEN_MAX
    ) -> None:
        """`taken_max`: connections taken in one turn of the event loop; the others wait in the
        backlog.
        """
        self._loop = loop
        self._taken = taken
        self._taken_max = taken_max
        self.sockets: list[socket.socket] = []

    async def start(self, host: str, port: int, *, reuse_port: bool = False) -> None:
        """Listen on every address of a host. Raises OSError, and then on none."""
        found = await self._addresses(host or None, port)
        try:
            for family, address in found:
                bound = socket.create_server(
                    address, family=family, backlog=BACKLOG, reuse_port=reuse_port
                )
                self.sockets.append(bound)
                bound.setblocking(False)
        except OSError:
            self.stop()
            raise
        self._listen()

    async def _addresses(
        self, host: str | None, port: int
    ) -> list[tuple[socket.AddressFamily, tuple[object, ...]]]:
        kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
        try:
            # Nothing is asked about a literal address: no thread, and in tests no virtual time.
            literal = flags | socket.AI_NUMERICHOST
            found = socket.getaddrinfo(host, port, type=kind, flags=literal)
        except socket.gaierror:
            found = await self._loop.getaddrinfo(host, port, type=kind, flags=flags)
        return list(dict.fromkeys((each[0], each[4][:2]) for each in found))

    def _listen(self) -> None:
        for each in self.sockets:
            self._loop.add_reader(each, self._accept, each)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(self._taken_max):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _SHORT:
                    raise
                for each in self.sockets:
                    self._loop.remove_reader(each)
                self._loop.call_later(PAUSE_S, self._listen)
                return
            accepted.setblocking(False)
            # asyncio does it only for sockets that were made with the number of TCP.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._taken(accepted, address[:2])

    def stop(self) -> None:
        """Take no new connection. Idempotent."""
        sockets, self.sockets = self.sockets, []
        for each in sockets:
            self._loop.remove_reader(each)
            each.close()


class PlainServer:
    """The sockets of one listener whose connections are their protocol's from the first byte.

    The event loop's own server takes as many connections in one turn as may wait in its backlog;
    here many may wait, and few are taken before others get their turn.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, factory: Callable[[], asyncio.Protocol]
    ) -> None:
        self._loop = loop
        self._factory = factory
        self._listening = ListeningSockets(loop, self._take, TAKEN_MAX)
        self._begun: set[asyncio.Task[None]] = set()

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """Those that listen."""
        return self._listening.sockets

    async def start(self, host: str, port: int, *, reuse_port: bool = False) -> None:
        """Listen on every address of a host. Raises OSError, and then on none."""
        await self._listening.start(host, port, reuse_port=reuse_port)

    def _take(self, accepted: socket.socket, _address: tuple[str, int]) -> None:
        task = self._loop.create_task(self._begin(accepted))
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)

    async def _begin(self, accepted: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it has gone again; its socket is closed
            await self._loop.connect_accepted_socket(self._factory, accepted)

    def close(self) -> None:
        """Take no new connection. Idempotent."""
        self._listening.stop()

    async def stop(self) -> None:
        """Take no new connection, and return when the protocol of each that was taken has had its
        `connection_made`. Idempotent.
        """
        self.close()
        await asyncio.gather(*self._begun)
