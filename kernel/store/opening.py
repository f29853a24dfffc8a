"""Opens a data directory: recovery, then a store and its client, ready to start.

    ensure store.meta -> read ckpt -> recover the journal -> load snapshots, tell the journal what
    they refer to -> replay what stands behind them -> store, housekeeper, client

Replayed entries are on the disks of a majority (of one voter: this disk), so they are applied as
committed before the new term begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..broker.liveness import references
from ..broker.machine import Machine
from ..broker.observer import Observer
from ..broker.snapshot import load
from ..broker.state import GroupState, QueueState, RouterState, TopicState
from ..broker.tree_state import TreeEvent
from ..client import PutRecord
from ..ids import METADATA_GROUP, LogIndex, RaftGroup
from ..limits import DATA_GROUPS_DEFAULT, DATA_GROUPS_MAX
from ..local_client import LocalClient
from ..log.checkpoint import Checkpoint
from ..log.files import JOURNAL_DIRECTORY, ROOT_DIRECTORY
from ..log.journal import Journal, JournalOptions
from ..log.meta import ensure_meta
from ..model import Route, TopicInfo
from ..ports import Clock, Disk, Random
from .housekeeper import SPARSE_BYTES_MIN, Housekeeper
from .node import Store
from .snapshot_file import DIRECTORY as SNAPSHOT_DIRECTORY
from .snapshot_file import read
from .snapshotter import SLICE_RECORDS
from .worker import Workers


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


@dataclass(slots=True)
class LocalStore:
    """An opened data directory."""

    store: Store
    client: LocalClient
    housekeeper: Housekeeper
    replayed: int
    """Entries replayed behind the snapshots."""
    clean: bool
    """Whether the last run ended in order."""

    async def start(self) -> None:
        """Lead every group, then serve."""
        await self.client.start(clean=self.clean)
        if DATA_GROUPS_RECORD not in self.client.records(DATA_GROUPS_RECORD):
            count = str(len(self.store.data_groups)).encode()
            await self.client.administer(PutRecord(DATA_GROUPS_RECORD, count))
        self.housekeeper.start()

    async def stop(self) -> None:
        """Everything pending to disk, a last checkpoint, the mark of an orderly end."""
        await self.client.drain()
        await self.housekeeper.stop()
        await self.store.stop()
        self.store.journal.close()


DATA_GROUPS_RECORD = "store/data_groups"
"""Metadata record of the number of data groups: names are placed by it, so that it never changes.
It is written once all groups exist; until then a start counts as the first one."""

SEGMENT_BYTES = 16 * 1024 * 1024
"""Segment size of a store: small enough that the files kept ready do not outweigh a small store,
large enough that a full disk stream rolls over only a few times a second."""


def recover(
    disk: Disk, random: Random, options: JournalOptions, data_groups: int
) -> tuple[Journal, dict[RaftGroup, GroupState], int, bool]:
    """Journal and states of a data directory, entries replayed, whether it was closed in order.
    Blocking. Errors: those of `Journal.recover`, SnapshotDamaged, ValueError.
    """
    ensure_meta(disk, random)
    # A process that was killed between a rename and its sync has left names that are there but
    # not durable: whatever is read from here on must not be gone after the next power loss.
    for directory in (ROOT_DIRECTORY, JOURNAL_DIRECTORY, SNAPSHOT_DIRECTORY):
        if directory == ROOT_DIRECTORY or disk.names(directory):
            disk.sync_directory(directory)
    checkpoint = Checkpoint.read(disk)
    journal, recovered = Journal.recover(disk, options, checkpoint)
    states: dict[RaftGroup, GroupState] = {}
    known = max((data_groups, *recovered.last, *recovered.checkpoint.groups))
    for number in range(known + 1):
        states[RaftGroup(number)] = GroupState(RaftGroup(number))
    for number, mark in recovered.checkpoint.groups.items():
        if mark.snapshot:
            state = load(read(disk, mark.snapshot))
            states[RaftGroup(number)] = state
            for index, count in references(state).items():
                journal.retain(number, index, count)
    machines = {group: Machine(state, journal, Silent()) for group, state in states.items()}
    replayed = 0
    for group_number, index, term, body in recovered.entries:
        machines[RaftGroup(group_number)].apply(LogIndex(index), term, body)
        replayed += 1
    journal.finish_recovery()
    record = states[METADATA_GROUP].records.get(DATA_GROUPS_RECORD)
    if record is not None:  # the number the store began with; more could be empty groups only
        states = {group: each for group, each in states.items() if group <= int(record[1])}
    return journal, states, replayed, recovered.clean


def open_store(
    disk: Disk,
    clock: Clock,
    random: Random,
    workers: Workers,
    fatal: Callable[[str, BaseException], None],
    *,
    options: JournalOptions | None = None,
    data_groups: int = DATA_GROUPS_DEFAULT,
    reserve_bytes: int | None = None,
    sparse_bytes_min: int = SPARSE_BYTES_MIN,
    slice_records: int = SLICE_RECORDS,
) -> LocalStore:
    """Recover a data directory and build the store over it; then `await start()`.

    `fatal` is called with a sentence and the error when the process must end (a failed sync).
    `data_groups` is for a new store; an old one keeps its number. `reserve_bytes`: free space
    below which new messages are refused (default: DESIGN.md 4). `sparse_bytes_min`: a smaller
    journal is never rewritten. `slice_records`: at most so many records of a snapshot are made in
    one turn of the loop.
    """
    if not 1 <= data_groups <= DATA_GROUPS_MAX:
        raise ValueError(f"data_groups must be 1 to {DATA_GROUPS_MAX}")
    journal, states, replayed, clean = recover(
        disk, random, options or JournalOptions(segment_bytes=SEGMENT_BYTES), data_groups
    )
    loop = asyncio.get_running_loop()
    store = Store(loop, journal, states, clock, fatal, workers)
    client = LocalClient(store, clock, random)

    def accept(accepting: bool) -> None:
        client.accepting = accepting

    housekeeper = Housekeeper(
        loop, store, disk, workers, accept, fatal, reserve_bytes, sparse_bytes_min, slice_records
    )
    return LocalStore(store, client, housekeeper, replayed, clean)
