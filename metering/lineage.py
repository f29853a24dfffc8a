"""Whether an archive belongs to the log that it is about to go on with.

The log keeps the head of the archive's manifest as of the last export (`metering.topic`). So it is
seen

- if lines of the manifest were lost or changed, the last ones too: the log knows another head;
- if the log is older than its archive, put back from a backup: the archive reaches further than the
  log, or the files that it has more than the log knows of were made from other messages;
- if the archive is gone: a log that knows of lines meets none.

Each stops the export, and so the bill, with an ExportError that says what to do. A crash between a
file and the log's record of it leaves files that the log does not know of: they are held to the
messages they were made from, read once more.

An archive that was restored with its log was copied after the moment that the log shows, so it may
have lines of what the log has lost. Files are only added to an archive: what it was at that moment
are its first lines. Once, before the first export, those are found in the same way and the others
left out (`trim_restored`).
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING

from metering.exporter import PAGE_MESSAGES, ExportError, add_source

if TYPE_CHECKING:
    from metering.exporter import Archive, LogReader
    from metering.schema import ManifestEntry
    from metering.schema.manifest import Head

ANEW = (
    "restore it; or move it away, where it can be billed from as it is (--metering), and begin anew"
    " with what the log holds: weir bill --new-archive"
)


async def check_lineage(archive: Archive, reader: LogReader, queue: int, kept: Head | None) -> None:
    """Raises ExportError unless the archive of a queue is this log's. `kept`: the head that the log
    knows; None if it has not been told one, by an older build or for a new archive.
    """
    where, lines = archive.directory, len(archive.entries)
    if kept is not None and kept.lines > lines:
        raise ExportError(
            f"the manifest in {where} has {lines} lines, the log knows of {kept.lines}: {ANEW}"
        )
    if kept is not None and archive.heads[kept.lines] != kept:
        raise ExportError(
            f"the manifest in {where} is not the one that was exported: of its first {kept.lines}"
            f" lines some were changed; {ANEW}"
        )
    first, end = await reader.bounds(queue)
    reached = archive.next_offset(queue)
    if reached is not None and reached > end:
        raise ExportError(
            f"the archive in {where} is ahead of its log, which ends at offset {end} and not at"
            f" {reached}: the log was put back to an earlier state, or is another one's; {ANEW}"
        )
    unproved = archive.entries[kept.lines :] if kept is not None else archive.entries[-1:]
    for entry in unproved:
        if entry.queue == queue and entry.from_offset >= first:
            await _check_source(archive, reader, entry)


async def trim_restored(archive: Archive, reader: LogReader, queue: int, kept: Head | None) -> None:
    """Leave out of an archive that was restored the lines of which its log knows nothing: behind
    `kept`, the first one that was not made from what the log holds, and all after it. Nothing
    happens if it was not restored, or has not the head that the log knows: `check_lineage` says so.
    """
    known = kept.lines if kept is not None else 0
    if not archive.restored or known > len(archive.entries):
        return
    if kept is not None and archive.heads[known] != kept:
        return
    first, end = await reader.bounds(queue)
    for entry in archive.entries[known:]:
        # What the log has given up by age it has had.
        if entry.from_offset >= first and (
            entry.to_offset > end or not await _is_source(reader, entry)
        ):
            break
        known += 1
    await asyncio.to_thread(archive.trim, known)


async def _check_source(archive: Archive, reader: LogReader, entry: ManifestEntry) -> None:
    if not await _is_source(reader, entry):
        raise ExportError(
            f"{archive.directory / entry.name} was made from other messages than the log holds now:"
            f" the log was put back to an earlier state, and has gone on from there; {ANEW}"
        )


async def _is_source(reader: LogReader, entry: ManifestEntry) -> bool:
    """Whether a file was made from the messages that the log holds at its offsets."""
    source, position = hashlib.sha256(), entry.from_offset
    while position < entry.to_offset:
        page = await reader.read(
            entry.queue, position, min(PAGE_MESSAGES, entry.to_offset - position)
        )
        if not page:
            break
        for message in page:
            if message.offset < entry.to_offset:
                add_source(source, message)
        position = page[-1].offset + 1
    return source.hexdigest() == entry.source_sha256
