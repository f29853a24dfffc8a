"""What the next checkpoint says of a journal (`checkpoint.py` has its format)."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import JournalError
from ..format.checkpoint import Checkpoint, GroupCheckpoint, Position
from ..format.record import Close
from ..groups import GroupLog
from ..install import InstallJob
from ..locations import OFFSET_MASK, SEGMENT_SHIFT, Locations
from ..writer import Writer


def next_checkpoint(
    last: Checkpoint,
    logs: Mapping[int, GroupLog],
    locations: Locations,
    writer: Writer,
    closed: tuple[Close, ...],
    damaged: frozenset[int],
    snapshots: Mapping[int, tuple[int, str]],
    installed: InstallJob | None,
    level: int,
    left: frozenset[int],
    leaving: int | None = None,
) -> Checkpoint:
    """See `Journal.checkpoint`. JournalError if an index is beyond what is stable, or if what is
    needed stands before the last checkpoint, in segments that may be gone: then the books are
    wrong, and the checkpoint that is on disk is the better one.
    """
    groups: dict[int, GroupCheckpoint] = {}
    position = writer.synced_end()
    for number, log in logs.items():
        if number == leaving:
            groups[number] = GroupCheckpoint(0, 0, "", log.hard_state)
            continue
        before = last.groups.get(number)
        known = (before.index, before.snapshot) if before else (0, "")
        index, name = snapshots.get(number, known)
        if before and index < before.index:
            raise JournalError(
                f"the snapshot of group {number} has applied {index}, "
                f"the one before it {before.index}"
            )
        if installed is not None and number == installed.group:
            groups[number] = GroupCheckpoint(index, installed.term, name, log.hard_state)
            continue
        if index > log.last_index:
            raise JournalError(f"group {number} has no entry {index} to be checkpointed")
        term = before.term if before and before.index == index else log.term(index)
        groups[number] = GroupCheckpoint(index, term, name, log.hard_state)
        if log.replaced:
            position = min(position, last.position)
        placed = locations.position(number, index + 1)
        if placed and index < log.last_index:
            offset = (placed & OFFSET_MASK) << 3
            position = min(position, Position(placed >> SEGMENT_SHIFT, offset))
    if position < last.position:
        raise JournalError(f"a checkpoint from {position} on, behind one from {last.position} on")
    named = () if installed is None else installed.named()
    return Checkpoint(
        last.store,
        position,
        writer.synced_sequence,
        groups,
        {number: cut for number, cut in last.cuts.items() if number in locations.segments},
        (*closed, *named),
        damaged if leaving is None else damaged | {leaving},
        max(last.level, level),
        left if leaving is None else left | {leaving},
    )
