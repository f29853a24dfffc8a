"""The metering archive as the bill reads it: by its manifest, never by listing a directory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metering.schema import ManifestEntry, ManifestError, SourceRange, parse_manifest
from metering.schema.manifest import (
    MANIFEST_NAME,
    forked_epochs,
    heads_of,
    repeating_files,
    sequence_gaps,
)

if TYPE_CHECKING:
    from pathlib import Path

    from spark.period import Period


class ArchiveError(RuntimeError):
    """The archive cannot be billed from; the message says which file and why."""


@dataclass(frozen=True, slots=True)
class Archive:
    """The files that a period's bill reads, whole and checked."""

    directory: Path
    entries: tuple[ManifestEntry, ...]
    gaps: tuple[SourceRange, ...]
    # Names of files in which a record may stand that stands elsewhere too.
    repeating: frozenset[str] = frozenset()
    # The head of the whole manifest, as the log knows it (`metering.schema.manifest`).
    head: str = ""

    def paths(self, *, repeating: bool) -> list[str]:
        """The files whose records have to be compared, or those where that is not needed."""
        return [
            str(self.directory / entry.name)
            for entry in self.entries
            if (entry.name in self.repeating) == repeating
        ]

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.entries)

    @property
    def sha256(self) -> str:
        """Of the files' own SHA-256, in the manifest's order."""
        digest = hashlib.sha256()
        for entry in self.entries:
            digest.update(f"{entry.name} {entry.sha256}\n".encode())
        return digest.hexdigest()


def open_archive(directory: Path, period: Period, head: str = "") -> Archive:
    """The archive files of a period, checked byte for byte against the manifest, and that against
    the head that an export has told, if one is given.

    Files of later periods are left out, and files of earlier ones that hold no cumulative rows
    (those are the values that this period's differences begin from). Raises ArchiveError.
    """
    manifest = directory / MANIFEST_NAME
    try:
        content = manifest.read_bytes()
    except OSError as error:
        raise ArchiveError(
            f"{manifest}: {error.strerror}; has the exporter run for this directory?"
        ) from error
    try:
        everything = parse_manifest(content)
    except ManifestError as error:
        raise ArchiveError(f"{manifest}: {error}") from error
    found = heads_of(content)[-1].sha256
    if head and head != found:
        raise ArchiveError(
            f"{manifest}: its head is {found}, not {head}: lines are missing, or changed"
        )
    forked = forked_epochs(everything)
    if forked:
        node, epoch = forked[0]
        raise ArchiveError(
            f"{manifest}: it holds two lives of one log (node {node}, epoch {epoch}), which was put"
            " back to an earlier state in between: what was served in both cannot be told apart"
        )
    entries = tuple(entry for entry in everything if _needed(entry, period))
    for entry in entries:
        _check(directory, entry)
    until = [entry for entry in everything if entry.window_start_us < period.end_us]
    return Archive(
        directory=directory,
        entries=entries,
        gaps=tuple(sequence_gaps(until)),
        repeating=frozenset(repeating_files(entries)),
        head=found,
    )


def _needed(entry: ManifestEntry, period: Period) -> bool:
    if entry.window_start_us >= period.end_us:
        return False
    return entry.window_end_us > period.start_us or "store" in entry.kinds


def _check(directory: Path, entry: ManifestEntry) -> None:
    path = directory / entry.name
    try:
        with path.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise ArchiveError(f"{path}: {error.strerror}, but the manifest names it") from error
    if found != entry.sha256:
        raise ArchiveError(
            f"{path}: its bytes are not those of the manifest line; restore it, or let the"
            " exporter make it again"
        )
