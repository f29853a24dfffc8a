"""Housekeeping of the journal's files: location files, removal, rewrites.

A segment goes when it is sealed, stands wholly below the checkpoint and nothing in it is held;
when it holds little, its live slots are rewritten to the end of the journal and it goes then.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...common.ports import Disk
from ..errors import JournalError
from ..format.files import JOURNAL_DIRECTORY, locations_name, segment_name
from ..format.location_file import LocationFileJob
from ..format.mark import MarkJob
from ..format.record import Close, RecordType, seed_of
from ..format.segment import HEADER_PAGE_BYTES, Segment
from ..groups import GroupLog
from ..install import InstallJob, KeptEntries
from ..locations import Locations
from ..writer import PrepareJob, WriteBatch, Writer
from .rewrite import LiveSlots, RewriteJob
from .survey import SurveyJob, surveys


class RemovalJob:
    """Removes segments that nothing needs. `run` belongs to a thread."""

    __slots__ = ("_disk", "numbers")

    def __init__(self, disk: Disk, segments: list[Segment]) -> None:
        self._disk = disk
        self.numbers = [segment.number for segment in segments]

    def run(self) -> None:
        """Thread: remove the files and sync the directory. OSError."""
        there = set(self._disk.names(JOURNAL_DIRECTORY))
        for number in self.numbers:
            for name in (locations_name(number), segment_name(number)):
                if name.removeprefix(JOURNAL_DIRECTORY + "/") in there:
                    self._disk.remove(name)
        self._disk.sync_directory(JOURNAL_DIRECTORY)


MaintenanceJob = PrepareJob | MarkJob | LocationFileJob | RemovalJob | SurveyJob


class Space:
    """What may go, and what has to be done first."""

    def __init__(
        self, disk: Disk, store: bytes, locations: Locations, writer: Writer, closed: list[Close]
    ) -> None:
        self._disk = disk
        self._seed = seed_of(store)
        self._locations = locations
        self._writer = writer
        writer.placed = self._placed
        self._closed = closed
        """Rewrites whose closing record is synced, as long as their records are on disk."""
        self.limit = 0
        """Segments below this number stand wholly below the checkpoint; 0 during recovery."""
        self._rewrite: RewriteJob | InstallJob | None = None
        self.kept: dict[int, list[KeptEntries]] = {}
        """Of installs that were given up, by group."""
        self._run = (-1, 0)
        """Group and first sequence of the rewritten entries that were written last, with none of
        another group's between them."""
        self._not_rewritable: set[int] = set()
        self._to_index: list[Segment] = []
        self._indexing: LocationFileJob | None = None
        self._removing: RemovalJob | None = None
        self._surveys: list[SurveyJob] = []
        self._surveying: SurveyJob | None = None
        self.rewrites = 0
        self.rewritten_bytes = 0

    # --- Jobs -------------------------------------------------------------------------------

    def maintenance(self, *, segments: bool, mark: bool, removals: bool) -> MaintenanceJob | None:
        """See `Journal.maintenance`."""
        prepare = self._writer.prepare() if segments else None
        sync = self._sync_mark() if mark and prepare is None else None
        urgent = prepare or sync or self._index()
        return urgent or (self._removal_or_survey() if removals else None)

    def _sync_mark(self) -> MarkJob | None:
        self._writer.note_synced()
        return self._writer.mark.job()

    def begin(self, limit: int) -> None:
        """Recovery is over: segments below number `limit` stand wholly below the checkpoint."""
        self.limit = limit
        self._surveys = surveys(self._disk, self._locations)

    def _removal_or_survey(self) -> RemovalJob | SurveyJob | None:
        job = self.removal()
        if job is not None or self._surveying is not None:
            return job
        while self._surveys:
            survey = self._surveys.pop()
            segment = self._locations.segments.get(survey.number)
            if segment is not None:  # all of it may have been acked since the start
                segment.readers += 1
                self._surveying = survey
                return survey
        return None

    def end_maintenance(self, job: MaintenanceJob) -> None:
        """The job has run without error."""
        if isinstance(job, PrepareJob):
            self._writer.end_prepare(job)
            if not self._writer.can_accept:
                self.kept.clear()  # the disk is full: what may be of use later gives room back
        elif isinstance(job, MarkJob):
            self._writer.mark.end()
            self._writer.note_synced()
        elif isinstance(job, LocationFileJob):
            self._indexing = None
        elif isinstance(job, SurveyJob):
            self._surveying = None
            self._locations.segments[job.number].readers -= 1
            self._locations.weigh(job.number, job.found)
        else:
            self._removing = None
            for number in job.numbers:
                self._locations.segments.pop(number, None)
                self._not_rewritable.discard(number)

    def batch_ended(self, batch: WriteBatch) -> None:
        """The batch is synced: index what it sealed, finish a rewrite that it closed."""
        self._to_index += self._writer.sealed_by(batch)
        rewrite = self._rewrite
        if rewrite is not None and rewrite.synced(self._writer.synced_sequence):
            if isinstance(rewrite, RewriteJob) and rewrite.first_segment:
                self._closed.append(rewrite.close_record())
            if isinstance(rewrite, RewriteJob):
                self.rewrites += 1
                self.rewritten_bytes += rewrite.bytes_rewritten
                self._rewrite = None

    def _index(self) -> LocationFileJob | None:
        if self._indexing is not None or not self._to_index:
            return None
        segment = self._to_index.pop(0)
        headers, segment.headers = segment.headers, None
        if headers is None:  # not every record of it is known: a start reads it whole
            return None
        self._indexing = LocationFileJob(self._disk, segment, bytes(headers), self._seed)
        return self._indexing

    # --- Removal ----------------------------------------------------------------------------

    def removable(self) -> list[Segment]:
        """Sealed segments below the checkpoint that nothing needs, oldest first."""
        busy = {0 if self._indexing is None else self._indexing.segment.number}
        busy.update(n for group in self.kept.values() for each in group for n in each.segments)
        rewritten_from = 0
        if isinstance(self._rewrite, InstallJob):
            busy |= self._rewrite.segments
        elif self._rewrite is not None:
            busy.add(self._rewrite.source.number)
            rewritten_from = self._rewrite.first_segment
        found = []
        for number, segment in self._locations.segments.items():
            if segment.live_entries or not segment.sealed or number >= self.limit:
                continue
            if segment.readers or segment.headers is not None or number in busy:
                continue
            if rewritten_from and number >= rewritten_from:
                continue  # it may hold rewrites that count once they are closed
            found.append(segment)
        return sorted(found, key=lambda segment: segment.number)

    def removal(self) -> RemovalJob | None:
        """A job for what is removable, None if nothing is or one is under way."""
        if self._removing is not None:
            return None
        segments = self.removable() + self._writer.take_unusable()
        if not segments:
            return None
        self._removing = RemovalJob(self._disk, segments)
        return self._removing

    # --- Rewriting --------------------------------------------------------------------------

    def candidate(self, share: float) -> Segment | None:
        """The sparsest segment with a live share under `share`, if a rewrite can begin."""
        best: Segment | None = None
        if not self._may_rewrite():
            if isinstance(self._rewrite, InstallJob):
                self._rewrite.is_waited_for = True
            return None
        for number, segment in self._locations.segments.items():
            if not segment.sealed or not segment.live_entries or number >= self.limit:
                continue
            if number in self._not_rewritable:
                continue
            found = live_share(segment)
            if found < share:
                share, best = found, segment
        return best

    def rewrite(self, segment: Segment, live_slots: LiveSlots) -> RewriteJob:
        """Begin. JournalError if one is under way."""
        if not self._may_rewrite():
            raise JournalError("a rewrite is under way")
        job = self._rewrite = RewriteJob(
            self._disk, self._seed, segment, self._locations, self._writer, live_slots
        )
        return job

    def install(self, group: int, logs: Mapping[int, GroupLog], index: int) -> InstallJob | None:
        """Begin to install a snapshot; None while a rewrite or another install is under way.
        `index`: what it has applied.
        """
        if not self._may_rewrite():
            return None
        kept, log = self.kept.pop(group, []), logs.get(group)
        if (log is not None and log.grew) or any(each.rows.indexes[-1] > index for each in kept):
            kept = []
        if log is not None:
            log.grew = False
        job = self._rewrite = InstallJob(group, self._writer, self._locations, logs, kept)
        return job

    def installed(self, job: InstallJob) -> None:
        """The checkpoint names it."""
        self._closed += job.named()
        self._rewrite = None

    def give_up(self, job: InstallJob) -> None:
        """An install has ended that no checkpoint names: the next one of its group finds what it
        has kept, unless that is forgotten before.
        """
        if self._rewrite is job:
            self._rewrite = None
            kept = job.keep(self._run[1])
            if kept:
                self.kept[job.group] = kept

    def forget_kept(self, group: int) -> None:
        """What installs of a group have kept may go."""
        self.kept.pop(group, None)

    def abandon(self, job: RewriteJob) -> None:
        """See `Journal.abandon_rewrite`."""
        if job is not self._rewrite or job.closing:
            raise JournalError("this rewrite cannot be abandoned")
        self._not_rewritable.add(job.source.number)
        self._rewrite = None

    def closed(self) -> tuple[Close, ...]:
        """Closed rewrites that are still on disk: the checkpoint names them."""
        segments = self._locations.segments
        self._closed = [
            close
            for close in self._closed
            if any(n in segments for n in range(close.first_segment, close.last_segment + 1))
        ]
        return tuple(self._closed)

    def _may_rewrite(self) -> bool:
        """None is under way, nor are records of an abandoned one still queued: its closing record
        would be taken for that of the next.
        """
        kinds = (RecordType.REWRITE, RecordType.CLOSE)
        queued = any(record[0] in kinds for record in self._writer.pending)
        return self._rewrite is None and not queued

    def _placed(
        self, kind: int, group: int, index: int, position: int, length: int, sequence: int
    ) -> None:
        rewrite = self._rewrite
        if kind == RecordType.REWRITE and group != self._run[0]:
            self._run = (group, sequence)
        if rewrite is not None and kind == RecordType.REWRITE:
            rewrite.placed(group, index, position, length, sequence)
        elif rewrite is not None and kind == RecordType.CLOSE:
            rewrite.close_placed(sequence)


def live_share(segment: Segment) -> float:
    """Estimated share of a segment's bytes that something still refers to, 0 to 1."""
    return segment.live_bytes / max(1, segment.end - HEADER_PAGE_BYTES)
