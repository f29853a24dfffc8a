"""Index of a queue: where its messages lie in the log, by runs.

A run is a stretch of offsets whose messages are consecutive slots of one Raft entry: what one
batch brought to the queue. One run costs 34 bytes whatever its length, so that the index of a
busy queue is small and appending to it costs nothing per message; the worst case, one message an
entry, is 34 bytes a message (ADR 0004).

    page: up to 256 runs in columns
    first offset u64 | log index u64 | log time ms u64 | first slot u32 | features u16 | extra u32

Messages with a TTL, a delay, a priority, an ordering key or a tag make a run with `features`. The
values of such runs stand in further columns of the page, one per feature that any of its runs has,
message by message; `extra` is where the run's values begin in each:

    priority u8 | ttl ms u32 | delay ms u32 | key hash u64 | tag hash u32
    origin index u64 | origin slot u32 | size u32 | age s u32

The origin says where a message lies that was committed after the entry that brought it (a half
message): its run stands in the order of the commit, alone, and `late` finds it by its origin.

Full pages never change. Pages are dropped from the front as the queue's messages die. Behind one
that nobody takes they are swept (`sweep`): dead runs that stand side by side become one, a **hole**
with the index and time of the first of them, and what is left moves together into new pages.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import msgspec

from ..message import HEADER, Flag
from .late import LateIndex

RUNS_PER_PAGE = 256
DEAD_RUNS_KEPT = 16
"""The only page of a queue that is empty is kept while it has fewer runs: a queue that is filled
and drained by single messages makes a new page for every sixteenth, and an idle one keeps 0.5 KB.
"""
LONG_PAGES = 4
"""An index of more pages is worth a look by the sweep."""

U32_MAX = (1 << 32) - 1
"""TTLs and delays are clipped to it: 49.7 days, above the longest that any protocol allows (40
days for a delay); a longer TTL counts as that long."""


COPY = 1 << 15
"""Bit of a run beside its features: its messages have a destination before this one, by which
they are counted as published (`usage`). Stands in commands only, never in a page."""


LARGE = 1 << 14
"""Another: one of its messages takes more than one unit (`usage`); the leader has looked."""


CLASS_1, CLASS_2 = 1 << 12, 1 << 13
"""Further ones: the class that its messages were published with (`message.Flag`), for `usage`."""

CLASSES = CLASS_1 | CLASS_2
CLASS_SHIFT = 12

_CLASS_FLAGS = int(Flag.CLASS_1 | Flag.CLASS_2)
_FLAG_SHIFT = 8
"""From a flag of a header to the bit of a run."""


class Feature:
    """What the messages of a run may have beyond the plain: bits, as plain integers, since `&` with
    a member of an IntFlag costs as much as appending the run.
    """

    PRIORITY = 1
    TTL = 2
    DELAY = 4
    KEY = 8
    TAG = 16
    DEDUPLICATE = 32
    """Asks for the topic's deduplication window; stands in commands only, never in a page."""
    ORIGIN_INDEX = 64
    """The message lies in an earlier log entry than the one that gave it its offset."""
    ORIGIN_SLOT = 128
    SIZE = 256
    """Bytes of the body, for topics that are limited by them."""
    AGE = 512
    """Seconds that a dead letter had been stored elsewhere when it came: retention counts from the
    first send."""
    HOLE = 1024
    """No message at all: offsets that every group is done with."""


_COLUMNS: tuple[tuple[int, str, int], ...] = (
    # feature, array type, position in the header's fields
    (Feature.PRIORITY, "B", 2),
    (Feature.TTL, "I", 10),
    (Feature.DELAY, "I", 11),
    (Feature.KEY, "Q", 12),
    (Feature.TAG, "I", 13),
    (Feature.ORIGIN_INDEX, "Q", -1),
    (Feature.ORIGIN_SLOT, "I", -1),
    (Feature.SIZE, "I", 4),
    (Feature.AGE, "I", 14),
)
COLUMN_KINDS = {feature: kind for feature, kind, _ in _COLUMNS}

_PLAIN = bytes(28)
_DETAILS = struct.Struct("<QQQI")


def class_of(flags: int) -> int:
    """Bits of the class, from a header's flags."""
    return (flags & _CLASS_FLAGS) << _FLAG_SHIFT


def features_of(header: bytes) -> int:
    """Features of one message, from the first bytes of its slot (hot: nearly always 0)."""
    flags = header[3]
    plain = (1 if header[2] else 0) | class_of(flags)
    if flags & Flag.DEDUPLICATE:
        plain |= 32
    if header[40:68] == _PLAIN:
        return plain
    ttl, delay, key, tag = _DETAILS.unpack_from(header, 40)
    return plain | (2 if ttl else 0) | (4 if delay else 0) | (8 if key else 0) | (16 if tag else 0)


def columns_of(features: int, entry: bytes, bounds: Sequence[int]) -> dict[int, array[int]]:
    """Columns of a run with features: `bounds` are where its slots begin within `entry`."""
    rows = [HEADER.unpack_from(entry, at) for at in bounds]
    columns: dict[int, array[int]] = {}
    for feature, kind, field in _COLUMNS:
        if features & feature and field >= 0:
            columns[feature] = array(kind, [min(row[field], _LIMITS[kind]) for row in rows])
    return columns


_LIMITS = {"B": 255, "I": U32_MAX, "Q": (1 << 64) - 1}


class Run:
    """A run, or the rest of one from the offset asked for. Never changed; no frozen dataclass,
    whose making takes three times as long (hot).
    """

    __slots__ = ("at", "columns", "end", "features", "first", "index", "slot", "time_ms")

    def __init__(
        self,
        first: int,
        end: int,
        index: int,
        slot: int,
        time_ms: int,
        features: int,
        columns: dict[int, array[int]],
        at: int,
    ) -> None:
        self.first = first
        """First offset; the further ones follow on up to `end` (exclusive)."""
        self.end = end
        self.index = index
        self.slot = slot
        """Slot of `first` in log entry `index`."""
        self.time_ms = time_ms
        self.features = features
        self.columns = columns
        """Columns of the page."""
        self.at = at
        """Position of `first` in them."""

    def value(self, feature: int, offset: int) -> int:
        """A message's value of a feature; 0 if it has none."""
        if not self.features & feature:
            return 0
        return self.columns[feature][self.at + offset - self.first]


def sent_ms(run: Run, offset: int) -> int:
    """Log time at which a message was first sent: a dead letter's is that of its first queue."""
    return run.time_ms - 1_000 * run.value(Feature.AGE, offset)


class RunPage:
    """Columns of up to RUNS_PER_PAGE runs. A run ends where the next one begins."""

    __slots__ = ("columns", "extra", "features", "first", "index", "slot", "time_ms", "values")

    def __init__(self) -> None:
        self.first = array("Q")
        self.index = array("Q")
        self.time_ms = array("Q")
        self.slot = array("I")
        self.features = array("H")
        self.extra = array("I")
        self.columns: dict[int, array[int]] = _NO_COLUMNS
        """Values of the runs with features, by feature."""
        self.values = 0
        """Length of every column."""

    def add_hole(self, first: int, index: int, time_ms: int) -> None:
        """Append a hole: see the module's head."""
        self.first.append(first)
        self.index.append(index)
        self.time_ms.append(time_ms)
        self.slot.append(0)
        self.features.append(Feature.HOLE)
        self.extra.append(self.values)

    def add_runs(self, page: RunPage, start: int, stop: int, end: int) -> None:
        """Append runs [start, stop) of another page, the last of which ends at offset `end`."""
        for own, each in zip(self._plain(), page._plain(), strict=True):
            own.extend(each[start:stop])
        if not page.columns:
            return
        for run in range(start, stop):
            here = len(self.extra) - stop + run
            features = page.features[run]
            self.extra[here] = self.values
            if features and features != Feature.HOLE:
                at = page.extra[run]
                to = at + (page.first[run + 1] if run + 1 < stop else end) - page.first[run]
                own_values = {
                    feature: page.columns[feature][at:to]
                    for feature in COLUMN_KINDS
                    if features & feature
                }
                self.add_values(to - at, own_values)

    def add_values(self, count: int, columns: dict[int, array[int]]) -> None:
        """Append the values of a run's `count` messages to the page's columns."""
        if not self.columns:
            self.columns = {}
        for feature, kind, _ in _COLUMNS:
            if feature in columns and feature not in self.columns:
                self.columns[feature] = array(kind, bytes(self.values * array(kind).itemsize))
            column = self.columns.get(feature)
            if column is not None:
                column.extend(columns.get(feature) or array(kind, [0]) * count)
        self.values += count

    def dump(self) -> bytes:
        """The page as `load` takes it."""
        plain = [each.tobytes() for each in self._plain()]
        columns = {feature: column.tobytes() for feature, column in self.columns.items()}
        return msgspec.msgpack.encode((plain, columns))

    def _plain(self) -> tuple[array[int], ...]:
        return (self.first, self.index, self.time_ms, self.slot, self.features, self.extra)

    @staticmethod
    def load(data: bytes) -> RunPage:
        """A page from `dump`. Raises ValueError (msgspec's included) if it is none."""
        plain, columns = _decoder.decode(data)
        page = RunPage()
        for column, each in zip(page._plain(), plain, strict=True):
            column.frombytes(each)
        if columns:
            kinds = {feature: kind for feature, kind, _ in _COLUMNS}
            page.columns = {
                feature: array(kinds[feature], each) for feature, each in columns.items()
            }
            page.values = len(next(iter(page.columns.values())))
        return page


_NO_COLUMNS: dict[int, array[int]] = {}
"""Shared by the pages without any; never changed."""

_decoder = msgspec.msgpack.Decoder(tuple[list[bytes], dict[int, bytes]])


_NOT_HERE = Feature.ORIGIN_INDEX | Feature.HOLE

_NO_PAGES: list[RunPage] = []
_NO_FIRSTS: list[int] = []
"""Shared by the queues that have never had a message; never changed."""


class RunIndex:
    """Runs of one queue in offset order, covering [head, tail)."""

    __slots__ = ("_firsts", "_late", "_pages", "delays", "long", "tail", "ttls")

    def __init__(self, tail: int = 0) -> None:
        self.tail = tail
        self.delays = False
        """Whether any message ever came with a delay."""
        self.ttls = False
        """Whether any message ever came with a TTL."""
        self.long = False
        """Whether it has more than LONG_PAGES pages, or had when it got the last one."""
        self._pages = _NO_PAGES
        self._firsts = _NO_FIRSTS
        self._late: LateIndex | None = None

    @property
    def head(self) -> int:
        """Lowest offset that can still be found (`tail` if none)."""
        return self._firsts[0] if self._firsts else self.tail

    def append(
        self,
        index: int,
        slot: int,
        count: int,
        time_ms: int,
        columns: dict[int, array[int]] | None = None,
    ) -> int:
        """Add `count` messages: slots from `slot` on of log entry `index`; returns the offset of
        the first.
        """
        first = self.tail
        self.tail = first + count
        page = self._pages[-1] if self._pages else None
        if (
            page is not None
            and columns is None
            and not page.features[-1]
            and page.index[-1] == index
            and page.slot[-1] + first - page.first[-1] == slot
        ):
            return first
        if page is None or len(page.first) == RUNS_PER_PAGE:
            page = RunPage()
            if self._pages is _NO_PAGES:
                self._pages, self._firsts = [], []
            self._pages.append(page)
            self._firsts.append(first)
            self.long = len(self._pages) > LONG_PAGES
        page.first.append(first)
        page.index.append(index)
        page.time_ms.append(time_ms)
        page.slot.append(slot)
        page.features.append(sum(columns) if columns else 0)
        page.extra.append(page.values)
        if columns:
            self.delays = self.delays or Feature.DELAY in columns
            self.ttls = self.ttls or Feature.TTL in columns
            page.add_values(count, columns)
            if Feature.ORIGIN_INDEX in columns:
                self._came_late(columns[Feature.ORIGIN_INDEX][0], first)
        return first

    def _came_late(self, origin: int, offset: int) -> None:
        if self._late is None:
            self._late = LateIndex()
        self._late.add(origin, offset)

    def _end(self, at: int, run: int) -> int:
        """Offset behind the last message of a run."""
        page = self._pages[at]
        if run + 1 < len(page.first):
            return page.first[run + 1]
        return self._firsts[at + 1] if at + 1 < len(self._firsts) else self.tail

    def find(self, offset: int) -> Run:
        """The rest of the run of an offset in [head, tail). Raises IndexError outside."""
        if not self._firsts or not self._firsts[0] <= offset < self.tail:
            raise IndexError(f"offset {offset} is outside [{self.head}, {self.tail})")
        at = len(self._firsts) - 1
        if offset < self._firsts[at]:
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
        return Run(
            offset,
            firsts[run + 1] if run + 1 < len(firsts) else self._end(at, run),
            index,
            slot,
            page.time_ms[run],
            features,
            page.columns,
            value,
        )

    def plain_from(self, offset: int) -> tuple[int, int, int] | None:
        """(log index, slot, end of the run) of an offset in [head, tail), if its run has no
        features; None if it has (hot: `find` without its object).
        """
        page = self._pages[-1]
        last = page.first[-1]
        if offset >= last:
            if page.features[-1]:
                return None
            return page.index[-1], page.slot[-1] + offset - last, self.tail
        at = bisect_right(self._firsts, offset) - 1
        page = self._pages[at]
        firsts = page.first
        run = bisect_right(firsts, offset) - 1
        if page.features[run]:
            return None
        end = firsts[run + 1] if run + 1 < len(firsts) else self._end(at, run)
        return page.index[run], page.slot[run] + offset - firsts[run], end

    def first_since(self, time_ms: int) -> int:
        """First offset stored at or after a log time (`tail` if none)."""
        at = bisect_left(self._pages, time_ms, key=lambda page: page.time_ms[-1])
        if at == len(self._pages):
            return self.tail
        page = self._pages[at]
        return page.first[bisect_left(page.time_ms, time_ms)]

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

    def stretches(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """(log index, first slot, count) of [start, end), clipped to what is there."""
        if not self._firsts:
            return
        start = max(start, self._firsts[0])
        end = min(end, self.tail)
        while start < end:
            at = bisect_right(self._firsts, start) - 1
            page = self._pages[at]
            firsts = page.first
            run = bisect_right(firsts, start) - 1
            if page.features[run]:
                found = self.find(start)
                stop = min(end, found.end)
                yield found.index, found.slot, stop - start
            else:
                stop = firsts[run + 1] if run + 1 < len(firsts) else self._end(at, run)
                stop = min(end, stop)
                yield page.index[run], page.slot[run] + start - firsts[run], stop - start
            start = stop

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
        for offset in self._late.offsets_of(index) if self._late is not None else ():
            yield self.find(offset).slot, 1, offset

    def drop_below(self, offset: int) -> None:
        """Forget pages that lie wholly below `offset`; the only one stays while it is short."""
        pages = self._pages
        if not pages or (
            len(pages) == 1 and (offset < self.tail or len(pages[0].first) < DEAD_RUNS_KEPT)
        ):
            return
        at = 0
        while at < len(self._pages) and self._end(at, len(self._pages[at].first) - 1) <= offset:
            at += 1
        if at:
            del self._pages[:at], self._firsts[:at]
            if self._late is not None:
                self._late.drop_below(self.head)

    def pages(self) -> list[RunPage]:
        """What is kept, in order."""
        return list(self._pages)

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
        pages = self._pages[at:stop]
        return pages, self._firsts[at], self._firsts[stop] if pages else self._firsts[at]

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
        if self._late:
            self._late.drop_within(
                [
                    (first, self._end(at, run))
                    for at in range(low, low + len(pages))
                    for run, first in enumerate(self._pages[at].first)
                    if self._pages[at].features[run] & Feature.HOLE
                ]
            )

    def restore(self, pages: list[RunPage], tail: int) -> None:
        """Become the index of these pages."""
        self.tail = tail
        self.delays = self.ttls = False
        self._pages = _NO_PAGES
        self._firsts = _NO_FIRSTS
        self._late = None
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
        for page in pages:
            for run, bits in enumerate(page.features):
                if bits & Feature.ORIGIN_INDEX:
                    origin = page.columns[Feature.ORIGIN_INDEX][page.extra[run]]
                    self._came_late(origin, page.first[run])
