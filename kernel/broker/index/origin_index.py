"""Messages that got their offset long after the log got their bytes: which log entry holds them.

A half message lies in the entry that prepared it and gets its place in the queue from a later one.
The runs of a queue are in the order of the later entries; this index finds them by the earlier
ones, which is what a rewrite of a segment asks for. Derived from the runs; 16 bytes a message.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence


class OriginIndex:
    """(log index of the bytes, offset) pairs of one queue, in order of the log index."""

    __slots__ = ("_offsets", "_origins")

    def __init__(self) -> None:
        self._origins = array("Q")
        self._offsets = array("Q")

    def __len__(self) -> int:
        return len(self._origins)

    def add(self, origin: int, offset: int) -> None:
        """The message at `offset` lies in log entry `origin`."""
        at = bisect_right(self._origins, origin)
        self._origins.insert(at, origin)
        self._offsets.insert(at, offset)

    def offsets_of(self, origin: int) -> Iterator[int]:
        """Offsets of the messages that lie in log entry `origin`."""
        at = bisect_left(self._origins, origin)
        while at < len(self._origins) and self._origins[at] == origin:
            yield self._offsets[at]
            at += 1

    def drop_below(self, head: int) -> None:
        """Forget offsets below `head`."""
        self.drop_within([(0, head)])

    def drop_within(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Forget offsets in some (start, end) ranges that rise."""
        starts = [start for start, _ in ranges]

        def is_within(offset: int) -> bool:
            at = bisect_right(starts, offset) - 1
            return at >= 0 and offset < ranges[at][1]

        kept = [at for at, offset in enumerate(self._offsets) if not is_within(offset)]
        if len(kept) < len(self._offsets):
            self._origins = array("Q", [self._origins[at] for at in kept])
            self._offsets = array("Q", [self._offsets[at] for at in kept])
