"""The read-only half of recovery: what is on disk, what of it is proven, what is damaged.

The segments below the checkpoint's come from their location files. From the checkpoint's segment
on every record is read and verified, segment by segment as PAD records and cuts lead, until one
does not read. That one is either **torn** (the end: it was never synced, nobody heard ok) or
**damaged** (it was synced; cutting it would lose acknowledged data in silence). It is damaged if

- the checkpoint, the clean mark, the mark of what was synced (`mark`) or the closing record of a
  later batch says it was synced, or
- records of a later batch follow (a batch is begun only when the one before it is synced), or
- every sector of it was written and yet it does not match its sum.

One case is left that nobody can tell: in the last batch, if a power loss took the mark of it, a
record whose body has a sector of zeros. A bit that changed there looks like that sector never
written, and is taken for torn: every power loss would be damage else.

After damage the scan goes on at the next whole record. Which groups lost something follows from
the closing record of the batch, which counts the records of each group. A group whose log began
anew behind it, with a snapshot from another store, can have lost nothing but entries that this
refers to. Below the checkpoint's place only bodies of entries can be lost, too: `unreadable`. So
too if nothing whole follows, and the journal was closed in order right at that place.
"""

from __future__ import annotations

import math

from ...common.ports import Disk
from ..format.checkpoint import Checkpoint, HardState, Position
from ..format.files import JOURNAL_DIRECTORY, segment_name
from ..format.location_file import read_location_file
from ..format.mark import Mark
from ..format.meta import StoreMeta
from ..format.record import (
    ENTRIES,
    BatchEnd,
    Close,
    Header,
    RecordType,
    decode_batch_end,
    decode_close,
    decode_number,
    seed_of,
)
from ..format.segment import HEADER_PAGE_BYTES, Segment
from ..format.segment_reader import SegmentReader
from ..groups import GroupLog
from ..locations import Locations, pack_position
from .evidence import Lookout, Place

_ENTRY = int(RecordType.ENTRY)
_BATCH_END = int(RecordType.BATCH_END)
_PAD = int(RecordType.PAD)
_REWRITE = int(RecordType.REWRITE)
_RESET = int(RecordType.RESET)


def segment_numbers(disk: Disk) -> list[int]:
    """Numbers of the segment files that exist, rising."""
    names = disk.names(JOURNAL_DIRECTORY)
    return sorted(int(name[:-4]) for name in names if name.endswith(".seg"))


class Scan:
    """One pass over the journal of a store. OSError, FormatError."""

    def __init__(
        self, disk: Disk, meta: StoreMeta, checkpoint: Checkpoint | None, mark: Mark
    ) -> None:
        self._disk = disk
        self.seed = seed_of(meta.store)
        self._cuts = dict(checkpoint.cuts) if checkpoint else {}
        self.floor = max(
            checkpoint.synced_sequence if checkpoint else 0,
            meta.clean.sequence if meta.clean else 0,
            mark.sequence,
        )
        """Sequence that is known to be synced before anything is read."""
        self._checkpointed = checkpoint.synced_sequence if checkpoint else 0
        """Up to this one the checkpoint stands for all hard states."""
        self.numbers = segment_numbers(disk)
        self._lookout = Lookout(disk, meta.store, self.numbers, self._cuts)
        self.locations = Locations()
        self.groups: dict[int, GroupLog] = {}
        self.marks: dict[int, int] = {}
        """By group what its snapshot has applied."""
        for number, group in (checkpoint.groups if checkpoint else {}).items():
            self.groups[number] = GroupLog(group.index, group.term, group.hard_state)
            self.marks[number] = group.index
        self.closed: list[Close] = list(checkpoint.closed) if checkpoint else []
        self.unclosed: list[Place] = []
        """Rewritten entries that no closing record stood for when they were met."""
        self.last_entries: dict[int, int] = {}
        """Sequence of each group's last entry, whether it counts or not."""
        self.unreadable = False
        """Something that bodies stand in is: they may be missing."""
        self.unread = 0.0
        """So many records at most; infinite if nothing tells."""
        self.unread_places: dict[tuple[int, int], tuple[int, int, int]] = {}
        """(segment, offset, length) of such entries, by (group, index) as far as that is right:
        nothing but its sum could say so."""
        self.spoilt: dict[int, Segment] = {}
        """Segments with records that do not read: what is lost with these may be all that is in
        one, and it must not go before that is given up. By number."""
        self._known_damage = checkpoint.damaged if checkpoint else frozenset()
        self.damaged: dict[int, str] = {}
        self.damage_all: str | None = None
        """Why everybody may have lost something, also who is not met here any more."""
        self._gaps: dict[int, str] = {}
        """Groups with entries that do not follow what is there: lost, or replaced further on."""
        self._anew: set[int] = set()
        """Groups whose log began anew behind that."""
        self.chain: list[int] = []
        """Segments from the checkpoint's on, in order."""
        self.scanned: list[Segment] = []
        """Sealed segments that were read record by record and deserve a location file."""
        self.unproven: list[Place] = []
        """Records of the last batch: nothing on disk proves that they were synced."""
        self.end = Position(0, 0)
        """Behind the last whole record."""
        self.proven_sequence = self.floor
        self.next_sequence = 1
        self.records = 0
        self._hole: str | None = None
        self._counts: dict[int, int] = {}
        self._batch_first: int | None = None
        self._batch_ended = False
        self._position = checkpoint.position if checkpoint else Position(0, 0)
        self._start = checkpoint.position.segment if checkpoint else min(self.numbers, default=0)
        self._clean = meta.clean
        self.ends_unread = False
        """What stands before the end does not read: nothing is written on there."""
        self._is_first_known = checkpoint is None
        """The journal has to begin with record 1: no checkpoint stands for what was before."""

    def run(self) -> None:
        """Scan everything."""
        for number in self.numbers:
            if number < self._start:
                self._sealed(number)
        if self._start:
            self._walk(self._start, bounded=False)
        elif self.floor:
            self._lost_by_everybody("no segment is there, and there were some")
        self._close_hole()
        if self.damage_all is not None:
            for group in self.groups.keys() - self._anew:
                self.damaged.setdefault(group, self.damage_all)
            if not self.groups:
                self.damaged[0] = self.damage_all
        for group, why in self._gaps.items():
            self.damaged.setdefault(group, why)
        for group in self._known_damage:
            self.damaged.setdefault(group, "damaged since an earlier run")

    # --- Segments ---------------------------------------------------------------------------

    def _sealed(self, number: int) -> None:
        """A segment wholly below the checkpoint."""
        rows = read_location_file(self._disk, number, self.seed)
        if rows is None:
            self._walk(number, bounded=True)
            return
        segment = self._segment(number)
        cut = self._cuts.get(number)
        for offset, header in rows:
            if cut is not None and offset >= cut.offset:
                break
            self._accept(Place(number, offset, header), None)
            segment.end = offset + header.padded
        segment.sealed = True
        segment.headers = None
        self.locations.segments[number] = segment

    def _segment(self, number: int) -> Segment:
        file = self._disk.open(segment_name(number))
        try:
            return Segment(number, file.size())
        finally:
            file.close()

    def _walk(self, number: int, *, bounded: bool) -> None:
        """Read the chain from the start of segment `number` on; only that segment if `bounded`."""
        offset = HEADER_PAGE_BYTES
        self.next_sequence = self._lookout.first_sequence(number)
        anything_goes = True
        self._batch_first = None
        while True:
            if number not in self.numbers:
                place = self._missing(number, bounded=bounded)
                following = None
            else:
                place, following = self._walk_segment(number, offset, anything_goes, bounded)
            anything_goes = place is not None
            if place is not None:
                number, offset = place.segment, place.offset
            elif following is not None and not bounded:
                number, offset = following, HEADER_PAGE_BYTES
            else:
                return

    def _walk_segment(
        self, number: int, offset: int, anything_goes: bool, bounded: bool
    ) -> tuple[Place | None, int | None]:
        """Read one segment from `offset` on.

        Returns (where to resume behind damage, None), (None, the next segment) or (None, None) at
        the end of the journal.
        """
        segment = self.locations.segments.get(number) or self._segment(number)
        start = offset
        if offset != HEADER_PAGE_BYTES:
            segment.headers = None
        cut = self._cuts.get(number)
        file = self._disk.open(segment_name(number))
        try:
            reader = SegmentReader(file, cut.offset if cut else segment.size, self.seed)
            for at, header in reader.records(offset):
                if header.sequence != self.next_sequence and not anything_goes:
                    break
                anything_goes = False
                if segment.headers is not None:
                    segment.headers += reader.header_bytes(at)
                body = reader.body(at, header) if header.type != _ENTRY else b""
                self._accept(Place(number, at, header), body)
                offset = at + header.padded
                if header.type == _PAD:
                    self._reached(segment, offset)
                    self._seal(segment)
                    return None, decode_number(body)
            at_cut = cut is not None and offset >= cut.offset
            if offset > start or at_cut:
                self._reached(segment, offset)
            if cut is not None and at_cut:
                self._seal(segment)
                return None, cut.next
            place = self._problem(segment, offset, reader, bounded=bounded)
            if place is not None or bounded:
                segment.headers = None
            if bounded and place is None and number in self.locations.segments:
                segment.sealed = True
            return place, None
        finally:
            file.close()

    def _reached(self, segment: Segment, end: int) -> None:
        """The scan has got so far: this segment is part of the journal."""
        segment.end = end
        self.end = Position(segment.number, end)
        if segment.number not in self.locations.segments:
            self.locations.segments[segment.number] = segment
        if segment.number >= self._start and segment.number not in self.chain:
            self.chain.append(segment.number)

    def _seal(self, segment: Segment) -> None:
        segment.sealed = True
        if segment.headers is not None:
            self.scanned.append(segment)

    # --- Problems ---------------------------------------------------------------------------

    def _missing(self, number: int, *, bounded: bool) -> Place | None:
        """The journal leads to a segment that does not exist."""
        bad = self.next_sequence
        evidence = self._lookout.behind(number, 0, None, bad, bounded=bounded)
        if not evidence.synced and not self._is_below_floor():
            return None
        return self._damage(f"segment {number} is missing", evidence.resume, bounded=bounded)

    def _problem(
        self, segment: Segment, offset: int, reader: SegmentReader, *, bounded: bool
    ) -> Place | None:
        """The record at `offset` does not read: None if that is the end, else where to go on."""
        number, bad = segment.number, self.next_sequence
        evidence = self._lookout.behind(number, offset, reader, bad, bounded=bounded)
        torn = reader.may_be_torn(offset) and reader.record(offset) is None
        unused = offset == HEADER_PAGE_BYTES and number not in self.locations.segments
        if bounded and unused and torn and evidence.resume is None:
            return None
        is_cut = number not in self._cuts and self._lookout.is_cut(number, reader.end)
        is_end = torn and not evidence.synced and not self._is_below_floor()
        if is_end and not bounded and not is_cut:
            return None
        is_changed = not (torn or is_cut or bounded)
        if is_changed and evidence.resume is None and self._is_rest(number, offset):
            self._pass_over(segment, offset, reader)
            return None
        where = f"segment {number} at {offset}"
        unread = reader.unread_at(offset)
        if unread is not None:
            where += f", which the disk does not read (EIO at {unread})"
        if is_cut:
            where += f", a file that is cut short to {reader.end} bytes"
        if bounded:
            self.locations.segments[number] = segment
        self.spoilt[number] = segment
        place = self._damage(where, evidence.resume, bounded=bounded, cut=is_cut)
        if self._hole is None:
            self._note_unread(number, offset, reader)
        return place

    def _note_unread(self, number: int, offset: int, reader: SegmentReader) -> None:
        header = reader.node_part(offset)
        if header is not None and header.type in ENTRIES:
            entry = header.group, header.log_index
            self.unread_places[entry] = (number, offset, header.length)

    def _is_rest(self, number: int, offset: int) -> bool:
        """Whether snapshots have all from there to an end in good order."""
        clean, position = self._clean, self._position
        is_last = clean is not None and position == (clean.segment, clean.offset)
        return is_last and (number, offset) < position

    def _pass_over(self, segment: Segment, offset: int, reader: SegmentReader) -> None:
        """Bodies are lost up to the end, and no more."""
        assert self._clean is not None
        self._note_unread(segment.number, offset, reader)
        self.unreadable = self.ends_unread = True
        self.unread = math.inf
        self.spoilt[segment.number] = segment
        segment.headers = None
        self.next_sequence = self._clean.sequence + 1
        self._reached(segment, self._position.offset)

    def _is_below_floor(self) -> bool:
        """Whether the checkpoint or the clean mark says that the next record was synced. Without
        either (floor 0) nothing is proven: the first start may have been cut short.
        """
        return bool(self.floor) and self.floor >= self.next_sequence

    def _damage(
        self, where: str, resume: Place | None, *, bounded: bool, cut: bool = False
    ) -> Place | None:
        if self._batch_first is None:
            # Nothing was read before it: whole batches may be lost, whoever they were of.
            self._batch_first = self.next_sequence
        until = resume.header.sequence if resume is not None else self.floor + 1
        lost = max(until - self.next_sequence, 1)
        if resume is not None:
            self.next_sequence = resume.header.sequence
        if bounded or (resume is not None and resume[:2] <= self._position):
            self.unreadable = True
            if not cut:
                self.unread += lost if resume is not None else math.inf
        else:
            some = "1 record" if lost == 1 else f"{lost} records"
            self._hole = self._hole or f"{some} unreadable after being synced: {where}"
            if resume is None:
                self._lost_by_everybody(self._hole)
        return resume

    def _lost_by_everybody(self, why: str) -> None:
        self.damage_all = why
        self._anew.clear()

    def _close_hole(self) -> None:
        """No closing record tells who lost something: everybody may have."""
        if self._hole is not None:
            self._lost_by_everybody(self._hole)
            self._hole = None

    # --- Records ----------------------------------------------------------------------------

    def _accept(self, place: Place, body: bytes | None) -> None:
        """Take a record into account. `body` is None if it comes from a location file."""
        header = place.header
        if self._batch_ended and body is not None:
            # A batch is begun only when the one before it is synced.
            self.proven_sequence = max(self.proven_sequence, self.next_sequence - 1)
            self.unproven = []
        kind = header.type
        self._batch_ended = kind == _BATCH_END
        if self._is_first_known:
            self._is_first_known = False
            if header.sequence > 1:
                why = f"the first {header.sequence - 1} records are gone, and so is ckpt"
                self._lost_by_everybody(why)
        self.next_sequence = header.sequence + 1
        self.records += 1
        if kind == _ENTRY:
            self.last_entries[header.group] = header.sequence
            self._entry(place)
        elif kind == _REWRITE:
            self._rewrite(place)
        elif kind == _RESET:
            self._reset(header)
        elif body is not None:
            self._control(place, body)
        if body is not None:
            if self._batch_first is None:
                self._batch_first = header.sequence
            if kind not in (_BATCH_END, _PAD):
                self._counts[header.group] = self._counts.get(header.group, 0) + 1
            if header.sequence > self.proven_sequence:
                self.unproven.append(place)

    def _entry(self, place: Place) -> None:
        header = place.header
        log = self.group(header.group)
        index = header.log_index
        mark = self.marks.get(header.group, 0)
        if index > mark and place.segment < self._start:
            # What is behind the marks stands from the checkpoint on (`next_checkpoint`): this was
            # replaced, by entries that may be gone already.
            return
        if index > log.last_index + 1:
            why = f"entry {log.last_index + 1} is missing before entry {index}"
            self._gaps.setdefault(header.group, why)
            return
        # It is the next one, or replaces all behind it: what was missing there is void.
        self._gaps.pop(header.group, None)
        if log.last_index >= max(index, mark + 1):
            # It replaces what stood there and behind; what a snapshot has applied stays.
            self.locations.truncate(header.group, max(index, mark + 1))
            log.cut(max(index, mark + 1))
        if index > mark:
            log.append(index, header.term)
        position = pack_position(place.segment, place.offset)
        self.locations.place(header.group, index, position, header.length)

    def _reset(self, header: Header) -> None:
        """A snapshot from another store took the place of the log, if the checkpoint says so too:
        what stood behind it is void.
        """
        mark = self.marks.get(header.group, 0)
        if header.log_index <= mark:
            log = self.group(header.group)
            if log.last_index > mark:
                self.locations.truncate(header.group, mark + 1)
                log.cut(mark + 1)
            if self.damaged.pop(header.group, self.damage_all or self._hole) is not None:
                # Entries that the snapshot refers to stand before this: what is lost may be those.
                self.unreadable = True
            self._gaps.pop(header.group, None)
            self._anew.add(header.group)

    def _rewrite(self, place: Place) -> None:
        if self.is_closed(place):
            self._place_rewrite(place)
        else:
            self.unclosed.append(place)

    def is_closed(self, place: Place) -> bool:
        """Whether a rewritten entry counts."""
        sequence = place.header.sequence
        return any(close.first <= sequence <= close.last for close in self.closed)

    def _place_rewrite(self, place: Place) -> None:
        header = place.header
        position = pack_position(place.segment, place.offset)
        self.locations.place(header.group, header.log_index, position, header.length)

    def _control(self, place: Place, body: bytes) -> None:
        header = place.header
        if header.type == RecordType.HARD_STATE:
            group, known = self.group(header.group), self.group(header.group).hard_state
            state = HardState(header.term, decode_number(body), header.log_index)
            # The checkpoint holds this one or a later one, which may be gone or not read any more:
            # who took this for the last would forget a vote. (One of an earlier build may not have
            # the last of the term.)
            if header.sequence > self._checkpointed or (
                (known.term, known.vote != 0) < (state.term, state.vote != 0)
            ):
                group.hard_state = state
        elif header.type == RecordType.CLOSE:
            close = decode_close(body)
            if not close.source and close not in self.closed:
                return  # an install that no checkpoint names
            if close not in self.closed:
                self.closed.append(close)
            for rewrite in self.unclosed:
                if close.first <= rewrite.header.sequence <= close.last:
                    self._place_rewrite(rewrite)
        elif header.type == RecordType.BATCH_END:
            self._batch_end(header, decode_batch_end(body))

    def _batch_end(self, header: Header, end: BatchEnd) -> None:
        self.proven_sequence = max(self.proven_sequence, end.synced)
        proven = self.proven_sequence
        self.unproven = [place for place in self.unproven if place.header.sequence > proven]
        if self._hole is not None:
            if end.first == self._batch_first:
                lost = [g for g, count in end.groups.items() if self._counts.get(g, 0) < count]
                for group in lost:
                    self.damaged.setdefault(group, self._hole)
            else:
                self._lost_by_everybody(self._hole)
            self._hole = None
        self._counts = {}
        self._batch_first = header.sequence + 1

    def hard_states(self) -> dict[int, HardState]:
        """The last one of each group."""
        return {number: log.hard_state for number, log in self.groups.items()}

    def group(self, number: int) -> GroupLog:
        """The group's log, a new one if it has not been met."""
        log = self.groups.get(number)
        if log is None:
            log = self.groups[number] = GroupLog()
        return log
