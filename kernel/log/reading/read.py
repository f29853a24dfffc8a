"""Reading entries that are no more in memory: up to 1 MiB of a segment at a time, in a thread."""

from __future__ import annotations

from collections.abc import Sequence

from ...common.ports import Disk, File
from ..errors import RecordDamaged, RecordUnread
from ..format.files import segment_name
from ..format.record import ENTRIES, HEADER_BYTES, Header
from ..format.segment import Segment
from ..format.segment_reader import SegmentReader
from ..locations import pack_position

READ_AHEAD_BYTES = 1024 * 1024
"""A reader of old messages wants what follows next; more would flush the cold ring (16 MiB)."""


class ReadEntry:
    """An entry as it was read."""

    __slots__ = ("body", "group", "index", "position", "term")

    def __init__(self, header: Header, position: int, body: bytes) -> None:
        self.group = header.group
        self.index = header.log_index
        self.term = header.term
        self.position = position
        self.body = body


class ReadJob:
    """Reads an entry and what follows it. `run` belongs to a thread; then `Journal.end_read`."""

    __slots__ = (
        "_disk",
        "_length",
        "_offset",
        "_seed",
        "_span",
        "entries",
        "group",
        "index",
        "log",
        "segment",
    )

    def __init__(
        self,
        disk: Disk,
        seed: int,
        segment: Segment,
        entry: tuple[int, int],
        place: tuple[int, int],
        span: int,
        log: bool,
    ) -> None:
        self._disk = disk
        self._seed = seed
        self.segment = segment
        self.group, self.index = entry
        self._offset, self._length = place
        self._span = span
        self.log = log
        """Whether the group's whole log is wanted, or what is held of all groups."""
        self.entries: list[ReadEntry] = []
        """What was read: the entry asked for first, then those behind it."""

    def run(self) -> None:
        """Thread: one open, one read. OSError; RecordDamaged if the entry asked for is not whole,
        RecordUnread if the disk does not read it. May be run again.

        What follows it is a bonus: the first record that does not read ends it.
        """
        own = self._length + 7 & -8
        file = self._disk.open(segment_name(self.segment.number))
        try:
            reader = self._read(file, max(own, self._span), hard=False)
            if not self._has_first:  # perhaps what follows is all that the disk does not read
                reader = self._read(file, own, hard=True)
            if self._has_first:
                return
            unread = reader.unread_at(self._offset)
        finally:
            file.close()
        what = f"entry {self.index} of group {self.group}"
        where = f"segment {self.segment.number} at {self._offset}"
        if unread is not None:
            raise RecordUnread(f"{what} does not read (EIO at {unread}): {where}")
        raise RecordDamaged(f"{what} is damaged: {where}")

    def _read(self, file: File, length: int, *, hard: bool) -> SegmentReader:
        """Read so many bytes."""
        self.entries = []
        reader = SegmentReader(file, self._offset + length, self._seed, length, hard=hard)
        for offset, header in reader.records(self._offset):
            if header.type in ENTRIES:
                position = pack_position(self.segment.number, offset)
                self.entries.append(ReadEntry(header, position, reader.body(offset, header)))
        return reader

    @property
    def _has_first(self) -> bool:
        first = self.entries[0] if self.entries else None
        return first is not None and (first.group, first.index) == (self.group, self.index)


class SliceRead:
    """Reads the next part of a segment for a rewrite. `run` belongs to a thread."""

    __slots__ = ("_disk", "_end", "_number", "_seed", "_stretches", "entries", "next_offset")

    def __init__(
        self, disk: Disk, seed: int, segment: Segment, stretches: Sequence[tuple[int, int]]
    ) -> None:
        """`stretches`: (begin, end) of what to read, in order: records from the first offset to
        the one that reaches the second.
        """
        self._disk = disk
        self._seed = seed
        self._number = segment.number
        self._end = segment.end
        self._stretches = stretches
        self.next_offset = stretches[0][0]
        """Behind what was read."""
        self.entries: list[ReadEntry] = []

    def run(self) -> None:
        """Thread: read it, at least one record of each stretch. RecordDamaged, OSError."""
        file = self._disk.open(segment_name(self._number))
        try:
            for begin, end in self._stretches:
                self._read(file, begin, min(end, self._end))
        finally:
            file.close()

    def _read(self, file: File, begin: int, end: int) -> None:
        self.next_offset = begin
        reader = SegmentReader(file, self._end, self._seed, end - begin)
        for offset, header in reader.records(begin):
            if header.type in ENTRIES:
                position = pack_position(self._number, offset)
                self.entries.append(ReadEntry(header, position, reader.body(offset, header)))
            self.next_offset = offset + header.padded
            if self.next_offset >= end:
                return
        raise _damaged(reader, self._number, self.next_offset)


def _damaged(reader: SegmentReader, segment: int, offset: int) -> RecordDamaged:
    unread = reader.unread_at(offset)
    if unread is not None:
        return RecordUnread(f"segment {segment} at {offset} does not read (EIO at {unread})")
    return RecordDamaged(f"segment {segment} at {offset} is damaged")


def read_body(
    disk: Disk, seed: int, segment: Segment, offset: int, length: int
) -> tuple[Header, bytes]:
    """Blocking read of one record. OSError; RecordDamaged, RecordUnread."""
    file = disk.open(segment_name(segment.number))
    try:
        reader = SegmentReader(file, offset + length, seed, max(length, HEADER_BYTES))
        header = reader.record(offset)
        if header is None or header.type not in ENTRIES:
            raise _damaged(reader, segment.number, offset)
        return header, reader.body(offset, header)
    finally:
        file.close()
