"""Due times of offsets, or other numbers, in buckets of one width: 8 bytes each, however many.

What is due is looked up again in the state before anything is done, so that an entry that no
longer holds (acked, extended) costs nothing but its place. The place is given back by `sweep`:
whoever knows that most entries no longer hold calls it, a stretch at a time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from heapq import heapify, heappop, heappush

BUCKET_MS = 50
"""Leases and delays end at most so much late: protocols count them in seconds, or in milliseconds
without a promise."""

SLACK = 1_024
"""Entries that may be there beyond twice those that hold, before a sweep is due: 8 KB."""

SWEEP_ENTRIES = 1_024
"""Entries looked at in one stretch of a sweep: half a millisecond."""


class Buckets:
    """Offsets by the bucket of their due time."""

    __slots__ = ("_buckets", "_count", "_order", "_unswept", "_width_ms")

    def __init__(self, width_ms: int = BUCKET_MS) -> None:
        self._width_ms = width_ms
        self._buckets: dict[int, array[int]] = {}
        self._count = 0
        self._order: list[int] = []
        """Heap of the buckets, and of some that a sweep has emptied."""
        self._unswept: list[int] = []
        """Buckets that the sweep under way has yet to come to."""

    def __len__(self) -> int:
        """Entries, those that no longer hold included."""
        return self._count

    def bucket_of(self, due_ms: int) -> int:
        """Where an entry with that due time is."""
        return -(-due_ms // self._width_ms)

    def add(self, offset: int, due_ms: int) -> None:
        """Note that `offset` is due at a log time."""
        bucket = -(-due_ms // self._width_ms)
        known = self._buckets.get(bucket)
        if known is None:
            self._buckets[bucket] = array("Q", (offset,))
            heappush(self._order, bucket)
        else:
            known.append(offset)
        self._count += 1

    def next_ms(self) -> int | None:
        """When the first bucket is due; None if there is none."""
        while self._order and self._order[0] not in self._buckets:
            heappop(self._order)
        return self._order[0] * self._width_ms if self._order else None

    def due(self, now_ms: int) -> list[int]:
        """Take the offsets of every bucket that is due."""
        found: list[int] = []
        while self._order and self._order[0] * self._width_ms <= now_ms:
            found.extend(self._buckets.pop(heappop(self._order), ()))
        self._count -= len(found)
        return found

    def sweep(self, live: int, holds: Callable[[int, int], bool]) -> None:
        """Drop entries that no longer hold, if they are most of all: `live` is how many do, and
        `holds(offset, bucket)` whether one does. One stretch; called again, the sweep goes on.
        """
        if self._count <= 2 * live + SLACK:
            return
        if not self._unswept:
            self._unswept = list(self._buckets)
        left = SWEEP_ENTRIES
        while self._unswept and left > 0:
            bucket = self._unswept.pop()
            entries = self._buckets.get(bucket)
            if entries is None:
                continue
            left -= len(entries)
            kept = array("Q", (each for each in dict.fromkeys(entries) if holds(each, bucket)))
            self._count -= len(entries) - len(kept)
            if kept:
                self._buckets[bucket] = kept
            else:
                del self._buckets[bucket]
        if len(self._order) > 2 * len(self._buckets) + SLACK:
            self._order = list(self._buckets)
            heapify(self._order)
