"""Loss, duplicates and order, from one 8-byte key a message.

Each message carries a key (big-endian u64); producers number their messages densely from 0:

    bits 63..56  MAGIC, so that a foreign message in the queue is told apart
    bits 55..40  producer
    bits 39..0   sequence

A producer that spreads over N queues takes them in turn, so on one queue the keys of one
producer rise by the `stride` N. A `Ledger` stands for one consumer of one queue: while the keys
rise by the stride it only moves one number on; every break in that is written down. What a
ledger has written down is lossless, so that the judgement is made once, at the end, by
`judge`: over all consumers of a queue for loss and duplicates, inside each one for order.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MAGIC = 0xBE
PRODUCER_SHIFT = 40
PRODUCER_MASK = 0xFFFF
SEQUENCE_MASK = (1 << PRODUCER_SHIFT) - 1
PRODUCERS_MAX = 1024  # of 65,536 that the key could name: each is a connection.


def first_key(producer: int) -> int:
    """The key of the producer's message 0."""
    return MAGIC << 56 | producer << PRODUCER_SHIFT


class Ledger:
    """What one consumer has received from one queue, in order of arrival.

    The hot loop holds `expected` in a local variable, compares each key with it and adds
    `stride`; only a key that differs costs a call of `turn`.
    """

    __slots__ = ("_next", "_producer", "_runs", "expected", "foreign", "stride")

    def __init__(self, stride: int = 1) -> None:
        self.stride = stride
        self.expected = -1  # no key is negative: the first message turns to its producer
        self.foreign = 0
        self._producer = -1
        self._next: dict[int, int] = {}
        self._runs: dict[int, array[int]] = {}

    def turn(self, key: int, expected: int) -> int:
        """Take a key that is not the expected one; return the key expected after it."""
        if key >> 56 != MAGIC:
            self.foreign += 1
            return expected
        producer = key >> PRODUCER_SHIFT & PRODUCER_MASK
        known = self._next
        if self._producer >= 0:
            known[self._producer] = expected
        self._producer = producer
        due = known.get(producer)
        if due is None:
            self._runs[producer] = array("Q", (key,))
        elif due != key:
            self._runs[producer].extend((due, key))
        return key + self.stride

    def runs(self, expected: int) -> dict[int, list[tuple[int, int]]]:
        """Per producer the unbroken runs (first key, key after the last), in order of arrival.

        `expected` is the caller's current value: the end of the run that is still open.
        """
        if self._producer >= 0:
            self._next[self._producer] = expected
        return {
            producer: list(zip(flat[::2], [*flat[1::2], self._next[producer]], strict=True))
            for producer, flat in self._runs.items()
        }


class Coverage:
    """A set of integers as sorted, disjoint, non-touching intervals [start, end)."""

    __slots__ = ("ends", "starts")

    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        for start, end in intervals:
            self.add(start, end)

    def add(self, start: int, end: int) -> int:
        """Add [start, end); return how many of its members were there already."""
        starts, ends = self.starts, self.ends
        if not ends or start > ends[-1]:
            starts.append(start)
            ends.append(end)
            return 0
        low = bisect_left(ends, start)
        high = bisect_right(starts, end)
        if low == high:
            starts.insert(low, start)
            ends.insert(low, end)
            return 0
        before = sum(max(min(end, ends[i]) - max(start, starts[i]), 0) for i in range(low, high))
        joined = min(start, starts[low]), max(end, ends[high - 1])
        starts[low:high] = [joined[0]]
        ends[low:high] = [joined[1]]
        return before

    def size(self) -> int:
        return sum(self.ends) - sum(self.starts)

    def holds(self, value: int) -> bool:
        place = bisect_right(self.starts, value) - 1
        return place >= 0 and value < self.ends[place]

    def intervals(self) -> list[tuple[int, int]]:
        return list(zip(self.starts, self.ends, strict=True))


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What one consumer saw of one producer on one queue; positions are dense from 0."""

    intervals: list[tuple[int, int]]
    duplicated: int
    disordered: int
    misrouted: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Messages, summed over whatever was judged."""

    received: int = 0
    lost: int = 0
    duplicated: int = 0
    disordered: int = 0
    misrouted: int = 0
    excused: int = 0  # missing, and not lost: refused, or not answered when the run ended

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(
            self.received + other.received,
            self.lost + other.lost,
            self.duplicated + other.duplicated,
            self.disordered + other.disordered,
            self.misrouted + other.misrouted,
            self.excused + other.excused,
        )


def arrivals(runs: list[tuple[int, int]], first: int, stride: int) -> Arrivals:
    """Reduce one consumer's runs of keys to positions on the queue, and judge their order.

    `first` is the sequence of the producer's first message on this queue. A message is
    disordered when a later one of the same producer came before it and it is new; a message
    that came before is a duplicate, wherever it stands. A sequence that cannot be on this
    queue is misrouted.
    """
    seen = Coverage()
    duplicated = disordered = misrouted = 0
    reached = 0
    for start_key, end_key in runs:
        start, rest = divmod((start_key & SEQUENCE_MASK) - first, stride)
        count = (end_key - start_key) // stride
        if rest or start < 0:
            misrouted += count
            continue
        again = seen.add(start, start + count)
        duplicated += again
        if start < reached:
            disordered += max(min(start + count, reached) - start - again, 0)
        reached = max(reached, start + count)
    return Arrivals(seen.intervals(), duplicated, disordered, misrouted)


def judge(parts: list[Arrivals], published: int | None, excused: Iterable[int] = ()) -> Verdict:
    """Judge one producer on one queue over all consumers of that queue.

    `published` is how many messages the producer sent there; None when nobody knows, and then
    nothing counts as lost. `excused` are positions that the broker refused (basic.nack), or had
    not answered when the run ended: they may be missing. A position at or above `published` is
    misrouted.
    """
    shared = 0
    covered = Coverage()
    for start, end in sorted(interval for part in parts for interval in part.intervals):
        shared += covered.add(start, end)
    size = covered.size()
    inside = size
    lost = missing = 0
    if published is not None:
        inside -= sum(max(end - max(start, published), 0) for start, end in covered.intervals())
        missing = sum(1 for place in excused if not covered.holds(place))
        lost = published - inside - missing
    duplicated = shared + sum(part.duplicated for part in parts)
    return Verdict(
        received=size + duplicated,
        lost=lost,
        duplicated=duplicated,
        disordered=sum(part.disordered for part in parts),
        misrouted=sum(part.misrouted for part in parts) + size - inside,
        excused=missing,
    )
