"""The end of a connection, so that what was said last arrives.

A socket that is closed while the peer's bytes lie in it unread, or come later, answers them with a
reset; and by a reset the peer's system throws away what its program has not read yet: our close-ok,
the reason of an error, an HTTP answer. So a connection that has said its last word is not closed
but *lingers*: the writing side is shut down (not over TLS, which knows no half), what still comes
is read and dropped, and the socket is closed when the peer has closed its own.

Its protocol is told at once that the connection is gone: nothing of it stays in memory, and it
counts as a connection no longer. What is left of it is a socket and this object, and it is bounded:

    LINGER_S, then the socket is closed whatever the peer does; a peer that is still taking what we
              wrote before, or still sending what it had begun, gets as long again,
              LINGER_ROUNDS_MAX times
    LINGER_BYTES_MAX that are dropped
    LINGERING_MAX of them in a process; one more is closed the old way, at once
"""

from __future__ import annotations

import asyncio
from typing import Final

from adapters.read_scheduler import scheduler_of

LINGER_S: Final = 2.0
"""A peer answers a goodbye within a round trip, and closes; slower ones have had their chance."""
LINGER_ROUNDS_MAX: Final = 15
"""For one that reads or sends slowly what was begun before: half a minute in all. An SDK whose
megabyte is refused by its head sends all of it before it reads why."""
LINGER_BYTES_MAX: Final = 16 * 1024 * 1024
"""What a publisher may have under way when it is told: the buffers of both kernels and its own."""
LINGERING_MAX: Final = 1_024
"""Sockets in a process that only linger: as many as clients of one gateway that leave within two
seconds; a flood of strangers costs no more than that."""

_LEAVING: Final = "leaving"
"""Where they all come from, among those that wait to be read: they are one."""


class Lingering(asyncio.Protocol):
    """One connection that has nothing more to say."""

    __slots__ = (
        "_book",
        "_left_bytes",
        "_rounds",
        "_seen_bytes",
        "_timer",
        "_transport",
        "_unsent",
        "loop",
    )

    def __init__(
        self, book: Book, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport
    ) -> None:
        self._book = book
        self.loop = loop
        self._transport = transport
        self._left_bytes = self._seen_bytes = LINGER_BYTES_MAX
        self._rounds = 0
        self._unsent = transport.get_write_buffer_size()
        self._timer = loop.call_later(LINGER_S, self._look)

    def _look(self) -> None:
        transport = self._transport
        unsent = transport.get_write_buffer_size()
        self._rounds += 1
        has_moved = 0 < unsent < self._unsent or self._left_bytes < self._seen_bytes
        if has_moved and self._rounds < LINGER_ROUNDS_MAX:
            self._unsent, self._seen_bytes = unsent, self._left_bytes
            self._timer = self.loop.call_later(LINGER_S, self._look)
        elif unsent or transport.can_write_eof():
            transport.abort()
        else:
            # TLS has a goodbye of its own; the event loop bounds how long it takes.
            transport.close()

    def end(self) -> None:
        """Close the socket now."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop: dropped."""
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            self.end()
            return
        self._transport.pause_reading()
        scheduler_of(self.loop).wait(_LEAVING, self)

    def read_on(self) -> None:
        """It may be read again (`read_scheduler`)."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop, once."""
        del exc
        self._timer.cancel()
        self._book.left(self)


class Book:
    """All connections of a process that linger."""

    def __init__(self) -> None:
        self._lingering: set[Lingering] = set()
        self.refused = 0
        """Connections that were closed at once because there were LINGERING_MAX."""
        self._emptied: dict[asyncio.AbstractEventLoop, asyncio.Event] = {}

    def __len__(self) -> int:
        return len(self._lingering)

    def take(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> bool:
        """Take over a connection to which all is written; False: there are too many, or the peer
        has gone already.
        """
        if len(self._lingering) >= LINGERING_MAX:
            self.refused += 1
            return False
        try:
            if transport.can_write_eof():
                transport.write_eof()
        except OSError:
            return False
        lingering = Lingering(self, loop, transport)
        # How it is read is settled when reading begins.
        transport.pause_reading()
        transport.set_protocol(lingering)
        self._lingering.add(lingering)
        transport.resume_reading()
        return True

    def left(self, lingering: Lingering) -> None:
        """A connection is closed."""
        self._lingering.discard(lingering)
        if self._emptied and not self._of(lingering.loop):
            emptied = self._emptied.pop(lingering.loop, None)
            if emptied is not None:
                emptied.set()

    def _of(self, loop: asyncio.AbstractEventLoop) -> list[Lingering]:
        return [each for each in self._lingering if each.loop is loop]

    def end(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close at once all that linger on an event loop."""
        for each in self._of(loop):
            each.end()

    async def wait_until_empty(self, loop: asyncio.AbstractEventLoop) -> None:
        """Return when nothing lingers on the event loop: soon, see above."""
        while self._of(loop):
            await self._emptied.setdefault(loop, asyncio.Event()).wait()


LINGERING: Final = Book()
"""Those of this process, whatever listener they came by."""
