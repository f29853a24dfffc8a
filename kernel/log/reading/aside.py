"""`lost/GGGG-INDEX.entry`: the bytes of an entry that does not read, for whoever wants to try.

They are those of the record as they stand in its segment, header and all (docs/formats.md), which
will be removed some day.
"""

from __future__ import annotations

from ...common.ports import Disk
from ..format.files import replace_file, segment_name
from ..format.record import ENTRIES, HEADER_BYTES
from ..format.segment import Segment
from ..format.segment_reader import SegmentReader
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
        self.content = b""
        """What stands in the place of its body."""

    def done(self) -> None:
        """It has run, or failed: the segment may go."""
        if self.segment is not None:
            self.segment.readers -= 1

    def run(self) -> None:
        """Thread: one read, and a file made durable. OSError."""
        if self.segment is None:
            return
        number = self.segment.number
        file = self._disk.open(segment_name(number))
        try:
            end = self.offset + self._length
            header = SegmentReader(file, end, self._seed, self._length).record(self.offset)
            content = file.pread(self._length, self.offset)
        finally:
            file.close()
        self.content = content[HEADER_BYTES:]
        asked = (self.group, self.index)
        found = (header.group, header.log_index) if header is not None else None
        if header is not None and header.type in ENTRIES and found == asked:
            position = pack_position(number, self.offset)
            self.entry = ReadEntry(header, position, self.content)
        else:
            replace_file(self._disk, lost_name(*asked, "entry"), content)
