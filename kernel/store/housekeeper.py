"""Background work of a store: checkpoints, space, disk marks. Never on the write path.

One job runs at a time in its own thread; the event loop only hands over what the job needs. The
groups' states are dumped in slices (`snapshotter`), the files are written by the thread. A
checkpoint is taken every 128 MiB of journal or 10 s, if anything was applied since.
"""

from __future__ import annotations

import asyncio
import errno
import math
from collections import deque
from collections.abc import Callable

from ..broker.liveness import live_slots
from ..ids import RaftGroup
from ..log.checkpoint import CheckpointJob
from ..log.journal import Journal, MaintenanceJob
from ..log.rewrite import RewriteJob
from ..log.writer import PrepareJob
from ..ports import Disk
from .disk_watch import DiskLevel, DiskSpace, DiskWatch
from .node import Store
from .snapshot_file import DIRECTORY
from .snapshotter import SLICE_RECORDS, Snapshotter, Written
from .transfer import Received
from .worker import Runner, Workers

CHECKPOINT_BYTES = 128 * 1024 * 1024
CHECKPOINT_SECONDS = 10
TICK_SECONDS = 1.0

SPARSE_BYTES_MIN = 64 * 1024 * 1024
SPARSE_FACTOR = 3
"""Rewriting begins above so many bytes on disk and so many times the live ones: the segment being
written, the next one and the reserve are always there, and the bound to keep is 5 times the live
bytes once these are more than a segment."""

POKE_SECONDS = 0.01
"""With many writes a second, what is due is looked at so often: two segments are kept ready, which
no disk fills in that time."""

RETRY_SECONDS = 1.0
"""After a failed job (a full disk) the next try comes so much later."""


class Housekeeper:
    """Keeps one store's files in order."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: Store,
        disk: Disk,
        workers: Workers,
        accept: Callable[[bool], None],
        fatal: Callable[[str, BaseException], None],
        reserve_bytes: int | None = None,
        sparse_bytes_min: int = SPARSE_BYTES_MIN,
        slice_records: int = SLICE_RECORDS,
    ) -> None:
        self._loop = loop
        self._store = store
        self._journal: Journal = store.journal
        self._disk = disk
        self._worker: Runner = workers("weir-housekeeping")
        self._accept = accept
        self._fatal = fatal
        self._watch = DiskWatch(disk, self._worker, self._judge_space, reserve_bytes)
        self._sparse_bytes_min = sparse_bytes_min
        self._busy = False
        self._paused_until = 0.0
        self._no_segment_until = 0.0
        self._next_poke = 0.0
        self._ticker: asyncio.TimerHandle | None = None
        self._last_checkpoint = loop.time()
        self._bytes_at_checkpoint = self._journal.statistics().bytes_written
        self._marks: dict[RaftGroup, int] = {}
        self.snapshots = Snapshotter(loop, store, disk, self._worker, slice_records)
        self._rewrite: RewriteJob | None = None
        self._rewriting: dict[tuple[int, int], bytes] = {}
        """Bodies of the entries in the part that is being rewritten."""
        self._received: deque[tuple[Received, asyncio.Future[None]]] = deque()
        self._stopping = False
        self.checkpoints = 0
        self.failures = 0

    def start(self) -> None:
        """Begin."""
        self._judge_space()
        self._store.on_written(self._written)
        self._tick()

    async def stop(self) -> None:
        """Finish the job under way, take a last checkpoint, stop the thread."""
        self._stopping = True
        if self._ticker is not None:
            self._ticker.cancel()
        await self._idle()
        self._checkpoint()
        await self._idle()
        self._worker.stop()

    async def _idle(self) -> None:
        """Return once no job is under way (a checkpoint is a chain of them)."""
        while self._busy:  # noqa: ASYNC110 - once, at the end of the process
            await asyncio.sleep(0.005)

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(TICK_SECONDS, self._tick)
        self._watch.look()
        for replica in self._store.replicas():
            replica.retain_streams()
            replica.forget_idle()
        self.poke()

    @property
    def disk_space(self) -> DiskSpace:
        """Room of the volume, at most about a second old unless the volume hangs."""
        return self._watch.space

    def _judge_space(self) -> None:
        full = self._watch.space.level is DiskLevel.FULL
        self._accept(not full and self._journal.can_accept)

    def _written(self) -> None:
        """A write has ended (hot): look after a rewrite, and now and then after everything."""
        now = self._loop.time()
        if self._rewrite is not None or now >= self._next_poke:
            self._next_poke = now + POKE_SECONDS
            self.poke()

    def poke(self) -> None:
        """Start the most urgent job, unless one runs."""
        if self._busy or self._stopping or self._loop.time() < self._paused_until:
            return
        job = self._journal.maintenance(segments=self._loop.time() >= self._no_segment_until)
        if job is not None:
            self._run(job.run, lambda: self._maintained(job), lambda: self._not_maintained(job))
        elif self._rewrite is not None:
            self._continue_rewrite(self._rewrite)
        elif self._received:
            self._install(*self._received.popleft())
        elif self._checkpoint_due():
            self._checkpoint()
        else:
            # A rewrite takes room before it gives some: never out of the reserve.
            may = self._journal.can_accept and self._is_sparse()
            candidate = self._journal.rewrite_candidate() if may else None
            if candidate is not None:
                self._rewrite = self._journal.rewrite(candidate, self._live_slots)
                self._continue_rewrite(self._rewrite)

    def _is_sparse(self) -> bool:
        """Whether rewriting is worth its writes: the journal is large, and mostly dead. Segments
        of a backlog that is just being drained are left to die by themselves.
        """
        journal = self._journal.statistics()
        return journal.bytes_on_disk > max(
            self._sparse_bytes_min, SPARSE_FACTOR * journal.live_bytes
        )

    def _run(
        self,
        job: Callable[[], None],
        done: Callable[[], None],
        failed: Callable[[], None] | None = None,
        *,
        may_fail: bool = False,
    ) -> None:
        """Have the thread do a job. Want of space passes; any other error says that the disk
        cannot be trusted any more, unless the job `may_fail`.
        """
        self._busy = True

        def finished(error: BaseException | None) -> None:
            self._busy = False
            if error is not None:
                self.failures += 1
                self._paused_until = self._loop.time() + RETRY_SECONDS
                self._watch.look()
                if failed is not None:
                    failed()
                if not (_no_space(error) or may_fail):
                    self._fatal("housekeeping could not write", error)
                return
            done()
            self.poke()

        self._worker.submit(job, finished)

    def _maintained(self, job: MaintenanceJob) -> None:
        self._journal.end_maintenance(job)
        if isinstance(job, PrepareJob) and job.error is not None:
            self._no_segment_until = self._loop.time() + RETRY_SECONDS
        self._judge_space()

    def _not_maintained(self, job: MaintenanceJob) -> None:
        """No space for a location file, which is only a cache, or for a removal's own notes: the
        files that are left go at the next start.
        """
        self._journal.end_maintenance(job)

    # --- Checkpoints ------------------------------------------------------------------------

    def _checkpoint_due(self) -> bool:
        written = self._journal.statistics().bytes_written - self._bytes_at_checkpoint
        if written >= CHECKPOINT_BYTES:
            return True
        overdue = self._loop.time() - self._last_checkpoint >= CHECKPOINT_SECONDS
        return overdue and bool(self._changed())

    def _changed(self) -> list[RaftGroup]:
        applied = self._store.statistics().applied_index
        return [
            RaftGroup(group)
            for group, index in applied.items()
            if index > self._marks.get(RaftGroup(group), 0)
        ]

    def _checkpoint(self) -> None:
        """Snapshots of the groups that changed, in slices; then `ckpt`."""
        changed = self._changed()
        if not changed:
            return
        self._last_checkpoint = self._loop.time()
        self._bytes_at_checkpoint = self._journal.statistics().bytes_written
        self._busy = True
        self.snapshots.write(changed, self._snapshots_written, self._snapshot_failed)

    def _snapshots_written(self, written: Written) -> None:
        last = self._journal.checkpoint(written)
        self._run(last.run, lambda: self._checkpointed(written, last), self._make_room)

    def _snapshot_failed(self, error: BaseException) -> None:
        self._busy = False
        self.failures += 1
        self._paused_until = self._loop.time() + RETRY_SECONDS
        if _no_space(error):
            self._make_room()
        else:
            self._fatal("a snapshot could not be written", error)

    def _make_room(self) -> None:
        """A checkpoint found no space, and without one nothing is ever freed: so it goes before the
        segment that is kept for settlements, which wait meanwhile, and is tried again soon.
        """
        self._journal.give_up_reserve()
        self._no_segment_until = self._loop.time() + 3 * RETRY_SECONDS
        self._last_checkpoint = -math.inf

    def _checkpointed(self, written: dict[int, tuple[int, str]], job: CheckpointJob) -> None:
        self._journal.checkpointed(job)
        self.checkpoints += 1
        for number, (index, name) in written.items():
            group = RaftGroup(number)
            self._marks[group] = index
            term = job.checkpoint.groups[number].term
            self._store.consensus.has_snapshot(
                group, index, term, name, self.snapshots.memberships[group]
            )
        named = {each.snapshot for each in job.checkpoint.groups.values()}
        receiver = self._store.consensus.receiver

        def keep() -> set[str]:
            return named | receiver.writing if receiver is not None else named

        self._run(lambda: remove_others(self._disk, keep), lambda: None)

    # --- Snapshots from another store -------------------------------------------------------

    async def install(self, received: Received) -> None:
        """Have a checkpoint name it, then let it take the place of state and log."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._received.append((received, done))
        self.poke()
        await done

    def _install(self, received: Received, done: asyncio.Future[None]) -> None:
        group, index = received.group, received.snapshot.index
        job = self._journal.checkpoint({group: (index, received.name)}, received.job)

        def written() -> None:
            self._journal.checkpointed(job)
            self._marks[group] = index
            self._store.consensus.install(received)
            if not done.done():
                done.set_result(None)

        def failed() -> None:
            self._received.append((received, done))
            self._make_room()

        self._run(job.run, written, failed)

    # --- Rewriting --------------------------------------------------------------------------

    def _live_slots(self, group: int, index: int) -> set[int]:
        body = self._rewriting[group, index]
        return live_slots(self._store.replica(RaftGroup(group)).state, index, body)

    def _continue_rewrite(self, job: RewriteJob) -> None:
        """One more slice of the segment; then its closing record."""
        if job.closed:
            self._rewrite = None
            return
        part = job.read()
        if part is None:
            job.close()
            self._store.write_soon()
            return

        def read() -> None:
            self._rewriting = {(each.group, each.index): each.body for each in part.entries}
            job.append(part)
            self._rewriting = {}
            self._store.write_soon()

        self._run(part.run, read, lambda: self._abandon(job), may_fail=True)

    def _abandon(self, job: RewriteJob) -> None:
        """The segment does not read: leave it as it is, go on with the rest."""
        self._journal.abandon_rewrite(job)
        self._rewrite = None


def _no_space(error: BaseException) -> bool:
    """Whether a job failed for want of room."""
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}


def remove_others(disk: Disk, keep: Callable[[], set[str]]) -> None:
    """Thread: remove snapshot files that no checkpoint names, nor will soon. `keep` is asked after
    the names were: a file that is made meanwhile is not among these. OSError.
    """
    names = disk.names(DIRECTORY)
    kept = keep()
    others = [name for name in names if f"{DIRECTORY}/{name}" not in kept]
    for name in others:
        disk.remove(f"{DIRECTORY}/{name}")
    if others:
        disk.sync_directory(DIRECTORY)
