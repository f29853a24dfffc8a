"""What a data directory holds: the journal, and the state of every group up to what is committed.

    ensure store.meta -> read ckpt -> recover the journal -> load snapshots, tell the journal what
    they refer to -> replay what stands behind them, as far as it is committed

What is on this disk is committed if the group has no other member; else if the hard state says so.
What may not be stays in the log: the next leader decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..broker.liveness import references
from ..broker.machine import Machine
from ..broker.observer import Observer
from ..broker.snapshot import load
from ..broker.state import GroupState, QueueState, RouterState, TopicState
from ..broker.tree_state import TreeEvent
from ..ids import METADATA_GROUP, LogIndex, RaftGroup
from ..log.checkpoint import Checkpoint
from ..log.files import JOURNAL_DIRECTORY, ROOT_DIRECTORY
from ..log.journal import Journal, JournalOptions
from ..log.meta import ensure_meta
from ..model import Route, TopicInfo
from ..ports import Disk, Random
from ..raft.configuration import changed, decode
from ..raft.messages import CONFIGURATION, Membership
from .group_log import entry_of
from .snapshot_file import DIRECTORY as SNAPSHOT_DIRECTORY
from .snapshot_file import read

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


def recover(
    disk: Disk,
    random: Random,
    options: JournalOptions,
    data_groups: int,
    node: int = 1,
    members: Sequence[int] | None = None,
) -> Recovered:
    """Open a data directory. `members`: of the groups of a new one; None: `node` alone. Blocking.
    Errors: those of `Journal.recover`, SnapshotDamaged, ValueError.
    """
    ensure_meta(disk, random)
    # A process that was killed between a rename and its sync has left names that are there but
    # not durable: whatever is read from here on must not be gone after the next power loss.
    for directory in (ROOT_DIRECTORY, JOURNAL_DIRECTORY, SNAPSHOT_DIRECTORY):
        if directory == ROOT_DIRECTORY or disk.names(directory):
            disk.sync_directory(directory)
    checkpoint = Checkpoint.read(disk)
    journal, recovered = Journal.recover(disk, options, checkpoint)
    first = None if members is None else Membership(tuple(sorted(members)))
    states: dict[RaftGroup, GroupState] = {}
    known = max((data_groups, *recovered.last, *recovered.checkpoint.groups))
    for number in range(known + 1):
        states[RaftGroup(number)] = GroupState(RaftGroup(number))
        states[RaftGroup(number)].membership = first
    snapshot_members: dict[RaftGroup, Membership | None] = {}
    for number, mark in recovered.checkpoint.groups.items():
        if mark.snapshot:
            state = load(read(disk, mark.snapshot))
            states[RaftGroup(number)] = state
            snapshot_members[RaftGroup(number)] = state.membership
            for index, count in references(state).items():
                journal.retain(number, index, count)
    replay = _Replay(journal, states, node)
    for group_number, index, term, body in recovered.entries:
        replay.take(RaftGroup(group_number), index, term, body)
    journal.finish_recovery()
    record = states[METADATA_GROUP].records.get(DATA_GROUPS_RECORD)
    if record is not None:  # the number the store began with; more could be empty groups only
        states = {group: each for group, each in states.items() if group <= int(record[1])}
    return Recovered(
        *(journal, states, replay.configurations, snapshot_members, replay.applied),
        recovered.clean,
    )


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
