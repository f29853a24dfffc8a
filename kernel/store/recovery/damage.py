"""Damage of a data directory, and whether it may be given up: others must have what is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ...broker.group_state.state import GroupState
from ...broker.snapshots.snapshot import load
from ...common.feature_levels import LATEST
from ...common.ids import RaftGroup
from ...common.ports import Disk
from ...log.errors import JournalDamaged
from ...log.format.checkpoint import Checkpoint
from ...log.journal import Journal, JournalOptions
from ...log.recovering.recovery import Recovered
from ...log.recovering.scan import Scan
from ...raft.messages import Membership
from ..snapshots.snapshot_file import SnapshotDamaged, read


class Snapshots:
    """The states in the snapshots that a checkpoint names."""

    def __init__(
        self, disk: Disk, checkpoint: Checkpoint | None, understands: int = LATEST
    ) -> None:
        """`understands`: the level up to which this build does (`feature_levels`)."""
        self.understands = understands
        self.names: dict[RaftGroup, str] = {}
        self.states: dict[RaftGroup, GroupState] = {}
        self.unreadable: dict[int, str] = {}
        for number, mark in (checkpoint.groups if checkpoint else {}).items():
            if mark.snapshot:
                try:
                    self.states[RaftGroup(number)] = load(read(disk, mark.snapshot), understands)
                    self.names[RaftGroup(number)] = mark.snapshot
                except SnapshotDamaged as error:
                    self.unreadable[number] = str(error)


class Others:
    """Whether other stores have what is damaged in this one."""

    def __init__(
        self, node: int, first: Membership | None, states: Mapping[RaftGroup, GroupState]
    ) -> None:
        self._node = node
        self._first = first
        self._members = {int(group): each.membership for group, each in states.items()}

    def have(self, group: int) -> bool:
        """By the group's last snapshot: its other voters can decide without this store, as healing
        takes. If none of it reads, its members are not known, and it is enough that all other
        groups are shared with somebody. Who was made to join others has nothing before their first
        snapshot.
        """
        if group in self._members:
            return self._can_heal(self._members[group])
        if self._first is not None and not self._first.voters and not self._members:
            return True
        return all(map(self._is_shared, self._members.values() or (self._first,)))

    def _can_heal(self, members: Membership | None) -> bool:
        if members is None or not members.voters:
            return False
        halves = [set(half) for half in (members.voters, members.voters_outgoing) if half]
        return all(2 * len(half - {self._node}) > len(half) for half in halves)

    def _is_shared(self, members: Membership | None) -> bool:
        return members is not None and bool(
            {*members.voters, *members.voters_outgoing} - {self._node}
        )


def recover_journal(
    disk: Disk,
    options: JournalOptions,
    checkpoint: Checkpoint | None,
    others: Others | None,
    approve: Callable[[Scan], None],
) -> tuple[Journal, Recovered]:
    """Nothing is changed before it is clear that others have what is damaged."""
    try:
        return Journal.recover(disk, options, checkpoint, approve)
    except JournalDamaged as error:
        check(others, error.groups, checkpoint)
    return Journal.recover(disk, replace(options, accept_damage=True), checkpoint, approve)


def check(others: Others | None, damaged: Mapping[int, str], checkpoint: Checkpoint | None) -> None:
    """JournalDamaged if nobody else has what was lost. What was found so before still is, and what
    was left is not lost.
    """
    known = checkpoint.damaged if checkpoint else frozenset()
    left = checkpoint.left if checkpoint else frozenset()
    lost = {
        group: why
        for group, why in damaged.items()
        if group not in left and (others is None or (group not in known and not others.have(group)))
    }
    if lost:
        raise JournalDamaged(lost)


def admit(journal: Journal) -> None:
    """Have the checkpoint on disk name what is damaged, before anything is removed: the next start
    may not find that damage any more, and would take what is left of the group for all of it.
    Blocking; OSError.
    """
    if not journal.damaged <= journal.last_checkpoint.damaged:
        job = journal.checkpoint({})
        job.run()
        journal.checkpointed(job)
