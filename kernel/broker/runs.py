"""Index of a queue: where its messages lie in the log, by runs.

A run is a stretch of offsets whose messages are consecutive slots of one Raft entry: what one
batch brought to the queue. One run costs 34 bytes whatever its length, so that the index of a
busy queue is small and appending to it costs nothing per message; the worst case, one message an
entry, is 34 bytes a message (ADR 0004).

    pages                                          young runs
    [ 256 runs ] [ 256 runs ] [ up to 256 runs ]   (first, log index, slot, time ms) up to 16
    head                                                                                  tail

    page: up to 256 runs in columns
    first offset u64 | log index u64 | log time ms u64 | first slot u32 | features u16 | extra u32

New runs are rows of their own, and go into a page 16 at a time: what dies young, as in a queue
that is drained as fast as it is filled, never costs more than one tuple.

Messages with a TTL, a delay, a priority, an ordering key or a tag make a run with `features`. The
values of such runs stand in further columns of the page, one per feature that any of its runs has,
message by message; `extra` is where the run's values begin in each:

    priority u8 | ttl ms u32 | delay ms u32 | key hash u64 | tag hash u32
    origin index u64 | origin slot u32 | size u32

The origin says where a message lies that was committed after the entry that brought it (a half
message): its run stands in the order of the commit, alone, and `late` finds it by its origin.

Full pages never change. Pages are dropped from the front as the queue's messages die.
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
YOUNG_RUNS_MAX = 16
"""Runs kept as rows, of some 130 bytes each: more would save no time worth the memory."""
DEAD_RUNS_KEPT = 16
"""The only page of a queue, all of it dead, is kept while it has fewer runs: a queue that is filled
and drained by single messages with features makes a new page for every sixteenth, and an idle one
keeps 0.5 KB.
"""
U32_MAX = (1 << 32) - 1
"""TTLs and delays are clipped to it: 49.7 days, above the longest that any protocol allows (40
days for a delay); a longer TTL counts as that long."""


COPY = 1 << 15
"""Bit of a run beside its features: its messages have a destination before this one, by which
they are counted as published (`usage`). Stands in commands only, never in a page."""


LARGE = 1 << 14
"""Another: one of its messages takes more than one unit (`usage`); the leader has looked."""


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
)
COLUMN_KINDS = {feature: kind for feature, kind, _ in _COLUMNS}

_PLAIN = bytes(28)
_DETAILS = struct.Struct("<QQQI")


def features_of(header: bytes) -> int:
    """Features of one message, from the first bytes of its slot (hot: nearly always 0)."""
    plain = (1 if header[2] else 0) | (32 if header[3] & Flag.DEDUPLICATE else 0)
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

    def add_run(self, first: int, index: int, time_ms: int, slot: int, features: int) -> None:
        """Append one run, whose values come next (`add_values`)."""
        self.first.append(first)
        self.index.append(index)
        self.time_ms.append(time_ms)
        self.slot.append(slot)
        self.features.append(features)
        self.extra.append(self.values)

    def add_runs(self, runs: Sequence[YoungRun]) -> None:
        """Append runs without features."""
        first, index, slot, time_ms = zip(*runs, strict=True)
        self.first.extend(first)
        self.index.extend(index)
        self.time_ms.extend(time_ms)
        self.slot.extend(slot)
        self.features.extend([0] * len(runs))
        self.extra.extend([self.values] * len(runs))

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


YoungRun = tuple[int, int, int, int]
"""(first offset, log index, slot, log time ms) of a run without features."""


class RunIndex:
    """Runs of one queue in offset order, covering [head, tail)."""

    __slots__ = ("_firsts", "_late", "_pages", "_young", "delays", "tail", "ttls")

    def __init__(self, tail: int = 0) -> None:
        self.tail = tail
        self.delays = False
        """Whether any message ever came with a delay."""
        self.ttls = False
        """Whether any message ever came with a TTL."""
        self._pages: list[RunPage] = []
        self._firsts: list[int] = []
        self._young: list[YoungRun] = []
        """The last runs, behind all pages."""
        self._late = LateIndex()

    @property
    def head(self) -> int:
        """Lowest offset that can still be found (`tail` if none)."""
        return self._firsts[0] if self._firsts else self._young_first()

    def _young_first(self) -> int:
        """Offset at which the pages end."""
        return self._young[0][0] if self._young else self.tail

    # --- Growing ----------------------------------------------------------------------------

    def append(self, index: int, slot: int, count: int, time_ms: int) -> int:
        """Add `count` messages without features: slots from `slot` on of log entry `index`; returns
        the offset of the first (hot).
        """
        first = self.tail
        self.tail = first + count
        young = self._young
        if young:
            last = young[-1]
            if last[1] == index and last[2] + first - last[0] == slot:
                return first
            if len(young) == YOUNG_RUNS_MAX:
                self._age()
        young.append((first, index, slot, time_ms))
        return first

    def append_with(
        self, index: int, slot: int, count: int, time_ms: int, columns: dict[int, array[int]]
    ) -> int:
        """Add `count` messages with features, whose values are in `columns`."""
        self._age()
        first = self.tail
        self.tail = first + count
        page = self._page_for_more(first)
        page.add_run(first, index, time_ms, slot, sum(columns))
        self.delays = self.delays or Feature.DELAY in columns
        self.ttls = self.ttls or Feature.TTL in columns
        page.add_values(count, columns)
        if Feature.ORIGIN_INDEX in columns:
            self._late.add(columns[Feature.ORIGIN_INDEX][0], first)
        return first

    def _age(self) -> None:
        """Move the young runs into pages."""
        young = self._young
        while young:
            page = self._page_for_more(young[0][0])
            some = young[: RUNS_PER_PAGE - len(page.first)]
            page.add_runs(some)
            del young[: len(some)]

    def _page_for_more(self, first: int) -> RunPage:
        """The last page if it has room, or a new one that begins at offset `first`."""
        if not self._pages or len(self._pages[-1].first) == RUNS_PER_PAGE:
            self._pages.append(RunPage())
            self._firsts.append(first)
        return self._pages[-1]

    # --- Looking up -------------------------------------------------------------------------

    def _end(self, at: int, run: int) -> int:
        """Offset behind the last message of a run in a page."""
        page = self._pages[at]
        if run + 1 < len(page.first):
            return page.first[run + 1]
        return self._firsts[at + 1] if at + 1 < len(self._firsts) else self._young_first()

    def find(self, offset: int) -> Run:
        """The rest of the run of an offset in [head, tail). Raises IndexError outside."""
        if not self.head <= offset < self.tail:
            raise IndexError(f"offset {offset} is outside [{self.head}, {self.tail})")
        young = self._young
        if young and offset >= young[0][0]:
            at = bisect_right(young, (offset + 1,)) - 1
            first, index, slot, time_ms = young[at]
            end = young[at + 1][0] if at + 1 < len(young) else self.tail
            return Run(offset, end, index, slot + offset - first, time_ms, 0, _NO_COLUMNS, 0)
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
        if young:
            first, index, slot, _ = young[-1]
            if offset >= first:
                return index, slot + offset - first, self.tail
            if offset >= young[0][0]:
                at = bisect_right(young, (offset + 1,)) - 1
                first, index, slot, _ = young[at]
                return index, slot + offset - first, young[at + 1][0]
        at = bisect_right(self._firsts, offset) - 1
        page = self._pages[at]
        firsts = page.first
        run = bisect_right(firsts, offset) - 1
        if page.features[run]:
            return None
        return page.index[run], page.slot[run] + offset - firsts[run], self._end(at, run)

    def first_since(self, time_ms: int) -> int:
        """First offset stored at or after a log time (`tail` if none)."""
        at = bisect_left(self._pages, time_ms, key=lambda page: page.time_ms[-1])
        if at < len(self._pages):
            page = self._pages[at]
            return page.first[bisect_left(page.time_ms, time_ms)]
        return next((first for first, _, _, stored in self._young if stored >= time_ms), self.tail)

    def stretches(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """(log index, first slot, count) of [start, end), clipped to what is there."""
        start = max(start, self.head)
        end = min(end, self.tail)
        while start < end:
            plain = self.plain_from(start)
            if plain is None:
                found = self.find(start)
                plain = found.index, found.slot, found.end
            stop = min(end, plain[2])
            yield plain[0], plain[1], stop - start
            start = stop

    def offsets_of(self, index: int) -> Iterator[tuple[int, int, int]]:
        """(first slot, count, first offset) of each run that lies in log entry `index`."""
        at = bisect_left(self._pages, index, key=lambda page: page.index[-1])
        while at < len(self._pages) and self._pages[at].index[0] <= index:
            page = self._pages[at]
            run = bisect_left(page.index, index)
            while run < len(page.index) and page.index[run] == index:
                first = page.first[run]
                if not page.features[run] & Feature.ORIGIN_INDEX:
                    yield page.slot[run], self._end(at, run) - first, first
                run += 1
            at += 1
        ends = [*[first for first, _, _, _ in self._young[1:]], self.tail]
        for (first, entry, slot, _), end in zip(self._young, ends, strict=False):
            if entry == index:
                yield slot, end - first, first
        for offset in self._late.offsets_of(index):
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
                if self._late:
                    self._late.drop_below(self.head)
            if pages:
                return
        young = self._young
        if offset >= self.tail:
            young.clear()
        elif len(young) > 1 and young[1][0] <= offset:
            del young[: bisect_right(young, (offset + 1,)) - 1]

    def take_front(self, start: int, end: int) -> int:
        """Forget [start, end), below which all is forgotten, if it lies in one young run; the log
        index of its entry, or 0 if it lies anywhere else: then nothing is done (hot).
        """
        young = self._young
        if self._pages or not young:
            return 0
        first, index, _, _ = young[0]
        stop = young[1][0] if len(young) > 1 else self.tail
        if start < first or end > stop:
            return 0
        if end == stop:
            del young[0]
        return index

    # --- Snapshots --------------------------------------------------------------------------

    def pages(self) -> list[RunPage]:
        """The pages that are kept, in order."""
        return list(self._pages)

    def young(self) -> list[YoungRun]:
        """The runs behind them."""
        return list(self._young)

    def restore(self, pages: list[RunPage], young: list[YoungRun], tail: int) -> None:
        """Become the index of these."""
        self.tail = tail
        self.delays = self.ttls = False
        self._pages = []
        self._firsts = []
        self._young = young
        self._late = LateIndex()
        self.restore_more(pages)

    def restore_more(self, pages: list[RunPage]) -> None:
        """Take on further pages below the tail."""
        self._pages += pages
        self._firsts += [page.first[0] for page in pages]
        features = {bits for page in pages for bits in page.features}
        self.delays = self.delays or any(bits & Feature.DELAY for bits in features)
        self.ttls = self.ttls or any(bits & Feature.TTL for bits in features)
        for page in pages:
            for run, bits in enumerate(page.features):
                if bits & Feature.ORIGIN_INDEX:
                    origin = page.columns[Feature.ORIGIN_INDEX][page.extra[run]]
                    self._late.add(origin, page.first[run])
