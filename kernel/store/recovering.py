"""What a data directory holds: the journal, and the state of every group up to what is committed.

    ensure store.meta -> read ckpt -> recover the journal -> load snapshots, tell the journal what
    they refer to -> replay what stands behind them, as far as it is committed

What is on this disk is committed if the group has no other member; else if the hard state says so.
What may not be stays in the log: the next leader decides.

A group that lost synced data here is damaged: its records, or the snapshot, do not read, or what a
message stands in is gone. If it has other voters, nothing of it counts any more and it is named in
`Recovered.damaged`, and in the checkpoint on disk before anything else is changed: the store heals
it (`healing`). Else nobody has the data, and the store refuses to start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..broker.liveness import references
from ..broker.machine import Machine
from ..broker.observer import Observer
from ..broker.state import GroupState, QueueState, RouterState, TopicState
from ..broker.tree_state import TreeEvent
from ..ids import METADATA_GROUP, LogIndex, QueueId, RaftGroup
from ..log.checkpoint import Checkpoint
from ..log.files import JOURNAL_DIRECTORY, ROOT_DIRECTORY
from ..log.journal import Journal, JournalOptions
from ..log.meta import ensure_meta
from ..model import Route, TopicInfo
from ..ports import Disk, Random
from ..raft.configuration import changed, decode
from ..raft.messages import CONFIGURATION, Membership
from .damage import Others, Snapshots, admit, check, recover_journal
from .group_log import entry_of
from .snapshot_file import DIRECTORY as SNAPSHOT_DIRECTORY

DATA_GROUPS_RECORD = "store/data_groups"
"""Metadata record of the number of data groups: names are placed by it, so that it never changes.
It is written once all groups exist; until then a start counts as the first one."""


class Silent(Observer):
    """Observer of a replay: nobody is listening yet."""

    def appended(self, queue: QueueState) -> None:
        """Nothing."""

    def released(self, queue: QueueState, group: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Nothing."""

    def changed(self, queue: QueueState, group: str, ended: Sequence[tuple[int, int]]) -> None:
        """Nothing."""

    def settled(self, queue: QueueState, group: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Nothing."""

    def marked(self, queue: QueueState, group: str) -> None:
        """Nothing."""

    def purged(self, queue: QueueState, group: str) -> None:
        """Nothing."""

    def group_removed(self, queue: QueueState, group: str) -> None:
        """Nothing."""

    def queues_changed(self, topic: TopicState) -> None:
        """Nothing."""

    def queues_removed(self, queues: Sequence[QueueState]) -> None:
        """Nothing."""

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """Nothing."""

    def router_changed(self, router: RouterState, *, removed: bool) -> None:
        """Nothing."""

    def route_changed(self, router: RouterState, route: Route, *, removed: bool) -> None:
        """Nothing."""

    def outbox_grew(self) -> None:
        """Nothing."""

    def record_changed(self, key: str, value: bytes | None) -> None:
        """Nothing."""

    def tree_changed(self, event: TreeEvent) -> None:
        """Nothing."""


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


def recover(
    disk: Disk,
    random: Random,
    options: JournalOptions,
    data_groups: int,
    node: int = 1,
    members: Sequence[int] | None = None,
    *,
    heals: bool = False,
) -> Recovered:
    """Open a data directory. `members`: of the groups of a new one; None: `node` alone. `heals`:
    there may be others who have what is damaged here. Blocking. Errors: those of `Journal.recover`,
    JournalDamaged also for what a group without other voters has lost, ValueError.
    """
    ensure_meta(disk, random)
    # A process that was killed between a rename and its sync has left names that are there but
    # not durable: whatever is read from here on must not be gone after the next power loss.
    for directory in (ROOT_DIRECTORY, JOURNAL_DIRECTORY, SNAPSHOT_DIRECTORY):
        if directory == ROOT_DIRECTORY or disk.names(directory):
            disk.sync_directory(directory)
    checkpoint = Checkpoint.read(disk)
    first = None if members is None else Membership(tuple(sorted(members)))
    snapshots = Snapshots(disk, checkpoint)
    others = Others(node, first, snapshots.states) if heals else None
    journal, recovered = recover_journal(disk, options, checkpoint, others)
    damaged = {**recovered.damaged, **snapshots.unreadable}
    on_disk = {*recovered.last, *recovered.checkpoint.groups}
    numbers = range(max({data_groups, *on_disk}) + 1)
    if recovered.damaged_all:
        damaged.update(dict.fromkeys(set(numbers) - on_disk, recovered.damaged_all))
    check(others, damaged, checkpoint)
    for number in damaged:
        journal.void(number)
    states: dict[RaftGroup, GroupState] = {}
    for number in map(RaftGroup, numbers):
        states[number] = GroupState(number)
        # Who has lost group 0 does not know which groups there are: it makes up none.
        unknown = METADATA_GROUP in damaged and number not in on_disk
        states[number].membership = Membership() if unknown or number in damaged else first
    sound = {group: each for group, each in snapshots.states.items() if group not in damaged}
    states.update(sound)
    snapshot_members = {group: each.membership for group, each in sound.items()}
    for group, state in sound.items():
        for index, count in references(state).items():
            journal.retain(group, index, count)
    replay = _Replay(journal, states, node)
    for group_number, index, term, body in recovered.entries:
        replay.take(RaftGroup(group_number), index, term, body)
    if recovered.unreadable:
        missing = {
            group: f"entry {index}, which messages stand in, is unreadable"
            for group, index in journal.missing().items()
        }
        check(others, missing, checkpoint)
        damaged.update(missing)
        for number in map(RaftGroup, missing):
            journal.void(number)
            states[number] = GroupState(number)
            states[number].membership = Membership()
            snapshot_members.pop(number, None)
            replay.configurations.pop(number, None)
    journal.finish_recovery()
    admit(journal)
    record = states[METADATA_GROUP].records.get(DATA_GROUPS_RECORD)
    if record is not None:  # the number the store began with; more could be empty groups only
        states = {group: each for group, each in states.items() if group <= int(record[1])}
    return Recovered(
        *(journal, states, replay.configurations, snapshot_members, replay.applied),
        recovered.clean,
        {RaftGroup(number): why for number, why in damaged.items()},
    )


def _nobody_has_one(_ident: QueueId) -> bool:
    return False


class _Replay:
    """Applies what is committed."""

    def __init__(self, journal: Journal, states: dict[RaftGroup, GroupState], node: int) -> None:
        self._machines = {group: Machine(each, journal, Silent()) for group, each in states.items()}
        self._alone = Membership((node,))
        self._commits = {group: journal.hard_state(group).commit for group in states}
        self.configurations: dict[RaftGroup, list[int]] = {}
        self.applied = 0

    def take(self, group: RaftGroup, index: int, term: int, stored: bytes) -> None:
        """The next entry of a group."""
        entry = entry_of(term, index, stored)
        machine = self._machines[group]
        state = machine.state
        alone = state.membership is None or state.membership == self._alone
        if not alone and index > self._commits[group]:
            if entry.kind == CONFIGURATION:
                self.configurations.setdefault(group, []).append(index)
            return
        self.applied += 1
        if entry.kind == CONFIGURATION:
            state.membership = changed(state.membership or self._alone, decode(entry.body))
            state.applied, state.term = LogIndex(index), term
        else:
            machine.apply(LogIndex(index), term, stored)
            state.queues.rest(_nobody_has_one)
