"""Examination of a data directory for damage, without changing any of it: `weir doctor`.

Looks at everything that a start looks at, and besides reads every entry that messages stand in. A
group that the store has left is none of it: others have all that was in it, and a start makes it
void.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ...broker.group_state.state import GroupState
from ...broker.snapshots.snapshot import load
from ...common.ids import METADATA_GROUP, RaftGroup, topic_of
from ...common.ports import Disk
from ...log.errors import FormatError, JournalDamaged, NotUnderstood
from ...log.format.checkpoint import CHECKPOINT_NAME, Checkpoint
from ...log.format.files import segment_name
from ...log.format.mark import MARK_NAME, read_mark
from ...log.format.meta import META_NAME, read_meta
from ...log.format.segment_reader import SegmentReader
from ...log.hard_read import is_unread
from ...log.locations import OFFSET_MASK, SEGMENT_SHIFT, Locations
from ...log.recovering.recovery import check_clean_end, replay
from ...log.recovering.scan import Scan
from ..snapshots.snapshot_file import read
from .damage import Snapshots
from .missing import Missing
from .places import Places, note_places
from .replaying import Replay


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was written."""

    where: str
    """A file, or an entry of the log."""
    what: str
    lost: str
    """What is lost with it, as far as that is known."""
    repairable: bool
    """The store can go on without it."""


@dataclass(slots=True)
class Examination:
    """See `examine`."""

    findings: list[Finding] = field(default_factory=list)
    lost: dict[RaftGroup, list[int]] = field(default_factory=dict)
    """Entries that messages stand in and that do not read, or are gone."""
    holes: list[str] = field(default_factory=list)
    """Segments in which records are lost that no snapshot has applied."""
    records: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """(version, content) of the records that the whole cluster knows, as the log has them here to
    its end: what is not known to be committed was asked for all the same. None if the log does not
    read."""

    def note(self, where: str, what: str, lost: str, *, repairable: bool) -> None:
        """Keep one finding."""
        self.findings.append(Finding(where, what, lost, repairable))


EVERYTHING = "the store; only a copy of the whole directory brings it back"


class _Books:
    """`observer.Retention` over what a scan has found."""

    def __init__(self, locations: Locations) -> None:
        self.retain = locations.retain
        self._release = locations.release

    def release(self, group: int, index: int, references: int) -> None:
        """So many of them died."""
        self._release(group, index, references)


class _NoBooks:
    """`observer.Retention` of nobody."""

    def retain(self, group: int, index: int, references: int) -> None:
        """Not counted."""

    def release(self, group: int, index: int, references: int) -> None:
        """Not counted."""


def examine(disk: Disk, node: int = 1) -> Examination:
    """Look at all of it. Blocking; OSError: what cannot even be read."""
    found = Examination()
    try:
        meta = read_meta(disk)
        checkpoint = Checkpoint.read(disk)
        if meta is None:
            found.note(META_NAME, "is missing", EVERYTHING, repairable=False)
            return found
        snapshots = Snapshots(disk, checkpoint)
        for group, why in snapshots.unreadable.items():
            lost = f"what group {group} knows: its queues, and who has what"
            found.note(why.split(":")[0], why, lost, repairable=False)
        known, _written = read_mark(disk, meta.store)
        scan = Scan(disk, meta, checkpoint, known)
        scan.run()
    except FormatError as error:
        names = META_NAME, CHECKPOINT_NAME, MARK_NAME
        name = next((each for each in names if str(error).startswith(each)), "journal")
        found.note(name, str(error), EVERYTHING, repairable=False)
        return found
    except OSError as error:
        if not is_unread(error) or not isinstance(error.filename, str):
            raise
        what = f"the disk does not read it ({error.strerror})"
        found.note(error.filename, what, EVERYTHING, repairable=False)
        return found
    check_clean_end(scan, meta)
    left = checkpoint.left if checkpoint is not None else frozenset()
    _log_damage(found, scan, left)
    if not snapshots.unreadable:
        try:
            _entries(found, disk, node, scan, snapshots, left)
        except NotUnderstood as error:
            found.note("journal", str(error), EVERYTHING, repairable=False)
    return found


def _log_damage(found: Examination, scan: Scan, left: Collection[int]) -> None:
    """What is lost of the log itself."""
    damaged = {group: why for group, why in scan.damaged.items() if group not in left}
    if not damaged:
        return
    groups = ", ".join(map(str, sorted(damaged)))
    what = str(JournalDamaged(damaged))
    lost = f"what was asked of group {groups} from there on, messages and acks"
    found.note("journal", what, lost, repairable=True)
    found.holes = [segment_name(number) for number in scan.chain]


def _entries(
    found: Examination,
    disk: Disk,
    node: int,
    scan: Scan,
    snapshots: Snapshots,
    left: Collection[int],
) -> None:
    """Entries that messages stand in."""
    missing = Missing(disk, node, snapshots, repair=True)
    missing.look(scan)
    states = dict(snapshots.states)
    for number in scan.groups.keys() - left:
        states.setdefault(RaftGroup(number), GroupState(RaftGroup(number)))
    locations = scan.locations
    for number, counts in missing.references.items():
        for index, count in counts.items():
            locations.retain(number, index, count)
    logs = scan.groups
    commits = {group: logs[group].hard_state.commit for group in states if group in logs}
    again = Replay(_Books(locations), states, commits, node)
    name = snapshots.names.get(METADATA_GROUP)
    known = load(read(disk, name)) if name is not None else GroupState(METADATA_GROUP)
    ends = {METADATA_GROUP: sys.maxsize}
    to_its_end = Replay(_NoBooks(), {METADATA_GROUP: known}, ends, node)
    for number, index, term, body in replay(disk, scan, list(scan.chain), scan.marks):
        if number not in left:
            again.take(RaftGroup(number), index, term, body)
            if number == METADATA_GROUP:
                to_its_end.take(METADATA_GROUP, index, term, body)
    found.records = known.records
    lost = {group: set(indexes) for group, indexes in missing.lost.items()}
    for group, index in _damaged_entries(disk, scan):
        lost.setdefault(group, set()).add(index)
    found.lost = {group: sorted(lost[group]) for group in sorted(lost)}
    for group, indexes in found.lost.items():
        places: Places = {}
        for ident in states[group].queues:
            note_places(states[group], ident, set(indexes), places)
        for index in indexes:
            _note_entry(found, scan, states[group], index, places)


def _note_entry(
    found: Examination, scan: Scan, state: GroupState, index: int, places: Places
) -> None:
    position = scan.locations.position(state.group, index)
    segment, offset = position >> SEGMENT_SHIFT, (position & OFFSET_MASK) << 3
    if segment:
        what = f"does not read: segment {segment} at {offset}"
    elif (state.group, index) in scan.unread_places:
        segment, offset, _length = scan.unread_places[state.group, index]
        what = f"does not read: segment {segment} at {offset}"
    else:
        what = "is gone with its segment"
    queues = [
        f"{sum(count for _, count in ranges)} of "
        f"{state.topics[topic_of(ident)].tenant}/{state.topics[topic_of(ident)].name}"
        for ident, ranges in places.get(index, {}).items()
    ]
    others = [
        f"{count} {kind}"
        for kind, count in (
            ("retained", len(state.retained.slots_of(index))),
            ("half messages", sum(1 for _ in state.halves.of_entry(index))),
            ("dead letters", sum(1 for each in state.outbox.values() if each.index == index)),
        )
        if count
    ]
    lost = "messages: " + ", ".join([*queues, *others] or ["none"])
    found.note(f"entry {index} of group {state.group}", what, lost, repairable=True)


def _damaged_entries(disk: Disk, scan: Scan) -> Sequence[tuple[RaftGroup, int]]:
    """Entries that are held, in a segment that is there, and do not read."""
    by_segment: dict[int, list[tuple[int, int, int]]] = {}
    for group, index in scan.locations.held():
        if scan.locations.reaches(group, index):
            segment, offset, _length = scan.locations.locate(group, index)
            by_segment.setdefault(segment.number, []).append((offset, group, index))
    damaged: list[tuple[RaftGroup, int]] = []
    for number, rows in sorted(by_segment.items()):
        file = disk.open(segment_name(number))
        try:
            reader = SegmentReader(file, file.size(), scan.seed)
            for offset, group, index in sorted(rows):
                header = reader.record(offset)
                if header is None or (header.group, header.log_index) != (group, index):
                    damaged.append((RaftGroup(group), index))
        finally:
            file.close()
    return damaged
