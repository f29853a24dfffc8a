"""When Python's cycle collector runs: seldom, and never for long while the process is busy.

Reference counts free nearly everything; cycles come from connections and tasks that have ended. By
default the collector looks for them after every 700 objects that were made and not yet freed, which
thousands of messages in flight are all the time, and then at all objects as these grow: pauses of
tens of milliseconds in the middle of traffic.

    loading    young objects only: modules and settings stay
    start      what is loaded stays: it is never looked at again
    serving    young objects after 10,000, never all of them
    calm       all of them, a minute after the last time at the earliest
    busy       all of them all the same once ten minutes have passed: what the pause costs is memory
               that would otherwise be lost for good
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

YOUNG_OBJECTS: Final = 10_000
"""A millisecond to look at, and more than a busy node's messages in flight come and go."""
YOUNG_ROUNDS: Final = 10
NEVER: Final = 2**31 - 1
LOOK_S: Final = 5.0
CALM_S: Final = 60.0
BUSY_S: Final = 600.0
CALM_SHARE: Final = 0.1
"""Of a core, used since the last look: below it a pause meets hardly any message."""


def spare_what_is_loaded() -> None:
    """Look at young objects only until `Garbage.start`: the whole takes a tenth of a start."""
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_ROUNDS, NEVER)


class Garbage:
    """Collects for one process. `start` once everything is loaded."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._last_full = loop.time()
        self._looked = loop.time()
        self._used_s = 0.0
        self.collections = 0
        """Full collections since the start."""

    def start(self) -> None:
        """Leave what is loaded alone from now on, and look after the rest."""
        gc.collect()
        gc.freeze()
        spare_what_is_loaded()
        self._used_s = time.process_time()
        self._looked = self._loop.time()
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def stop(self) -> None:
        """Leave the rest to the end of the process. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)
        now, used_s = self._loop.time(), time.process_time()
        share = (used_s - self._used_s) / max(now - self._looked, LOOK_S)
        self._looked, self._used_s = now, used_s
        since = now - self._last_full
        if since >= BUSY_S or (since >= CALM_S and share < CALM_SHARE):
            gc.collect()
            self._last_full = now
            self.collections += 1
