"""Background work of a store: checkpoints, space, disk marks. Never on the write path.

One job runs at a time in its own thread; the event loop only hands over what the job needs. The
groups' states are dumped in slices (`snapshotter`), the files are written by the thread; segments
are prepared, rewritten and removed meanwhile. A checkpoint is taken every 128 MiB of journal (half
of that if the snapshots are small) or 10 s (later, if the state is large), if anything was applied
since.

A checkpoint may fall into a rewrite: recovery takes rewritten entries from any segment that is
there, once the closing record names them.
"""

from __future__ import annotations

import asyncio
import errno
import math
from collections import deque
from collections.abc import Callable

from ...broker.applying.liveness import live_slots
from ...common.ids import RaftGroup
from ...common.ports import Disk
from ...log.errors import JournalError, RecordDamaged
from ...log.format.checkpoint import CheckpointJob
from ...log.format.location_file import PlacesRead
from ...log.format.mark import MarkJob
from ...log.journal import Journal, MaintenanceJob
from ...log.reading.read import SliceRead
from ...log.reading.tail_cache import AGE_SECONDS
from ...log.reclaiming.rewrite import RewriteJob
from ...log.writer import PrepareJob
from ..drivers.worker import Runner, Workers
from ..node import Store
from ..snapshots.snapshot_file import tidy
from ..snapshots.snapshotter import SLICE_RECORDS, Snapshotter, Written
from ..snapshots.transfer import Received
from .disk_watch import DiskLevel, DiskSpace, DiskWatch
from .pin_keeper import PinKeeper

CHECKPOINT_BYTES = 128 * 1024 * 1024
CHECKPOINT_BYTES_MIN = 64 * 1024 * 1024
SNAPSHOT_FACTOR = 16
"""So many times the bytes of the last snapshots are written to the journal before the next ones, in
the bounds above: nothing dead goes before a checkpoint, so that a small state is better dumped
often, and a large one costs at most a sixteenth of the journal's bytes."""
CHECKPOINT_SECONDS = 10
CHECKPOINT_SECONDS_MAX = 300.0
HASTENED_SECONDS = 0.25
"""The time between two checkpoints while a snapshot is to say who is a member: it is then one of
the few groups that have changed."""
RECORD_SECONDS = 20 * 10e-6
"""A checkpoint for time's sake waits so much longer for each record of the last snapshots, at most
until the bound above: making one takes some 10 us, so that a twentieth of a core goes into them
however much the store knows. 100,000 subscribers are 300,000 records: one checkpoint a minute."""
TICK_SECONDS = 1.0

SPARSE_BYTES_MIN = 32 * 1024 * 1024
SPARSE_FACTOR = 3
"""Rewriting begins above so many bytes on disk and so many times the live ones: the next segment
and the reserve (24 MiB) are always there, and the bound to keep is 5 times the live bytes once
these are more than a segment."""

SPARE_BYTES = 64 * 1024
"""Room that is kept for a checkpoint on a full disk: so many bytes, and as the snapshots grow half
more than the last ones took, in steps that double."""

POKE_SECONDS = 0.01
"""With many writes a second, what is due is looked at so often: two segments are kept ready, which
no disk fills in that time."""

LOOK_SECONDS = 0.1
"""What asks for a look at every segment (there are 6,000 in 100 GB) is looked at so often, and
after each job."""

NOTE_SECONDS = 0.005
"""What was synced is noted so long after the first write that the mark does not say: with many
commits a second the note would cost more than the commit's own bookkeeping. What a process that is
killed leaves unproven is about as old."""

MARK_SECONDS = 1.0
"""The mark of what was synced is brought to the disk so often at most: what a power loss leaves
unproven is about as old."""

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
        self._watch = DiskWatch(
            disk, self._worker, self._judge_space, reserve_bytes, store.unreadable.losses.look
        )
        self.sparse_bytes_min = sparse_bytes_min
        """A smaller journal is never rewritten; may be changed at any time."""
        self._busy = False
        self._paused_until = 0.0
        self._no_segment_until = 0.0
        self._next_mark = 0.0
        self._noting: asyncio.TimerHandle | None = None
        self._next_poke = 0.0
        self._next_look = 0.0
        self._ticks = 0
        self._ticker: asyncio.TimerHandle | None = None
        self._last_checkpoint = loop.time()
        self._bytes_at_checkpoint = self._journal.bytes_written
        self._marks: dict[RaftGroup, int] = {}
        self.snapshots = Snapshotter(loop, store, disk, self._worker, slice_records)
        self._hastened = False
        """Somebody waits for the next checkpoint."""
        self._dumping = False
        """Snapshots are being written; other jobs go on."""
        self._dumped: Written | None = None
        """They are on disk: the checkpoint that names them is the next job."""
        self._spare_bytes = SPARE_BYTES
        """Kept aside for a checkpoint on a full disk; 0 once one has needed it."""
        self._untidy = True
        """Files of snapshots are to be removed, or the spare one to be made."""
        self._rewrite: RewriteJob | None = None
        self._received: deque[tuple[Received, asyncio.Future[None]]] = deque()
        store.leaving = self.leave
        self._leaving: deque[tuple[RaftGroup, asyncio.Future[None]]] = deque()
        self.pins = PinKeeper(loop, disk, self._journal, self.poke)
        self._coming: set[str] = set()
        self._stopping = False
        self._error: BaseException | None = None
        """What the last failed job has ended with."""
        self.checkpoints = 0
        self.failures = 0

    def start(self) -> None:
        """Begin to look after the disk."""
        self._judge_space()
        self._store.on_written(self._written)
        self._store.consensus.healing.checkpoint_wanted = self._checkpoint_wanted
        self._store.consensus.checkpoint_wanted = self._checkpoint_wanted
        self._store.consensus.snapshot_wanted = self.hasten
        self._tick()

    async def stop(self) -> None:
        """Finish the job under way, take a last checkpoint, stop the thread."""
        self._stopping = True
        if self._ticker is not None:
            self._ticker.cancel()
        self.poke()
        await self._idle()
        self._checkpoint()
        await self._idle()
        self._worker.stop()

    async def _idle(self) -> None:
        """Return once no job is under way (a checkpoint is a chain of them)."""
        while self._busy or self._untidy or self.under_way == "checkpoint":  # noqa: ASYNC110
            await asyncio.sleep(0.005)  # once, at the end of the process

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(TICK_SECONDS, self._tick)
        self._watch.look()
        self.pins.look(full=self._watch.space.level is DiskLevel.FULL)
        self._ticks += 1
        if not self._ticks % AGE_SECONDS:
            self._journal.bodies.tail.age()
        for replica in self._store.replicas():
            if replica.leading:
                replica.trimmer.look()
                replica.forget_idle()
                replica.sweeper.look()
        # What was left of a replica whose group is elsewhere now says nothing any more.
        store = self._store
        held = [store.replica(group) for group in store.groups if store.holds(group)]
        store.topic_room.stored.look(held, self._watch.space)
        self.poke()

    @property
    def disk_space(self) -> DiskSpace:
        """Room of the volume, at most about a second old unless the volume hangs."""
        return self._watch.space

    def _judge_space(self) -> None:
        full = self._watch.space.level is DiskLevel.FULL
        self._accept(not full and self._journal.can_accept)

    def _written(self) -> None:
        """A write has ended (hot): note it soon, look after a rewrite, now and then after all."""
        now = self._loop.time()
        if self._noting is None:
            self._noting = self._loop.call_later(NOTE_SECONDS, self._note)
        if self._rewrite is not None or now >= self._next_poke:
            self._next_poke = now + POKE_SECONDS
            self.poke()

    def _note(self) -> None:
        self._noting = None
        if not self._stopping:  # then the journal says itself where it ended
            self._journal.note_synced()

    @property
    def under_way(self) -> str:
        """What is being done now: "checkpoint", "rewrite" or "" (segments come and go unnamed)."""
        if self._dumping or self._dumped is not None:
            return "checkpoint"
        return "rewrite" if self._rewrite is not None else ""

    def hasten(self) -> None:
        """A snapshot is waited for that says who is a member by now."""
        self._hastened = True
        self.poke()

    def poke(self) -> None:
        """Start the most urgent job, unless one runs."""
        self._trusting(self._start_job)

    def _trusting(self, step: Callable[[], None]) -> None:
        """Do what relies on the journal's books. If they turn out to be wrong the process ends:
        what is on disk is better than what would be written.
        """
        try:
            step()
        except JournalError as error:
            self._fatal("the books of the journal do not agree", error)

    def _start_job(self) -> None:
        now = self._loop.time()
        if self._busy or (self._stopping and self._dumped is None and not self._untidy):
            return
        if now < self._paused_until and not self._stopping:
            return
        if not self._stopping and self.pins.waits_for_cut():
            return
        if (pinning := self.pins.next_job()) is not None:
            # Nothing is removed while it runs: only one job does.
            self._run(pinning.run, pinning.done, pinning.failed, may_fail=True)
            return
        look = now >= self._next_look
        if look:
            self._next_look = now + LOOK_SECONDS
        job = (
            self._journal.maintenance(
                segments=now >= self._no_segment_until, mark=now >= self._next_mark, removals=look
            )
            if not self._stopping
            else None
        )
        if job is not None:
            self._run(job.run, lambda: self._maintained(job), lambda: self._not_maintained(job))
        elif self._dumped is not None:
            self._write_checkpoint(self._dumped)
        elif self._untidy and not self._dumping:
            self._tidy()
        elif self._rewrite is not None:
            self._continue_rewrite(self._rewrite)
        elif self._received and not self._dumping:
            self._install(*self._received.popleft())
        elif self._leaving and not self._dumping:
            self._leave(*self._leaving.popleft())
        elif look:
            self._look()

    def _look(self) -> None:
        """Begin a checkpoint or a rewrite, if one is due."""
        if not self._dumping and (self._store.unreadable.is_doomed or self._checkpoint_due()):
            self._checkpoint()
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
            self.sparse_bytes_min, SPARSE_FACTOR * journal.live_bytes
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
                self._error = error
                self._paused_until = self._loop.time() + RETRY_SECONDS
                self._watch.look()
                if failed is not None:
                    failed()
                if not (_no_space(error) or may_fail):
                    self._fatal("housekeeping could not write", error)
                self.poke()
                return
            self._next_look = 0.0
            self._trusting(done)
            self.poke()

        self._worker.submit(job, finished)

    def _maintained(self, job: MaintenanceJob) -> None:
        self._journal.end_maintenance(job)
        if isinstance(job, MarkJob):
            self._next_mark = self._loop.time() + MARK_SECONDS
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
        written = self._journal.bytes_written - self._bytes_at_checkpoint
        wanted = SNAPSHOT_FACTOR * self.snapshots.bytes_written
        if written >= min(max(wanted, CHECKPOINT_BYTES_MIN), CHECKPOINT_BYTES):
            return True
        rest = min(self.snapshots.records * RECORD_SECONDS, CHECKPOINT_SECONDS_MAX)
        often = HASTENED_SECONDS if self._hastened else CHECKPOINT_SECONDS
        overdue = self._loop.time() - self._last_checkpoint >= max(often, rest)
        return overdue and bool(self._changed())

    def _checkpoint_wanted(self) -> None:
        """Take one before it is due, if anything has changed."""
        self._last_checkpoint = -math.inf
        self._next_look = 0.0
        self.poke()

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
        if not changed and not self._store.unreadable.is_doomed:
            return
        self._hastened = False
        self._last_checkpoint = self._loop.time()
        self._bytes_at_checkpoint = self._journal.bytes_written
        self._dumping = True
        self.snapshots.write(changed, self._snapshots_written, self._snapshot_failed)

    def _snapshots_written(self, written: Written) -> None:
        self._dumping = False
        self._dumped = written
        self.poke()

    def _write_checkpoint(self, written: Written) -> None:
        self._dumped = None
        last = self._journal.checkpoint(written)
        self._run(last.run, lambda: self._checkpointed(written, last), self._make_room)

    def _snapshot_failed(self, error: BaseException) -> None:
        self._dumping = False
        self.failures += 1
        self._paused_until = self._loop.time() + RETRY_SECONDS
        if _no_space(error):
            self._make_room()
        else:
            self._fatal("a snapshot could not be written", error)
        self.poke()

    def _make_room(self) -> None:
        """A checkpoint found no space, and without one nothing is ever freed: so it gets the spare
        room, then that of the segment that is kept for settlements, which wait meanwhile. It is
        tried again soon; until then what this try has left goes, or it would be in its way.
        """
        if self._spare_bytes:
            self._spare_bytes = 0
        else:
            self._journal.give_up_reserve()
        self._untidy = True
        self._no_segment_until = self._loop.time() + 3 * RETRY_SECONDS
        self._last_checkpoint = -math.inf

    def _checkpointed(self, written: dict[int, tuple[int, str]], job: CheckpointJob) -> None:
        self._journal.checkpointed(job)
        self._store.unreadable.checkpointed()
        self.checkpoints += 1
        for number, (index, name) in written.items():
            group = RaftGroup(number)
            self._marks[group] = index
            term = job.checkpoint.groups[number].term
            members = self.snapshots.memberships[group]
            self._store.consensus.has_snapshot(group, index, term, name, members)
        self._untidy = True
        self._spare_bytes = self._spare_wanted()

    def _tidy(self) -> None:
        """Remove snapshots that no checkpoint names, keep room for the next ones."""
        self._untidy = False
        named = {each.snapshot for each in self._journal.last_checkpoint.groups.values()}
        spare_bytes = self._spare_bytes
        self._run(lambda: tidy(self._disk, lambda: named | self._coming, spare_bytes), lambda: None)

    def _spare_wanted(self) -> int:
        """Room to keep: the same for long, since to change it is work for the disk."""
        wanted = SPARE_BYTES
        while wanted < 1.5 * self.snapshots.bytes_written:
            wanted *= 2
        return wanted

    # --- Snapshots from another store -------------------------------------------------------

    def keep(self, name: str) -> None:
        """A snapshot is on its way here: leave it alone, although no checkpoint names it yet."""
        self._coming.add(name)

    def keep_no_longer(self, name: str) -> None:
        """It is named, or was given up."""
        self._coming.discard(name)

    async def install(self, received: Received) -> None:
        """Have a checkpoint name it, then let it take the place of state and log."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._received.append((received, done))
        self.poke()
        await done

    def _install(self, received: Received, done: asyncio.Future[None]) -> None:
        group, index = received.group, received.snapshot.index
        level = max(self._journal.feature_level, received.state.feature_level)
        self._journal.feature_level = level
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

    # --- Leaving a group ----------------------------------------------------------------------

    async def leave(self, group: RaftGroup) -> None:
        """Have a checkpoint say that nothing of a group counts here any more, then let go of it."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._leaving.append((group, done))
        self.poke()
        await done

    def _leave(self, group: RaftGroup, done: asyncio.Future[None]) -> None:
        job = self._journal.checkpoint({}, leaving=group)

        def written() -> None:
            self._journal.checkpointed(job)
            self._journal.leave(group)
            self._marks.pop(group, None)
            self._store.consensus.leave(group)
            self._untidy = True
            if not done.done():
                done.set_result(None)

        def failed() -> None:
            self._leaving.append((group, done))
            self._make_room()

        self._run(job.run, written, failed)

    # --- Rewriting --------------------------------------------------------------------------

    def _live_slots(self, group: int, index: int, body: bytes) -> set[int]:
        return live_slots(self._store.replica(RaftGroup(group)).state, index, body)

    def _continue_rewrite(self, job: RewriteJob) -> None:
        """One more slice of the segment; then its closing record."""
        if job.closed:
            self._rewrite = None
            self._next_look = 0.0
            self.poke()
            return
        part = job.read()
        if part is None:
            try:
                job.close()
            except RecordDamaged:
                self.failures += 1
                self._abandon(job)
            self._store.write_soon()
            return

        def read() -> None:
            job.append(part)
            self._store.write_soon()

        self._run(part.run, read, lambda: self._not_read(job, part), may_fail=True)

    def _not_read(self, job: RewriteJob, part: PlacesRead | SliceRead) -> None:
        """The entry that does not read is given up, if nobody else has it: else it would keep its
        segment until somebody asks for it.
        """
        self._abandon(job)
        if isinstance(part, SliceRead) and isinstance(self._error, RecordDamaged):
            entry = self._journal.held_at(job.source, part.next_offset)
            if entry is not None:
                self._store.unreadable.noticed(*entry)

    def _abandon(self, job: RewriteJob) -> None:
        """The segment does not read, or not whole: leave it as it is, go on with the rest."""
        self._journal.abandon_rewrite(job)
        self._rewrite = None


def _no_space(error: BaseException) -> bool:
    """Whether a job failed for want of room."""
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}
