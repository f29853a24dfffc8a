"""Pending acks: how many groups have not acked each message, for queues that very many groups read.

An ordinary queue has one group or a few, and asks each of them. The reference list of a tree
pattern may have ten thousand: there each message carries the number of groups that have
still to ack it, 4 bytes a message, in pages of 256 that exist only while one of them is pending.
Derived from the groups' progress, so no part of snapshots.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

PAGE_BITS = 8
PAGE = 1 << PAGE_BITS
_ZEROS = bytes(4 * PAGE)


_NO_PAGES: dict[int, array[int]] = {}
_NO_TOTALS: dict[int, int] = {}
"""Shared by the lists that nothing is pending in yet; never changed."""


class PendingAcks:
    """Counts of one queue, for offsets up to `tail`."""

    __slots__ = ("_pages", "_totals", "tail")

    def __init__(self, tail: int = 0) -> None:
        self.tail = tail
        self._pages = _NO_PAGES
        self._totals = _NO_TOTALS
        """Sum of each page: it goes when nothing in it is pending."""

    def extend(self, tail: int, groups: int) -> None:
        """Messages up to `tail` were added, each to be acked by so many groups."""
        self.add(self.tail, tail, groups)
        self.tail = tail

    def add(self, start: int, end: int, groups: int) -> None:
        """Messages of [start, end) are to be acked by so many groups more."""
        while start < end and groups:
            number = start >> PAGE_BITS
            stop = min(end, (number + 1) << PAGE_BITS)
            page = self._pages.get(number)
            if page is None:
                if self._pages is _NO_PAGES:
                    self._pages, self._totals = {}, {}
                page = self._pages[number] = array("I", _ZEROS)
                self._totals[number] = 0
            for at in range(start & 255, stop - (number << PAGE_BITS)):
                page[at] += groups
            self._totals[number] += (stop - start) * groups
            start = stop

    def settle(self, start: int, end: int) -> list[tuple[int, int]]:
        """One group is done with [start, end), which it had not acked; (start, end) ranges
        of those that everybody has acked now.
        """
        done: list[tuple[int, int]] = []
        for offset in range(start, end):
            number = offset >> PAGE_BITS
            page = self._pages[number]
            at = offset & 255
            page[at] -= 1
            self._totals[number] -= 1
            if not page[at]:
                if done and done[-1][1] == offset:
                    done[-1] = (done[-1][0], offset + 1)
                else:
                    done.append((offset, offset + 1))
            if not self._totals[number]:
                del self._pages[number], self._totals[number]
        return done

    @staticmethod
    def of(tail: int, unacked: Iterable[Sequence[tuple[int, int]]]) -> PendingAcks:
        """Counts from the (start, end) ranges that each group has not acked."""
        pending_acks = PendingAcks(tail)
        for ranges in unacked:
            for start, end in ranges:
                pending_acks.add(start, end, 1)
        if pending_acks._pages:
            pending_acks._pages = {
                number: pending_acks._pages[number] for number in sorted(pending_acks._pages)
            }
        return pending_acks

    def is_pending(self, offset: int) -> bool:
        """Whether some group still waits for a message."""
        page = self._pages.get(offset >> PAGE_BITS)
        return page is not None and page[offset & 255] > 0

    def ranges(self) -> list[tuple[int, int]]:
        """(start, end) ranges of what is pending, ascending."""
        found: list[tuple[int, int]] = []
        for number in sorted(self._pages):
            base = number << PAGE_BITS
            for at, count in enumerate(self._pages[number]):
                if not count:
                    continue
                if found and found[-1][1] == base + at:
                    found[-1] = (found[-1][0], base + at + 1)
                else:
                    found.append((base + at, base + at + 1))
        return found

    @property
    def floor(self) -> int:
        """Nothing below it is pending (a page's precision). Pages are made in ascending order."""
        return next(iter(self._pages)) << PAGE_BITS if self._pages else self.tail
