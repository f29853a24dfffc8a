"""Runs of an index: one as it is read, young ones as rows, up to 256 in the columns of a page.

    page
    first offset u64 | log index u64 | log time ms u64 | first slot u32 | features u16 | extra u32
    size u32

Messages with a TTL, a delay, a priority, an ordering key or a tag make a run with `features`. The
values of such runs stand in further columns of the page, one per feature that any of its runs has,
message by message; `extra` is where the run's values begin in each:

    priority u8 | ttl ms u32 | delay ms u32 | key hash u64 | tag hash u32
    origin index u64 | origin slot u32 | size u32 | age s u32 | long ttl ms u64

`size` is the sum of the messages' bytes, 0 of what was stored before sizes were kept; no message
has one of its own. A page of such runs alone is dumped without it.

Full pages never change (`runs`), and are packed: where each run is one message, which is the worst
case, and has no features, a page takes 16 bytes a run, else up to 38.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import cast

import msgspec

from .features import COLUMN_KINDS, U32_MAX, Feature

RUNS_PER_PAGE = 256

YoungRun = tuple[int, int, int, int, int]
"""(first offset, log index, slot, log time ms, size) of a run without features."""

_KINDS = "QQQIHII"
"""Of the columns of every page, in the order of its dump."""

NO_COLUMNS: dict[int, array[int]] = {}
"""Shared by the pages without any; never changed."""

_ZEROS = {kind: array(kind, bytes(RUNS_PER_PAGE * array(kind).itemsize)) for kind in "HI"}
"""Shared by packed pages; never changed."""

_decoder = msgspec.msgpack.Decoder(tuple[list[bytes], dict[int, bytes]])


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


def share_of(size: int, messages: int, start: int, end: int) -> int:
    """Of the bytes of a run of so many messages, those of its messages [start, end). What is taken
    piece by piece comes to the whole.
    """
    return size * end // messages - size * start // messages


def dumped_young(young: Sequence[YoungRun]) -> list[tuple[int, ...]]:
    """Young runs as they stand in snapshots: without a size if it is 0."""
    return [each if each[4] else each[:4] for each in young]


def young_of(rows: Sequence[tuple[int, ...]]) -> list[YoungRun]:
    """Inverse of `dumped_young`. Raises ValueError."""
    return [_young(*row) for row in rows]


def _young(first: int, index: int, slot: int, time_ms: int, size: int = 0) -> YoungRun:
    return first, index, slot, time_ms, size


def sent_ms(run: Run, offset: int) -> int:
    """Log time at which a message was first sent: a dead letter's is that of its first queue."""
    return run.time_ms - 1_000 * run.value(Feature.AGE, offset)


class RunPage:
    """Columns of up to RUNS_PER_PAGE runs. A run ends where the next one begins."""

    __slots__ = (
        "columns",
        "extra",
        "features",
        "first",
        "index",
        "size",
        "slot",
        "time_ms",
        "values",
    )

    def __init__(self) -> None:
        plain: list[array[int]] = [array(kind) for kind in _KINDS]
        self.first, self.index, self.time_ms, self.slot, self.features, self.extra, self.size = (
            plain
        )
        self.columns: dict[int, array[int]] = NO_COLUMNS
        """Values of the runs with features, by feature."""
        self.values = 0
        """Length of every column."""

    def add_run(
        self, first: int, index: int, time_ms: int, slot: int, features: int, size: int = 0
    ) -> None:
        """Append one run, whose values come next (`add_values`), or a hole: see `runs`."""
        self.first.append(first)
        self.index.append(index)
        self.time_ms.append(time_ms)
        self.slot.append(slot)
        self.features.append(features)
        self.extra.append(self.values)
        self.size.append(min(size, U32_MAX))

    def add_young(self, runs: Sequence[YoungRun]) -> None:
        """Append runs without features."""
        first, index, slot, time_ms, size = zip(*runs, strict=True)
        self.first.extend(first)
        self.index.extend(index)
        self.time_ms.extend(time_ms)
        self.slot.extend(slot)
        self.features.extend([0] * len(runs))
        self.extra.extend([self.values] * len(runs))
        self.size.extend(size)

    def add_runs(self, page: RunPage, start: int, stop: int, end: int) -> None:
        """Append runs [start, stop) of another page, the last of which ends at offset `end`."""
        for own, each in zip(self._plain(), page._plain(), strict=True):
            own.extend(iter(each[start:stop]))  # packed or not
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
        for feature, kind in COLUMN_KINDS.items():
            if feature in columns and feature not in self.columns:
                self.columns[feature] = array(kind, bytes(self.values * array(kind).itemsize))
            column = self.columns.get(feature)
            if column is not None:
                column.extend(columns.get(feature) or array(kind, [0]) * count)
        self.values += count

    def pack(self) -> None:
        """Take less room: the page is full, and never changes any more."""
        first, last = self.first[0], self.first[-1]
        if last - first == len(self.first) - 1:
            # As it is used, a range of numbers and an array of them are the same.
            self.first = cast("array[int]", range(first, last + 1))
        if self.index[-1] < 1 << 32:
            self.index = array("I", self.index.tolist())
        for name, kind in (("slot", "I"), ("features", "H"), ("extra", "I"), ("size", "I")):
            if getattr(self, name) == _ZEROS[kind]:
                setattr(self, name, _ZEROS[kind])

    def dump(self) -> bytes:
        """The page as `load` takes it."""
        plain = [
            array(kind, each).tobytes() for kind, each in zip(_KINDS, self._plain(), strict=True)
        ]
        if not any(self.size):
            del plain[-1]  # as builds wrote it that knew no sizes
        columns = {feature: column.tobytes() for feature, column in self.columns.items()}
        return msgspec.msgpack.encode((plain, columns))

    def _plain(self) -> tuple[array[int], ...]:
        return (
            self.first,
            self.index,
            self.time_ms,
            self.slot,
            self.features,
            self.extra,
            self.size,
        )

    @staticmethod
    def load(data: bytes) -> RunPage:
        """A page from `dump`. Raises ValueError (msgspec's included) if it is none."""
        plain, columns = _decoder.decode(data)
        page = RunPage()
        if len(plain) == len(_KINDS) - 1:
            plain.append(bytes(len(plain[0]) // page.first.itemsize * page.size.itemsize))
        for column, each in zip(page._plain(), plain, strict=True):
            column.frombytes(each)
        if len(page.first) == RUNS_PER_PAGE:
            page.pack()
        if columns:
            page.columns = {
                feature: array(COLUMN_KINDS[feature], each) for feature, each in columns.items()
            }
            page.values = len(next(iter(page.columns.values())))
        return page
