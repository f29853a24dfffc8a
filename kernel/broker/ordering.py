"""Ordering keys of an ordered group: one key's messages go to one holder at a time, in order.

A key is blocked while any of its messages is leased. Messages met meanwhile are parked; they are
ready again, in their old place, when the last leased one of their key has come back or its ack has
been applied: an ack that a crash may still take back frees nothing.
Messages without a key are not ordered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .features import Feature
from .run_page import Run


class KeyLocks:
    """Blocked keys of one (queue, group)."""

    __slots__ = ("_key_of", "_leased", "_parked", "parked_count")

    def __init__(self) -> None:
        self._leased: dict[int, set[int]] = {}
        self._key_of: dict[int, int] = {}
        """Key of each leased offset: its run may be gone from the index when it is acked."""
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

    def is_leased(self, key: int) -> bool:
        """Whether a message of the key (0: of none) is leased, or waits for one that is."""
        return key in self._leased or key in self._parked

    def lock(self, key: int, offset: int) -> None:
        """A message of the key is leased."""
        self._leased.setdefault(key, set()).add(offset)
        self._key_of[offset] = key

    def free(self, offset: int) -> list[int]:
        """A leased message was acked or came back; messages that are ready again by that."""
        key = self._key_of.pop(offset, None)
        if key is None:
            return []
        leased = self._leased[key]
        leased.discard(offset)
        if leased:
            return []
        del self._leased[key]
        parked = self._parked.pop(key, [])
        self.parked_count -= len(parked)
        return parked

    def purge(self, is_acked: Callable[[int], bool]) -> list[int]:
        """Forget messages that were acked; those that are ready again by that."""
        for key, parked in list(self._parked.items()):
            kept = [offset for offset in parked if not is_acked(offset)]
            self.parked_count -= len(parked) - len(kept)
            if kept:
                self._parked[key] = kept
            else:
                del self._parked[key]
        acked = [offset for offset in self._key_of if is_acked(offset)]
        return [ready for offset in acked for ready in self.free(offset)]
