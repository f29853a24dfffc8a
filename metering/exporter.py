"""From the `__metering` log to the archive that the bill reads.

Where a file ends is decided by the log alone, so that two exporters, or one before and after a
crash, cut in the same places. A file holds offsets [from, to) of one queue and ends

- before the first message of a later hour (by the log's own time of append), or
- with the message that brings it to OFFSETS_PER_FILE_MAX messages or ROWS_PER_FILE_MAX rows, or
- at the end of the log, once that hour is over by HOUR_SETTLES_US; or at once if `final`.

A file is written under a temporary name, synced, renamed, the directory synced; then its line is
appended to the manifest and synced. A crash in between leaves a file that no line names, which no
reader sees and which the next run makes again: the same bytes, else it stops.

Nothing is ever left out in silence. A message that is not metering records, offsets that go back,
a log that no longer begins where the archive ends: each stops the export with an ExportError that
says so. A message that its log has given up (its entry did not read any more) is stepped over and
counted as `missing`: a problem of every bill that reads the file.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, Self

from metering.schema import (
    HOUR_US,
    SCHEMA_VERSION,
    ManifestEntry,
    ManifestError,
    SchemaError,
    SourceRange,
    decode,
    parse_manifest,
)
from metering.schema.manifest import (
    MANIFEST_NAME,
    Head,
    file_name,
    heads_of,
    merge_ranges,
    next_head,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

# One file: at most this many log messages, and no message more once it has so many rows. Rows
# take 9 to 14 bytes each in the file, 700 bytes and 8 microseconds while it is written (measured):
# 3 MB, 180 MB and 2 s at this bound.
OFFSETS_PER_FILE_MAX = 100_000
ROWS_PER_FILE_MAX = 250_000

# A message appended so long after the end of an hour is not stamped with that hour any more: the
# log's time may run behind wall time by what its slewing allows.
HOUR_SETTLES_US = 60_000_000

# Messages asked of the log at once: 256 flushes are at most 10 MB.
PAGE_MESSAGES = 256

RESTORED_MARK = "restored"
"""A file of an archive that was put back with its log, until the two were compared."""

_LOCK_NAME = ".exporter.lock"
_TEMPORARY_SUFFIX = ".writing"


class ExportError(RuntimeError):
    """The export stopped; the message says where and what to do. Nothing was left out."""


@dataclass(frozen=True, slots=True)
class LogMessage:
    """One message of `__metering`: its offset, the log's time of append, its body."""

    offset: int
    appended_at_us: int
    body: bytes


class LogReader(Protocol):
    """What the exporter needs of the log: committed messages only."""

    async def bounds(self, queue: int) -> tuple[int, int]:
        """(first offset that is kept, offset behind the last committed message)."""

    async def read(self, queue: int, from_offset: int, limit: int) -> Sequence[LogMessage]:
        """At most `limit` committed messages from `from_offset`, in order, without those that the
        log has given up.
        """


class ExportCut:
    """One file being filled, and the rules of where it ends."""

    def __init__(self, queue: int, from_offset: int) -> None:
        self.queue = queue
        self.from_offset = self.to_offset = from_offset
        # Bodies stay packed until the file is written: 30 times less memory than their columns.
        self.messages: list[tuple[int, bytes]] = []
        self.rows = 0
        self.missing = 0
        """Offsets without a message, which the log has given up."""
        self._sources: list[SourceRange] = []
        self._hour = 0
        self._source = hashlib.sha256()

    def offer(self, message: LogMessage) -> bool:
        """Take the next message, or refuse it (False) because the file ends before it.

        Raises ExportError if it is an earlier offset or holds no metering records.
        """
        if message.offset < self.to_offset:
            raise ExportError(
                f"__metering queue {self.queue}: offset {message.offset} follows"
                f" {self.to_offset - 1}; nothing was exported from it"
            )
        hour = message.appended_at_us // HOUR_US
        if self.full() or (self.messages and hour > self._hour):
            return False
        try:
            batch = decode(message.body)
        except SchemaError as error:
            raise ExportError(
                f"__metering queue {self.queue} offset {message.offset}: {error}"
            ) from error
        if not self.messages:
            self._hour = hour
        self.messages.append((message.offset, message.body))
        self.missing += message.offset - self.to_offset
        self.to_offset = message.offset + 1
        self.rows += batch.rows
        last_seq = batch.first_seq + batch.rows - 1
        source = (batch.node, batch.epoch, batch.first_seq, last_seq, batch.incarnation)
        self._sources.append(SourceRange(*source))
        add_source(self._source, message)
        return True

    def full(self) -> bool:
        return len(self.messages) >= OFFSETS_PER_FILE_MAX or self.rows >= ROWS_PER_FILE_MAX

    def settled(self, now_us: int) -> bool:
        """True if no message can be appended in this file's hour any more."""
        return bool(self.messages) and now_us >= (self._hour + 1) * HOUR_US + HOUR_SETTLES_US

    def sources(self) -> tuple[SourceRange, ...]:
        """The runs of seqs of each node and epoch."""
        return tuple(merge_ranges(self._sources))

    def source_sha256(self) -> str:
        return self._source.hexdigest()


class Archive:
    """The directory of Parquet files and their manifest; one exporter at a time holds it.

    Use as a context manager. Raises ExportError if another process exports, or if the manifest
    cannot be relied on. Opening removes what a crash left half written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = -1
        self.entries: list[ManifestEntry] = []
        self.heads = heads_of(b"")
        """Of the manifest: one more than it has lines."""
        self.restored = (directory / RESTORED_MARK).exists()
        """It was put back with its log, and has not been compared with it since."""

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.directory / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._recover()
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, BlockingIOError):
                raise ExportError(f"another exporter is at work in {self.directory}") from error
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._lock)

    def next_offset(self, queue: int) -> int | None:
        """Where the archive of a queue ends; None if it has no file yet."""
        ends = [entry.to_offset for entry in self.entries if entry.queue == queue]
        return ends[-1] if ends else None

    def store(self, cut: ExportCut) -> ManifestEntry:
        """Write the cut's file and manifest line; durable, on this disk, when it returns.

        A cut that the manifest has already is checked instead: equal messages change nothing,
        but a lost or damaged file is restored. Raises ExportError if the messages differ from
        those archived, or if the cut does not continue its queue.
        """
        from metering import parquet

        known = self._known(cut)
        path = self.directory / file_name(cut.queue, cut.from_offset, cut.to_offset)
        if known is not None and path.exists() and _sha256(path) == known.sha256:
            return known
        if known is None and path.exists():
            self._check_leftover(path, cut)
        temporary = path.with_name(path.name + _TEMPORARY_SUFFIX)
        batches = ((offset, decode(body)) for offset, body in cut.messages)
        table = parquet.table_of(cut.queue, batches, SCHEMA_VERSION)
        parquet.write(table, temporary, cut.source_sha256())
        start_us, end_us = parquet.window_bounds_us(table)
        entry = ManifestEntry(
            queue=cut.queue,
            from_offset=cut.from_offset,
            to_offset=cut.to_offset,
            rows=cut.rows,
            kinds=parquet.rows_of_kinds(table),
            window_start_us=start_us,
            window_end_us=end_us,
            sources=cut.sources(),
            size_bytes=temporary.stat().st_size,
            sha256=_sha256(temporary),
            source_sha256=cut.source_sha256(),
            writer=parquet.WRITER,
            missing=cut.missing,
        )
        if known is not None and entry.sha256 != known.sha256:
            temporary.unlink()
            raise ExportError(
                f"{path.name} is lost or damaged, and {entry.writer} does not write the bytes of"
                f" its manifest line, which {known.writer} wrote: export again with that version"
            )
        _sync(temporary)
        temporary.rename(path)
        _sync(self.directory)
        return known or self._append(entry)

    def trim(self, lines: int) -> None:
        """Keep the first lines only, and their files; it counts as restored no more. All of it is
        on the disk when this returns; whatever ends on the way leaves what can be trimmed again.
        """
        gone = self.entries[lines:]
        if gone:
            path = self.directory / MANIFEST_NAME
            content = b"".join(path.read_bytes().splitlines(keepends=True)[:lines])
            temporary = path.with_name(path.name + _TEMPORARY_SUFFIX)
            temporary.write_bytes(content)
            _sync(temporary)
            temporary.rename(path)
            _sync(self.directory)
            self.entries, self.heads = self.entries[:lines], heads_of(content)
        named = {entry.name for entry in self.entries}
        for leftover in self.directory.glob("*.parquet"):
            if leftover.name not in named:
                leftover.unlink()
        (self.directory / RESTORED_MARK).unlink(missing_ok=True)
        _sync(self.directory)
        self.restored = False

    def _known(self, cut: ExportCut) -> ManifestEntry | None:
        """The manifest's entry of this cut, None if it is the next one of its queue."""
        for entry in self.entries:
            if entry.queue != cut.queue:
                continue
            if (entry.from_offset, entry.to_offset) == (cut.from_offset, cut.to_offset):
                if entry.source_sha256 != cut.source_sha256():
                    raise ExportError(
                        f"{entry.name} was made from other messages than the log holds now at"
                        " these offsets: restore the log or the archive from before the change"
                    )
                return entry
        end = self.next_offset(cut.queue)
        if end is not None and cut.from_offset != end:
            raise ExportError(
                f"queue {cut.queue} is archived up to offset {end}; a file from"
                f" {cut.from_offset} to {cut.to_offset} does not continue it"
            )
        return None

    def _check_leftover(self, path: Path, cut: ExportCut) -> None:
        """A file without a manifest line, left by a crash, is replaced only by its equal."""
        import pyarrow as pa

        from metering import parquet

        try:
            source = parquet.source_of(path)
        except (OSError, pa.ArrowException) as error:
            raise ExportError(
                f"{path.name} is no Parquet file and no manifest line names it: remove it"
            ) from error
        if source != cut.source_sha256():
            raise ExportError(
                f"{path.name} exists without a manifest line and was made from other messages:"
                " move it away after finding out why"
            )

    def _append(self, entry: ManifestEntry) -> ManifestEntry:
        last = self.heads[-1]
        entry = replace(entry, previous=last.sha256)
        line = entry.to_line()
        path = self.directory / MANIFEST_NAME
        with path.open("ab") as manifest:
            manifest.write(line)
            manifest.flush()
            os.fsync(manifest.fileno())
        if not self.entries:
            _sync(self.directory)
        self.entries.append(entry)
        self.heads.append(Head(last.lines + 1, next_head(last.sha256, line)))
        return entry

    def _recover(self) -> None:
        for leftover in self.directory.glob(f"*{_TEMPORARY_SUFFIX}"):
            leftover.unlink()
        path = self.directory / MANIFEST_NAME
        if not path.exists():
            return
        content = path.read_bytes()
        try:
            self.entries = parse_manifest(content)
        except ManifestError as error:
            raise ExportError(f"{path.name}: {error}") from error
        self.heads = heads_of(content)
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with path.open("r+b") as manifest:
                manifest.truncate(whole)
                os.fsync(manifest.fileno())


async def export_queue(
    archive: Archive, reader: LogReader, queue: int, *, now_us: int, final: bool = False
) -> list[ManifestEntry]:
    """Export what can be cut now; the new entries. `now_us` is the log's time.

    With `final`, also what is left at the end of the log: for a bill before the hour is over.
    Files are written in a thread, so that the event loop goes on.
    """
    first, end = await reader.bounds(queue)
    position = archive.next_offset(queue)
    if position is None:
        position = first
    if position < first:
        raise ExportError(
            f"__metering queue {queue} begins at offset {first}, but the archive ends at"
            f" {position}: {first - position} messages are lost to the bill; its retention is"
            " shorter than the exporter's absence"
        )
    entries: list[ManifestEntry] = []
    cut = ExportCut(queue, position)
    while position < end:
        page = await reader.read(queue, position, min(PAGE_MESSAGES, end - position))
        if not page:
            break  # all that is left was given up: it is stepped over with the next message
        for message in page:
            if not cut.offer(message):
                entries.append(await asyncio.to_thread(archive.store, cut))
                cut = ExportCut(queue, cut.to_offset)
                cut.offer(message)
        position = page[-1].offset + 1
    if cut.messages and (final or cut.full() or cut.settled(now_us)):
        entries.append(await asyncio.to_thread(archive.store, cut))
    return entries


def add_source(source: hashlib._Hash, message: LogMessage) -> None:
    """Add a message to the hash of those that a file is made from."""
    source.update(message.offset.to_bytes(8, "little"))
    source.update(len(message.body).to_bytes(8, "little"))
    source.update(message.body)


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
