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

ACCEPTED_MAX: Final = 128
"""Connections taken in one turn of the event loop; the others wait in the backlog."""


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
        self._listening = ListeningSockets(loop, self._take, ACCEPTED_MAX)
        self._handshakes: set[asyncio.Task[None]] = set()

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """Those that listen."""
        return self._listening.sockets

    async def start(self, host: str, port: int, backlog: int, *, reuse_port: bool) -> None:
        """Listen on every address of a host. Raises OSError, and then on none."""
        await self._listening.start(host, port, backlog, reuse_port=reuse_port)

    def _take(self, accepted: socket.socket, address: tuple[str, int]) -> None:
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
        self._listening.stop()
        # The last that were taken have begun then, and their sockets are the event loop's.
        await asyncio.sleep(0)
        handshakes = list(self._handshakes)
        for task in handshakes:
            task.cancel()
        await asyncio.gather(*handshakes, return_exceptions=True)
