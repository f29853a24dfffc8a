"""Places that owners share: when all are taken, whoever has most gives up the one that was not used
for longest.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

_K = TypeVar("_K")
_V = TypeVar("_V")


class SharedRoom(Generic[_K, _V]):
    """A bounded map. Which place is given up costs a walk through all: they are some hundreds."""

    def __init__(self, most: int, most_of_one: int | None = None) -> None:
        """`most`: places; `most_of_one`: of one owner, None: as many as are left."""
        self._most = most
        self._most_of_one = most if most_of_one is None else most_of_one
        self._held: dict[_K, tuple[str, _V]] = {}
        """By when it was used last, the longest ago first."""
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._held)

    def put(self, owner: str, key: _K, value: _V) -> None:
        """Give it a place; it counts as used now."""
        self.remove(key)
        if self._counts[owner] >= self._most_of_one:
            self._drop_of(owner)
        elif len(self._held) >= self._most:
            self._drop_of(max(self._counts, key=self._counts.__getitem__))
        self._held[key] = owner, value
        self._counts[owner] += 1

    def _drop_of(self, owner: str) -> None:
        self.remove(next(key for key, (whose, _) in self._held.items() if whose == owner))

    def use(self, key: _K) -> _V | None:
        """What is there, which counts as used now; None: nothing."""
        found = self._held.pop(key, None)
        if found is None:
            return None
        self._held[key] = found
        return found[1]

    def remove(self, key: _K) -> _V | None:
        """What was there; None: nothing."""
        found = self._held.pop(key, None)
        if found is None:
            return None
        self._counts[found[0]] -= 1
        if not self._counts[found[0]]:
            del self._counts[found[0]]
        return found[1]

    def items(self) -> Iterable[tuple[_K, _V]]:
        """All, the longest unused first."""
        return [(key, value) for key, (_, value) in self._held.items()]
