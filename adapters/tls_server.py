"""A listener whose connections begin with a TLS handshake.

The event loop's own server takes a connection and tells nobody until its handshake is over, so that
what strangers begin and never end could be neither counted nor bounded: OpenSSL and the loop keep
some 75 KB for each. This one accepts the sockets itself. A handshake that is not over counts as
unfinished input of its address (`memory`), and goes like any other when there is too much of that.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, Final

from adapters.memory import Excess, Share, address_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from adapters.memory import ListenerMemory

HANDSHAKE_TIMEOUT_S: Final = 10
"""A peer that does not finish its handshake costs a socket, and memory."""

HANDSHAKE_BYTES: Final = 75 * 1024
"""What a handshake that is not over takes: measured with 1,000 of them."""

ACCEPTED_MAX: Final = 128
"""Connections taken in one turn of the event loop; the others wait in the backlog."""

PAUSE_S: Final = 1.0
"""Nothing is taken for so long when the process has no file, or the system no memory, for it."""

_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class TlsServer:
    """The sockets of one listener. Belongs to the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: ssl.SSLContext,
        memory: ListenerMemory,
        factory: Callable[[], asyncio.Protocol],
    ) -> None:
        self._loop = loop
        self._context = context
        self._memory = memory
        self._factory = factory
        self.sockets: list[socket.socket] = []
        self._handshakes: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int, backlog: int, *, reuse_port: bool) -> None:
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
            await self.stop()
            raise
        self._listen()

    def _listen(self) -> None:
        for each in self.sockets:
            self._loop.add_reader(each, self._accept, each)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_MAX):
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
            task = self._loop.create_task(self._shake(accepted, address))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _shake(self, accepted: socket.socket, address: tuple[str, int]) -> None:
        """See one connection through its handshake; from then on it is its protocol's."""
        task = asyncio.current_task()
        assert task is not None

        def drop() -> None:
            peer = f"{address[0]}:{address[1]}"
            self._memory.dropped(Excess.UNFINISHED_INPUT, peer, HANDSHAKE_BYTES)
            task.cancel()

        share = Share(address_of(str(address[0])), drop, None)
        self._memory.input.hold(share, HANDSHAKE_BYTES)
        try:
            await self._loop.connect_accepted_socket(
                self._factory,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            )
        except (OSError, asyncio.CancelledError):
            # `ssl.SSLError` is an OSError; whoever watches the context has heard why. The event
            # loop has closed the socket, which is its own from the first.
            return
        finally:
            self._memory.input.hold(share, 0)

    async def stop(self) -> None:
        """Take no new connection, and end the handshakes that are not over. Idempotent."""
        sockets, self.sockets = self.sockets, []
        for each in sockets:
            self._loop.remove_reader(each)
            each.close()
        # The last that were taken have begun then, and their sockets are the event loop's.
        await asyncio.sleep(0)
        handshakes = list(self._handshakes)
        for task in handshakes:
            task.cancel()
        await asyncio.gather(*handshakes, return_exceptions=True)
