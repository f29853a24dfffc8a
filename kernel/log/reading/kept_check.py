"""Whether what an install of an earlier run has left is whole, before any of it counts."""

from __future__ import annotations

from collections.abc import Mapping

from ...common.ports import Disk
from ..format.files import segment_name
from ..format.record import RecordType
from ..format.segment import Segment
from ..format.segment_reader import SegmentReader
from ..install import KeptEntries
from ..locations import OFFSET_MASK, SEGMENT_SHIFT

STEP_BYTES = 8 * 1024 * 1024
"""Read in one go: whoever stops the store waits for no more."""


class KeptCheck:
    """Reads every record. `run` belongs to a thread, and is run again until `done`."""

    def __init__(
        self,
        disk: Disk,
        seed: int,
        group: int,
        kept: KeptEntries,
        segments: Mapping[int, Segment],
    ) -> None:
        self._disk = disk
        self._seed = seed
        self._group = group
        self._rows = kept.rows
        self._ends = {number: segments[number].end for number in kept.segments}
        self._next = 0
        self.is_whole = True
        """As far as it has come. If one record is not, nothing of them may count."""

    @property
    def done(self) -> bool:
        """Whether there is nothing more to be read."""
        return not self.is_whole or self._next == len(self._rows)

    def run(self) -> None:
        """Thread: read some of one segment. OSError; what the disk does not read is not whole."""
        rows, left = self._rows, STEP_BYTES
        number = rows.positions[self._next] >> SEGMENT_SHIFT
        file = self._disk.open(segment_name(number))
        try:
            reader = SegmentReader(file, self._ends[number], self._seed)
            while left > 0 and not self.done:
                position, length = rows.positions[self._next], rows.lengths[self._next]
                if position >> SEGMENT_SHIFT != number:
                    return
                header = reader.record((position & OFFSET_MASK) << 3)
                wanted = (RecordType.REWRITE, self._group, rows.indexes[self._next], length)
                self.is_whole = header is not None and wanted == (
                    header.type,
                    header.group,
                    header.log_index,
                    header.length,
                )
                self._next += 1
                left -= length
        finally:
            file.close()
