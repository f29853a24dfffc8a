"""Recovery of a store: the journal, and the state of every group up to what is committed.

    ensure store.meta -> read ckpt -> recover the journal -> load snapshots, tell the journal what
    they refer to -> replay what stands behind them, as far as it is committed

What is on this disk is committed if the group has no other member; else if the hard state says so.
What may not be stays in the log: the next leader decides.

A group that lost synced data here is damaged: its records, or the snapshot, do not read, or what a
message stands in is gone. If it has other voters, nothing of it counts any more and it is named in
`Recovered.damaged`, and in the checkpoint on disk before anything else is changed: the store heals
it (`healing`). Else nobody has the data. Entries below the checkpoint that do not read are named in
`Recovered.lost`, to be given up (`unreadable`); of anything else the store refuses to start, unless
it is told to `repair`: then it goes on with what there is. A group that the store has left is void
as a damaged one is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...broker.group_state.state import GroupState
from ...common.feature_levels import LATEST
from ...common.ids import ADDED_FIRST, METADATA_GROUP, RaftGroup
from ...common.ports import Disk, Random
from ...log.format.checkpoint import Checkpoint
from ...log.format.files import JOURNAL_DIRECTORY, ROOT_DIRECTORY
from ...log.format.meta import ensure_meta
from ...log.journal import Journal, JournalOptions
from ...log.recovering.scan import Scan
from ...raft.messages import Membership
from ..snapshots.snapshot_file import DIRECTORY as SNAPSHOT_DIRECTORY
from .damage import Others, Snapshots, admit, check, recover_journal
from .missing import Missing
from .replaying import Replay

DATA_GROUPS_RECORD = "store/data_groups"
"""Metadata record of the number of data groups: names are placed by it, so that it never changes.
It is written once all groups exist; until then a start counts as the first one."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """See `recover`."""

    journal: Journal
    states: dict[RaftGroup, GroupState]
    configurations: dict[RaftGroup, list[int]]
    """Per group the indexes of changes of membership that are in the log and not applied."""
    snapshot_members: dict[RaftGroup, Membership | None]
    """Per group that has a snapshot its members there."""
    replayed: int
    """Entries applied behind the snapshots."""
    clean: bool
    """Whether the last run ended in order."""
    damaged: Mapping[RaftGroup, str]
    """Groups of which nothing here counts, and why: others have it."""
    left: Collection[RaftGroup]
    """Those of them that were left, and have lost nothing."""
    lost: Mapping[RaftGroup, Sequence[int]]
    """Entries that messages stand in and that are gone, and nobody has them: to be given up."""


def recover(
    disk: Disk,
    random: Random,
    options: JournalOptions,
    data_groups: int,
    node: int = 1,
    members: Sequence[int] | None = None,
    *,
    heals: bool = False,
    repair: bool = False,
    understands: int = LATEST,
) -> Recovered:
    """Open a data directory. `members`: of the groups of a new one; None: `node` alone. `heals`:
    there may be others who have what is damaged here. `repair`: go on without what is lost, where
    nobody has it; a group whose snapshot does not read is none at all. `understands`: the level up
    to which this build does. Blocking. Errors: those of `Journal.recover`, FormatError also for
    what is on beyond that, JournalDamaged also for what a group without other voters has lost,
    ValueError.
    """
    _sync_names(disk, random)
    checkpoint = Checkpoint.read(disk, understands)
    first = None if members is None else Membership(tuple(sorted(members)))
    snapshots = Snapshots(disk, checkpoint, understands)
    others = Others(node, first, snapshots.states) if heals else None
    check(others, snapshots.unreadable, checkpoint)  # before anything on the disk is changed
    if repair:
        options = replace(options, accept_damage=True)
    missing = Missing(disk, node, snapshots, repair=repair)

    def approve(scan: Scan) -> None:
        missing.look(scan)
        if scan.unreadable:
            check(others, missing.shared, checkpoint)

    journal, recovered = recover_journal(disk, options, checkpoint, others, approve)
    damaged = {**recovered.damaged, **snapshots.unreadable}
    if recovered.unreadable:
        damaged.update(missing.shared)
    if repair:
        damaged = _give_up(journal, damaged)
    on_disk = {*recovered.last, *recovered.checkpoint.groups}
    begun = {number for number, (last, _) in recovered.last.items() if last}
    added = _added(begun | snapshots.states.keys() | damaged.keys())
    numbers = [*_founding_groups(data_groups, on_disk), *added]
    if recovered.damaged_all and not repair:
        damaged.update(dict.fromkeys(set(numbers) - on_disk, recovered.damaged_all))
    check(others, damaged, checkpoint)
    for number in damaged:
        journal.void(number)
    # Who has lost group 0 does not know which groups there are: it makes up none.
    unknown = set(numbers) - on_disk if METADATA_GROUP in damaged else set()
    states = _new_states(numbers, first, {*damaged, *unknown}, Membership((node,)))
    sound = {group: each for group, each in snapshots.states.items() if group not in damaged}
    states.update(sound)
    snapshot_members = {group: each.membership for group, each in sound.items()}
    for group in sound:  # before the replay, which lets go of some of them
        for index, count in missing.references[group].items():
            journal.retain(group, index, count)
    commits = {group: journal.hard_state(group).commit for group in states}
    replay = Replay(journal, states, commits, node, understands)
    for group_number, index, term, body in recovered.entries:
        replay.take(RaftGroup(group_number), index, term, body)
    journal.finish_recovery(replay.feature_level)
    admit(journal)
    return Recovered(
        journal,
        _those_of_the_cluster(states),
        replay.configurations,
        snapshot_members,
        replay.applied,
        recovered.clean,
        {RaftGroup(number): why for number, why in damaged.items()},
        [RaftGroup(number) for number in journal.left],
        missing.lost,
    )


def _founding_groups(data_groups: int, on_disk: Collection[int]) -> range:
    """Those that the cluster began with, without gaps."""
    return range(max(each for each in (data_groups, *on_disk) if each < ADDED_FIRST) + 1)


def _added(found: Collection[int]) -> list[int]:
    """Groups that were added, of those that this disk has something of. Where it has a term alone,
    the group is none: the register tells of it again (`cluster.births`).
    """
    return sorted(each for each in found if each >= ADDED_FIRST)


def _those_of_the_cluster(states: Mapping[RaftGroup, GroupState]) -> dict[RaftGroup, GroupState]:
    """Without groups above the number that the store began with: they could be empty ones only."""
    record = states[METADATA_GROUP].records.get(DATA_GROUPS_RECORD)
    count = int(record[1]) if record is not None else ADDED_FIRST
    return {group: each for group, each in states.items() if group <= count or group >= ADDED_FIRST}


def _give_up(journal: Journal, damaged: Mapping[int, str]) -> dict[int, str]:
    """Go on without what is lost. What is left of `damaged`: groups that the store has left."""
    for number in damaged.keys() - journal.left:
        journal.healed(number)
    return {number: why for number, why in damaged.items() if number in journal.left}


def _new_states(
    numbers: Iterable[int], first: Membership | None, without: Collection[int], alone: Membership
) -> dict[RaftGroup, GroupState]:
    """The groups as they begin. `without`: those that have no members here; `alone`: this node. An
    added group without a snapshot has begun here: to others its first entry comes in one.
    """
    states: dict[RaftGroup, GroupState] = {}
    for number in map(RaftGroup, numbers):
        states[number] = GroupState(number)
        begins = alone if number >= ADDED_FIRST else first
        states[number].membership = Membership() if number in without else begins
    return states


def _sync_names(disk: Disk, random: Random) -> None:
    """Give the store its identity, if it has none. A process that was killed between a rename and
    its sync has left names that are there but not durable: whatever is read from here on must not
    be gone after the next power loss.
    """
    ensure_meta(disk, random)
    for directory in (ROOT_DIRECTORY, JOURNAL_DIRECTORY, SNAPSHOT_DIRECTORY):
        if directory == ROOT_DIRECTORY or disk.names(directory):
            disk.sync_directory(directory)
