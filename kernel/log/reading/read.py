"""Reading entries that are no more in memory: up to 1 MiB of a segment at a time, in a thread."""

from __future__ import annotations

from collections.abc import Sequence

from ...common.ports import Disk, File
from ..errors import RecordDamaged
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
        """Thread: one open, one read. OSError; RecordDamaged if the entry asked for is not whole.

        What follows it is a bonus: the first record that does not read ends it.
        """
        number = self.segment.number
        file = self._disk.open(segment_name(number))
        try:
            end = self._offset + max(self._length + 7 & -8, self._span)
            reader = SegmentReader(file, end, self._seed, end - self._offset)
            for offset, header in reader.records(self._offset):
                if header.type in ENTRIES:
                    body = reader.body(offset, header)
                    self.entries.append(ReadEntry(header, pack_position(number, offset), body))
        finally:
            file.close()
        first = self.entries[0] if self.entries else None
        if first is None or (first.group, first.index) != (self.group, self.index):
            raise RecordDamaged(
                f"entry {self.index} of group {self.group} is damaged: "
                f"segment {number} at {self._offset}"
            )


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
        """Thread: read it, at least one record of each stretch. OSError, RecordDamaged."""
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
        raise RecordDamaged(f"segment {self._number} at {self.next_offset} is damaged")


def read_body(
    disk: Disk, seed: int, segment: Segment, offset: int, length: int
) -> tuple[Header, bytes]:
    """Blocking read of one record. OSError; RecordDamaged."""
    file = disk.open(segment_name(segment.number))
    try:
        reader = SegmentReader(file, offset + length, seed, max(length, HEADER_BYTES))
        header = reader.record(offset)
        if header is None or header.type not in ENTRIES:
            raise RecordDamaged(f"segment {segment.number} at {offset} is damaged")
        return header, reader.body(offset, header)
    finally:
        file.close()
