"""`lost/GGGG-INDEX.entry`: the bytes of an entry that does not read, for whoever wants to try.

They are those of the record as they stand in its segment, header and all (docs/formats.md), which
will be removed some day; with 0xFF for what the disk does not read, and no file if that is all.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...common.ports import Disk
from ..format.files import replace_file, segment_name
from ..format.meta import META_NAME
from ..format.record import ENTRIES, HEADER_BYTES
from ..format.segment import Segment
from ..format.segment_reader import SECTOR_BYTES, SegmentReader
from ..hard_read import Stretch
from ..locations import pack_position
from .read import ReadEntry

LOST_DIRECTORY = "lost"


def lost_name(group: int, index: int, ending: str) -> str:
    """A file about a lost entry."""
    return f"{LOST_DIRECTORY}/{group:04x}-{index:016x}.{ending}"


class AsideJob:
    """Keeps an entry's bytes. `run` belongs to a thread; then `Journal.set_aside_done`."""

    def __init__(
        self,
        disk: Disk,
        seed: int,
        entry: tuple[int, int],
        place: tuple[Segment, int, int] | None,
    ) -> None:
        """`place`: segment, offset and length; None if it is in no segment."""
        self._disk = disk
        self._seed = seed
        self.group, self.index = entry
        self.segment: Segment | None = None
        self.offset = self._length = 0
        if place is not None:
            self.segment, self.offset, self._length = place
            self.segment.readers += 1
        self.entry: ReadEntry | None = None
        """It reads after all: the first time the disk, or the memory, had a bad moment."""
        self._record = self.content = b""
        """What stands in the place of its body."""
        self.unread: Sequence[Stretch] = ()
        """What of the record the disk does not read: there 0xFF stands in its place."""

    def done(self) -> None:
        """It has run, or failed: the segment may go."""
        if self.segment is not None:
            self.segment.readers -= 1

    def look(self) -> None:
        """Thread: one read. OSError. May be done again."""
        if self.segment is None:
            return
        number = self.segment.number
        file = self._disk.open(segment_name(number))
        try:
            reader = SegmentReader(file, self.offset + self._length, self._seed, self._length)
            header = reader.record(self.offset)
            content = reader.raw(self.offset, self._length)
            unread = reader.unread(self.offset, self._length)
        finally:
            file.close()
        self.unread = [(begin - self.offset, end - self.offset) for begin, end in unread]
        self._record = content
        self.content = content[HEADER_BYTES:]
        asked = (self.group, self.index)
        found = (header.group, header.log_index) if header is not None else None
        if header is not None and header.type in ENTRIES and found == asked:
            position = pack_position(number, self.offset)
            self.entry = ReadEntry(header, position, self.content)

    def run(self) -> None:
        """Thread: one read, and a file made durable if it still does not read. OSError, also of a
        disk that reads nothing at all any more: then this entry is the least of it.
        """
        self.look()
        if self.segment is None or self.entry is not None:
            return
        if self.unread:
            self._check_that_it_reads()
        if self.unread_bytes < self._length:
            replace_file(self._disk, lost_name(self.group, self.index, "entry"), self._record)

    def is_unread(self, offset: int, length: int) -> bool:
        """Whether the disk does not read all of these bytes of the body."""
        at = offset + HEADER_BYTES
        return any(begin < at + length and at < end for begin, end in self.unread)

    @property
    def unread_bytes(self) -> int:
        """So many bytes of the record does the disk not read."""
        return sum(end - begin for begin, end in self.unread)

    @property
    def reason(self) -> str:
        """Why it is given up, in words."""
        if self.segment is None:
            return "it is in no segment that is there and reads"
        if not self.unread:
            return "its record does not match its sum"
        if self.unread_bytes >= self._length:
            return "the disk reads nothing of it (EIO): nothing is kept"
        return (
            f"the disk does not read {self.unread_bytes} of its {self._length} bytes (EIO), which "
            "are 0xFF in what is kept"
        )

    def _check_that_it_reads(self) -> None:
        """OSError: the disk has gone away, and not only some of its sectors."""
        file = self._disk.open(META_NAME)
        try:
            file.forget_cached()
            file.pread(SECTOR_BYTES, 0)
        finally:
            file.close()
