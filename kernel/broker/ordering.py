"""Ordering keys of an ordered group: one key's messages go to one holder at a time, in order.

A key is blocked while any of its messages is leased. Messages met meanwhile are parked; they are
ready again, in their old place, when the last leased one of their key is acked or comes back.
Messages without a key are not ordered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .runs import Feature, Run, RunIndex


class KeyLocks:
    """Blocked keys of one (queue, group)."""

    __slots__ = ("_index", "_leased", "_parked", "parked_count")

    def __init__(self, index: RunIndex) -> None:
        self._index = index
        self._leased: dict[int, set[int]] = {}
        self._parked: dict[int, list[int]] = {}
        self.parked_count = 0

    def admit(
        self, run: Run, offsets: Sequence[int], own: set[int], count: int
    ) -> tuple[list[int], list[int]]:
        """(to hand out, beyond `count` and to be given back) of some ready messages; the rest is
        parked. `own` are the keys that the same turn has begun to hand out to the same taker.
        """
        admitted: list[int] = []
        over: list[int] = []
        for offset in offsets:
            key = run.value(Feature.KEY, offset)
            if len(admitted) >= count:
                over.append(offset)
            elif not key:
                admitted.append(offset)
            elif key in self._parked or (key in self._leased and key not in own):
                self._parked.setdefault(key, []).append(offset)
                self.parked_count += 1
            else:
                own.add(key)
                self.lock(key, offset)
                admitted.append(offset)
        return admitted, over

    def lock(self, key: int, offset: int) -> None:
        """A message of the key is leased."""
        self._leased.setdefault(key, set()).add(offset)

    def free(self, offset: int) -> list[int]:
        """A leased message was acked or came back; messages that are ready again by that."""
        if offset < self._index.head:
            return self._free_unknown(offset)
        return self._free(self._index.find(offset).value(Feature.KEY, offset), offset)

    def _free_unknown(self, offset: int) -> list[int]:
        """The same for a message whose key the index has dropped already."""
        for key, leased in self._leased.items():
            if offset in leased:
                return self._free(key, offset)
        return []

    def _free(self, key: int, offset: int) -> list[int]:
        leased = self._leased.get(key)
        if leased is None:
            return []
        leased.discard(offset)
        if leased:
            return []
        del self._leased[key]
        parked = self._parked.pop(key, [])
        self.parked_count -= len(parked)
        return parked

    def purge(self, is_acked: Callable[[int], bool]) -> None:
        """Forget parked messages that were acked."""
        for key, parked in list(self._parked.items()):
            kept = [offset for offset in parked if not is_acked(offset)]
            self.parked_count -= len(parked) - len(kept)
            if kept:
                self._parked[key] = kept
            else:
                del self._parked[key]
