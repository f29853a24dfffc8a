"""The ready index: which messages of a queue a group may be handed, in that order.

Per priority level (a topic without priorities has one) a cursor, below which everything has been
handed out, acked or given back, and a heap of offsets that came back: these go first in their
level, in their old order. Nothing here grows with the backlog. In the leader's memory only: a new
leader starts again from the ack floor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from ...api.model import TopicOptions
from ..group_state.progress import GroupProgress
from ..index.features import Feature
from ..index.run_page import Run
from ..index.runs import Part, RunIndex
from ..index.sizes import bytes_between, size_at, size_of


class Ready:
    """Ready messages of one (queue, group). `levels` is the topic's priority_max + 1."""

    __slots__ = (
        "_acked_ahead",
        "_cursors",
        "_index",
        "_measured_to",
        "_progress",
        "_returned",
        "_withheld",
        "_withheld_ahead",
        "bytes",
        "levels",
        "withheld_count",
    )

    def __init__(self, index: RunIndex, progress: GroupProgress, levels: int) -> None:
        self._index = index
        self._progress = progress
        self.levels = levels
        self._cursors = [progress.floor] * levels
        self._returned: list[list[int]] = [[] for _ in range(levels)]
        self._acked_ahead = progress.acked_above + progress.leased + progress.hidden
        self._withheld: dict[int, int] = {}
        """Bits of messages ahead of the cursors that are not due yet, by page of 256 offsets."""
        self.withheld_count = 0
        self._withheld_ahead = 0
        """How many of these the cursor of a topic without priorities has not passed."""
        self._measured_to: int | None = None
        self.bytes = 0
        """Bytes ready, as of the last `measure`; what is taken or given back since is counted."""

    @property
    def count(self) -> int:
        """Messages ready."""
        returned = sum(map(len, self._returned))
        if self.levels == 1:
            ahead = self._index.tail - self._cursors[0] - self._acked_ahead
            return ahead - self._withheld_ahead + returned
        return returned + sum(
            self._ahead(level, self._cursors[level], self._index.tail)
            for level in range(self.levels)
        )

    def measure(self) -> None:
        """Count the bytes of what is ready: all of it the first time, then what has come since."""
        tail = self._index.tail
        if self._measured_to is None:
            self.bytes = sum(
                size_of(run, offsets)
                for level in range(self.levels)
                for run, offsets in self._stretches(level, self._cursors[level], tail)
            )
            self.bytes += sum(
                size_at(self._index, each) for heap in self._returned for each in heap
            )
        else:
            self.bytes += bytes_between(self._index, self._measured_to, tail)
        self._measured_to = tail

    def excess(self, options: TopicOptions) -> int:
        """Messages to be dropped, as far as known, because more is ready than a topic may hold."""
        if options.messages_max is not None and self.count > options.messages_max:
            return self.count - options.messages_max
        return int(options.bytes_max is not None and self.bytes > options.bytes_max)

    def _ahead(self, level: int, start: int, end: int) -> int:
        """Unacked messages of a level in [start, end); walks the runs."""
        return sum(len(offsets) for _, offsets in self._stretches(level, start, end))

    def withhold(self, offset: int) -> None:
        """A message ahead of the cursors is not to be handed out before `admit`."""
        page = offset >> 8
        self._withheld[page] = self._withheld.get(page, 0) | 1 << (offset & 255)
        self.withheld_count += 1
        self._withheld_ahead += offset >= self._cursors[0]
        if self._measured_to is not None:
            self.bytes -= size_at(self._index, offset)

    def is_withheld(self, offset: int) -> bool:
        """Whether a message is not to be handed out before `admit`."""
        return bool(self._withheld.get(offset >> 8, 0) >> (offset & 255) & 1)

    def admit(self, offset: int) -> bool:
        """A message that may have been withheld is due; whether it was."""
        page = offset >> 8
        bits = self._withheld.get(page, 0)
        bit = 1 << (offset & 255)
        if not bits & bit:
            return False
        if bits == bit:
            del self._withheld[page]
        else:
            self._withheld[page] = bits ^ bit
        self.withheld_count -= 1
        if offset < self._cursors[self._level(offset)]:
            self.give_back((offset,))
        else:
            self._withheld_ahead -= 1
            if self._measured_to is not None:
                self.bytes += size_at(self._index, offset)
        return True

    def _level(self, offset: int) -> int:
        if self.levels == 1:
            return 0
        return self._index.find(offset).value(Feature.PRIORITY, offset)

    def give_back(self, offsets: Iterable[int]) -> None:
        """Messages handed out before are ready again. What a level's cursor has not come to yet (it
        was leased when a new leader began) is found there by the cursor, and by nothing else.
        """
        for offset in offsets:
            level = self._level(offset)
            if offset < self._cursors[level]:
                heappush(self._returned[level], offset)
            else:
                self._acked_ahead -= 1
            if self._measured_to is not None:
                self.bytes += size_at(self._index, offset)

    def claim(self, wanted: Collection[int]) -> list[int]:
        """Take out those of some messages that are ready: they count as handed out, and what is
        ready before the last of them in its level as given back.
        """
        taken: list[int] = []
        for level in range(self.levels):
            heap = self._returned[level]
            kept = [each for each in heap if each not in wanted]
            taken += [each for each in heap if each in wanted]
            start, end = self._cursors[level], max(wanted, default=0) + 1
            last = start
            for _run, offsets in self._stretches(level, start, min(end, self._index.tail)):
                kept += [each for each in offsets if each not in wanted]
                found = [each for each in offsets if each in wanted]
                if found:
                    taken += found
                    last = found[-1] + 1
            self._returned[level] = [each for each in kept if each < last or each < start]
            heapify(self._returned[level])
            if last > start:
                self._move_cursor(level, last)
        if self._measured_to is not None:
            self.bytes -= sum(size_at(self._index, each) for each in taken)
        return taken

    def forget(self, offset: int) -> None:
        """A message that was ready again has been acked after all."""
        heap = self._returned[self._level(offset)] if offset >= self._index.head else None
        for each in self._returned if heap is None else [heap]:
            if offset in each:
                each.remove(offset)
                heapify(each)
                if self._measured_to is not None:
                    self.bytes -= size_at(self._index, offset)
                return

    def purged(self) -> None:
        """A purge was applied: forget what is acked by now."""
        acked = self._progress.is_acked
        for level, heap in enumerate(self._returned):
            kept = [offset for offset in heap if not acked(offset)]
            heapify(kept)
            self._returned[level] = kept
        tail = self._index.tail
        for level in range(self.levels):
            self._cursors[level] = max(self._cursors[level], min(self._progress.floor, tail))
        if self.levels == 1:
            cursor = self._cursors[0]
            open_ahead = sum(end - start for start, end in self._progress.free(cursor, tail))
            self._acked_ahead = tail - cursor - open_ahead
        for page, bits in list(self._withheld.items()):
            gone = bits & self._progress.acked_bits(page)
            self.withheld_count -= gone.bit_count()
            if bits == gone:
                del self._withheld[page]
            else:
                self._withheld[page] = bits ^ gone
        self._withheld_ahead = self._count_withheld(self._cursors[0], tail)
        if self._measured_to is not None:
            self._measured_to = None
            self.measure()

    @property
    def tail(self) -> int:
        """Offset behind the queue's last message."""
        return self._index.tail

    def beyond(self, level: int) -> int:
        """Offset up to which a level has been handed out: its fresh messages start here."""
        return self._cursors[level]

    def may_have(self) -> bool:
        """Whether a message could be ready: False is certain, and cheap to know."""
        tail = self._index.tail
        if self.levels == 1:
            return self._cursors[0] < tail or bool(self._returned[0])
        return min(self._cursors) < tail or any(self._returned)

    def take(self, level: int, limit: int, count: int) -> tuple[Run, Sequence[int]] | None:
        """The next up to `count` ready messages of a level that lie in one run, now handed out;
        None if there is none. Fresh ones only below offset `limit`.
        """
        if self._returned[level]:
            taken = self._take_returned(self._returned[level], count)
        else:
            fresh = self._take_fresh(level, limit, count)
            if fresh is None:
                return None
            taken = fresh
        if self._measured_to is not None:
            self.bytes -= size_of(*taken)
        return taken

    def take_plain(self, limit: int, count: int) -> tuple[int, int, Sequence[Part]] | None:
        """Take the next messages, up to `count` of them and below offset `limit`, if they are fresh
        and nothing about them or before them needs a closer look: the first offset, the end, and
        where they lie. None, and nothing taken, otherwise (hot).
        """
        progress, index = self._progress, self._index
        start = self._cursors[0]
        if self.levels > 1 or self._returned[0] or self._withheld or progress.pages:
            return None
        if start < progress.floor:  # noqa: PLR1730 - a call costs more than a line
            start = progress.floor
        end = index.tail
        if end > limit or end > start + count:
            end = min(limit, start + count)
        if start >= end:
            return None
        parts = index.plain_parts(start, end)
        if parts is None:
            return None
        if len(parts) == 1:
            end = start + parts[0][2]
        if self._acked_ahead:
            self._move_cursor(0, end)
        else:
            self._cursors[0] = end
        return start, end, parts

    def put_back_plain(self, first: int) -> None:
        """Of what `take_plain` took last, offset `first` and all behind it is fresh again."""
        self._cursors[0] = first

    def take_excess(self, options: TopicOptions) -> Iterator[Sequence[int]]:
        """Take from the front, the highest priority first, what is more than a topic may hold: what
        would be handed out next.
        """
        for level in range(self.levels - 1, -1, -1):
            while (excess := self.excess(options)) > 0:
                taken = self.take(level, self._index.tail, excess)
                if taken is None:
                    break
                yield taken[1]

    def peek(self, level: int) -> tuple[Run, int] | None:
        """The message of a level that is next, left where it is; None if there is none."""
        heap = self._returned[level]
        if heap:
            return self._index.find(heap[0]), heap[0]
        for run, offsets in self._stretches(level, self._cursors[level], self._index.tail):
            return run, offsets[0]
        return None

    def skip(self, level: int) -> None:
        """The message that `peek` shows is handed out (to nobody)."""
        self.take(level, self._index.tail, 1)

    def _take_returned(self, heap: list[int], count: int) -> tuple[Run, Sequence[int]]:
        first = heappop(heap)
        run = self._index.find(first)
        offsets = [first]
        while heap and len(offsets) < count and heap[0] < run.end:
            offsets.append(heappop(heap))
        return run, offsets

    def _take_fresh(self, level: int, limit: int, count: int) -> tuple[Run, Sequence[int]] | None:
        start, tail = self._cursors[level], self._index.tail
        for run, offsets in self._stretches(level, start, tail):
            if offsets[0] >= limit:
                self._move_cursor(level, offsets[0])
                return None
            taken = offsets[: min(count, limit - offsets[0])]
            if taken[-1] >= limit:
                taken = [offset for offset in taken if offset < limit]
            self._move_cursor(level, taken[-1] + 1)
            return run, taken
        if tail > start:
            self._move_cursor(level, tail)
        return None

    def _move_cursor(self, level: int, to: int) -> None:
        if self._acked_ahead and self.levels == 1:
            start = self._cursors[0]
            open_between = sum(high - low for low, high in self._progress.free(start, to))
            self._acked_ahead -= to - start - open_between
        if self._withheld_ahead and self.levels == 1:
            self._withheld_ahead -= self._count_withheld(self._cursors[0], to)
        self._cursors[level] = to

    def _count_withheld(self, start: int, end: int) -> int:
        """Withheld messages in [start, end)."""
        count = 0
        for page, bits in self._withheld.items():
            base = page << 8
            low, high = max(start - base, 0), min(end - base, 256)
            if low < high:
                count += (bits & ((1 << high) - (1 << low))).bit_count()
        return count

    def _stretches(self, level: int, start: int, end: int) -> Iterable[tuple[Run, Sequence[int]]]:
        """Messages of a level in [start, end) that are neither acked nor kept back, run by run,
        none of them empty.
        """
        progress = self._progress
        at = max(start, progress.floor, self._index.head)
        while at < end:
            run = self._index.find(at)
            stop = min(run.end, end)
            offsets: Sequence[int] = range(at, stop)
            if self.levels > 1:
                offsets = _of_level(run, offsets, level)
            if progress.pages and len(offsets):
                free = [each for low, high in progress.free(at, stop) for each in range(low, high)]
                if len(free) < stop - at:
                    wanted = set(offsets)
                    offsets = [each for each in free if each in wanted]
            if self._withheld and offsets:
                withheld = self._withheld
                offsets = [
                    each for each in offsets if not withheld.get(each >> 8, 0) >> (each & 255) & 1
                ]
            if offsets:
                yield (run if offsets[0] == at else self._index.find(offsets[0])), offsets
            at = stop


def _of_level(run: Run, offsets: Sequence[int], level: int) -> Sequence[int]:
    """Those of a run's offsets that have the priority `level`."""
    if not run.features & Feature.PRIORITY:
        return offsets if level == 0 else ()
    column = run.columns[Feature.PRIORITY]
    shift = run.at - run.first
    return [offset for offset in offsets if column[offset + shift] == level]
