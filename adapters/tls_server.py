"""A listener whose connections begin with a TLS handshake.

The event loop's own server takes a connection and tells nobody until its handshake is over, so that
what strangers begin and never end could be neither counted nor bounded: OpenSSL and the loop keep
some 75 KB for each. This one accepts the sockets itself. A handshake that is not over counts as
unfinished input of its address (`memory`), and goes like any other when there is too much of that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from adapters.memory import Excess, Share
from adapters.read_scheduler import scheduler_of
from kernel.common.crowd import address_of
from kernel.common.listening import ListeningSockets

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Sequence

    from adapters.memory import ListenerMemory

HANDSHAKE_TIMEOUT_S: Final = 10
"""A peer that does not finish its handshake costs a socket, and memory."""

HANDSHAKE_BYTES: Final = 75 * 1024
"""What a handshake that is not over takes: measured with 1,000 of them."""


class _Accepted:
    """A connection whose handshake begins in its turn (`read_scheduler`): to begin one costs ten
    times as much as to take one, and who comes from another address does not wait for a flood.
    """

    __slots__ = ("_address", "_server", "_share", "_socket", "_task")

    def __init__(
        self, server: TlsServer, accepted: socket.socket, address: tuple[str, int]
    ) -> None:
        self._server = server
        self._socket = accepted
        self._address = address
        self._share = Share(address_of(address[0]), self._drop, None)
        self._task: asyncio.Task[None] | None = None

    def wait(self) -> None:
        """Until it is its turn."""
        server, share = self._server, self._share
        server.waiting.add(self)
        server.turns.wait(share.address, self)
        server.memory.input.hold(share, HANDSHAKE_BYTES)

    def read_on(self) -> None:
        """See `read_scheduler.Reading`."""
        if self in self._server.waiting:
            self._server.waiting.discard(self)
            self._task = self._server.shake(self._socket, self._share)

    def _drop(self) -> None:
        peer = f"{self._address[0]}:{self._address[1]}"
        self._server.memory.dropped(Excess.UNFINISHED_INPUT, peer, HANDSHAKE_BYTES)
        if self._task is not None:
            self._task.cancel()
        else:
            self.end()

    def end(self) -> None:
        """Close it, as long as its handshake has not begun."""
        self._server.waiting.discard(self)
        self._server.memory.input.hold(self._share, 0)
        self._socket.close()


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
        self.turns = scheduler_of(loop)
        self.waiting: set[_Accepted] = set()
        """Connections whose handshake has not begun."""
        self._context = context
        self.memory = memory
        self._factory = factory
        self._listening = ListeningSockets(loop, self._take)
        self._handshakes: set[asyncio.Task[None]] = set()

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """Those that listen."""
        return self._listening.sockets

    async def start(self, host: str, port: int, *, reuse_port: bool = False) -> None:
        """Listen on every address of a host. Raises OSError, and then on none."""
        await self._listening.start(host, port, reuse_port=reuse_port)

    def _take(self, accepted: socket.socket, address: tuple[str, int]) -> None:
        _Accepted(self, accepted, address).wait()

    def shake(self, accepted: socket.socket, share: Share) -> asyncio.Task[None]:
        """Begin a handshake."""
        task = self._loop.create_task(self._shake(accepted, share))
        self._handshakes.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._handshakes.discard(task)
            if task.cancelled():  # before it has begun; else the socket is the event loop's
                accepted.close()

        task.add_done_callback(done)
        return task

    async def _shake(self, accepted: socket.socket, share: Share) -> None:
        """See one connection through its handshake; from then on it is its protocol's."""
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
            self.memory.input.hold(share, 0)

    async def stop(self) -> None:
        """Take no new connection, and end the handshakes that are not over. Idempotent."""
        self._listening.stop()
        for each in list(self.waiting):
            each.end()
        # The last that were taken have begun then, and their sockets are the event loop's.
        await asyncio.sleep(0)
        handshakes = list(self._handshakes)
        for task in handshakes:
            task.cancel()
        await asyncio.gather(*handshakes, return_exceptions=True)
