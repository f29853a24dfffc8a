"""The journal of a store: the Raft log of all its groups, and the only place message bodies live.

One object ties the parts together: `writer.py` (queue, framing, sync), `locations.py` (where an
entry stands, what holds it), `bodies.py` (in memory), `checkpoint.py`, `rewrite.py`,
`recovery.py`. Every method runs on one thread; the jobs it hands out have a `run` method for any
other thread, which does I/O on what it was given and touches nothing shared.

What "on disk" means: an entry is acknowledged at the earliest when `end` has returned it, that is
when every write of its batch is on the disk.

    journal, recovered = Journal.recover(disk, options, Checkpoint.read(disk))
    ... load the snapshots, `retain` what they refer to, replay `recovered.entries` ...
    journal.finish_recovery()
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ..common.ports import Disk
from .errors import JournalError
from .format.checkpoint import Checkpoint, CheckpointJob, HardState
from .format.mark import MarkFile
from .format.meta import CleanEnd, set_clean
from .format.record import (
    BATCH_GROUPS_MAX,
    BODY_BYTES_MAX,
    HEADER_BYTES,
    RecordType,
    encode_number,
    seed_of,
)
from .format.segment import SEGMENT_BYTES_MIN, Segment
from .groups import GroupLog
from .install import InstallJob, KeptEntries
from .options import JournalOptions
from .reading.aside import AsideJob
from .reading.bodies import Bodies
from .reading.kept_check import KeptCheck
from .reading.read import READ_AHEAD_BYTES, ReadJob, read_body
from .reading.tail_cache import cache_key
from .reclaiming.checkpointing import next_checkpoint
from .reclaiming.rewrite import LiveSlots, RewriteJob
from .reclaiming.space import MaintenanceJob, Space
from .recovering.kept import kept_entries
from .recovering.recovery import Recovered, RecoveredState, nothing_to_say, recover_files, replay
from .recovering.scan import Scan
from .statistics import JournalStatistics, SegmentStatistics, segments_of, statistics_of
from .writer import PrepareJob, WriteBatch, Writer

__all__ = ["Journal", "JournalOptions", "JournalPrefix", "MaintenanceJob"]

_ENTRY = int(RecordType.ENTRY)


@dataclass(frozen=True, slots=True)
class JournalPrefix:
    """All of a journal that is on the disk at one moment, and what it takes to recover it."""

    store: bytes
    """Id of the store."""
    sequence: int
    """Of the last record."""
    segments: tuple[tuple[int, int, int], ...]
    """(number, bytes that count, size of the file), rising."""
    checkpoint: Checkpoint
    """The last durable one; it says that every record of the prefix is on the disk."""


class Journal:
    """See the module's head. Made by `recover`."""

    def __init__(
        self, disk: Disk, options: JournalOptions, state: RecoveredState, mark: MarkFile
    ) -> None:
        self._disk = disk
        self._options = options
        self._checkpoint = state.checkpoint
        self._store = state.checkpoint.store
        self._seed = seed_of(self._store)
        self._groups = state.scan.groups
        self._locations = state.scan.locations
        self._damaged = frozenset(state.scan.damaged)
        self._left = state.checkpoint.left & self._damaged
        self.feature_level = state.checkpoint.level
        """The highest level that is on in a group (`feature_levels`), as `ckpt` is to say."""
        self._unread_places = state.scan.unread_places
        self._spoilt = list(state.scan.spoilt.values())
        for segment in self._spoilt:
            segment.readers += 1
        self.bodies = Bodies(options.cache_bytes, options.cold_bytes)
        self._writer = Writer(
            disk,
            self._store,
            segment=state.segment,
            next_number=state.next_number,
            sequence=state.next_sequence,
            mark=mark,
            segment_bytes=options.segment_bytes,
            reserve_bytes=min(options.reserve_bytes, options.segment_bytes),
            long_bytes=options.long_bytes,
            place=self._locations.place,
            opened=self._locations.add_segment,
        )
        self._space = Space(
            disk, self._store, self._locations, self._writer, list(state.scan.closed)
        )
        self._space.kept = kept_entries(state.scan)
        for group in self._space.kept.keys() & self._groups.keys():
            self._groups[group].grew = False

    # --- Life -------------------------------------------------------------------------------

    @staticmethod
    def recover(
        disk: Disk,
        options: JournalOptions,
        checkpoint: Checkpoint | None,
        approve: Callable[[Scan], None] = nothing_to_say,
    ) -> tuple[Journal, Recovered]:
        """Open the journal of a data directory, whatever its last run left. Blocking.

        Reads from the checkpoint's segment on, cuts a torn tail, copies what is not proven to be on
        disk. `store.meta` must exist (`meta.ensure_meta`). `approve` sees what was found before
        anything is changed, and may raise. Errors: JournalDamaged if synced records
        are unreadable and `options.accept_damage` is off (nothing was changed then), FormatError,
        JournalError, OSError.
        """
        if options.segment_bytes < SEGMENT_BYTES_MIN or options.segment_bytes % 4096:
            raise JournalError(f"segment_bytes: a multiple of 4096 from {SEGMENT_BYTES_MIN} on")
        state, meta, mark = recover_files(
            disk,
            checkpoint,
            segment_bytes=options.segment_bytes,
            accept_damage=options.accept_damage,
            approve=approve,
        )
        scan = state.scan
        marks = {number: group.index for number, group in state.checkpoint.groups.items()}
        recovered = Recovered(
            clean=meta.clean is not None or (not scan.records and not scan.floor),
            hard_states=scan.hard_states(),
            last={number: (log.last_index, log.last_term) for number, log in scan.groups.items()},
            marks=marks,
            entries=replay(disk, scan, list(scan.chain), marks),
            damaged=dict(scan.damaged),
            damaged_all=scan.damage_all,
            unreadable=scan.unreadable,
            unread=scan.unread,
            checkpoint=state.checkpoint,
            records_scanned=scan.records,
            records_copied=state.copied,
        )
        return Journal(disk, options, state, mark), recovered

    def finish_recovery(self, feature_level: int = 0) -> None:
        """Snapshots are loaded, references retained, entries replayed: what is dead may go.
        `feature_level`: the highest that they have on.
        """
        self.feature_level = max(self.feature_level, feature_level)
        self._space.begin(self._checkpoint.position.segment)
        for number, group in self._checkpoint.groups.items():
            self._locations.checkpointed(number, group.index)

    def close(self, *, clean: bool = True) -> None:
        """Close the files; `clean` leaves the mark of an orderly end. Blocking; OSError.

        JournalError if `clean` is asked for while records are queued or in flight.
        """
        writer = self._writer
        if clean:
            if writer.pending or writer.in_flight is not None:
                raise JournalError("records are still queued or in flight")
            end = writer.synced_end()
            set_clean(self._disk, CleanEnd(end.segment, end.offset, writer.synced_sequence))
        writer.close()

    # --- Groups -----------------------------------------------------------------------------

    def hard_state(self, group: int) -> HardState:
        """(term, vote, commit) as synced; zeros for a new group."""
        log = self._groups.get(group)
        return log.hard_state if log is not None else HardState()

    def last_index(self, group: int) -> int:
        """Index of the last entry appended (or recovered); 0 for a new group."""
        log = self._groups.get(group)
        return log.last_index if log is not None else 0

    def last_term(self, group: int) -> int:
        """Term of that entry."""
        log = self._groups.get(group)
        return log.last_term if log is not None else 0

    def term(self, group: int, index: int) -> int:
        """Term of an entry from the last checkpoint on; 0 if it is older or does not exist."""
        log = self._groups.get(group)
        return log.term(index) if log is not None else 0

    def snapshot_of(self, group: int) -> tuple[int, int, str]:
        """(index, term, name) of the group's last durable snapshot; zeros and no name: none."""
        known = self._checkpoint.groups.get(group)
        return (known.index, known.term, known.snapshot) if known else (0, 0, "")

    def has(self, group: int, index: int) -> bool:
        """Whether an entry is in the journal."""
        return self._locations.has(group, index)

    # --- Writing ----------------------------------------------------------------------------

    def append(self, group: int, term: int, index: int, body: bytes) -> None:
        """Queue an entry for the next batch. `index` follows the group's last one, or replaces it
        and all behind it (another leader's entries); JournalError for a gap or an oversized body.
        """
        log = self._groups.get(group)
        if log is None:
            log = self._new_group(group)
        if index != log.last_index + 1:
            self._replace(group, log, index)
        if len(body) > BODY_BYTES_MAX:
            raise JournalError(f"an entry of {len(body)} bytes; at most {BODY_BYTES_MAX}")
        log.append(index, term)
        writer = self._writer
        writer.pending.append((_ENTRY, group, term, index, body))
        writer.pending_bytes += HEADER_BYTES + len(body)
        writer.pending_bodies[cache_key(group, index)] = body

    def append_hard_state(self, group: int, term: int, vote: int, commit: int) -> None:
        """Queue a hard state for the next batch."""
        if group not in self._groups:
            self._new_group(group)
        record = (int(RecordType.HARD_STATE), group, term, commit, encode_number(vote))
        self._writer.append(record)

    @property
    def pending_records(self) -> int:
        """Records queued for the next batch."""
        return len(self._writer.pending)

    def largest_pending(self) -> int:
        """Bytes of the largest body that is queued."""
        return max((len(record[4]) for record in self._writer.pending), default=0)

    def begin(self) -> WriteBatch | None:
        """Frame what is queued as one batch; None if nothing is, or one is in flight. Where very
        much is queued, groups with little go first (`writer`): the others are in `waiting`.

        If no prepared segment is left where one is needed, `WriteBatch.run` allocates it first.
        """
        return self._writer.begin()

    def end(self, batch: WriteBatch) -> list[tuple[int, int]]:
        """The batch is on disk: [(group, last stable index)] of the groups with entries in it.

        `batch.stable` has their terms too: an index whose term is not the log's any more was
        replaced meanwhile.
        """
        if self._writer.in_flight is not batch:
            raise JournalError("this batch is not in flight")
        self._writer.end()
        for group, state in batch.hard_states.items():
            self._groups[group].hard_state = state
        self.bodies.add_written(batch.bodies)
        self._space.batch_ended(batch)
        return [(group, self._groups[group].synced(*last)) for group, last in batch.stable.items()]

    @property
    def can_accept(self) -> bool:
        """False while the disk has no room for the next segment: refuse new messages, go on with
        settlements.
        """
        return self._writer.can_accept

    @property
    def bytes_written(self) -> int:
        """Bytes written since start."""
        return self._writer.bytes_written

    @property
    def synced_sequence(self) -> int:
        """Sequence of the last record that is on disk."""
        return self._writer.synced_sequence

    # --- Reading ----------------------------------------------------------------------------

    def entry(self, group: int, index: int) -> bytes | None:
        """Body of an entry that is in memory (queued, in flight or cached), else None."""
        key = cache_key(group, index)
        body = self.bodies.find(key)
        if body is not None:
            return body
        writer = self._writer
        body = writer.pending_bodies.get(key)
        if body is None and writer.in_flight is not None:
            body = writer.in_flight.bodies.get(key)
        if body is None:
            self.bodies.misses += 1
        return body

    def read(self, group: int, index: int) -> bytes:
        """Body of an entry, from disk if it must be. Blocking: for recovery and tests.

        JournalError if the journal does not hold it; RecordDamaged; OSError.
        """
        body = self.entry(group, index)
        if body is not None:
            return body
        segment, offset, length = self._locations.locate(group, index)
        return read_body(self._disk, self._seed, segment, offset, length)[1]

    def read_ahead(self, group: int, index: int, *, log: bool = False) -> ReadJob:
        """A job that reads the entry and up to 1 MiB behind it; `log`: for a reader of the group's
        log, who wants what nothing holds too. JournalError if there is no such entry.
        """
        segment, offset, length = self._locations.locate(group, index)
        span = min(READ_AHEAD_BYTES, segment.synced_end - offset)
        segment.readers += 1
        return ReadJob(self._disk, self._seed, segment, (group, index), (offset, length), span, log)

    def end_read(self, job: ReadJob) -> int:
        """The job has run (or failed): what it read is in memory now, at least until the next.

        Returns the number of entries. Those that were replaced meanwhile are left out, and those
        that nothing holds but of a log that is read; not the one asked for.
        """
        job.segment.readers -= 1
        is_live, stands = self._locations.is_live, self._locations.position
        log = job.group if job.log else None
        wanted = [
            each
            for each in reversed(job.entries)
            if is_live(each.group, each.index, each.position)
            or (each.group == log and stands(each.group, each.index) == each.position)
        ]
        return self.bodies.add_read(wanted, job.entries[0] if job.entries else None)

    def forget(self, group: int, index: int) -> None:
        """Nobody will ask for the entry soon: what memory there is for bodies is for others."""
        self.bodies.discard(cache_key(group, index))

    # --- References -------------------------------------------------------------------------

    def retain(self, group: int, index: int, references: int) -> None:
        """So many live references more hold the entry. JournalError if it is unknown."""
        self._locations.retain(group, index, references)

    def release(self, group: int, index: int, references: int) -> None:
        """So many of them died. JournalError if there were not so many.

        An entry that nothing holds is dead once it stands below the checkpoint.
        """
        if self._locations.release(group, index, references):
            self.forget(group, index)

    # --- Checkpoints ------------------------------------------------------------------------

    def checkpoint(
        self,
        snapshots: Mapping[int, tuple[int, str]],
        installed: InstallJob | None = None,
        leaving: int | None = None,
    ) -> CheckpointJob:
        """A job that writes `ckpt`. `snapshots`: per group the index that a **durable** snapshot
        has applied, and its name; groups left out keep the one they had. `installed`: the one of
        its group came from another store; if this store had left the group, it is back. `leaving`:
        nothing that this journal has of that group is to count any more, but its term and vote;
        none of it is queued, in flight or read for a rewrite; then `leave(leaving)`.

        JournalError if an index is beyond what is stable.
        """
        back = self._left & {installed.group} if installed is not None else frozenset()
        checkpoint = next_checkpoint(
            self._checkpoint,
            self._groups,
            self._locations,
            self._writer,
            self._space.closed(),
            self._damaged - back,
            snapshots,
            installed,
            self.feature_level,
            self._left - back,
            leaving,
        )
        return CheckpointJob(self._disk, checkpoint)

    def checkpointed(self, job: CheckpointJob) -> None:
        """The job has run: entries at or below its marks without references are dead now."""
        job.check_done()
        self._checkpoint = job.checkpoint
        self._space.limit = job.checkpoint.position.segment
        for number, group in job.checkpoint.groups.items():
            self._locations.checkpointed(number, group.index)
            self._groups[number].forget_below(group.index)

    def prefix(self) -> JournalPrefix:
        """What is on the disk now. Its files stay as they are until the next job of housekeeping
        that removes some.
        """
        end, sequence = self._writer.synced_end(), self._writer.synced_sequence
        segments = tuple(
            (number, segment.end if number < end.segment else end.offset, segment.size)
            for number, segment in sorted(self._locations.segments.items())
            if number <= end.segment
        )
        hard_states = {number: log.hard_state for number, log in self._groups.items()}
        checkpoint = replace(
            self._checkpoint.with_hard_states(hard_states),
            synced_sequence=sequence,
            level=max(self._checkpoint.level, self.feature_level),
        )
        return JournalPrefix(self._store, sequence, segments, checkpoint)

    @property
    def last_checkpoint(self) -> Checkpoint:
        """The last durable one."""
        return self._checkpoint

    # --- Damage -----------------------------------------------------------------------------

    @property
    def damaged(self) -> frozenset[int]:
        """Groups that lost synced data here and have not been healed."""
        return self._damaged

    def held_at(self, segment: Segment, offset: int) -> tuple[int, int] | None:
        """(group, index) of the entry that stands there, if something refers to it. Slow."""
        place = segment.number, offset
        found = (row for row in self._locations.large(0) if row[2:] == place)
        return next(((group, index) for group, index, _, _ in found), None)

    def set_aside(self, group: int, index: int) -> AsideJob:
        """A job that keeps the bytes of an entry that does not read; then `set_aside_done`. Until
        then its segment stays.
        """
        place = None
        if self.has(group, index):
            place = self._locations.locate(group, index)
        elif (group, index) in self._unread_places:
            number, offset, length = self._unread_places[group, index]
            place = (self._locations.segments[number], offset, length)
        return AsideJob(self._disk, self._seed, (group, index), place)

    def set_aside_done(self, job: AsideJob) -> None:
        """The job has run, or failed: what reads after all is in memory now, and stands in the
        journal, also where recovery could not read it.
        """
        job.done()
        self.bodies.add_read([], job.entry)
        if job.entry is not None and not self.has(job.group, job.index):
            length = HEADER_BYTES + len(job.entry.body)
            self._locations.place(job.group, job.index, job.entry.position, length)

    def let_go(self) -> None:
        """What recovery could not read has been given up: what it stood in is kept no longer."""
        for segment in self._spoilt:
            segment.readers -= 1
        self._spoilt.clear()

    def void(self, group: int) -> None:
        """Nothing that this journal has of a group counts any more, but its term. It is `damaged`,
        also after a restart, until `healed`. Before `finish_recovery`.
        """
        self._groups[group] = GroupLog(hard_state=self.hard_state(group))
        self._locations.drop(group)
        self.forget_kept(group)
        kept = {number: each for number, each in self._checkpoint.groups.items() if number != group}
        self._checkpoint = replace(self._checkpoint, groups=kept)
        self.mark_damaged(group)

    def mark_damaged(self, group: int) -> None:
        """The group lost synced data: the next checkpoint says so."""
        self._damaged |= {group}
        self.forget_kept(group)

    def healed(self, group: int) -> None:
        """A snapshot has taken the place of what was lost: the next checkpoint says so."""
        self._damaged -= {group}
        self._left -= {group}

    # --- Groups that this store has left ------------------------------------------------------

    @property
    def left(self) -> frozenset[int]:
        """Those of the damaged groups that have lost nothing: others have them."""
        return self._left

    def leave(self, group: int) -> None:
        """The checkpoint that says so is durable: nothing of a group counts any more, but its term
        and vote. It is `damaged`, also after a restart, until a snapshot is installed.
        """
        self._groups[group] = GroupLog(hard_state=self.hard_state(group))
        self._locations.drop(group)
        self.forget_kept(group)
        self.bodies.discard_group(group)
        self._damaged |= {group}
        self._left |= {group}

    # --- Snapshots from another store -------------------------------------------------------

    def install(self, group: int, index: int) -> InstallJob | None:
        """Begin to take in what a snapshot that has applied `index` refers to (see `install.py`);
        None: not now.
        """
        return self._space.install(group, self._groups, index)

    def installed(self, job: InstallJob, references: Mapping[int, int]) -> None:
        """The checkpoint that names the snapshot is durable: it takes the place of the group's log.
        `references`: entry to how many hold it.
        """
        job.take_over(self._groups, self._locations, references)
        self.bodies.discard_group(job.group)
        self._space.installed(job)

    def give_up_install(self, job: InstallJob) -> None:
        """No checkpoint names it: what was written is kept for the group's next one, until
        `forget_kept`.
        """
        self._space.give_up(job)

    @property
    def kept(self) -> Collection[int]:
        """Groups of which installs that were given up have kept something."""
        return self._space.kept

    def check_kept(self, group: int, kept: KeptEntries) -> KeptCheck:
        """A job that reads what an earlier run has kept, before an install takes anything of it."""
        return KeptCheck(self._disk, self._seed, group, kept, self._locations.segments)

    def forget_kept(self, group: int) -> None:
        """What they have kept of a group is dead."""
        self._space.forget_kept(group)

    # --- Space ------------------------------------------------------------------------------

    def maintenance(
        self, *, segments: bool = True, mark: bool = True, removals: bool = True
    ) -> MaintenanceJob | None:
        """The next job that housekeeping wants done in a thread (a segment to prepare, the mark to
        sync, a location file to write, segments to remove), None if there is none. Then
        `end_maintenance(job)`.

        After a failed preparation the same is wanted at once: ask without `segments` for a second.
        The `mark` is to be synced after each batch: once a second is enough. `removals` looks at
        every segment: now and then is enough.
        """
        return self._space.maintenance(segments=segments, mark=mark, removals=removals)

    def note_synced(self) -> None:
        """Note in the file of the mark how far the journal is synced: some milliseconds after a
        batch, so that a hole at its end is told from the end (see `format.mark`).
        """
        self._writer.note_synced()

    def end_maintenance(self, job: MaintenanceJob) -> None:
        """The job has run without error."""
        self._space.end_maintenance(job)

    def further_segment(self, body_bytes: int) -> PrepareJob:
        """A job that allocates one more, for an entry of so many bytes; then `end_maintenance`."""
        return self._writer.further(body_bytes)

    def give_up_reserve(self) -> None:
        """A checkpoint found no space: the next removal gives it the room of a ready segment."""
        self._writer.give_up_reserve()

    def segments_left(self, bodies: Sequence[int]) -> int:
        """Ready segments left if entries of so many bytes follow what is queued; -1: no room."""
        return self._writer.segments_left(bodies)

    def removable(self) -> list[Segment]:
        """Sealed segments below the checkpoint that hold nothing live, oldest first."""
        return self._space.removable()

    def rewrite_candidate(self, share: float | None = None) -> Segment | None:
        """The sparsest segment below the checkpoint whose live share is under `share` (default:
        the option's), None if there is none or a rewrite is under way.
        """
        return self._space.candidate(self._options.rewrite_share if share is None else share)

    def rewrite(self, segment: Segment, live_slots: LiveSlots) -> RewriteJob:
        """Begin to rewrite a candidate (see `rewrite.py`). JournalError if one is under way."""
        return self._space.rewrite(segment, live_slots)

    def abandon_rewrite(self, job: RewriteJob) -> None:
        """Give up, because the segment does not read: it is not offered again in this run.

        JournalError if its closing record may be on disk already.
        """
        self._space.abandon(job)

    def statistics(self) -> JournalStatistics:
        """Counters since start and sizes now."""
        return statistics_of(self._locations, self._writer, self._space, self.bodies)

    def segments(self) -> list[SegmentStatistics]:
        """Each segment, oldest first. For tools: not for every second."""
        return segments_of(self._locations)

    # --- Private ----------------------------------------------------------------------------

    def _new_group(self, group: int) -> GroupLog:
        if len(self._groups) >= BATCH_GROUPS_MAX:
            raise JournalError(f"a store holds at most {BATCH_GROUPS_MAX} groups")
        log = self._groups[group] = GroupLog()
        return log

    def _replace(self, group: int, log: GroupLog, index: int) -> None:
        """Entries from `index` on are replaced: forget them everywhere."""
        if index > log.last_index + 1 or index < 1:
            raise JournalError(f"group {group} ends at {log.last_index}: no place for {index}")
        self._locations.truncate(group, index)
        log.replaces(index)
        in_flight = self._writer.in_flight
        for old in range(index, log.last_index + 1):
            key = cache_key(group, old)
            self.forget(group, old)
            self._writer.pending_bodies.pop(key, None)
            if in_flight is not None:
                in_flight.bodies.pop(key, None)
