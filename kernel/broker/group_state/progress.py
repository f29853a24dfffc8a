"""The progress of one consumer group in one queue: ack floor, acked ranges above it, attempts.

Every offset below `floor` is acked. Above it, acks are bits in one integer per page of 256
offsets, attempts are kept for messages that failed at least once, and a page exists only while
something in it differs from "new" (so that nothing here grows with the backlog). Durable state:
part of snapshots and of the state hash. A snapshot under way keeps the pages it has not written
yet: a change makes a copy of such a page first (`cut`, `_writable`).

A dispatch mark, one per priority level, says how far the level was handed to push consumers:
messages of the level at or above it never were (docs/design/delivery.md#what-a-crash-may-repeat).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

PAGE_BITS = 8
LEASE_BITS = 64
LEASE_MASK = (1 << LEASE_BITS) - 1
"""A lease is the log index of the command that gave it."""
PAGE = 1 << PAGE_BITS
FULL = (1 << PAGE) - 1


class ProgressPage:
    """256 offsets of a group: bit i of `acked` is offset `page number * 256 + i`."""

    __slots__ = ("acked", "attempts", "cuts", "leased", "leases")

    def __init__(self, cuts: int) -> None:
        self.cuts = cuts
        """Cuts of its group when it was made: one made before the last cut is not to be changed."""
        self.acked = 0
        self.leased = 0
        """Bits of messages that a timed lease, or a delay after one, keeps from others."""
        self.attempts: dict[int, int] | None = None
        self.leases: dict[int, int] | None = None
        """Offset to `deadline << LEASE_BITS | lease`, kept until acked or leased again, so that
        the last holder may still ack after the deadline. Lease 0: a delay, nobody holds it."""

    def copy(self, cuts: int) -> ProgressPage:
        """A page like this one that may be changed."""
        page = ProgressPage(cuts)
        page.acked = self.acked
        page.leased = self.leased
        page.attempts = None if self.attempts is None else dict(self.attempts)
        page.leases = None if self.leases is None else dict(self.leases)
        return page


_NO_PAGES: dict[int, ProgressPage] = {}
_NO_MEMBERS: dict[tuple[int, int], int] = {}
"""Shared by all that have none; never changed."""

Members = list[tuple[int, int, int]]
Held = tuple[int, list[int], int, int, int, Members, list[tuple[int, ProgressPage]]]
"""Floor, marks, time of last use, expired, joined, members, (number, page) of every page."""


class GroupProgress:
    """Ack state of a group in a queue. `end` arguments are exclusive."""

    __slots__ = (
        "_cuts",
        "_higher_marks",
        "acked_above",
        "expired",
        "first_mark",
        "floor",
        "hidden",
        "joined",
        "leased",
        "members",
        "pages",
        "used_ms",
    )

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        self.first_mark = floor
        """Dispatch mark of level 0."""
        self._higher_marks: tuple[int, ...] = ()
        """Of the levels above the lowest, which few queues have."""
        self._cuts = 0
        self.pages = _NO_PAGES
        self.acked_above = 0
        self.leased = 0
        """Messages under a timed lease."""
        self.hidden = 0
        """Messages given back with a delay that has not passed."""
        self.used_ms = 0
        """Log time of the last lease, mark or settlement; 0: there was none yet."""
        self.expired = 0
        """Messages that were dropped unacked because they were too old, since the group began."""
        self.joined = 0
        """Of a subscriber's own group on a reference list: its epoch when it joined last."""
        self.members = _NO_MEMBERS
        """Of a share: epoch of each member, by (process that it ends with or 0, number)."""

    def mark(self, level: int = 0) -> int:
        """Dispatch mark of a priority level."""
        if not level:
            return self.first_mark
        return self._higher_marks[level - 1] if level <= len(self._higher_marks) else 0

    def set_mark(self, level: int, offset: int) -> bool:
        """Move the mark of a level ahead; whether it moved."""
        if offset <= self.mark(level):
            return False
        if not level:
            self.first_mark = offset
        else:
            marks = [*self._higher_marks, *[0] * (level - len(self._higher_marks))]
            marks[level - 1] = offset
            self._higher_marks = tuple(marks)
        return True

    def restore_marks(self, marks: Sequence[int]) -> None:
        """Become what a snapshot says."""
        self.first_mark, *higher = marks
        self._higher_marks = tuple(higher)

    @property
    def marks(self) -> list[int]:
        """The marks of the levels that have one."""
        return [self.first_mark, *self._higher_marks]

    def join(self, member: tuple[int, int], epoch: int) -> None:
        """A share has one member more, or an old one anew."""
        if self.members is _NO_MEMBERS:
            self.members = {}
        self.members[member] = max(epoch, self.members.get(member, 0))

    def cut(self) -> Held:
        """What it is now; nothing of this is changed from now on."""
        self._cuts += 1
        more = self.used_ms, self.expired, self.joined, self.listed_members
        return self.floor, self.marks, *more, list(self.pages.items())

    @property
    def listed_members(self) -> Members:
        """Process, number and epoch of each member, sorted."""
        return [(*member, epoch) for member, epoch in sorted(self.members.items())]

    def keep(self, number: int, page: ProgressPage) -> None:
        """Have a page that there was not."""
        if self.pages is _NO_PAGES:
            self.pages = {}
        self.pages[number] = page

    def _writable(self, number: int) -> ProgressPage:
        """A page to be changed: made if there is none, copied if a cut holds it."""
        page = self.pages.get(number)
        if page is None:
            page = ProgressPage(self._cuts)
            self.keep(number, page)
        elif page.cuts != self._cuts:
            page = self.pages[number] = page.copy(self._cuts)
        return page

    def is_acked(self, offset: int) -> bool:
        """Whether the group is done with a message."""
        if offset < self.floor:
            return True
        page = self.pages.get(offset >> PAGE_BITS)
        return page is not None and bool(page.acked >> (offset & 255) & 1)

    def acked_bits(self, page: int) -> int:
        """Acked bits of a page of 256 offsets, wherever the floor is."""
        start = page << PAGE_BITS
        if start + PAGE <= self.floor:
            return FULL
        known = self.pages.get(page)
        bits = known.acked if known else 0
        if start < self.floor:
            bits |= (1 << (self.floor - start)) - 1
        return bits

    def ack(self, start: int, end: int) -> list[tuple[int, int]]:
        """Ack [start, end); returns the (start, end) ranges that were not acked before."""
        start = max(start, self.floor)
        if start >= end:
            return []
        if start == self.floor and not self.pages:
            self.floor = end
            return [(start, end)]
        fresh: list[tuple[int, int]] = []
        for number in range(start >> PAGE_BITS, (end - 1 >> PAGE_BITS) + 1):
            base = number << PAGE_BITS
            low = max(start - base, 0)
            high = min(end - base, PAGE)
            mask = (1 << high) - (1 << low)
            page = self._writable(number)
            new = mask & ~page.acked
            if not new:
                continue
            page.acked |= mask
            self.acked_above += new.bit_count()
            if page.attempts:
                for offset in [each for each in page.attempts if new >> (each & 255) & 1]:
                    del page.attempts[offset]
            if page.leases:
                for offset in [each for each in page.leases if new >> (each & 255) & 1]:
                    self._unlease(page, offset)
                    del page.leases[offset]
            fresh.extend(stretches(base, new))
        self._raise_floor()
        return fresh

    def _raise_floor(self) -> None:
        """Move the floor over what is acked right above it, and drop pages below it."""
        while True:
            number = self.floor >> PAGE_BITS
            page = self.pages.get(number)
            if page is None:
                return
            inside = self.floor & 255
            open_bits = ~(page.acked >> inside)
            step = (open_bits & -open_bits).bit_length() - 1
            if inside + step >= PAGE:
                step = PAGE - inside
            if not step:
                return
            self.floor += step
            self.acked_above -= step
            if self.floor & 255:
                return
            del self.pages[number]

    def failed(self, offset: int) -> None:
        """One more delivery of an unacked message came to nothing."""
        page = self._writable(offset >> PAGE_BITS)
        if page.attempts is None:
            page.attempts = {}
        page.attempts[offset] = page.attempts.get(offset, 0) + 1

    def failures(self, offset: int) -> int:
        """Deliveries of a message that came to nothing."""
        page = self.pages.get(offset >> PAGE_BITS)
        if page is None or page.attempts is None:
            return 0
        return page.attempts.get(offset, 0)

    def is_last(self, offset: int, attempts_max: int | None) -> bool:
        """Whether a message is a dead letter if its present delivery comes to nothing."""
        return attempts_max is not None and self.failures(offset) + 1 >= attempts_max

    def lease(self, offset: int, lease: int, deadline_ms: int) -> None:
        """Keep an unacked message from others until `deadline_ms`; lease 0 for a mere delay."""
        page = self._writable(offset >> PAGE_BITS)
        if page.leases is None:
            page.leases = {}
        self._unlease(page, offset)
        page.leases[offset] = deadline_ms << LEASE_BITS | lease
        page.leased |= 1 << (offset & 255)
        if lease:
            self.leased += 1
        else:
            self.hidden += 1

    def unlease(self, offset: int) -> None:
        """Let others have a message again; who held it last is still known."""
        if offset >> PAGE_BITS in self.pages:
            self._unlease(self._writable(offset >> PAGE_BITS), offset)

    def take_back(self, offset: int, lease: int) -> bool:
        """Nobody has got what a lease was to bring: whether that is news. It is not if it has been
        taken back already; a lease that has run out, or was followed by others, may still be. The
        attempt that was counted when it ran out was none.
        """
        if self.is_acked(offset):
            return True
        holder = self.holder(offset)
        if holder is None or holder[0] < lease:
            return False
        if holder[0] == lease:
            page = self._writable(offset >> PAGE_BITS)
            assert page.leases is not None
            if not holder[2] and page.attempts and offset in page.attempts:
                page.attempts[offset] -= 1
                if not page.attempts[offset]:
                    del page.attempts[offset]
            self._unlease(page, offset)
            del page.leases[offset]
            if not (page.leases or page.acked or page.attempts):
                del self.pages[offset >> PAGE_BITS]
        return True

    def _unlease(self, page: ProgressPage, offset: int) -> None:
        bit = 1 << (offset & 255)
        if not page.leased & bit or page.leases is None:
            return
        page.leased ^= bit
        if page.leases[offset] & LEASE_MASK:
            self.leased -= 1
        else:
            self.hidden -= 1

    def holder(self, offset: int) -> tuple[int, int, bool] | None:
        """(lease, deadline, whether it still holds) of the last lease; None if there was none."""
        page = self.pages.get(offset >> PAGE_BITS)
        if page is None or page.leases is None:
            return None
        packed = page.leases.get(offset)
        if packed is None:
            return None
        return packed & LEASE_MASK, packed >> LEASE_BITS, bool(page.leased >> (offset & 255) & 1)

    def kept(self) -> Iterator[tuple[int, int, int]]:
        """(offset, lease, deadline) of every message that a lease or delay keeps from others."""
        for page in self.pages.values():
            if page.leased and page.leases:
                for offset, packed in page.leases.items():
                    if page.leased >> (offset & 255) & 1:
                        yield offset, packed & LEASE_MASK, packed >> LEASE_BITS

    def free(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """(start, end) ranges of [start, end) that are neither acked nor kept from others."""
        if not self.leased and not self.hidden:
            yield from self.unacked(start, end)
            return
        for low, high in self.unacked(start, end):
            page = self.pages.get(low >> PAGE_BITS)
            if page is None or not page.leased:
                yield low, high
            else:
                base = low >> PAGE_BITS << PAGE_BITS
                mask = (1 << (high - base)) - (1 << (low - base))
                yield from stretches(base, mask & ~page.leased)

    def unacked(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """(start, end) ranges of [start, end) that are not acked, ascending."""
        at = max(start, self.floor)
        while at < end:
            number = at >> PAGE_BITS
            page = self.pages.get(number)
            stop = min(end, (number + 1) << PAGE_BITS)
            if page is None or not page.acked:
                yield at, stop
            else:
                base = number << PAGE_BITS
                mask = (1 << (stop - base)) - (1 << (at - base))
                yield from stretches(base, mask & ~page.acked)
            at = stop


def stretches(base: int, bits: int) -> Iterator[tuple[int, int]]:
    """(start, end) of each stretch of ones in `bits`, shifted by `base`."""
    at = 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        at += zeros
        ones = (~bits & (bits + 1)).bit_length() - 1
        yield base + at, base + at + ones
        bits >>= ones
        at += ones


def acked_by_all(others: Sequence[GroupProgress], start: int, end: int) -> list[tuple[int, int]]:
    """Ranges of [start, end) that every one of `others` has acked."""
    ranges = [(start, end)]
    for progress in others:
        kept: list[tuple[int, int]] = []
        for low, high in ranges:
            at = low
            for open_start, open_end in progress.unacked(low, high):
                if open_start > at:
                    kept.append((at, open_start))
                at = open_end
            if at < high:
                kept.append((at, high))
        ranges = kept
    return ranges


def unacked_by_any(
    progresses: Sequence[GroupProgress], start: int, end: int
) -> list[tuple[int, int]]:
    """Ranges of [start, end) that at least one has not acked."""
    acked = acked_by_all(progresses, start, end)
    open_ranges: list[tuple[int, int]] = []
    at = start
    for low, high in acked:
        if low > at:
            open_ranges.append((at, low))
        at = high
    if at < end:
        open_ranges.append((at, end))
    return open_ranges
