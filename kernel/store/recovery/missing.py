"""Entries that messages stand in and that the journal does not have any more, found at a start.

A snapshot refers to entries by their index. Whether they are all there is known only once what
follows it is replayed: what was acked since may have gone, segment and all. What is still held then
and is not there was lost by the disk. In a group whose only member this is:

    unreadable   a record in a segment that is there: the entry can be given up (`unreadable`), and
                 all else goes on
    gone         a segment is missing, or its file is cut short: somebody has to say so first, for
                 it may be in a backup, or on a volume that is not mounted

Others may have acked it in entries of which this store does not know yet that they are committed:
there it counts only if something is known to be unreadable.

All of this is found out before anything on the disk is changed. It takes a replay of its own, but
only if something is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...broker.applying.liveness import references
from ...broker.group_state.state import GroupState
from ...broker.snapshots.snapshot import load
from ...common.ids import RaftGroup
from ...common.ports import Disk
from ...log.errors import JournalDamaged
from ...log.locations import SEGMENT_SHIFT
from ...log.recovering.recovery import replay
from ...log.recovering.scan import Scan
from ..snapshots.snapshot_file import read
from .damage import Snapshots
from .losses import is_too_much
from .replaying import Replay

NAMED_MAX = 5
"""Entries and segments named in a refusal, of each kind: more help nobody."""


class _Counted:
    """`observer.Retention` that counts the references to some entries only."""

    def __init__(self, counts: dict[tuple[int, int], int]) -> None:
        self.counts = counts

    def retain(self, group: int, index: int, references: int) -> None:
        """A state needs an entry more often."""
        if (group, index) in self.counts:
            self.counts[group, index] += references

    def release(self, group: int, index: int, references: int) -> None:
        """A state needs an entry less often."""
        self.retain(group, index, -references)


class Missing:
    """What a start finds missing below the checkpoint."""

    def __init__(self, disk: Disk, node: int, snapshots: Snapshots, *, repair: bool) -> None:
        """`repair`: what is gone is given up too."""
        self._disk = disk
        self._node = node
        self._snapshots = snapshots
        self._repair = repair
        self.references = {group: references(each) for group, each in snapshots.states.items()}
        """By group: entry to how many hold it."""
        self.lost: dict[RaftGroup, Sequence[int]] = {}
        """Entries to be given up, of groups that nobody else has."""
        self.shared: dict[int, str] = {}
        """Groups that have other members and lack entries here, and which."""

    def look(self, scan: Scan) -> None:
        """Compare the snapshots with what is there. Blocking. JournalDamaged: something is gone
        that nobody else has; OSError.
        """
        reaches = scan.locations.reaches
        suspects = {
            (int(group), index): count
            for group, counts in self.references.items()
            for index, count in counts.items()
            if not reaches(group, index)
        }
        if not suspects:
            return
        held, alone = self._held(scan, suspects)
        lost: dict[RaftGroup, Sequence[int]]
        lost = {group: indexes for group, indexes in held.items() if group in alone}
        gone = _gone(scan, lost)
        if is_too_much(sum(map(len, lost.values()))):
            gone = gone or _too_many(lost)
        if gone and not self._repair:
            raise JournalDamaged(gone)
        self.lost = lost
        self.shared = {
            int(group): f"entry {indexes[0]}, which messages stand in, is unreadable"
            for group, indexes in held.items()
            if group not in alone
        }

    def _held(
        self, scan: Scan, suspects: dict[tuple[int, int], int]
    ) -> tuple[dict[RaftGroup, list[int]], set[RaftGroup]]:
        """Those that are still needed once all is replayed, by group; and the groups with no other
        member.
        """
        names = self._snapshots.names
        groups = {RaftGroup(group) for group, _index in suspects}
        states: dict[RaftGroup, GroupState] = {
            group: load(read(self._disk, names[group]), self._snapshots.understands)
            for group in sorted(groups)
        }
        commits = {group: scan.groups[group].hard_state.commit for group in states}
        counted = _Counted(suspects)
        again = Replay(counted, states, commits, self._node, self._snapshots.understands)
        for number, index, term, body in replay(self._disk, scan, list(scan.chain), scan.marks):
            if number in groups:
                again.take(RaftGroup(number), index, term, body)
        held: dict[RaftGroup, list[int]] = {}
        for (number, index), count in sorted(counted.counts.items()):
            if count:
                held.setdefault(RaftGroup(number), []).append(index)
        return held, {group for group in held if again.is_alone(group)}


def _gone(scan: Scan, lost: Mapping[RaftGroup, Sequence[int]]) -> dict[int, str]:
    """Why these entries cannot just be given up, by group; nothing if they can: no more are missing
    than the records that do not read.
    """
    where = scan.locations.position
    placed = {where(group, index) >> SEGMENT_SHIFT for group in lost for index in lost[group]}
    cut = sorted(placed - {0})
    if not cut and sum(map(len, lost.values())) <= scan.unread:
        return {}
    absent = [each for each in range(1, max(scan.numbers, default=0)) if each not in scan.numbers]
    why = "".join(
        f"; {what} {_named(numbers)}"
        for what, numbers in (
            ("cut short is the file of segment", cut),
            ("of those before the checkpoint there is no segment", absent),
        )
        if numbers
    )
    return {
        int(group): f"{len(each)} entries that messages stand in are gone: {_named(each)}{why}"
        for group, each in lost.items()
    }


def _too_many(lost: Mapping[RaftGroup, Sequence[int]]) -> dict[int, str]:
    return {
        int(group): f"{len(each)} entries that messages stand in do not read: {_named(each)}"
        for group, each in lost.items()
    }


def _named(numbers: Sequence[int]) -> str:
    more = ", ..." if len(numbers) > NAMED_MAX else ""
    return ", ".join(map(str, numbers[:NAMED_MAX])) + more
