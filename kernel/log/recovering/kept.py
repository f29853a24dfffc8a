"""What installs that a crash has ended left behind: the next one of its group may take it.

Which records belonged together nobody has written down. Rewritten entries that no closing record
stands for, of one group, with none of another group's between them, are taken for such an install:
a rewrite that was abandoned has left some of these too, and they are as good. Each record is looked
at once more before it counts (`reading.kept_check`), for those of old segments were not read.

Nothing is kept of a group that is void, and of no group where the journal does not read; nor what
the group's snapshot has applied: that holds it, or nobody wants it any more. So what a store has
of a group from before it left that is not met again when it comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..format.record import Close
from ..install import KEPT_MAX, EntryRows, KeptEntries
from ..locations import pack_position
from .evidence import Place
from .scan import Scan


def kept_entries(scan: Scan) -> dict[int, list[KeptEntries]]:
    """By group, oldest first; once what is not proven was cut off."""
    if scan.unreadable or scan.spoilt or scan.damage_all is not None:
        return {}
    found: dict[int, list[KeptEntries]] = {}
    for run in _runs(_there(scan), scan.marks):
        header = run[0].header
        if header.group in scan.damaged or header.sequence < scan.last_entries.get(header.group, 0):
            continue
        found.setdefault(header.group, []).append(_kept(run))
    for group, each in found.items():
        largest = sorted(each, key=lambda kept: len(kept.rows))[-KEPT_MAX:]
        found[group] = sorted(largest, key=lambda kept: kept.close.first)
    return found


def _there(scan: Scan) -> Iterator[Place]:
    """Those that do not count and are part of the journal."""
    for place in scan.unclosed:
        segment = scan.locations.segments.get(place.segment)
        if segment is None or place.offset + place.header.padded > segment.end:
            continue
        if not scan.is_closed(place):
            yield place


def _runs(places: Iterator[Place], marks: Mapping[int, int]) -> Iterator[list[Place]]:
    """Of one group, with rising indexes above its mark, one behind another."""
    run: list[Place] = []
    for place in places:
        header = place.header
        counts = header.log_index > marks.get(header.group, 0)
        if run:
            last = run[-1].header
            follows = last.group == header.group and last.sequence < header.sequence
            if not (counts and follows and last.log_index < header.log_index):
                yield run
                run = []
        if counts:
            run.append(place)
    if run:
        yield run


def _kept(run: list[Place]) -> KeptEntries:
    rows = EntryRows()
    for place in run:
        header = place.header
        rows.add(header.log_index, pack_position(place.segment, place.offset), header.length)
    segments = frozenset(place.segment for place in run)
    first, last = run[0].header.sequence, run[-1].header.sequence
    close = Close(0, first, last, min(segments), max(segments))
    return KeptEntries(close, rows, segments, verified=False)
