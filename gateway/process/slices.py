"""Long work in slices, between which everybody else has their turn.

    piece = Slice()
    for each in very_many:
        ...
        if piece.is_over:
            await piece.pause()

To give up the event loop once between two slices is not enough. A publish takes several turns of
the loop: it is read, in the next turn its write begins, once that is on the disk it is applied, and
in the turn after that answered. If each of them comes behind a slice, a publish meets four. So a
pause lasts until a turn of the loop has brought nothing: whoever waits then waits for a disk or for
a client. While it is this process's own disk, the pause goes on, and sleeps: the system writes by a
thread of its own, which may have to share the loop's core, and had that 4 ms later beside a loop
that always ran. And one slice has to pause before another begins, whatever number of long works
there are.

    nothing else to do  -> slices of SLICE_S, one behind the other
    a publish under way -> a pause lasts until that is on the disk, DISK_S at most; its next step
                           may come in a slice, and waits for the end of it
    a busy loop         -> a pause lasts PAUSE_S, or one turn if that is longer; the slice behind it
                           is half as long, so that long work takes a third of the loop, and ends
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol
from weakref import WeakKeyDictionary

SLICE_S: Final = 0.000_1
"""A publish may meet two of them."""

SLICE_S_MAX: Final = 0.001
"""However long others took: they may have waited for the system."""

NOTHING_S: Final = 0.000_01
"""A turn of the loop that is shorter has brought nothing: it takes 2 µs, and to read a message
takes 20. Where turns are slower, long work pauses as on a busy loop."""

PAUSE_S: Final = 0.000_2
"""Of a pause that is longer its last turn has taken the time, or the disk."""

DISK_S: Final = 0.001
"""Of a pause for the disk: a commit takes 0.2 to 1 ms. On a node that always writes, long work goes
on after so long."""

SHARE: Final = 0.5
"""How long a slice is, as a part of the pause before."""


class Slice:
    """A slice, from when it is made, or from the end of the last `pause`. Its time is not the
    loop's, which stands still while it runs one callback (uvloop's is of whole milliseconds
    besides): a slice measured by it would never end early.
    """

    __slots__ = ("_ends",)

    def __init__(self, most_s: float | None = None) -> None:
        """`most_s`: how long the first one is; None: SLICE_S."""
        self._ends = perf_counter() + (SLICE_S if most_s is None else most_s)

    @property
    def is_over(self) -> bool:
        """Whether others are to have their turn."""
        return perf_counter() >= self._ends

    async def pause(self) -> None:
        """Let others have their turn; the next slice begins when this returns."""
        others = _others_of(asyncio.get_running_loop())
        async with others.pausing:
            began = now = busy_since = perf_counter()
            while now - busy_since < PAUSE_S:
                await asyncio.sleep(0)
                before, now = now, perf_counter()
                if now - before >= NOTHING_S:
                    continue
                if now - began >= DISK_S or not others.waits_for_disk:
                    break
                await others.disk_has_written(DISK_S)
                now = busy_since = perf_counter()
        self._ends = now + min(max(SLICE_S, (now - began) * SHARE), SLICE_S_MAX)


class Disk(Protocol):
    """Where a process writes what clients wait for."""

    @property
    def is_writing(self) -> bool:
        """Whether a commit is on its way."""

    def when_written(self, action: Callable[[], None]) -> None:
        """Call `action` once, after the commit that is on its way."""


def give_way_to(disk: Disk) -> None:
    """Have long work of the running loop wait for what this disk writes."""
    _others_of(asyncio.get_running_loop()).disk = disk


class _Others:
    """What long work of one loop gives way to."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.pausing = asyncio.Lock()
        """Who pauses holds it."""
        self.disk: Disk | None = None
        self._over: asyncio.Future[None] = loop.create_future()
        """What the one who pauses waits for."""
        self._is_told = False
        """Whether the disk is about to tell: once only, for it may stand still for long."""

    @property
    def waits_for_disk(self) -> bool:
        """Whether a commit is on its way."""
        return self.disk is not None and self.disk.is_writing

    async def disk_has_written(self, most_s: float) -> None:
        """Return once the commit that is on its way is written, or so much later: the process
        sleeps, so that the system's own thread that writes has its core.
        """
        assert self.disk is not None
        self._over = self._loop.create_future()
        if not self._is_told:
            self._is_told = True
            self.disk.when_written(self._has_written)
        timer = self._loop.call_later(most_s, self._end_wait)
        try:
            await self._over
        finally:
            timer.cancel()

    def _has_written(self) -> None:
        self._is_told = False
        self._end_wait()

    def _end_wait(self) -> None:
        if not self._over.done():
            self._over.set_result(None)


_OTHERS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Others] = WeakKeyDictionary()


def _others_of(loop: asyncio.AbstractEventLoop) -> _Others:
    found = _OTHERS.get(loop)
    if found is None:
        found = _OTHERS[loop] = _Others(loop)
    return found
