"""The journal of a store: the Raft log of all its groups, and the only place message bodies live.

One object ties the parts together: `writer.py` (queue, framing, sync), `locations.py` (where an
entry stands, what holds it), `tail_cache.py` (bodies in memory), `checkpoint.py`, `rewrite.py`,
`recovery.py`. Every method runs on one thread; the jobs it hands out have a `run` method for any
other thread, which does I/O on what it was given and touches nothing shared.

What "on disk" means: an entry is acknowledged at the earliest when `end` has returned it, that is
after one fdatasync of every file its batch was written to.

    journal, recovered = Journal.recover(disk, options, Checkpoint.read(disk))
    ... load the snapshots, `retain` what they refer to, replay `recovered.entries` ...
    journal.finish_recovery()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ports import Disk
from .checkpoint import Checkpoint, CheckpointJob, GroupCheckpoint, HardState, Position
from .errors import JournalError
from .groups import GroupLog
from .install import InstallJob
from .locations import OFFSET_MASK, SEGMENT_SHIFT
from .meta import CleanEnd, set_clean
from .read import READ_AHEAD_BYTES, ReadJob, read_body
from .record import (
    BATCH_GROUPS_MAX,
    BODY_BYTES_MAX,
    HEADER_BYTES,
    RecordType,
    encode_number,
    seed_of,
)
from .recovery import Recovered, RecoveredState, recover_files, replay
from .rewrite import LiveSlots, RewriteJob
from .segment import SEGMENT_BYTES_MIN, Segment
from .space import MaintenanceJob, RemovalJob, Space
from .statistics import JournalStatistics, SegmentStatistics
from .tail_cache import TailCache, cache_key
from .writer import PrepareJob, WriteBatch, Writer

__all__ = ["Journal", "JournalOptions", "MaintenanceJob"]

_ENTRY = int(RecordType.ENTRY)


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """Sizes of a journal."""

    segment_bytes: int = 64 * 1024 * 1024
    reserve_bytes: int = 16 * 1024 * 1024
    """The segment kept for settlements on a full disk."""
    cache_bytes: int = 256 * 1024 * 1024
    cold_bytes: int = 16 * 1024 * 1024
    rewrite_share: float = 0.2
    """A segment with a smaller live share is worth rewriting."""
    accept_damage: bool = False
    """Open although groups lost synced data; they are named in `Recovered.damaged`."""


class Journal:
    """See the module's head. Made by `recover`."""

    def __init__(self, disk: Disk, options: JournalOptions, state: RecoveredState) -> None:
        self._disk = disk
        self._options = options
        self._checkpoint = state.checkpoint
        self._store = state.checkpoint.store
        self._seed = seed_of(self._store)
        self._groups = state.scan.groups
        self._locations = state.scan.locations
        self._damaged = frozenset(state.scan.damaged)
        self._cache = TailCache(options.cache_bytes)
        self._cold = TailCache(options.cold_bytes)
        self._hits = self._cold_hits = self._misses = 0
        self._writer = Writer(
            disk,
            self._store,
            segment=state.segment,
            next_number=state.next_number,
            sequence=state.next_sequence,
            segment_bytes=options.segment_bytes,
            reserve_bytes=min(options.reserve_bytes, options.segment_bytes),
            place=self._locations.place,
            opened=self._locations.add_segment,
        )
        self._space = Space(
            disk, self._store, self._locations, self._writer, list(state.scan.closed)
        )

    # --- Life -------------------------------------------------------------------------------

    @staticmethod
    def recover(
        disk: Disk, options: JournalOptions, checkpoint: Checkpoint | None
    ) -> tuple[Journal, Recovered]:
        """Open the journal of a data directory, whatever its last run left. Blocking.

        Reads from the checkpoint's segment on, cuts a torn tail, copies what is not proven to be on
        disk. `store.meta` must exist (`meta.ensure_meta`). Errors: JournalDamaged if synced records
        are unreadable and `options.accept_damage` is off (nothing was changed then), FormatError,
        JournalError, OSError.
        """
        if options.segment_bytes < SEGMENT_BYTES_MIN or options.segment_bytes % 4096:
            raise JournalError(f"segment_bytes: a multiple of 4096 from {SEGMENT_BYTES_MIN} on")
        state, meta = recover_files(
            disk,
            checkpoint,
            segment_bytes=options.segment_bytes,
            accept_damage=options.accept_damage,
        )
        scan = state.scan
        marks = {number: group.index for number, group in state.checkpoint.groups.items()}
        chain = list(scan.chain)
        recovered = Recovered(
            clean=meta.clean is not None or (not scan.records and not scan.floor),
            hard_states={number: log.hard_state for number, log in scan.groups.items()},
            last={number: (log.last_index, log.last_term) for number, log in scan.groups.items()},
            marks=marks,
            entries=replay(disk, scan, seed_of(meta.store), chain, marks),
            damaged=dict(scan.damaged),
            checkpoint=state.checkpoint,
            records_scanned=scan.records,
            records_copied=state.copied,
        )
        return Journal(disk, options, state), recovered

    def finish_recovery(self) -> None:
        """Snapshots are loaded, their references retained, entries replayed: from now on what
        nothing holds may go.
        """
        self._space.limit = self._checkpoint.position.segment
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

    @property
    def pending_bytes(self) -> int:
        """Bytes queued for the next batch, without padding."""
        return self._writer.pending_bytes

    def largest_pending(self) -> int:
        """Bytes of the largest body that is queued."""
        return max((len(record[4]) for record in self._writer.pending), default=0)

    def begin(self) -> WriteBatch | None:
        """Frame everything queued as one batch; None if nothing is, or one is in flight.

        If no prepared segment is left where one is needed, `WriteBatch.run` allocates it first.
        """
        writer = self._writer
        records = writer.pending
        batch = writer.begin()
        if batch is not None:
            for kind, group, term, index, body in records:
                if kind == _ENTRY:
                    batch.stable[group] = (index, term)
                elif kind == RecordType.HARD_STATE:
                    vote = int.from_bytes(body, "little")
                    batch.hard_states[group] = HardState(term, vote, index)
        return batch

    def end(self, batch: WriteBatch) -> list[tuple[int, int]]:
        """The batch is on disk: [(group, last stable index)] of the groups with entries in it.

        `batch.stable` has their terms too: an index whose term is not the log's any more was
        replaced meanwhile.
        """
        writer = self._writer
        if writer.in_flight is not batch:
            raise JournalError("this batch is not in flight")
        writer.end()
        for group, state in batch.hard_states.items():
            self._groups[group].hard_state = state
        self._cache.add(batch.bodies)
        self._space.batch_ended(batch)
        return [(group, index) for group, (index, _term) in batch.stable.items()]

    @property
    def can_accept(self) -> bool:
        """False while the disk has no room for the next segment: refuse new messages, go on with
        settlements.
        """
        return self._writer.can_accept

    @property
    def synced_sequence(self) -> int:
        """Sequence of the last record that is on disk."""
        return self._writer.synced_sequence

    # --- Reading ----------------------------------------------------------------------------

    def entry(self, group: int, index: int) -> bytes | None:
        """Body of an entry that is in memory (queued, in flight or cached), else None."""
        key = cache_key(group, index)
        body = self._cache.get(key)
        if body is not None:
            self._hits += 1
            return body
        body = self._cold.get(key)
        if body is not None:
            self._cold_hits += 1
            return body
        writer = self._writer
        body = writer.pending_bodies.get(key)
        if body is None and writer.in_flight is not None:
            body = writer.in_flight.bodies.get(key)
        if body is None:
            self._misses += 1
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

    def read_ahead(self, group: int, index: int) -> ReadJob:
        """A job that reads the entry and up to 1 MiB behind it. JournalError if there is no such
        entry.
        """
        segment, offset, length = self._locations.locate(group, index)
        span = min(READ_AHEAD_BYTES, segment.synced_end - offset)
        segment.readers += 1
        return ReadJob(self._disk, self._seed, segment, (group, index), (offset, length), span)

    def end_read(self, job: ReadJob) -> int:
        """The job has run (or failed): what it read is in memory now, at least until the next.

        Returns the number of entries. Entries that nothing holds, or that were replaced
        meanwhile, are left out, except the one asked for.
        """
        job.segment.readers -= 1
        is_live = self._locations.is_live
        bodies = {
            cache_key(entry.group, entry.index): entry.body
            for entry in reversed(job.entries)
            if is_live(entry.group, entry.index, entry.position)
        }
        if job.entries:
            # Last in, so that it is the last to be evicted.
            first = job.entries[0]
            bodies.pop(cache_key(first.group, first.index), None)
            bodies[cache_key(first.group, first.index)] = first.body
        self._cold.add(bodies)
        return len(bodies)

    # --- References -------------------------------------------------------------------------

    def retain(self, group: int, index: int, references: int) -> None:
        """So many live references more hold the entry. JournalError if it is unknown."""
        self._locations.retain(group, index, references)

    def release(self, group: int, index: int, references: int) -> None:
        """So many of them died. JournalError if there were not so many.

        An entry that nothing holds is dead once it stands below the checkpoint.
        """
        if self._locations.release(group, index, references):
            key = cache_key(group, index)
            self._cache.discard(key)
            self._cold.discard(key)

    # --- Checkpoints ------------------------------------------------------------------------

    def checkpoint(
        self, snapshots: Mapping[int, tuple[int, str]], installed: InstallJob | None = None
    ) -> CheckpointJob:
        """A job that writes `ckpt`. `snapshots`: per group the index that a **durable** snapshot
        has applied, and its name; groups left out keep the one they had. `installed`: the one of
        its group came from another store.

        JournalError if an index is beyond what is stable.
        """
        groups: dict[int, GroupCheckpoint] = {}
        position = self._writer.synced_end()
        old = self._checkpoint.groups
        for number, log in self._groups.items():
            before = old.get(number)
            index, name = snapshots.get(
                number, (before.index, before.snapshot) if before else (0, "")
            )
            if before and index < before.index:
                raise JournalError(
                    f"the snapshot of group {number} has applied {index}, "
                    f"the one before it {before.index}"
                )
            if installed is not None and number == installed.group:
                groups[number] = GroupCheckpoint(index, installed.term, name, log.hard_state)
                continue
            if index > log.last_index:
                raise JournalError(f"group {number} has no entry {index} to be checkpointed")
            term = before.term if before and before.index == index else log.term(index)
            groups[number] = GroupCheckpoint(index, term, name, log.hard_state)
            placed = self._locations.position(number, index + 1)
            if placed and index < log.last_index:
                offset = (placed & OFFSET_MASK) << 3
                position = min(position, Position(placed >> SEGMENT_SHIFT, offset))
        segments = self._locations.segments
        checkpoint = Checkpoint(
            self._store,
            position,
            self._writer.synced_sequence,
            groups,
            {number: cut for number, cut in self._checkpoint.cuts.items() if number in segments},
            self._space.closed(),
            self._damaged,
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

    @property
    def position(self) -> Position:
        """From where recovery would scan now."""
        return self._checkpoint.position

    # --- Snapshots from another store -------------------------------------------------------

    def install(self, group: int) -> InstallJob | None:
        """Begin to take in what a snapshot refers to (see `install.py`); None: not now."""
        return self._space.install(group)

    def installed(self, job: InstallJob, references: Mapping[int, int]) -> None:
        """The checkpoint that names the snapshot is durable: it takes the place of the group's log.
        `references`: entry to how many hold it.
        """
        group = job.group
        hard_state = self.hard_state(group)
        self._locations.drop(group)
        for cache in (self._cache, self._cold):
            cache.discard_group(group)
        log = self._groups[group] = GroupLog(job.index, job.term, hard_state)
        log.hard_state = hard_state
        for index, position, length in zip(job.indexes, job.positions, job.lengths, strict=True):
            self._locations.place(group, index, position, length)
        for index, count in references.items():
            self._locations.retain(group, index, count)
        self._locations.checkpointed(group, job.index)
        self._space.installed(job)

    def give_up_install(self, job: InstallJob) -> None:
        """Before its closing record was queued: what was written is dead."""
        self._space.installed(job)

    # --- Space ------------------------------------------------------------------------------

    def maintenance(self, *, segments: bool = True) -> MaintenanceJob | None:
        """The next job that housekeeping wants done in a thread (a segment to prepare, a location
        file to write, segments to remove), None if there is none. Then `end_maintenance(job)`.

        Ask after every `end`. After a failed preparation the same is wanted at once: ask without
        `segments` for a second.
        """
        return self._space.maintenance(segments=segments)

    def end_maintenance(self, job: MaintenanceJob) -> None:
        """The job has run without error."""
        self._space.end_maintenance(job)

    def prepare_segment(self) -> PrepareJob | None:
        """A job that allocates a segment before it is needed, None if enough are ready."""
        return self._writer.prepare()

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

    def removal(self) -> RemovalJob | None:
        """A job that removes what is removable, None if nothing is or one is under way."""
        return self._space.removal()

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
        segments = self._locations.segments
        writer = self._writer
        return JournalStatistics(
            segments=len(segments),
            ready_segments=writer.ready_segments,
            bytes_on_disk=sum(segment.size for segment in segments.values()),
            live_bytes=sum(segment.live_bytes for segment in segments.values()),
            live_entries=sum(segment.live_entries for segment in segments.values()),
            entries_in_memory=self._locations.entries_in_memory(),
            records_written=writer.records,
            bytes_written=writer.bytes_written,
            syncs=writer.syncs,
            synced_sequence=writer.synced_sequence,
            pending_bytes=writer.pending_bytes,
            cache_bytes=self._cache.bytes_held,
            cold_bytes=self._cold.bytes_held,
            cache_hits=self._hits,
            cold_hits=self._cold_hits,
            cache_misses=self._misses,
            rewrites=self._space.rewrites,
            rewritten_bytes=self._space.rewritten_bytes,
            can_accept=writer.can_accept,
        )

    def segments(self) -> list[SegmentStatistics]:
        """Each segment, oldest first. For tools: not for every second."""
        return [
            SegmentStatistics(
                each.number, each.size, each.end, each.live_entries, each.live_bytes, each.sealed
            )
            for each in sorted(self._locations.segments.values(), key=lambda each: each.number)
        ]

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
        in_flight = self._writer.in_flight
        for old in range(index, log.last_index + 1):
            key = cache_key(group, old)
            self._cache.discard(key)
            self._cold.discard(key)
            self._writer.pending_bodies.pop(key, None)
            if in_flight is not None:
                in_flight.bodies.pop(key, None)
