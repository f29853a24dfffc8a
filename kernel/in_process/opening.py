"""Opens a data directory: recovery, then a store and its client, ready to start.

recover (`recovering`) -> store, housekeeper, client
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..api.client import PutRecord
from ..common.feature_levels import LATEST
from ..common.ids import RaftGroup
from ..common.limits import DATA_GROUPS_DEFAULT, DATA_GROUPS_MAX
from ..common.ports import Clock, Disk, Random
from ..log.errors import JournalError
from ..log.journal import JournalOptions
from ..log.reading.aside import LOST_DIRECTORY
from ..store.drivers.worker import Workers
from ..store.node import Store
from ..store.raft_groups.consensus import Origin, RaftTiming
from ..store.raft_groups.peers import Peers
from ..store.recovery.losses import Losses, is_too_much
from ..store.recovery.recovering import DATA_GROUPS_RECORD, Recovered, recover
from ..store.snapshots.snapshotter import SLICE_RECORDS
from ..store.snapshots.transfer import SnapshotReceiver, SnapshotSource
from ..store.space.housekeeper import SPARSE_BYTES_MIN, Housekeeper
from .local_client import LocalClient


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
    lost: Mapping[RaftGroup, Sequence[int]]
    """Entries that the disk lost, and that are given up once this store leads."""
    source: SnapshotSource | None = None
    receiver: SnapshotReceiver | None = None
    """Of a store that has others beside it."""
    accepting_watchers: list[Callable[[bool], None]] = field(default_factory=list)
    """Each hears when new messages are refused for want of space, and when no more."""
    before_stop: list[Callable[[], None]] = field(default_factory=list)
    """Each is called when the store begins to end in order, while it still writes."""

    async def start(self) -> None:
        """Take part in every group; lead at once those without other members, then serve."""
        await self.client.start(clean=self.clean)
        if not self.store.leads_all:
            self.housekeeper.start()
            await self.store.unreadable.give_up_all(self.lost)
            return
        if DATA_GROUPS_RECORD not in self.client.records(DATA_GROUPS_RECORD):
            await self.client.raise_level_everywhere(self.store.understands)
            count = str(len(self.store.home_groups)).encode()
            await self.client.administer(PutRecord(DATA_GROUPS_RECORD, count))
        self.housekeeper.start()
        await self.store.unreadable.give_up_all(self.lost)

    async def stop(self) -> None:
        """Everything pending to disk, a last checkpoint, the mark of an orderly end."""
        for action in self.before_stop:
            action()
        if self.receiver is not None:
            await self.receiver.stop()
        await self.client.drain()
        await self.housekeeper.stop()
        await self.store.stop()
        self.store.journal.close()


SEGMENT_BYTES = 16 * 1024 * 1024
"""Segment size of a store: small enough that the files kept ready do not outweigh a small store,
large enough that a full disk stream rolls over only a few times a second."""


def open_store(
    disk: Disk,
    clock: Clock,
    random: Random,
    workers: Workers,
    fatal: Callable[[str, BaseException], None],
    *,
    options: JournalOptions | None = None,
    data_groups: int = DATA_GROUPS_DEFAULT,
    node: int = 1,
    members: Sequence[int] | None = None,
    peers: Peers | None = None,
    timing: RaftTiming | None = None,
    reserve_bytes: int | None = None,
    sparse_bytes_min: int = SPARSE_BYTES_MIN,
    slice_records: int = SLICE_RECORDS,
    repair: bool = False,
    understands: int = LATEST,
) -> LocalStore:
    """Recover a data directory and build the store over it; then `await start()`.

    `fatal` is called with a sentence and the error when the process must end (a failed sync).
    `data_groups` and `members` are for a new store; an old one keeps its own: all nodes that begin
    together; None: this one alone; nobody: it waits to be taken in by others. `node`: its number in
    the cluster. `reserve_bytes`: free space below which new messages are refused (default:
    docs/design/storage.md#a-full-disk). `sparse_bytes_min`: a smaller journal is never rewritten.
    `slice_records`: at most so many records of a snapshot are made in one turn of the loop.
    `repair`, `understands`: see `recover`; a new store begins with all that is understood on.
    """
    if not 1 <= data_groups <= DATA_GROUPS_MAX:
        raise ValueError(f"data_groups must be 1 to {DATA_GROUPS_MAX}")
    options = options or JournalOptions(segment_bytes=SEGMENT_BYTES)
    losses = _losses(disk, repair=repair)
    recovered = recover(
        disk,
        random,
        options,
        data_groups,
        node,
        members,
        heals=peers is not None,
        repair=repair,
        understands=understands,
    )
    loop = asyncio.get_running_loop()
    store = Store(
        loop,
        recovered.journal,
        _origin(recovered, born_alone=members is None or not members),
        clock,
        fatal,
        workers,
        losses,
        node=node,
        peers=peers,
        timing=timing,
        jitter=lambda ticks: random.bits(31) % ticks,
        understands=understands,
    )
    client = LocalClient(store, clock, random)

    def accept(accepting: bool) -> None:
        client.accepting = accepting
        for tell in local.accepting_watchers:
            tell(accepting)

    housekeeper = Housekeeper(
        loop, store, disk, workers, accept, fatal, reserve_bytes, sparse_bytes_min, slice_records
    )
    store.unreadable.expect(recovered.lost)
    local = LocalStore(
        store, client, housekeeper, recovered.replayed, recovered.clean, recovered.lost
    )
    if peers is not None:
        _transfer_snapshots(local, disk, clock, workers, peers, fatal)
    else:  # nobody will send what could be taken over
        for group in [*recovered.journal.kept]:
            recovered.journal.forget_kept(group)
    return local


def _origin(recovered: Recovered, *, born_alone: bool) -> Origin:
    return Origin(
        recovered.states,
        recovered.configurations,
        recovered.snapshot_members,
        recovered.damaged,
        recovered.left,
        born_alone=born_alone,
    )


def _transfer_snapshots(
    local: LocalStore,
    disk: Disk,
    clock: Clock,
    workers: Workers,
    peers: Peers,
    fatal: Callable[[str, BaseException], None],
) -> None:
    """Let the store send snapshots to others and receive theirs."""
    store = local.store
    outgoing = workers("weir-snapshots-out")
    local.source = SnapshotSource(disk, clock, outgoing, store, store.consensus.healing.hear)
    incoming = workers("weir-snapshots-in")
    receiver = SnapshotReceiver(disk, incoming, peers, store, local.housekeeper, fatal)
    local.receiver = store.consensus.receiver = receiver


def _losses(disk: Disk, *, repair: bool) -> Losses:
    """What was given up before. JournalError: too much, for a store that is not repaired."""
    losses = Losses(disk)
    if is_too_much(len(losses) + 1) and not repair:
        raise JournalError(
            f"{len(losses)} log entries did not read and were given up: something is wrong with "
            "the disk, the memory or a cable. See to that, look with `weir doctor` for more, then "
            f"take the files in {LOST_DIRECTORY}/ away"
        )
    return losses
