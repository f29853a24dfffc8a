"""Bodies of entries in memory, by reference, oldest out first, under a limit of bytes.

The journal has two: the tail cache, which every written entry enters, and the cold ring, which
what was read back from disk enters, so that one reader of old messages cannot flush the tails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

ENTRY_OVERHEAD_BYTES = 200
"""Key, dictionary slot and bytes object: counted with each body, so that the limit holds for
entries of ten bytes too."""

_STALE_KEYS_MIN = 4096

AGE_SECONDS = 5
"""How often `age` is called: what leaves at once then costs half a millisecond at 1,000 entries a
second."""

AGES_MAX = 60
"""What was written five minutes ago leaves, whoever may still want it from the disk. Streams keep
for days what all their readers have: at 240 messages a second the cache took an hour to fill, and
the process grew by 3 MB a minute for so long."""


_INDEX_BITS = 48


def cache_key(group: int, index: int) -> int:
    """One integer for (group, index): a log of 2**48 entries is out of reach."""
    return group << _INDEX_BITS | index


class TailCache:
    """First in, first out; an entry that nothing holds any more leaves at once.

    The newest body stays however large it is: whoever asked for it must find it.
    """

    __slots__ = ("_bodies", "_keys", "_marked", "_passed", "bytes_held", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._bodies: dict[int, bytes] = {}
        self._keys: deque[int] = deque()
        """In the order of writing; negative ones are the marks of `age`."""
        self._marked = 0
        self._passed = 0

    def __len__(self) -> int:
        return len(self._bodies)

    def get(self, key: int) -> bytes | None:
        return self._bodies.get(key)

    def add(self, bodies: Mapping[int, bytes]) -> None:
        """Add what was written or read, then evict down to the limit."""
        held = self._bodies
        added = 0
        for key, body in bodies.items():
            old = held.get(key)
            if old is not None:
                added -= len(old) + ENTRY_OVERHEAD_BYTES
            added += len(body) + ENTRY_OVERHEAD_BYTES
        held.update(bodies)
        self._keys.extend(bodies)
        self.bytes_held += added
        while self.bytes_held > self.bytes_max and len(held) > 1:
            self._drop_oldest()

    def age(self) -> None:
        """Time has passed: what was there AGES_MAX calls ago leaves."""
        self._marked += 1
        self._keys.append(-self._marked)
        while self._passed < self._marked - AGES_MAX:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        key = self._keys.popleft()
        if key < 0:
            self._passed = -key
        else:
            self.discard(key)

    def discard(self, key: int) -> None:
        """Forget one body, if it is there."""
        body = self._bodies.pop(key, None)
        if body is not None:
            self.bytes_held -= len(body) + ENTRY_OVERHEAD_BYTES
            if len(self._keys) > 2 * len(self._bodies) + _STALE_KEYS_MIN:
                self._forget_stale()

    def discard_group(self, group: int) -> None:
        """Forget the bodies of a group."""
        for key in [key for key in self._bodies if key >> _INDEX_BITS == group]:
            self.discard(key)

    def _forget_stale(self) -> None:
        """Drop the keys of discarded bodies: without this the queue of keys grows for ever."""
        held = self._bodies
        self._keys = deque(dict.fromkeys(key for key in self._keys if key < 0 or key in held))
