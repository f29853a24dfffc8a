"""What a snapshot from another store refers to comes into this journal.

    job.append(term, index, body) ...   # queued; write them with the next batches
    job.close(index, term)              # once all are in a batch; False until then
    job.closed                          # True when the closing record is synced
    ... a checkpoint that names the snapshot is made durable; then `Journal.installed(job)`

Until that checkpoint is on disk nothing has changed: it names the closing record too, and recovery
counts the closing record of an install only if it is named there. So an install may be given up at
any time before. A journal has one rewrite or install at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from .format.record import Close, RecordType, encode_close
from .groups import GroupLog
from .locations import SEGMENT_SHIFT, Locations
from .writer import Writer


class InstallJob:
    """The entries of one group's snapshot."""

    source = None
    """No segment is replaced."""

    def __init__(self, group: int, writer: Writer) -> None:
        self.group = group
        self.index = 0
        self.term = 0
        self._writer = writer
        self._queued = 0
        self.indexes = array("Q")
        self.positions = array("Q")
        self.lengths = array("I")
        self._first = 0
        self._last = 0
        self._close_sequence = 0
        self.closing = False
        self.closed = False
        self.bytes_rewritten = 0

    @property
    def first_segment(self) -> int:
        """Lowest segment with an entry of this job, 0 if there is none yet."""
        return self.positions[0] >> SEGMENT_SHIFT if self.positions else 0

    def append(self, term: int, index: int, body: bytes) -> None:
        """Queue an entry."""
        self._queued += 1
        self._writer.append((RecordType.REWRITE, self.group, term, index, body))

    @property
    def is_placed(self) -> bool:
        """Whether all that was queued is in a batch."""
        return len(self.positions) == self._queued

    def close(self, index: int, term: int) -> bool:
        """Queue what ends it if every entry is in a batch; False: not yet. `index`, `term`: what
        the snapshot has applied, which the group's log has not, or it has another entry there.
        """
        if not self.is_placed:
            return False
        self.index, self.term = index, term
        self.closing = True
        # What stands in the log behind the snapshot is void once a checkpoint names that: it may
        # be of a higher index, and must not come back if the power fails right then.
        self._writer.append((RecordType.RESET, self.group, term, index, b""))
        self._writer.append((RecordType.CLOSE, 0, 0, 0, encode_close(self.close_record())))
        return True

    def take_over(
        self, groups: dict[int, GroupLog], locations: Locations, references: Mapping[int, int]
    ) -> None:
        """It takes the place of the group's log. `references`: entry to how many hold it."""
        group = self.group
        groups[group] = GroupLog(self.index, self.term, groups[group].hard_state)
        locations.drop(group)
        for index, position, length in zip(self.indexes, self.positions, self.lengths, strict=True):
            locations.place(group, index, position, length)
        for index, count in references.items():
            locations.retain(group, index, count)
        locations.checkpointed(group, self.index)

    def close_record(self) -> Close:
        """What the closing record says."""
        last = self.positions[-1] >> SEGMENT_SHIFT if self.positions else 0
        return Close(0, self._first, self._last, self.first_segment, last)

    def placed(self, group: int, index: int, position: int, length: int, sequence: int) -> None:
        """The writer has framed an entry."""
        self.indexes.append(index)
        self.positions.append(position)
        self.lengths.append(length)
        self._first = self._first or sequence
        self._last = sequence
        self.bytes_rewritten += length

    def close_placed(self, sequence: int) -> None:
        """The writer has framed the closing record."""
        self._close_sequence = sequence

    def synced(self, sequence: int) -> bool:
        """Everything up to `sequence` is synced. True if that completes the job."""
        if self.closed or not self._close_sequence or self._close_sequence > sequence:
            return False
        self.closed = True
        return True
