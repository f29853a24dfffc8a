"""Due times of offsets, or other numbers, in buckets of one width: 8 bytes each, however many.

What is due is looked up again in the state before anything is done, so that an entry that no
longer holds (acked, extended) costs nothing but its place.
"""

from __future__ import annotations

from array import array
from heapq import heappop, heappush

BUCKET_MS = 50
"""Leases and delays end at most so much late: protocols count them in seconds, or in milliseconds
without a promise."""


class Buckets:
    """Offsets by the bucket of their due time."""

    __slots__ = ("_buckets", "_order", "_width_ms")

    def __init__(self, width_ms: int = BUCKET_MS) -> None:
        self._width_ms = width_ms
        self._buckets: dict[int, array[int]] = {}
        self._order: list[int] = []

    def add(self, offset: int, due_ms: int) -> None:
        """Note that `offset` is due at a log time."""
        bucket = -(-due_ms // self._width_ms)
        known = self._buckets.get(bucket)
        if known is None:
            self._buckets[bucket] = array("Q", (offset,))
            heappush(self._order, bucket)
        else:
            known.append(offset)

    def next_ms(self) -> int | None:
        """When the first bucket is due; None if there is none."""
        return self._order[0] * self._width_ms if self._order else None

    def due(self, now_ms: int) -> list[int]:
        """Take the offsets of every bucket that is due."""
        found: list[int] = []
        while self._order and self._order[0] * self._width_ms <= now_ms:
            found.extend(self._buckets.pop(heappop(self._order)))
        return found
