"""The keys that a sealed queue has unsettled for one consumer group: successors hold them back
(ADR 31). Sans-I/O; whoever has one is told of each settlement that was applied.

    counts            what is unsettled and due, and has a key; half messages that wait, for
                      whoever committed one may publish the next of its key at once
    counts for nothing   what has no key, or is delayed and not due when it is first looked at
"""

from __future__ import annotations

from collections.abc import Iterable

from ...broker.group_state.halves import Halves
from ...broker.group_state.state import GroupState, QueueState
from ...broker.index.features import Feature

GATE_MESSAGES_MAX = 65_536
"""Unsettled messages of a sealed queue that are looked at, at some 0.7 us each, and then kept by
offset: 50 ms, once, and 8 MB. Above it the whole successor waits."""


class UnsettledKeys:
    """Of one queue and group."""

    __slots__ = ("_halves", "_key_of", "messages")

    def __init__(self) -> None:
        self._key_of: dict[int, int] = {}
        """By offset."""
        self._halves: dict[int, int] = {}
        """Key of each half message, by its number."""
        self.messages: dict[int, int] = {}
        """Of each key how many there are."""

    def __len__(self) -> int:
        return len(self._key_of) + len(self._halves)

    def _add(self, keys: dict[int, int], at: int, key: int) -> None:
        keys[at] = key
        self.messages[key] = self.messages.get(key, 0) + 1

    def _less(self, key: int) -> list[int]:
        left = self.messages[key] - 1
        if left:
            self.messages[key] = left
            return []
        del self.messages[key]
        return [key]

    def settled(self, offsets: Iterable[int]) -> list[int]:
        """Messages are settled: the keys that are free by it."""
        freed: list[int] = []
        for offset in offsets:
            key = self._key_of.pop(offset, 0)
            if key:
                freed += self._less(key)
        return freed

    def look(self, queue: QueueState, group: str) -> list[int]:
        """Look at every message, for what was settled without a word: the keys that are free."""
        is_acked = queue.groups[group].is_acked
        return self.settled([each for each in self._key_of if is_acked(each)])

    def look_at_halves(
        self, halves: Halves, queue: QueueState, group: str, now_ms: int
    ) -> list[int]:
        """Half messages may have been committed or rolled back: the keys that are free by it."""
        freed: list[int] = []
        for number in [each for each in self._halves if each not in halves.waiting]:
            key = self._halves.pop(number)
            _, offset = halves.outcomes.get(number, (0, -1))
            if offset >= 0 and not queue.groups[group].is_acked(offset):
                run = queue.index.find(offset)
                if run.time_ms + run.value(Feature.DELAY, offset) <= now_ms:
                    self._key_of[offset] = key
                    continue
            freed += self._less(key)
        return freed


def unsettled_keys(
    state: GroupState, queue: QueueState, group: str, now_ms: int
) -> UnsettledKeys | None:
    """Those of a sealed queue; None: it has more than GATE_MESSAGES_MAX unsettled."""
    progress = queue.groups[group]
    tail = queue.index.tail
    halves = [each for each in state.halves.waiting.values() if each.queue == queue.id]
    if tail - progress.floor - progress.acked_above + len(halves) > GATE_MESSAGES_MAX:
        return None
    found = UnsettledKeys()
    for start, end in progress.unacked(progress.floor, tail):
        at = start
        while at < end:
            run = queue.index.find(at)
            for offset in range(at, min(run.end, end)):
                key = run.value(Feature.KEY, offset)
                if key and run.time_ms + run.value(Feature.DELAY, offset) <= now_ms:
                    found._add(found._key_of, offset, key)
            at = run.end
    for half in halves:
        key = dict(half.values).get(Feature.KEY, 0)
        if key:
            found._add(found._halves, half.number, key)
    return found
