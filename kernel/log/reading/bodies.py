"""Bodies of entries that are in memory: what was written last, and what was read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .read import ReadEntry
from .tail_cache import TailCache, cache_key


class Bodies:
    """The journal's two caches, and how often each had what was asked for."""

    __slots__ = ("cold", "cold_hits", "hits", "misses", "tail")

    def __init__(self, tail_bytes: int, cold_bytes: int) -> None:
        self.tail = TailCache(tail_bytes)
        self.cold = TailCache(cold_bytes)
        self.hits = self.cold_hits = self.misses = 0

    def find(self, key: int) -> bytes | None:
        """A body, if one of them has it (hot)."""
        body = self.tail.get(key)
        if body is not None:
            self.hits += 1
            return body
        body = self.cold.get(key)
        if body is not None:
            self.cold_hits += 1
        return body

    def add_read(self, live: Iterable[ReadEntry], wanted: ReadEntry | None) -> int:
        """What was read from disk, and the entry that was asked for: last in, so that it is the
        last to be evicted. Returns their number.
        """
        bodies = {cache_key(each.group, each.index): each.body for each in live}
        if wanted is not None:
            key = cache_key(wanted.group, wanted.index)
            bodies.pop(key, None)
            bodies[key] = wanted.body
        self.cold.add(bodies)
        return len(bodies)

    def add_written(self, bodies: Mapping[int, bytes]) -> None:
        """What a batch has written."""
        self.tail.add(bodies)

    def discard(self, key: int) -> None:
        """Nobody will ask for it soon, or it is void."""
        self.tail.discard(key)
        self.cold.discard(key)

    def discard_group(self, group: int) -> None:
        """Everything of a group is void."""
        self.tail.discard_group(group)
        self.cold.discard_group(group)
