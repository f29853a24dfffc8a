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
a client. And one slice has to pause before another begins, whatever number of long works there are.

    nothing else to do  -> slices of SLICE_S, one behind the other
    a publish under way -> a pause lasts until that waits; its next step may come in a slice, and
                           waits for the end of it
    a busy loop         -> a pause lasts PAUSE_S, or one turn if that is longer; the slice behind it
                           is half as long, so that long work takes a third of the loop, and ends
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final
from weakref import WeakKeyDictionary

SLICE_S: Final = 0.000_1
"""A publish may meet two of them. Not less: beside a publisher that never stops, a scrape of
100,000 topics takes 0.9 s with it, and 1.1 s with half of it."""

SLICE_S_MAX: Final = 0.001
"""However long others took: they may have waited for the system."""

NOTHING_S: Final = 0.000_01
"""A turn of the loop that is shorter has brought nothing: it takes 2 µs, and to read a message
takes 20. Where turns are slower, long work pauses as on a busy loop."""

PAUSE_S: Final = 0.000_2
"""Of a pause that is longer its last turn has taken the time."""

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
        async with _pausing_in(asyncio.get_running_loop()):
            began = now = perf_counter()
            took_s = PAUSE_S
            while took_s >= NOTHING_S and now - began < PAUSE_S:
                await asyncio.sleep(0)
                before, now = now, perf_counter()
                took_s = now - before
        self._ends = now + min(max(SLICE_S, (now - began) * SHARE), SLICE_S_MAX)


_PAUSING: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
"""Who pauses holds it."""


def _pausing_in(loop: asyncio.AbstractEventLoop) -> asyncio.Lock:
    lock = _PAUSING.get(loop)
    if lock is None:
        lock = _PAUSING[loop] = asyncio.Lock()
    return lock
