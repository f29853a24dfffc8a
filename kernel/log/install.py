"""What a snapshot from another store refers to comes into this journal.

    job.take(index) ...                 # True: it is here already, and need not come
    job.append(term, index, body) ...   # queued; write them with the next batches
    job.close(index, term)              # once all are in a batch; False until then
    job.closed                          # True when the closing record is synced
    ... a checkpoint that names the snapshot is made durable; then `Journal.installed(job)`

Until that checkpoint is on disk nothing has changed: it names the closing record too, and recovery
counts the closing record of an install only if it is named there. So an install may be given up at
any time before. A journal has one rewrite or install at once.

What is here already is of two kinds, and both hold only what is committed: of one index there is
one such entry for ever, whoever sends it, so that nobody has to compare terms.

- What the group's state **holds**. It has applied it; and as the snapshot has applied more, what
  that refers to of those indexes the state does too. Recovery counts these records by themselves.
- What an install that was given up has **kept** (`KeptEntries`): it was asked for by a snapshot.
  Recovery counts these once the checkpoint names their closing record too. Of one index the record
  counts that was written last. So they are of no use once the group's log has got an entry since,
  which may be another one of that index; nor if one of them is behind the new snapshot.

An empty entry is never taken: it stands for one that a sender had no more, and the next may.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .format import entry
from .format.record import HEADER_BYTES, Close, RecordType, encode_close
from .groups import GroupLog
from .locations import SEGMENT_SHIFT, Locations
from .writer import Writer

GONE = entry.build(0, (), (), ())
"""An entry without anything, for one that the sender does not have any more."""

_EMPTY_BYTES = HEADER_BYTES + len(GONE)

KEPT_MAX = 64
"""Installs that were given up of which a group's entries are kept, those that follow one another
without a rewrite between them taken as one; the oldest goes then. A checkpoint names each by 40
bytes, and recovery looks through them for each rewritten entry."""


class EntryRows:
    """Entries and where they stand: 20 bytes each."""

    __slots__ = ("indexes", "lengths", "positions")

    def __init__(self) -> None:
        self.indexes = array("Q")
        self.positions = array("Q")
        self.lengths = array("I")

    def add(self, index: int, position: int, length: int) -> None:
        """One more. For `find`, indexes rise."""
        self.indexes.append(index)
        self.positions.append(position)
        self.lengths.append(length)

    def __len__(self) -> int:
        return len(self.indexes)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return zip(self.indexes, self.positions, self.lengths, strict=True)

    def find(self, index: int) -> int:
        """Where an index stands among them; -1: nowhere."""
        at = bisect_left(self.indexes, index)
        return at if at < len(self.indexes) and self.indexes[at] == index else -1


@dataclass(frozen=True, slots=True)
class KeptEntries:
    """What an install that was given up has written."""

    close: Close
    """What its closing record would say."""
    rows: EntryRows
    segments: frozenset[int]
    """Those that the rows stand in."""
    verified: bool = True
    """This process has written them; else they have to be read once more (`KeptCheck`)."""

    def ends_before(self, other: KeptEntries) -> bool:
        """Whether all indexes of the other one are higher."""
        return self.rows.indexes[-1] < other.rows.indexes[0]

    def joined(self, other: KeptEntries) -> KeptEntries:
        """Both as one: no rewritten entry of another group stands between them."""
        rows = EntryRows()
        for each in (self.rows, other.rows):
            rows.indexes.extend(each.indexes)
            rows.positions.extend(each.positions)
            rows.lengths.extend(each.lengths)
        segments = self.segments | other.segments
        close = Close(0, self.close.first, other.close.last, min(segments), max(segments))
        return KeptEntries(close, rows, segments)


class InstallJob:
    """The entries of one group's snapshot."""

    source = None
    """No segment is replaced."""

    def __init__(
        self,
        group: int,
        writer: Writer,
        locations: Locations,
        logs: Mapping[int, GroupLog],
        kept: Sequence[KeptEntries],
    ) -> None:
        """`kept`: of installs of the group that were given up, oldest first."""
        self.group = group
        self.index = 0
        self.term = 0
        self.taken_entries = 0
        self.taken_bytes = 0
        """What need not come: records and their bytes."""
        self.kept = list(kept)
        self._writer = writer
        self._locations = locations
        self._logs = logs
        self._queued = 0
        self._came = EntryRows()
        self._taken = EntryRows()
        """Of what was kept."""
        self._held = array("Q")
        self._segments: set[int] = set()
        self._first = 0
        self._last = 0
        self._close_sequence = 0
        self.closing = False
        self.closed = False
        self.is_waited_for = False
        """A rewrite might begin if this did not hold the journal."""
        self.bytes_rewritten = 0

    @property
    def segments(self) -> set[int]:
        """Segments that must stay: what came and what was kept counts once it is closed."""
        return self._segments.union(*(each.segments for each in self.kept))

    @property
    def unverified(self) -> KeptEntries | None:
        """What is to be read before anything is taken."""
        return next((each for each in self.kept if not each.verified), None)

    def checked(self, kept: KeptEntries, *, is_whole: bool) -> None:
        """It was read. If one record of it is not whole, none is taken."""
        at = self.kept.index(kept)
        self.kept[at : at + 1] = [replace(kept, verified=True)] if is_whole else []

    def take(self, index: int) -> bool:
        """Whether an entry is here already: it must not be appended then. Of one index the record
        that was written last counts, so that is the one that is looked at.
        """
        for each in reversed(self.kept):
            at = each.rows.find(index)
            if at >= 0:
                length = each.rows.lengths[at]
                if length > _EMPTY_BYTES:
                    self._taken.add(index, each.rows.positions[at], length)
                return self._count(length)
        if not self._locations.is_held(self.group, index):
            return False
        length = self._locations.locate(self.group, index)[2]
        if length > _EMPTY_BYTES:
            self._held.append(index)
        return self._count(length)

    def _count(self, length: int) -> bool:
        if length <= _EMPTY_BYTES:
            return False
        self.taken_entries += 1
        self.taken_bytes += length
        return True

    @property
    def held_entries(self) -> int:
        """Of those taken, how many the group's state holds."""
        return len(self._held)

    @property
    def is_sound(self) -> bool:
        """Whether all that was taken is still here, and the log has got no entry. Nothing happens
        to a group that its snapshot has not come to, so both are so; it costs little to look.
        """
        is_held = self._locations.is_held
        return not self._grew and all(is_held(self.group, index) for index in self._held)

    @property
    def _grew(self) -> bool:
        log = self._logs.get(self.group)
        return log is not None and log.grew

    def append(self, term: int, index: int, body: bytes) -> None:
        """Queue an entry; indexes rise."""
        self._queued += 1
        self._writer.append((RecordType.REWRITE, self.group, term, index, body))

    @property
    def is_placed(self) -> bool:
        """Whether all that was queued is in a batch."""
        return len(self._came) == self._queued

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
        """It takes the place of the group's log. `references`: entry to how many hold it.
        JournalError if what was taken is not there any more.
        """
        group = self.group
        groups[group] = GroupLog(self.index, self.term, groups[group].hard_state)
        held = {index: references[index] for index in self._held}
        locations.drop(group, held)
        for rows in (self._taken, self._came):
            for index, position, length in rows:
                locations.place(group, index, position, length)
        for index, count in references.items():
            if index not in held:
                locations.retain(group, index, count)
        locations.checkpointed(group, self.index)

    @property
    def may_begin_anew(self) -> bool:
        """Whether it may be given up and begun again without the loss of what was kept first."""
        return len(self.kept) < KEPT_MAX - 1

    def keep(self, run_first: int) -> list[KeptEntries]:
        """It is given up: what may be of use to the next one. `run_first`: from this sequence on,
        rewritten entries are of this group only.
        """
        if self._grew:
            return []
        if not self._first:
            return self.kept
        own = KeptEntries(self.close_record(), self._came, frozenset(self._segments))
        last = self.kept[-1] if self.kept else None
        if last is not None and last.close.last >= run_first and last.ends_before(own):
            return [*self.kept[:-1], last.joined(own)]
        return [*self.kept, own][-KEPT_MAX:]

    def named(self) -> tuple[Close, ...]:
        """The closing records that a checkpoint has to name, for what was kept and what came."""
        own = (self.close_record(),) if self._first else ()
        return (*(each.close for each in self.kept), *own)

    def close_record(self) -> Close:
        """What the closing record says."""
        first, last = min(self._segments, default=0), max(self._segments, default=0)
        return Close(0, self._first, self._last, first, last)

    def placed(self, group: int, index: int, position: int, length: int, sequence: int) -> None:
        """The writer has framed an entry."""
        self._came.add(index, position, length)
        self._segments.add(position >> SEGMENT_SHIFT)
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
