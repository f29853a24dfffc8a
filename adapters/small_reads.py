"""Little is read at once from whoever has not signed in, or shares with others.

One read of the event loop brings up to 256 KB, of every connection that has sent before anybody is
asked: from ten thousand strangers that is more than a second, and more than there is room for. What
a stranger has to say fits into a fraction of that. So until it is known, its transport reads into a
small buffer, which all of them share, since what was read is copied at once. The same is done, with
a larger one, where reading is shared out (`fair_scheduler`): what has no turn stays in the socket.

Not so over TLS, which has to decrypt what it has read before it can tell how much that is.
"""

from __future__ import annotations

import asyncio
from typing import Final
from weakref import WeakKeyDictionary

READ_BYTES: Final = 4 * 1024
"""A whole sign-in of any usual length; ten thousand of them are 40 MB."""

_BUFFERS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, memoryview]] = WeakKeyDictionary()


class SmallReads(asyncio.BufferedProtocol):
    """Stands between a transport and its protocol for as long as little is read."""

    __slots__ = ("_buffer", "_protocol")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.Protocol,
        read_bytes: int = READ_BYTES,
    ) -> None:
        """`read_bytes`: at once, at most."""
        buffers = _BUFFERS.setdefault(loop, {})
        buffer = buffers.get(read_bytes)
        if buffer is None:
            buffer = buffers[read_bytes] = memoryview(bytearray(read_bytes))
        self._buffer = buffer
        self._protocol = protocol

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the event loop."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the event loop."""
        self._protocol.data_received(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool | None:
        """Called by the event loop."""
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Called by the event loop."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Called by the event loop."""
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop, once."""
        self._protocol.connection_lost(exc)
