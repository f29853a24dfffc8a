"""So many log lines a minute: for what others can make happen as often as they like."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel.common.ports import Clock

PERIOD_MS = 60_000


class LineBudget:
    """At most `lines_max` lines a period, and one for each thing there is to say."""

    def __init__(self, clock: Clock, lines_max: int) -> None:
        self._clock = clock
        self._lines_max = lines_max
        self._began_ms = clock.monotonic_ms()
        self._said: set[Hashable] = set()
        self._unlogged = 0

    def allows(self, what: Hashable) -> bool:
        """Whether this may be said now: it was not yet, and there is a line left."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._began_ms >= PERIOD_MS:
            self._began_ms = now_ms
            self._said.clear()
        if what in self._said or len(self._said) >= self._lines_max:
            self._unlogged += 1
            return False
        self._said.add(what)
        return True

    def unlogged(self) -> int:
        """What was left unsaid since the last call: for the next line to say."""
        unlogged, self._unlogged = self._unlogged, 0
        return unlogged
