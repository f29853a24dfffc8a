"""Bytes of messages in a queue that is limited by them: sums over the index's size column.

Sizes are those of bodies. Messages that were stored before their topic was limited by bytes have no
size on record and count as nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...api.model import TopicOptions
from .features import Feature
from .run_page import Run
from .runs import RunIndex


def is_sized(options: TopicOptions) -> bool:
    """Whether the sizes of a topic's messages are wanted in the index."""
    return options.bytes_max is not None or options.retention_bytes is not None


def size_of(run: Run, offsets: Sequence[int]) -> int:
    """Bytes of some messages of a run."""
    if not run.features & Feature.SIZE:
        return 0
    column = run.columns[Feature.SIZE]
    shift = run.at - run.first
    if isinstance(offsets, range):
        return sum(column[offsets.start + shift : offsets.stop + shift])
    return sum([column[each + shift] for each in offsets])


def size_at(index: RunIndex, offset: int) -> int:
    """Bytes of one message; 0 if it is gone."""
    if not index.head <= offset < index.tail:
        return 0
    return index.find(offset).value(Feature.SIZE, offset)


def bytes_between(index: RunIndex, start: int, end: int) -> int:
    """Bytes of the messages of [start, end)."""
    total = 0
    at = max(start, index.head)
    while at < end:
        run = index.find(at)
        stop = min(run.end, end)
        total += size_of(run, range(at, stop))
        at = stop
    return total


class SizeWindow:
    """The newest messages of a stream that fit into so many bytes. Asked now and then: each message
    is looked at once when it has come and once when it leaves.
    """

    def __init__(self, index: RunIndex, start: int) -> None:
        self._index = index
        self._start = self._end = max(start, index.head)
        self._bytes = 0

    def first_within(self, bytes_max: int) -> int:
        """The first offset from which on the messages have at most `bytes_max` bytes, or the last
        one if it alone has more.
        """
        index = self._index
        self._bytes += bytes_between(index, self._end, index.tail)
        self._end = index.tail
        while self._bytes > bytes_max and self._start < self._end - 1:
            if self._start < index.head:
                self._start = index.head
                self._bytes = bytes_between(index, self._start, self._end)
                continue
            self._bytes -= size_at(index, self._start)
            self._start += 1
        return self._start
