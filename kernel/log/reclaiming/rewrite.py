"""Rewriting a sparse segment: its live slots go to the end of the journal, then it can go.

    while (part := job.read()) is not None:
        part.run()                    # thread
        job.append(part)              # at most 1 MiB is queued; write it with the next batches
    job.close()                       # once all that is in a batch; False until then
    job.closed                        # True when the closing record is synced

A rewritten entry keeps (group, term, index) and its slot numbers. Until the closing record is
synced nothing has changed: a crash leaves REWRITE records that recovery ignores. The segment is
removed only after it.

The first part says where entries stand (`location_file`), so that of a segment with five live ones
no more than those are read: such segments come up again and again, as what lives for long is
carried from one to the next. Without that file all of the segment is read.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence

from ...common.ports import Disk
from ..errors import JournalError, RecordDamaged
from ..format.entry import has_slots, rewritten
from ..format.location_file import PlacesRead, RecordPlace
from ..format.record import Close, RecordType, encode_close
from ..format.segment import HEADER_PAGE_BYTES, Segment
from ..locations import SEGMENT_SHIFT, Locations
from ..reading.read import SliceRead
from ..writer import Writer

SLICE_BYTES = 1024 * 1024
"""Bound of what one slice reads and appends, however far apart it stands: a few milliseconds of
disk, so that the publishers behind it hardly notice. Not less: a slice takes a turn or two of a
busy loop, and with slices of 256 KiB a rewrite fell behind 12 MB/s of messages."""

GAP_BYTES = 64 * 1024
"""Dead bytes that are read along with the live ones around them: less than another read costs."""

LOOKS_MAX = 2_048
"""Dead entries passed over in one turn of the loop: half a millisecond."""

LiveSlots = Callable[[int, int, bytes], Collection[int]]
"""(group, index, body) to the slots of the entry that something still refers to. With its body: a
segment may hold another record of that index, of a log that was replaced or an install that was
given up."""


class RewriteJob:
    """One segment's rewrite; the journal has one at most."""

    def __init__(
        self,
        disk: Disk,
        seed: int,
        source: Segment,
        locations: Locations,
        writer: Writer,
        live_slots: LiveSlots,
    ) -> None:
        self._disk = disk
        self._seed = seed
        self.source = source
        self._locations = locations
        self._writer = writer
        self._live_slots = live_slots
        self._survey = PlacesRead(disk, seed, source)
        self._surveyed = False
        self._next = 0
        """In the survey: the first entry that is not yet read, or passed over."""
        self._offset = HEADER_PAGE_BYTES
        self._queued: list[tuple[int, int]] = []
        self._groups = array("Q")
        self._indexes = array("Q")
        self._positions = array("Q")
        self._lengths = array("I")
        self._first = 0
        self._last = 0
        self._close_sequence = 0
        self.closing = False
        """The closing record is queued: there is no way back."""
        self.closed = False
        self.bytes_rewritten = 0

    @property
    def first_segment(self) -> int:
        """Lowest segment with a rewritten record of this job, 0 if there is none yet."""
        return self._positions[0] >> SEGMENT_SHIFT if self._positions else 0

    def read(self) -> PlacesRead | SliceRead | None:
        """The next part to read, None when all of the segment was read and appended."""
        if not self._surveyed:
            return self._survey
        if self._survey.places is not None:
            stretches = self._live_stretches(self._survey.places)
        else:
            whole = self._offset < self.source.end
            stretches = [(self._offset, self._offset + SLICE_BYTES)] if whole else []
        return SliceRead(self._disk, self._seed, self.source, stretches) if stretches else None

    def _live_stretches(self, places: Sequence[RecordPlace]) -> list[tuple[int, int]]:
        """(begin, end) of the next live entries, with what is dead between near ones; empty if
        there are none.
        """
        is_live, number = self._locations.is_live, self._next
        while number < len(places) and places[number].offset < self._offset:
            number += 1
        self._next = number
        until = number + LOOKS_MAX
        found: list[tuple[int, int]] = []
        size = 0
        for place in places[number:until]:
            if not is_live(*place.entry):
                continue
            begin, end = found[-1] if found else (place.offset, place.offset)
            near = place.offset - end <= GAP_BYTES
            size += place.end - (end if near else place.offset)
            if size > SLICE_BYTES and found:
                break
            if near:
                found[-1:] = [(begin, place.end)]
            else:
                found.append((place.offset, place.end))
        if not found and until < len(places):
            return [(places[until].offset, places[until].end)]  # to go on behind it
        return found

    def append(self, part: PlacesRead | SliceRead) -> int:
        """Queue what is live of the part; returns the bytes queued.

        JournalError if an entry has references but `live_slots` names none: the two books of the
        owner disagree, and going on would lose messages.
        """
        if isinstance(part, PlacesRead):
            self._surveyed = True
            return 0
        before = self._writer.pending_bytes
        for entry in part.entries:
            if not self._locations.is_live(entry.group, entry.index, entry.position):
                continue
            live = self._live_slots(entry.group, entry.index, entry.body)
            if not live and has_slots(entry.body):
                raise JournalError(
                    f"entry {entry.index} of group {entry.group} has references but no live slot"
                )
            body = rewritten(entry.body, live) if live else entry.body
            self._queued.append((entry.group, entry.index))
            self._writer.append((RecordType.REWRITE, entry.group, entry.term, entry.index, body))
        self._offset = part.next_offset
        return self._writer.pending_bytes - before

    def close(self) -> bool:
        """Queue the closing record if every rewritten entry is in a batch; False: not yet.

        The closing record then goes into a later batch, which is begun only when that one is
        synced. RecordDamaged if entries of the segment are live that were not met: it stays.
        """
        if self.closing or self.read() is not None:
            return self.closing
        if len(self._positions) < len(self._queued):
            return False
        stands_in, source = self._locations.stands_in, self.source
        if sum(stands_in(*entry, source.number) for entry in self._queued) < source.live_entries:
            raise RecordDamaged(f"segment {source.number} has live entries that were not found")
        self.closing = True
        self._writer.append((RecordType.CLOSE, 0, 0, 0, encode_close(self.close_record())))
        return True

    def close_record(self) -> Close:
        """What the closing record says."""
        last = self._positions[-1] >> SEGMENT_SHIFT if self._positions else 0
        return Close(self.source.number, self._first, self._last, self.first_segment, last)

    def placed(self, group: int, index: int, position: int, length: int, sequence: int) -> None:
        """The writer has framed a rewritten entry."""
        self._groups.append(group)
        self._indexes.append(index)
        self._positions.append(position)
        self._lengths.append(length)
        self._first = self._first or sequence
        self._last = sequence
        self.bytes_rewritten += length

    def close_placed(self, sequence: int) -> None:
        """The writer has framed the closing record."""
        self._close_sequence = sequence

    def synced(self, sequence: int) -> bool:
        """Everything up to `sequence` is synced. True if that completes the rewrite."""
        if self.closed or not self._close_sequence or self._close_sequence > sequence:
            return False
        self.closed = True
        move = self._locations.move
        source = self.source.number
        for group, index, position, length in zip(
            self._groups, self._indexes, self._positions, self._lengths, strict=True
        ):
            move(group, index, source, position, length)
        return True
