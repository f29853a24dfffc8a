"""Deduplication ids that a queue has seen within its topic's window, oldest first.

Kept in chunks that only grow at the end and are left behind at the front, so that a snapshot can
hold on to what they were at one moment without a copy.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter

CHUNK = 1_024

Seen = tuple[bytes, int, bytes, int]
"""(deduplication id, offset, uid, log time)."""

_offset_of = itemgetter(1)


class Recent:
    """Ids by value, and in the order in which they came."""

    __slots__ = ("_chunks", "_known", "_start")

    def __init__(self, rows: Iterable[Seen] = ()) -> None:
        self._known: dict[bytes, Seen] = {}
        self._chunks: deque[list[Seen]] = deque()
        self._start = 0
        """Position of the oldest in the first chunk."""
        for row in rows:
            self.add(row)

    def get(self, ident: bytes) -> Seen | None:
        """What is known of an id."""
        return self._known.get(ident)

    @property
    def newest_ms(self) -> int:
        """Log time at which the last id came; 0: all are forgotten."""
        return self._chunks[-1][-1][3] if self._chunks and self._chunks[-1] else 0

    @property
    def next_offset(self) -> int:
        """Above the offsets of all that it knows."""
        return self._chunks[-1][-1][1] + 1 if self._chunks and self._chunks[-1] else 0

    def since(self, offset: int) -> tuple[int, Iterator[Seen]]:
        """What came at an offset or behind it: how many, and these, oldest first."""
        found = [
            (chunk, max(first, bisect_left(chunk, offset, key=_offset_of)), end)
            for chunk, first, end in self.cut()
            if chunk[end - 1][1] >= offset
        ]
        rows = (row for chunk, first, end in found for row in islice(chunk, first, end))
        return sum([end - first for _, first, end in found]), rows

    def add(self, row: Seen) -> None:
        """An id that is not known yet, or was forgotten where it comes from; offsets rise."""
        self._known[row[0]] = row
        if not self._chunks or len(self._chunks[-1]) == CHUNK:
            self._chunks.append([])
        self._chunks[-1].append(row)

    def drop_until(self, time_ms: int) -> None:
        """Forget ids that came at or before a log time."""
        while self._chunks:
            chunk = self._chunks[0]
            if self._start == len(chunk):
                self._chunks.popleft()
                self._start = 0
                continue
            row = chunk[self._start]
            if row[3] > time_ms:
                return
            self._start += 1
            if self._known[row[0]] is row:
                del self._known[row[0]]

    def cut(self) -> list[tuple[list[Seen], int, int]]:
        """(chunk, first, end) of everything known now; stays true whatever comes later."""
        start = self._start
        found: list[tuple[list[Seen], int, int]] = []
        for chunk in self._chunks:
            if start < len(chunk):
                found.append((chunk, start, len(chunk)))
            start = 0
        return found
