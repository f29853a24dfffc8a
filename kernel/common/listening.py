"""Listening sockets: how connections are taken, and how one is closed."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Final

PAUSE_S: Final = 1.0
"""Nothing is taken for so long when the process has no file, or the system no memory, for it."""

_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Taken = Callable[[socket.socket, tuple[str, int]], None]
"""Gets each connection, with the address that it came from."""


class ListeningSockets:
    """The sockets of one listener that takes its connections itself: where only so many may be
    taken in one turn of the loop, and for those that begin with a TLS handshake, of which the
    event loop's own server tells nobody until it is over.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, taken: Taken, taken_max: int) -> None:
        """`taken_max`: connections taken in one turn of the event loop; the others wait in the
        backlog.
        """
        self._loop = loop
        self._taken = taken
        self._taken_max = taken_max
        self.sockets: list[socket.socket] = []

    async def start(self, host: str, port: int, backlog: int, *, reuse_port: bool = False) -> None:
        """Listen on every address of a host. Raises OSError, and then on none."""
        found = await self._loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                bound = socket.create_server(
                    address[:2], family=family, backlog=backlog, reuse_port=reuse_port
                )
                self.sockets.append(bound)
                bound.setblocking(False)
        except OSError:
            self.stop()
            raise
        self._listen()

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


async def stop_listening(server: asyncio.Server) -> None:
    """Take no new connection; the protocol of each that was taken has had its `connection_made`,
    but for those in a TLS handshake. Idempotent.

    asyncio takes a connection in one turn of the loop and makes its transport in the next. If its
    server is closed in between, that fails without a word, and the socket stays open until it is
    collected (CPython 3.11, 3.12). So the sockets are left alone first, and closed two turns later.
    """
    loop = server.get_loop()
    if isinstance(loop, asyncio.SelectorEventLoop):  # uvloop takes connections in one turn
        for each in server.sockets:
            loop.remove_reader(each)
    for _ in range(2):
        await asyncio.sleep(0)
    server.close()
