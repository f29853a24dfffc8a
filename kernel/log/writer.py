"""The write path: what is queued becomes one batch, and one synced write a segment.

    append ... append   queue (loop)
    begin               frame: sequence, place, checksums, closing record (loop)
    WriteBatch.start    write and sync, beside the loop; or else
    WriteBatch.run      write and sync (thread)
    end                 the batch is stable (loop)

One batch is in flight at most, so a record of batch n + 1 on disk proves that batch n was synced;
the closing record of each batch says so too. A batch may cross from one segment to the next; only
then are two files written. If no prepared segment is left, the batch allocates one itself before it
writes, and a full disk is then as fatal as a failed sync. So an owner with messages that it may
refuse asks `segments_left` before it queues.

`begin` takes everything that is queued, but for this: where so much is queued that the disk takes
long for it, groups of which little is queued go before, in a batch of their own (`_take`). A small
message then waits for the write that goes on, and not for the next one too. Only the order between
groups changes, of what nobody has been answered for.

Space: `prepare` keeps two segments ready, the next one and a reserve. When the disk has no room for
a new one, `can_accept` turns False: the owner then refuses new messages, and settlements go on in
what is ready.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from crc32c import crc32c

from ..common.ports import Disk, File, Written
from .errors import JournalError
from .format.checkpoint import HardState, Position
from .format.files import NO_SPACE, write_all
from .format.mark import Mark, MarkFile
from .format.record import (
    ALIGNMENT,
    HEADER_BYTES,
    LEADER,
    NODE,
    PADDING,
    SUM,
    BatchEnd,
    RecordType,
    encode_batch_end,
    encode_header,
    encode_number,
    padded_bytes,
    seed_of,
)
from .format.segment import (
    HEADER_PAGE_BYTES,
    Segment,
    SegmentKind,
    create_segment,
    segment_bytes_for,
)
from .locations import SEGMENT_SHIFT
from .reading.tail_cache import cache_key

READY_SEGMENTS = 2
"""The next segment, and the reserve in which settlements go on when the disk is full."""

BESIDE_BYTES_MAX = 1 << 20
"""Of a batch that is written beside the loop, which copies it first: 0.1 ms. A larger one goes by
the thread, whose waiting is little beside the disk's time for it.
"""

LITTLE_SHARE: Final = 16
"""Of a group so little is queued, as a part of `long_bytes`, that it goes before."""

ENTRY = int(RecordType.ENTRY)
HARD_STATE = int(RecordType.HARD_STATE)

Pending = tuple[int, int, int, int, bytes]
"""(type, group, term, index, body) of a queued record."""


class PrepareJob:
    """Allocates a segment. `run` belongs to a thread."""

    __slots__ = ("_disk", "_floor", "_store", "error", "segment")

    def __init__(self, disk: Disk, store: bytes, segment: Segment, sequence_floor: int) -> None:
        self._disk = disk
        self._store = store
        self._floor = sequence_floor
        self.segment = segment
        self.error: OSError | None = None
        """Set if there was no space; the half-made file is gone again."""

    def run(self) -> None:
        """Thread: create, allocate, write the header, sync file and directory.

        OSError, except for want of space, which is left in `error`.
        """
        try:
            self.create()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self.error = error

    def create(self) -> None:
        """Thread: the same, raising for want of space too."""
        segment = self.segment
        segment.file = create_segment(
            self._disk, SegmentKind.NORMAL, self._store, segment.number, segment.size, self._floor
        )


class _Part:
    """What a batch writes into one segment."""

    __slots__ = ("buffers", "offset", "prepare", "segment")

    def __init__(self, segment: Segment, prepare: PrepareJob | None) -> None:
        self.segment = segment
        self.offset = segment.end
        self.prepare = prepare
        self.buffers: list[bytes] = []


class WriteBatch:
    """One group commit. `start`, or `run` in a thread; then `Journal.end(batch)`."""

    __slots__ = (
        "bodies",
        "done",
        "hard_states",
        "last_sequence",
        "parts",
        "records",
        "stable",
        "waiting",
    )

    def __init__(self, bodies: dict[int, bytes], waiting: frozenset[int]) -> None:
        self.bodies = bodies
        """Bodies of its entries by cache key."""
        self.waiting = waiting
        """Groups of which all that was queued goes into the next batch."""
        self.parts: list[_Part] = []
        self.stable: dict[int, tuple[int, int]] = {}
        """Per group (index, term) of its last entry here: stable once the batch has ended."""
        self.hard_states: dict[int, HardState] = {}
        self.records = 0
        self.last_sequence = 0
        self.done = False

    def start(self, done: Written) -> bool:
        """Event loop: begin to write everything, through to the disk; then `done(error)`, as after
        `run`. False: it takes a thread, and `run`, which says so if the journal is closed.
        """
        part = self.parts[0]
        file = part.segment.file
        if file is None or len(self.parts) > 1:
            return False
        if part.segment.end - part.offset > BESIDE_BYTES_MAX:
            return False

        def ended(error: BaseException | None) -> None:
            self.done = error is None
            done(error)

        return file.begin_write(part.buffers, part.offset, ended)

    def run(self) -> None:
        """Thread: write everything, each part once and through to the disk.

        OSError: nothing may be written or answered any more, the process has to end.
        """
        for part in self.parts:
            if part.prepare is not None:
                part.prepare.create()
            write_all(_file(part.segment), part.buffers, part.offset, synced=True)
        self.done = True


def _ignore(
    _kind: int, _group: int, _index: int, _position: int, _length: int, _sequence: int
) -> None:
    """Nobody asks where records that are no entries went."""


def _file(segment: Segment) -> File:
    if segment.file is None:
        raise JournalError(f"segment {segment.number} is not open")
    return segment.file


class Writer:
    """The journal's end: the queue, the open segment, the ready ones, the sequence."""

    def __init__(
        self,
        disk: Disk,
        store: bytes,
        *,
        segment: Segment,
        next_number: int,
        sequence: int,
        mark: MarkFile,
        segment_bytes: int,
        reserve_bytes: int,
        long_bytes: int,
        place: Callable[[int, int, int, int], None],
        opened: Callable[[Segment], None],
    ) -> None:
        self._disk = disk
        self._store = store
        self._seed = seed_of(store)
        self._segment = segment
        self._next_number = next_number
        self._sequence = sequence
        """Sequence of the next record."""
        self.mark = mark
        self._segment_bytes = segment_bytes
        self._reserve_bytes = reserve_bytes
        self._long_bytes = long_bytes
        self._little_went = False
        """Whether little went before in the last batch: the next one takes everything."""
        self._place = place
        """(group, index, position, length) of each entry framed."""
        self.placed: Callable[[int, int, int, int, int, int], None] = _ignore
        """(type, group, index, position, length, sequence) of each other record framed."""
        self._opened = opened
        self._ready: deque[Segment] = deque()
        self._preparing: PrepareJob | None = None
        self._in_flight: WriteBatch | None = None
        self.pending: list[Pending] = []
        self.pending_bytes = 0
        self.pending_bodies: dict[int, bytes] = {}
        self.synced_sequence = sequence - 1
        self.can_accept = True
        self._unusable: list[Segment] = []
        """Prepared but overtaken by a segment of a higher number: to be removed."""
        self.syncs = 0
        self.records = 0
        self.bytes_written = 0

    def append(self, record: Pending) -> None:
        """Queue a record that is no entry."""
        self.pending.append(record)
        self.pending_bytes += HEADER_BYTES + len(record[4])

    @property
    def in_flight(self) -> WriteBatch | None:
        return self._in_flight

    @property
    def segment(self) -> Segment:
        """The segment that is open for writing."""
        return self._segment

    @property
    def ready_segments(self) -> int:
        return len(self._ready)

    def synced_end(self) -> Position:
        """Everything before it is on disk."""
        segment = self._in_flight.parts[0].segment if self._in_flight else self._segment
        return Position(segment.number, segment.synced_end)

    # --- A batch ----------------------------------------------------------------------------

    def begin(self) -> WriteBatch | None:
        """Frame what is queued; None if nothing is, or if a batch is in flight."""
        if self._in_flight is not None or not self.pending:
            return None
        records, batch = self._take()
        first = self._sequence
        part = _Part(self._segment, None)
        batch.parts.append(part)
        counts: dict[int, int] = {}
        done = 0
        while True:
            done = self._frame(records, done, part, counts)
            if done == len(records):
                break
            part = self._roll(part, padded_bytes(len(records[done][4])))
            batch.parts.append(part)
        end = BatchEnd(first, self.synced_sequence, counts)
        self._add(part, RecordType.BATCH_END, encode_batch_end(end))
        batch.records = len(records)
        batch.last_sequence = self._sequence - 1
        self._in_flight = batch
        return batch

    def end(self) -> WriteBatch:
        """The batch in flight is written and synced. Returns it."""
        batch = self._in_flight
        if batch is None or not batch.done:
            raise JournalError("no batch has been written and synced")
        self._in_flight = None
        self.synced_sequence = batch.last_sequence
        self.syncs += len(batch.parts)
        self.records += batch.records
        for part in batch.parts:
            part.segment.synced_end = part.segment.end
            self.bytes_written += part.segment.end - part.offset
        return batch

    def note_synced(self) -> None:
        """Have the mark say what is synced, by a write that nobody waits for."""
        self.mark.note(Mark(self.synced_sequence, *self.synced_end()))

    def sealed_by(self, batch: WriteBatch) -> list[Segment]:
        """Segments that the (ended) batch has closed; their files are closed here."""
        sealed = [part.segment for part in batch.parts if part.segment.sealed]
        for segment in sealed:
            _file(segment).close()
            segment.file = None
        return sealed

    def _take(self) -> tuple[list[Pending], WriteBatch]:
        """What the next batch brings."""
        little = self._little_ones() if self.pending_bytes > self._long_bytes else None
        self._little_went = little is not None
        records, self.pending = self.pending, []
        bodies, self.pending_bodies = self.pending_bodies, {}
        self.pending_bytes = 0
        waiting: frozenset[int] = frozenset()
        if little is not None:
            waiting = frozenset([each[1] for each in records]) - little
            self.pending = [each for each in records if each[1] in waiting]
            self.pending_bytes = sum([HEADER_BYTES + len(each[4]) for each in self.pending])
            records = [each for each in records if each[1] in little]
            for _, group, _, index, _ in self.pending:
                key = cache_key(group, index)
                if key in bodies:
                    self.pending_bodies[key] = bodies.pop(key)
        batch = WriteBatch(bodies, waiting)
        for kind, group, term, index, body in records:
            if kind == ENTRY:
                batch.stable[group] = (index, term)
            elif kind == HARD_STATE:
                batch.hard_states[group] = HardState(term, int.from_bytes(body, "little"), index)
        return records, batch

    def _little_ones(self) -> set[int] | None:
        """Groups of which little is queued, if others have much and wait for no batch before. What
        the journal copies stays in its order.
        """
        queued: dict[int, int] = {}
        for kind, group, _, _, body in self.pending:
            if kind not in (ENTRY, HARD_STATE):
                return None
            queued[group] = queued.get(group, 0) + len(body)
        most = self._long_bytes // LITTLE_SHARE
        little = {group for group, size in queued.items() if size <= most}
        return little if 0 < len(little) < len(queued) and not self._little_went else None

    def _frame(
        self, records: Sequence[Pending], start: int, part: _Part, counts: dict[int, int]
    ) -> int:
        """Frame records into the open segment from number `start` on, while they fit.

        Returns how far it came. The hot loop: under 3 µs a record beside its checksum.
        """
        segment = part.segment
        offset = segment.end
        limit = segment.limit
        base = segment.number << SEGMENT_SHIFT
        sequence = self._sequence
        buffers = part.buffers
        headers: list[bytes] = []
        place = self._place
        seed = self._seed
        pack_leader, pack_node, pack_sum = LEADER.pack, NODE.pack, SUM.pack
        done = start
        for kind, group, term, index, body in records[start:] if start else records:
            length = HEADER_BYTES + len(body)
            padded = (length + 7) & -8
            if offset + padded > limit:
                break
            leader = pack_leader(kind, 1, 0, group, term, index)
            node = pack_node(length, sequence, crc32c(body, crc32c(leader)))
            header = pack_sum(crc32c(node, seed)) + node + leader
            headers.append(header)
            buffers.append(header)
            buffers.append(body)
            if padded != length:
                buffers.append(PADDING[padded - length])
            counts[group] = counts.get(group, 0) + 1
            if kind == ENTRY:
                place(group, index, base | offset >> 3, length)
            else:
                self.placed(kind, group, index, base | offset >> 3, length, sequence)
            offset += padded
            sequence += 1
            done += 1
        segment.end = offset
        self._sequence = sequence
        if segment.headers is not None:
            segment.headers += b"".join(headers)
        return done

    def _add(self, part: _Part, kind: int, body: bytes) -> None:
        """Add a record of the journal itself; there is always room for it (TAIL_BYTES)."""
        header = encode_header(kind, 0, 0, 0, body, self._sequence, self._seed)
        self._sequence += 1
        padding = PADDING[-len(body) % ALIGNMENT]
        part.buffers += (header, body, padding) if padding else (header, body)
        part.segment.end += padded_bytes(len(body))
        if part.segment.headers is not None:
            part.segment.headers += header

    def _roll(self, part: _Part, record_bytes: int) -> _Part:
        """Close the open segment with a PAD and go on in a ready or a new one."""
        prepare: PrepareJob | None = None
        while self._ready and self._ready[0].limit - HEADER_PAGE_BYTES < record_bytes:
            self._unusable.append(self._ready.popleft())
        if self._ready:
            following = self._ready.popleft()
        else:
            prepare = self._new_job(segment_bytes_for(record_bytes, self._segment_bytes))
            following = prepare.segment
        self._add(part, RecordType.PAD, encode_number(following.number))
        part.segment.sealed = True
        self._segment = following
        self._opened(following)
        return _Part(following, prepare)

    # --- Space ------------------------------------------------------------------------------

    def prepare(self) -> PrepareJob | None:
        """The next segment to allocate, None if enough are ready or one is under way.

        After a failure it is offered again at once: the caller waits between tries.
        """
        enough = self.can_accept and len(self._ready) >= READY_SEGMENTS
        if self._preparing is not None or enough:
            return None
        # Both are used in turn, so that every second segment is of either size.
        reserve = bool(self._ready) and self._ready[0].size >= self._segment_bytes
        self._preparing = self._new_job(self._reserve_bytes if reserve else self._segment_bytes)
        return self._preparing

    def end_prepare(self, job: PrepareJob) -> None:
        """The job has run."""
        if job is self._preparing:
            self._preparing = None
        self.can_accept = job.error is None
        if job.error is not None:
            return
        if job.segment.number < self._segment.number:
            self._unusable.append(job.segment)
        else:
            ready = sorted((*self._ready, job.segment), key=lambda segment: segment.number)
            self._ready = deque(ready)

    def further(self, body_bytes: int) -> PrepareJob:
        """One more segment, that takes a record with a body of so many bytes."""
        return self._new_job(segment_bytes_for(padded_bytes(body_bytes), self._segment_bytes))

    def segments_left(self, bodies: Sequence[int]) -> int:
        """Ready segments that stay untouched if records with bodies of so many bytes each follow
        what is queued; negative if they do not fit.
        """
        offset = self._segment.end
        if offset + self._bound(bodies) <= self._segment.limit:
            return len(self._ready)
        limit = self._segment.limit
        ready = deque(self._ready)
        for body_bytes in (*[len(record[4]) for record in self.pending], *bodies):
            padded = padded_bytes(body_bytes)
            while offset + padded > limit:
                if not ready:
                    return -1
                offset, limit = HEADER_PAGE_BYTES, ready.popleft().limit
            offset += padded
        return len(ready)

    def _bound(self, bodies: Sequence[int]) -> int:
        """At least the bytes that the queue and these bodies take."""
        records = len(self.pending) + len(bodies)
        return self.pending_bytes + sum(bodies) + records * (HEADER_BYTES + ALIGNMENT)

    def give_up_reserve(self) -> None:
        """Let go of a segment that is ready: its room is needed for a checkpoint, without which
        nothing on a full disk is ever freed.
        """
        if self._ready:
            self._unusable.append(self._ready.pop())

    def take_unusable(self) -> list[Segment]:
        """Prepared segments that nobody will use: closed here, to be removed by the caller."""
        unusable, self._unusable = self._unusable, []
        for segment in unusable:
            _file(segment).close()
            segment.file = None
        return unusable

    def close(self) -> None:
        """Close the open and the ready files."""
        self.mark.close()
        for segment in (self._segment, *self._ready, *self._unusable):
            if segment.file is not None:
                segment.file.close()
                segment.file = None

    def _new_job(self, size: int) -> PrepareJob:
        segment = Segment(self._next_number, size)
        self._next_number += 1
        return PrepareJob(self._disk, self._store, segment, self._sequence)
