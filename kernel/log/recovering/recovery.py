"""Recovery: from what a scan found to a journal that can be written.

1. Scan (`scan.py`). If synced data is damaged, stop: nothing has been changed (unless the owner
   accepts the damage of the groups named).
2. After a clean end the last segment is simply continued.
3. After any other end the records of the last batch may be in the page cache and nowhere else (a
   failed sync leaves pages marked clean), so what nothing proves to be on disk is copied: a new
   segment takes these records, is synced, and the checkpoint is replaced by one with a **cut**,
   which says that the old segment ends where the copy begins. A crash before that replacement
   leaves the copy unnamed: the next recovery ignores and removes it.
4. Files that nothing refers to are removed, the mark of what is synced is set, the clean mark is
   removed.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...common.ports import Disk
from ..errors import JournalDamaged, JournalError
from ..format.checkpoint import Checkpoint, Cut, HardState, Position
from ..format.files import JOURNAL_DIRECTORY, NO_SPACE, locations_name, segment_name, write_all
from ..format.location_file import LocationFileJob
from ..format.mark import Mark, MarkFile, read_mark
from ..format.meta import StoreMeta, read_meta, set_clean
from ..format.record import (
    HEADER_BYTES,
    BatchEnd,
    RecordType,
    encode_batch_end,
    encode_record,
    padded_bytes,
    seed_of,
)
from ..format.segment import (
    HEADER_PAGE_BYTES,
    SEGMENT_BYTES_MIN,
    Segment,
    SegmentKind,
    create_segment,
    segment_bytes_for,
)
from ..format.segment_reader import SegmentReader
from ..locations import Locations, pack_position
from .evidence import Place
from .scan import Scan, segment_numbers

_COPIED = frozenset({RecordType.ENTRY, RecordType.HARD_STATE, RecordType.CLOSE, RecordType.RESET})
"""Closing records and PADs are made anew; an unclosed rewrite is void and its copy too."""


CHECKPOINT_ROOM_BYTES = 16 * 1024
"""More than a checkpoint takes."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What recovery found, for the owner to start from."""

    clean: bool
    """The last run ended in order (or there was none)."""
    hard_states: Mapping[int, HardState]
    last: Mapping[int, tuple[int, int]]
    """(index, term) of the last entry of each group; its checkpoint's if the log holds none."""
    marks: Mapping[int, int]
    """Index that the snapshot of each group has applied; `entries` starts behind it."""
    entries: Iterator[tuple[int, int, int, bytes]]
    """(group, index, term, body) of every entry behind the marks, in the order of the log. Read
    from disk as it is consumed (blocking), to be exhausted before the journal is written."""
    damaged: Mapping[int, str]
    """Groups that lost synced data, with the place. Empty unless damage is accepted."""
    damaged_all: str | None
    """Why groups may have lost something that do not stand in `last`."""
    unreadable: bool
    """Below the checkpoint something is: entries may be missing."""
    unread: float
    """So many records at most; infinite if nothing tells."""
    checkpoint: Checkpoint
    """The last one: names of the snapshots (an empty one if none was ever written)."""
    records_scanned: int
    records_copied: int


@dataclass(slots=True)
class RecoveredState:
    """What the journal itself starts from."""

    scan: Scan
    segment: Segment
    next_number: int
    next_sequence: int
    checkpoint: Checkpoint
    copied: int = 0
    removed: list[int] = field(default_factory=list)


def recover_files(
    disk: Disk,
    checkpoint: Checkpoint | None,
    *,
    segment_bytes: int,
    accept_damage: bool,
    approve: Callable[[Scan], None],
) -> tuple[RecoveredState, StoreMeta, MarkFile]:
    """Scan, have the owner `approve` of what was found, and bring the files into order. Blocking.

    Errors: JournalDamaged (nothing changed), FormatError, JournalError without `store.meta`,
    OSError.
    """
    meta = read_meta(disk)
    if meta is None:
        raise JournalError("store.meta is missing: make one with ensure_meta")
    if checkpoint is not None and checkpoint.store != meta.store:
        raise JournalError("the checkpoint belongs to another store")
    known, written = read_mark(disk, meta.store)
    scan = Scan(disk, meta, checkpoint, known)
    scan.run()
    check_clean_end(scan, meta)
    new_damage = set(scan.damaged) - set(checkpoint.damaged if checkpoint else ())
    if new_damage and not accept_damage:
        raise JournalDamaged(scan.damaged)
    approve(scan)
    base = checkpoint or Checkpoint(meta.store, Position(0, HEADER_PAGE_BYTES), 0)
    removed = _remove_unreferenced(disk, scan)
    if not scan.chain and not scan.floor:
        state = _first_segment(disk, scan, meta, base, segment_bytes)
    elif meta.clean is not None and not new_damage and not scan.ends_unread:
        state = _continue(disk, scan, base)
    else:
        state = _copy_tail(disk, scan, base, segment_bytes)
    state.removed = removed + _remove_unreferenced(disk, scan)
    mark = MarkFile(disk, meta.store, written)
    mark.open(Mark(state.next_sequence - 1, state.segment.number, state.segment.end))
    set_clean(disk, None)
    for segment in scan.scanned:
        if segment.sealed and segment.headers is not None:
            LocationFileJob(disk, segment, bytes(segment.headers), seed_of(meta.store)).run()
            segment.headers = None
    return state, meta, mark


def nothing_to_say(_scan: Scan) -> None:
    """Whoever opens a journal for itself has nothing to approve of."""


def replay(
    disk: Disk, scan: Scan, chain: list[int], marks: Mapping[int, int]
) -> Iterator[tuple[int, int, int, bytes]]:
    """The entries behind the marks, from the chain's segments, in order. OSError, also if one that
    the scan has read does not read again: its commands would be passed over.
    """
    left = {group: log.last_index - marks.get(group, 0) for group, log in scan.groups.items()}
    for number in chain:
        segment = scan.locations.segments[number]
        file = disk.open(segment_name(number))
        try:
            reader = SegmentReader(file, segment.end, scan.seed)
            for offset, header in reader.search(HEADER_PAGE_BYTES, -1):
                if header.type != RecordType.ENTRY:
                    continue
                group, index = header.group, header.log_index
                if index <= marks.get(group, 0) or index > scan.groups[group].last_index:
                    continue
                if scan.locations.position(group, index) == pack_position(number, offset):
                    left[group] -= 1
                    yield group, index, header.term, reader.body(offset, header)
        finally:
            file.close()
    for group, entries in left.items():
        if entries > 0 and scan.groups[group].last_index:
            raise OSError(errno.EIO, f"{entries} entries of group {group} do not read twice")


def check_clean_end(scan: Scan, meta: StoreMeta) -> None:
    """A journal that was closed in order has to end where it was closed."""
    clean = meta.clean
    if clean is None or scan.damaged or not clean.sequence:
        return
    if scan.end != (clean.segment, clean.offset) or scan.next_sequence != clean.sequence + 1:
        why = f"it ends at {tuple(scan.end)}, closed in order at ({clean.segment}, {clean.offset})"
        for group in scan.groups or (0,):
            scan.damaged[group] = why


def _first_segment(
    disk: Disk, scan: Scan, meta: StoreMeta, base: Checkpoint, segment_bytes: int
) -> RecoveredState:
    """Nothing was ever synced: start with a new segment. What lay there was unfinished."""
    number = base.position.segment or 1
    file = create_segment(disk, SegmentKind.NORMAL, meta.store, number, segment_bytes, 1)
    segment = Segment(number, segment_bytes, file)
    scan.locations.segments[number] = segment
    scan.chain.append(number)
    base = replace(base, position=Position(number, HEADER_PAGE_BYTES))
    return RecoveredState(scan, segment, number + 1, 1, base)


def _continue(disk: Disk, scan: Scan, base: Checkpoint) -> RecoveredState:
    """Write on behind the last record."""
    segment = scan.locations.segments[scan.end.segment]
    segment.file = disk.open(segment_name(segment.number))
    segment.synced_end = segment.end
    return RecoveredState(
        scan, segment, max(scan.numbers) + 1, scan.next_sequence, _start_at(scan, base)
    )


def _start_at(scan: Scan, base: Checkpoint) -> Checkpoint:
    if base.position.segment:
        return base
    return replace(base, position=Position(scan.chain[0], HEADER_PAGE_BYTES))


def _copy_tail(disk: Disk, scan: Scan, base: Checkpoint, segment_bytes: int) -> RecoveredState:
    """Copy what is not proven to be on disk, then let the checkpoint name the copy."""
    places = scan.unproven
    cut_at = Position(places[0].segment, places[0].offset) if places else scan.end
    records = [place for place in places if place.header.type in _COPIED]
    needed = sum(place.header.padded for place in records)
    number = max(scan.numbers, default=0) + 1
    sequence = places[0].header.sequence if places else scan.next_sequence
    segment = _copy_segment(disk, base.store, number, sequence, needed, segment_bytes)
    next_sequence = _write_copy(disk, segment, records, sequence, scan, base)
    _sync(segment)
    segment.synced_end = segment.end
    _cut_off(scan, cut_at)
    scan.locations.segments[number] = segment
    scan.chain.append(number)
    checkpoint = replace(
        _start_at(scan, base).with_hard_states(scan.hard_states()),
        synced_sequence=next_sequence - 1,
        cuts={**base.cuts, cut_at.segment: Cut(cut_at.offset, number)},
        damaged=frozenset(scan.damaged),
    )
    if checkpoint.position.segment not in scan.locations.segments:
        checkpoint = replace(checkpoint, position=Position(number, HEADER_PAGE_BYTES))
    checkpoint.write(disk)
    return RecoveredState(scan, segment, number + 1, next_sequence, checkpoint, copied=len(records))


def _copy_segment(
    disk: Disk, store: bytes, number: int, sequence: int, needed: int, segment_bytes: int
) -> Segment:
    """A new segment for the copy; a small one if the disk is too full for a whole one, or would be
    full with it: the checkpoint that names the copy needs room too.
    """
    size = segment_bytes_for(needed, segment_bytes)
    if disk.free_bytes() < size + CHECKPOINT_ROOM_BYTES:
        size = segment_bytes_for(needed, SEGMENT_BYTES_MIN)
    kind = SegmentKind.RECOVERED
    try:
        file = create_segment(disk, kind, store, number, size, sequence)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        size = segment_bytes_for(needed, SEGMENT_BYTES_MIN)
        file = create_segment(disk, kind, store, number, size, sequence)
    return Segment(number, size, file)


def _sync(segment: Segment) -> None:
    if segment.file is not None:
        segment.file.fdatasync()


def _write_copy(
    disk: Disk,
    segment: Segment,
    places: list[Place],
    sequence: int,
    scan: Scan,
    base: Checkpoint,
) -> int:
    """Write the records at `places` and a closing record; returns the next sequence."""
    seed = seed_of(base.store)
    counts: dict[int, int] = {}
    first = sequence
    for place in places:
        body = _read_body(disk, scan.locations, place, seed)
        header = place.header
        counts[header.group] = counts.get(header.group, 0) + 1
        if header.type == RecordType.ENTRY:
            old = pack_position(place.segment, place.offset)
            if scan.locations.position(header.group, header.log_index) == old:
                position = pack_position(segment.number, segment.end)
                scan.locations.place(header.group, header.log_index, position, header.length)
        _write_record(
            segment,
            encode_record(
                header.type, header.group, header.term, header.log_index, body, sequence, seed
            ),
        )
        sequence += 1
    end = encode_batch_end(BatchEnd(first, first - 1, counts))
    _write_record(segment, encode_record(RecordType.BATCH_END, 0, 0, 0, end, sequence, seed))
    return sequence + 1


def _read_body(disk: Disk, locations: Locations, place: Place, seed: int) -> bytes:
    file = disk.open(segment_name(place.segment))
    try:
        size = locations.segments[place.segment].size
        reader = SegmentReader(file, size, seed, padded_bytes(place.header.length))
        header = reader.record(place.offset)
        if header is None:
            raise OSError(f"segment {place.segment} at {place.offset} does not read twice")
        return reader.body(place.offset, header)
    finally:
        file.close()


def _write_record(segment: Segment, record: bytes) -> None:
    if segment.file is not None:
        write_all(segment.file, [record], segment.end)
    segment.end += len(record)
    if segment.headers is not None:
        segment.headers += record[:HEADER_BYTES]


def _cut_off(scan: Scan, cut: Position) -> None:
    """What stands behind the cut is no part of the journal any more."""
    behind = [each for each in scan.chain if each > cut.segment]
    for each in behind:
        scan.chain.remove(each)
        del scan.locations.segments[each]
    segment = scan.locations.segments.get(cut.segment)
    if segment is None:
        return
    segment.end = segment.synced_end = cut.offset
    segment.sealed = True
    if segment.headers is not None:
        segment.headers = _headers_until(segment, cut.offset)
        if segment not in scan.scanned:
            scan.scanned.append(segment)


def _headers_until(segment: Segment, end: int) -> bytearray:
    """The headers of the records before `end`."""
    kept = bytearray()
    at = HEADER_PAGE_BYTES
    headers = segment.headers or bytearray()
    for start in range(0, len(headers), HEADER_BYTES):
        if at >= end:
            break
        kept += headers[start : start + HEADER_BYTES]
        at += int.from_bytes(headers[start + 4 : start + 8], "little") + 7 & -8
    return kept


def _remove_unreferenced(disk: Disk, scan: Scan) -> list[int]:
    """Remove segments and location files that are no part of the journal.

    Before the copy, so that a full disk gets back what was prepared and not used, and after it.
    """
    kept = scan.locations.segments
    removed = [number for number in segment_numbers(disk) if number not in kept]
    names = [segment_name(number) for number in removed]
    there = disk.names(JOURNAL_DIRECTORY)
    indexed = [int(name[:-4]) for name in there if name.endswith(".loc")]
    names += [locations_name(number) for number in indexed if number not in kept]
    for name in names:
        disk.remove(name)
    if names:
        disk.sync_directory(JOURNAL_DIRECTORY)
    return removed
