"""Takes the snapshots of a store in slices, off the write path (docs/design/storage.md#checkpoint).

A slice makes records for a millisecond or two, then lets the event loop go on; pieces of
PIECE_BYTES go to the housekeeping thread. While a group's snapshot is under way its state keeps
what changes (`kernel.broker.snapshots.cut`), so that the file holds the state at the one
applied index in its name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from ...broker.snapshots.cut import SnapshotCut
from ...common.ids import RaftGroup
from ...common.ports import Disk
from ...raft.messages import Membership
from ..drivers.worker import Runner
from ..node import Store
from .snapshot_file import SnapshotWriter, name_of, sync_names

SLICE_RECORDS = 200
SLICE_BYTES = 24 * 1024
"""A slice ends at so many records (5 us and more each) or bytes (25 ns each, if they are leases):
about a millisecond, with the record that takes it beyond. A publish meets two slices at the most,
one before its write and one behind. Counted, not timed: the clock of an event loop may stand still
within a turn."""

PAUSE_SECONDS = 0.002
"""Between two slices the event loop does other work for at least so long."""

PIECE_BYTES = 512 * 1024
"""Bytes handed to the thread at once, and synced: bounds the memory that a snapshot takes, and what
the journal's sync may have to wait for.
"""

Written = dict[int, tuple[int, str]]
"""Group to (applied index, name) of its new snapshot."""


class Snapshotter:
    """Writes snapshots of some groups, one group after the other."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: Store,
        disk: Disk,
        worker: Runner,
        slice_records: int = SLICE_RECORDS,
    ) -> None:
        self._loop = loop
        self._store = store
        self._disk = disk
        self._worker = worker
        self._slice_records = slice_records
        self.slices = 0
        self.records = 0
        self.bytes_written = 0
        """Of the last snapshots, or of those under way."""
        self.memberships: dict[RaftGroup, Membership | None] = {}
        """Of each group, as its last snapshot holds it."""

    def write(
        self,
        groups: Sequence[RaftGroup],
        done: Callable[[Written], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Write a snapshot of each group; `done` once all are on disk, or `failed`."""
        self.records = 0
        self.bytes_written = 0
        self._loop.call_soon(self._next, _Round(list(groups), done, failed))

    def _next(self, work: _Round) -> None:
        """Begin with the next group."""
        if not work.groups:
            self._sync_names(work)
            return
        group = work.groups.pop(0)
        state = self._store.replica(group).state
        cut = SnapshotCut(state)
        state.cut = cut
        self.memberships[group] = state.membership
        work.group = group
        work.index = state.applied
        work.records = iter(cut)
        work.writer = SnapshotWriter(self._disk, name_of(group, state.applied))
        self._slice(work)

    def _slice(self, work: _Round) -> None:
        """Make some records."""
        writer = work.writer
        bytes_max = writer.buffered_bytes + SLICE_BYTES
        last = True
        left = self._slice_records
        for record in work.records:
            writer.add(record)
            left -= 1
            if not left or writer.buffered_bytes >= bytes_max:
                last = False
                break
        self.slices += 1
        self.records += self._slice_records - left
        if last:
            self._store.replica(work.group).state.cut = None
        elif writer.buffered_bytes < PIECE_BYTES:
            self._loop.call_later(PAUSE_SECONDS, self._slice, work)
            return

        def finished(error: BaseException | None) -> None:
            if error is not None:
                self._store.replica(work.group).state.cut = None
                work.failed(error)
            elif last:
                work.written[work.group] = (work.index, writer.name)
                self._next(work)
            else:
                self._loop.call_later(PAUSE_SECONDS, self._slice, work)

        self.bytes_written += writer.buffered_bytes
        self._worker.submit(writer.take(last=last).run, finished)

    def _sync_names(self, work: _Round) -> None:
        """All are written: one sync of their directory for all of them."""

        def finished(error: BaseException | None) -> None:
            if error is not None:
                work.failed(error)
            else:
                work.done(work.written)

        self._worker.submit(lambda: sync_names(self._disk), finished)


class _Round:
    """Snapshots of some groups, under way."""

    __slots__ = ("done", "failed", "group", "groups", "index", "records", "writer", "written")

    def __init__(
        self,
        groups: list[RaftGroup],
        done: Callable[[Written], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.groups = groups
        self.done = done
        self.failed = failed
        self.written: Written = {}
        self.group: RaftGroup
        self.index: int
        self.records: Iterator[bytes]
        self.writer: SnapshotWriter
