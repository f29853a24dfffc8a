"""Index of a queue: where its messages lie in the log, by runs.

A run is a stretch of offsets whose messages are consecutive slots of one Raft entry: what one
batch brought to the queue. One run costs 38 bytes whatever its length, so that the index of a
busy queue is small and appending to it costs nothing per message; the worst case, one message an
entry, is 38 bytes a message (ADR 0004).

    pages                                          young runs
    [ 256 runs ] [ 256 runs ] [ up to 256 runs ]   (first, log index, slot, time ms, size) up to 16
    head                                                                                  tail

New runs are rows of their own, and go into a page 16 at a time: what dies young, as in a queue
that is drained as fast as it is filled, never costs more than one tuple.

The columns of a page, and those of what messages have beyond the plain, are drawn in `run_page`.
Two of them say where a message lies that was committed after the entry that brought it (a half
message): its run stands in the order of the commit, alone, and `origin_index` finds it by its
origin.

Full pages never change. Pages are dropped from the front as the queue's messages die. Behind one
that nobody takes they are swept (`sweep`): dead runs that stand side by side become one, a **hole**
with the index and time of the first of them, and what is left moves together into new pages.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import sub

from .features import Feature
from .origin_index import OriginIndex
from .run_page import NO_COLUMNS, RUNS_PER_PAGE, Run, RunPage, YoungRun, sent_ms, share_of

YOUNG_RUNS_MAX = 16
"""Runs kept as rows, of some 130 bytes each: more would save no time worth the memory."""
DEAD_RUNS_KEPT = 16
"""The only page of a queue, all of it dead, is kept while it has fewer runs: a queue that is filled
and drained by single messages with features makes a new page for every sixteenth, and an idle one
keeps 0.5 KB.
"""
LONG_PAGES = 4
"""An index of more pages is worth a look by the sweep."""

Part = tuple[int, int, int]
"""(log index, slot, count) of messages of one entry that stand side by side."""

_NOT_HERE = Feature.ORIGIN_INDEX | Feature.HOLE

_NO_PAGES: list[RunPage] = []
_NO_FIRSTS: list[int] = []
_NO_YOUNG: list[YoungRun] = []
"""Shared by the queues that have never had a message; never changed."""


class RunIndex:
    """Runs of one queue in offset order, covering [head, tail)."""

    __slots__ = (
        "_firsts",
        "_origins",
        "_pages",
        "_young",
        "aged",
        "delays",
        "long",
        "tail",
        "ttls",
    )

    def __init__(self, tail: int = 0) -> None:
        self.tail = tail
        self.delays = False
        """Whether any message ever came with a delay."""
        self.ttls = False
        """Whether any message ever came with a TTL."""
        self.aged = False
        """Whether any message ever came with an age, as dead letters do."""
        self.long = False
        """Whether it has more than LONG_PAGES pages, or had when it got the last one."""
        self._pages = _NO_PAGES
        self._firsts = _NO_FIRSTS
        self._young = _NO_YOUNG
        """The last runs, behind all pages."""
        self._origins: OriginIndex | None = None

    @property
    def head(self) -> int:
        """Lowest offset that can still be found (`tail` if none)."""
        return self._firsts[0] if self._firsts else self._young_first()

    def _young_first(self) -> int:
        """Offset at which the pages end."""
        return self._young[0][0] if self._young else self.tail

    # --- Growing ----------------------------------------------------------------------------

    def append(self, index: int, slot: int, count: int, time_ms: int, size: int = 0) -> int:
        """Add `count` messages without features: slots from `slot` on of log entry `index`; returns
        the offset of the first (hot). `size`: their bytes together.
        """
        first = self.tail
        self.tail = first + count
        young = self._young
        if young:
            last = young[-1]
            if last[1] == index and last[2] + first - last[0] == slot:
                if size:
                    young[-1] = (*last[:4], last[4] + size)
                return first
            if len(young) == YOUNG_RUNS_MAX:
                self._age()
        elif young is _NO_YOUNG:
            young = self._young = []
        young.append((first, index, slot, time_ms, size))
        return first

    def append_with(
        self,
        index: int,
        slot: int,
        count: int,
        time_ms: int,
        columns: dict[int, array[int]],
        size: int = 0,
    ) -> int:
        """Add `count` messages with features, whose values are in `columns`."""
        self._age()
        first = self.tail
        self.tail = first + count
        page = self._page_for_more(first)
        page.add_run(first, index, time_ms, slot, sum(columns), size)
        self.delays = self.delays or Feature.DELAY in columns
        self.ttls = self.ttls or Feature.TTL in columns
        self.aged = self.aged or Feature.AGE in columns
        page.add_values(count, columns)
        if Feature.ORIGIN_INDEX in columns:
            self._note_origin(columns[Feature.ORIGIN_INDEX][0], first)
        return first

    def _note_origin(self, origin: int, offset: int) -> None:
        if self._origins is None:
            self._origins = OriginIndex()
        self._origins.add(origin, offset)

    def _age(self) -> None:
        """Move the young runs into pages."""
        young = self._young
        while young:
            page = self._page_for_more(young[0][0])
            some = young[: RUNS_PER_PAGE - len(page.first)]
            page.add_young(some)
            del young[: len(some)]

    def _page_for_more(self, first: int) -> RunPage:
        """The last page if it has room, or a new one that begins at offset `first`."""
        if not self._pages or len(self._pages[-1].first) == RUNS_PER_PAGE:
            if self._pages is _NO_PAGES:
                self._pages, self._firsts = [], []
            if self._pages:
                self._pages[-1].pack()
            self._pages.append(RunPage())
            self._firsts.append(first)
            self.long = len(self._pages) > LONG_PAGES
        return self._pages[-1]

    # --- Looking up -------------------------------------------------------------------------

    def _end(self, at: int, run: int) -> int:
        """Offset behind the last message of a run in a page."""
        page = self._pages[at]
        if run + 1 < len(page.first):
            return page.first[run + 1]
        return self._firsts[at + 1] if at + 1 < len(self._firsts) else self._young_first()

    def time_at(self, offset: int) -> int:
        """The log time at which the message of an offset in [head, tail) was stored: `find` without
        the rest of it. Raises IndexError outside.
        """
        if not self.head <= offset < self.tail:
            raise IndexError(f"offset {offset} is outside [{self.head}, {self.tail})")
        young = self._young
        if young and offset >= young[0][0]:
            return young[bisect_right(young, (offset + 1,)) - 1][3]
        page = self._pages[bisect_right(self._firsts, offset) - 1]
        return page.time_ms[bisect_right(page.first, offset) - 1]

    def find(self, offset: int) -> Run:
        """The rest of the run of an offset in [head, tail). Raises IndexError outside."""
        if not self.head <= offset < self.tail:
            raise IndexError(f"offset {offset} is outside [{self.head}, {self.tail})")
        young = self._young
        if young and offset >= young[0][0]:
            at = bisect_right(young, (offset + 1,)) - 1
            first, index, slot, time_ms, _ = young[at]
            end = young[at + 1][0] if at + 1 < len(young) else self.tail
            return Run(offset, end, index, slot + offset - first, time_ms, 0, NO_COLUMNS, 0)
        at = bisect_right(self._firsts, offset) - 1
        page = self._pages[at]
        firsts = page.first
        run = bisect_right(firsts, offset) - 1
        behind = offset - firsts[run]
        index, slot, value = page.index[run], page.slot[run] + behind, page.extra[run] + behind
        features = page.features[run]
        if features & Feature.ORIGIN_INDEX:
            index = page.columns[Feature.ORIGIN_INDEX][value]
            slot = page.columns[Feature.ORIGIN_SLOT][value]
        end = self._end(at, run)
        return Run(offset, end, index, slot, page.time_ms[run], features, page.columns, value)

    def plain_from(self, offset: int) -> tuple[int, int, int] | None:
        """(log index, slot, end of the run) of an offset in [head, tail), if its run has no
        features; None if it has (hot: `find` without its object).
        """
        young = self._young
        if young and offset >= young[0][0]:
            at = bisect_right(young, (offset + 1,)) - 1
            first, index, slot, _, _ = young[at]
            end = young[at + 1][0] if at + 1 < len(young) else self.tail
            return index, slot + offset - first, end
        at = bisect_right(self._firsts, offset) - 1
        page = self._pages[at]
        firsts = page.first
        run = bisect_right(firsts, offset) - 1
        if page.features[run]:
            return None
        return page.index[run], page.slot[run] + offset - firsts[run], self._end(at, run)

    def plain_parts(self, start: int, end: int) -> list[Part] | None:
        """Where [start, end), which is within [head, tail), lies; only the beginning of it, one
        run, if that is in a page; None if the first run has features (hot).
        """
        young = self._young
        if young and start >= young[0][0]:
            first, index, slot, _, _ = young[-1]
            if start >= first:
                return [(index, slot + start - first, end - start)]
            parts: list[Part] = []
            at = len(young) - 1
            while start < first:
                if first < end:
                    parts.append((index, slot, end - first))
                    end = first
                at -= 1
                first, index, slot, _, _ = young[at]
            parts.append((index, slot + start - first, end - start))
            parts.reverse()
            return parts
        found = self.plain_from(start)
        if found is None:
            return None
        index, slot, stop = found
        return [(index, slot, min(stop, end) - start)]

    def first_since(self, time_ms: int) -> int:
        """First offset stored at or after a log time (`tail` if none). Of what has become one hole
        the time of the first counts: what is live is found in any case.
        """
        at = bisect_left(self._pages, time_ms, key=lambda page: page.time_ms[-1])
        if at < len(self._pages):
            page = self._pages[at]
            return page.first[bisect_left(page.time_ms, time_ms)]
        return next((each[0] for each in self._young if each[3] >= time_ms), self.tail)

    def first_sent_since(self, time_ms: int) -> int:
        """First offset such that everything below it was first sent before a log time: what was
        stored before, and the dead letters behind it, up to the first that is younger.
        """
        at = self.first_since(time_ms)
        while at < self.tail:
            run = self.find(at)
            if not run.features & Feature.AGE:
                return at
            for offset in range(at, run.end):
                if sent_ms(run, offset) >= time_ms:
                    return offset
            at = run.end
        return at

    def first_due_since(self, time_ms: int, start: int, end: int) -> int:
        """First offset of [start, end) that was not due before a log time, delayed or not; `end`
        if there is none.
        """
        while start < end:
            run = self.find(start)
            for offset in range(start, min(run.end, end)):
                if run.time_ms + run.value(Feature.DELAY, offset) >= time_ms:
                    return offset
                if not run.features & Feature.DELAY:
                    break
            start = run.end
        return end

    def stretches(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """(log index, first slot, count, bytes) of [start, end), clipped to what is there. Bytes of
        a part of a run are its share of the run's.
        """
        start = max(start, self.head)
        end = min(end, self.tail)
        while start < end:
            first, behind, index, slot, size = self._whole(start)
            stop = min(end, behind)
            if stop - start != behind - first and size:
                size = share_of(size, behind - first, start - first, stop - first)
            yield index, slot + start - first, stop - start, size
            start = stop

    def _whole(self, offset: int) -> tuple[int, int, int, int, int]:
        """(first offset, end, log index, first slot, bytes) of the run of an offset in
        [head, tail).
        """
        young = self._young
        if young and offset >= young[0][0]:
            at = bisect_right(young, (offset + 1,)) - 1
            first, index, slot, _, size = young[at]
            end = young[at + 1][0] if at + 1 < len(young) else self.tail
            return first, end, index, slot, size
        at = bisect_right(self._firsts, offset) - 1
        page = self._pages[at]
        run = bisect_right(page.first, offset) - 1
        index, slot = page.index[run], page.slot[run]
        if page.features[run] & Feature.ORIGIN_INDEX:
            index = page.columns[Feature.ORIGIN_INDEX][page.extra[run]]
            slot = page.columns[Feature.ORIGIN_SLOT][page.extra[run]]
        return page.first[run], self._end(at, run), index, slot, page.size[run]

    def bytes_between(self, start: int, end: int) -> int:
        """Bytes of [start, end), clipped to what is there: whole pages at a time."""
        start, end = max(start, self.head), min(end, self.tail)
        total = 0
        for at in range(bisect_left(self._firsts, start), len(self._pages)):
            page, first = self._pages[at], self._firsts[at]
            stop = self._end(at, len(page.first) - 1)
            if stop > end:
                break
            total += sum([each[3] for each in self.stretches(start, first)]) + sum(page.size)
            start = stop
        return total + sum([each[3] for each in self.stretches(start, end)])

    def entries(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """(log index, count) of [start, end), clipped to what is there: `stretches` for those who
        want all of a long index, whole pages at a time.
        """
        start, end = max(start, self.head), min(end, self.tail)
        for at in range(bisect_left(self._firsts, start), len(self._pages)):
            page, first = self._pages[at], self._firsts[at]
            stop = self._end(at, len(page.first) - 1)
            if stop > end:
                break
            if not any(page.features):
                yield from ((each[0], each[2]) for each in self.stretches(start, first))
                yield from zip(
                    page.index, map(sub, (*page.first[1:], stop), page.first), strict=True
                )
                start = stop
        yield from ((each[0], each[2]) for each in self.stretches(start, end))

    def offsets_of(self, index: int) -> Iterator[tuple[int, int, int]]:
        """(first slot, count, first offset) of each run that lies in log entry `index`."""
        at = bisect_left(self._pages, index, key=lambda page: page.index[-1])
        while at < len(self._pages) and self._pages[at].index[0] <= index:
            page = self._pages[at]
            run = bisect_left(page.index, index)
            while run < len(page.index) and page.index[run] == index:
                first = page.first[run]
                if not page.features[run] & _NOT_HERE:
                    yield page.slot[run], self._end(at, run) - first, first
                run += 1
            at += 1
        ends = [*[first for first, *_ in self._young[1:]], self.tail]
        for (first, entry, slot, _, _), end in zip(self._young, ends, strict=False):
            if entry == index:
                yield slot, end - first, first
        for offset in self._origins.offsets_of(index) if self._origins is not None else ():
            yield self.find(offset).slot, 1, offset

    # --- Shrinking --------------------------------------------------------------------------

    def drop_below(self, offset: int) -> None:
        """Forget what lies wholly below `offset`: pages, and young runs behind no page. The only
        page stays while it is short.
        """
        pages = self._pages
        if pages:
            if len(pages) == 1 and len(pages[0].first) < DEAD_RUNS_KEPT:
                return
            at = 0
            while at < len(pages) and self._end(at, len(pages[at].first) - 1) <= offset:
                at += 1
            if at:
                del pages[:at], self._firsts[:at]
                if self._origins is not None:
                    self._origins.drop_below(self.head)
            if pages:
                return
        young = self._young
        if not young:
            return
        if offset >= self.tail:
            young.clear()
        elif len(young) > 1 and young[1][0] <= offset:
            del young[: bisect_right(young, (offset + 1,)) - 1]

    def take_front(self, start: int, end: int, taken: dict[int, int]) -> int:
        """Forget [start, end), below which all is forgotten, if it lies in young runs, and count
        the messages of each log entry in `taken`; their bytes. -1 if any of it lies elsewhere: then
        nothing is done (hot).
        """
        young = self._young
        if self._pages or not young or start < young[0][0] or end > self.tail:
            return -1
        total = 0
        while True:
            first, index, _, _, size = young[0]
            stop = young[1][0] if len(young) > 1 else self.tail
            if start >= stop:
                return -1
            if end < stop:
                taken[index] = taken.get(index, 0) + end - start
                if size:
                    size = share_of(size, stop - first, start - first, end - first)
                return total + size
            taken[index] = taken.get(index, 0) + stop - start
            if start > first and size:
                size = share_of(size, stop - first, start - first, stop - first)
            total += size
            del young[0]
            if end == stop:
                return total
            start = stop

    # --- Sweeping, snapshots ----------------------------------------------------------------

    def pages(self) -> list[RunPage]:
        """The pages that are kept, in order."""
        return list(self._pages)

    def young(self) -> list[YoungRun]:
        """The runs behind them."""
        return list(self._young)

    @property
    def page_count(self) -> int:
        """Pages kept."""
        return len(self._pages)

    def full_pages(self, offset: int, pages_max: int) -> tuple[list[RunPage], int, int]:
        """Up to so many full pages from the one of an offset in [head, tail) on, and the offsets
        [start, end) that they cover.
        """
        at = bisect_right(self._firsts, offset) - 1
        stop = min(at + pages_max, len(self._pages) - 1)
        pages = self._pages[at:stop] if at >= 0 else []
        return (pages, self._firsts[at], self._firsts[stop]) if pages else ([], offset, offset)

    def whole_pages(self, start: int, end: int) -> list[RunPage]:
        """The full pages that cover offsets [start, end); none if none begin and end there."""
        low, high = bisect_left(self._firsts, start), bisect_left(self._firsts, end)
        if not low < high < len(self._firsts) or self._firsts[low] != start:
            return []
        return self._pages[low:high] if self._firsts[high] == end else []

    def replace(self, start: int, end: int, pages: list[RunPage]) -> None:
        """Put other pages that cover the same offsets in the place of `whole_pages`."""
        low, high = bisect_left(self._firsts, start), bisect_left(self._firsts, end)
        self._pages[low:high] = pages
        self._firsts[low:high] = [page.first[0] for page in pages]
        if self._origins:
            self._origins.drop_within(
                [
                    (first, self._end(at, run))
                    for at in range(low, low + len(pages))
                    for run, first in enumerate(self._pages[at].first)
                    if self._pages[at].features[run] & Feature.HOLE
                ]
            )

    def restore(self, pages: list[RunPage], young: list[YoungRun], tail: int) -> None:
        """Become the index of these."""
        self.tail = tail
        self.delays = self.ttls = self.aged = False
        self._pages = _NO_PAGES
        self._firsts = _NO_FIRSTS
        self._young = young or _NO_YOUNG
        self._origins = None
        self.restore_more(pages)

    def restore_more(self, pages: list[RunPage]) -> None:
        """Take on further pages below the tail."""
        if not pages:
            return
        self._pages = [*self._pages, *pages]
        self._firsts = [*self._firsts, *[page.first[0] for page in pages]]
        self.long = len(self._pages) > LONG_PAGES
        features = {bits for page in pages for bits in page.features}
        self.delays = self.delays or any(bits & Feature.DELAY for bits in features)
        self.ttls = self.ttls or any(bits & Feature.TTL for bits in features)
        self.aged = self.aged or any(bits & Feature.AGE for bits in features)
        for page in pages:
            for run, bits in enumerate(page.features):
                if bits & Feature.ORIGIN_INDEX:
                    origin = page.columns[Feature.ORIGIN_INDEX][page.extra[run]]
                    self._note_origin(origin, page.first[run])
