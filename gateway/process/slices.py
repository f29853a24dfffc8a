"""Long work in slices, between which the event loop has its turn.

The loop's own time stands still while it runs one callback (uvloop's is of whole milliseconds
besides), so that a slice measured by it never ends early.
"""

from __future__ import annotations

from time import perf_counter


class Slice:
    """A slice of so many seconds, from when it is made or was `renewed`."""

    __slots__ = ("_ends", "_most_s")

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._ends = perf_counter() + most_s

    @property
    def is_over(self) -> bool:
        """Whether others are to have their turn."""
        return perf_counter() >= self._ends

    def renew(self) -> None:
        """The next one begins."""
        self._ends = perf_counter() + self._most_s
