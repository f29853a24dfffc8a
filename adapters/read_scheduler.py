"""Reading in turns, when much comes from many.

The event loop reads whatever is there from every connection before it does anything else: from ten
thousand that send as fast as they can that is a gigabyte or more, and whoever has asked for
something small waits for all of it, a second or longer. So where input has become a matter of
memory (`memory.Pool.is_tight`), a connection that has been read waits until it is its turn: so
many are read again in each turn of the loop (`READ_MAX`), one of each address after the other, and
between two turns everybody else is heard. What only is to be dropped (`lingering`) is always read
so.

Nothing of this is done while there is room.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import asyncio

READ_MAX: Final = 64
"""Connections that are read again in one turn of the event loop: 16 MiB at 256 KB a read, which
take some 20 ms."""


class Reading(Protocol):
    """A connection that waits for its turn."""

    def read_on(self) -> None:
        """It may be read."""


class ReadScheduler:
    """Whose turn it is to be read, in one event loop."""

    __slots__ = ("_count", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: OrderedDict[str, deque[Reading]] = OrderedDict()
        """By address; the first is the next."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def wait(self, address: str, reading: Reading) -> None:
        """Have `reading.read_on` called when it is its turn; once for each call."""
        if not self._waiting:
            self._loop.call_soon(self._next)
        of_address = self._waiting.get(address)
        if of_address is None:
            of_address = self._waiting[address] = deque()
        of_address.append(reading)
        self._count += 1

    def _next(self) -> None:
        waiting = self._waiting
        for _ in range(min(READ_MAX, self._count)):
            address, of_address = next(iter(waiting.items()))
            of_address.popleft().read_on()
            self._count -= 1
            if of_address:
                waiting.move_to_end(address)
            else:
                del waiting[address]
        if waiting:
            self._loop.call_soon(self._next)


_SCHEDULERS: WeakKeyDictionary[asyncio.AbstractEventLoop, ReadScheduler] = WeakKeyDictionary()


def scheduler_of(loop: asyncio.AbstractEventLoop) -> ReadScheduler:
    """That of an event loop, whatever listener a connection came by."""
    scheduler = _SCHEDULERS.get(loop)
    if scheduler is None:
        scheduler = _SCHEDULERS[loop] = ReadScheduler(loop)
    return scheduler
