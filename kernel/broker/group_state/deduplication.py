"""Deduplication ids that a queue has seen within its topic's window, oldest first.

Kept in chunks that only grow at the end and are left behind at the front, so that a snapshot can
hold on to what they were at one moment without a copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

CHUNK = 1_024

Seen = tuple[bytes, int, bytes, int]
"""(deduplication id, offset, uid, log time)."""


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

    def add(self, row: Seen) -> None:
        """An id that is not known yet."""
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
