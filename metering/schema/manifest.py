"""The archive's manifest: which Parquet files count, and what is in them.

One JSON object a line, in the order in which the exporter made the files. A file that no line
names does not exist for any reader, whatever lies in the directory: it is a leftover of a crash.

    name              p{queue}-{from}-{to}.parquet: offsets [from, to) of that queue of __metering
    rows, kinds       rows in the file, and of each kind
    window_start_us   the earliest window start, and
    window_end_us     the latest window end of its rows: readers leave out files by these
    sources           [node, epoch, first seq, last seq] of each run of seqs without a gap, and
                      behind them the incarnation of the log, if the records have one
    size_bytes        of the file, and
    sha256            of its bytes
    source_sha256     of the log messages it was made from: equal input, whatever the writer version
    writer            the library and version that wrote it
    missing           offsets without a message, which the log has given up; not there if none
    previous          the head of the lines before this one (lines of older builds have none)

The head of a manifest is a chain of SHA-256: that of the head so far and of one line more, 64 zeros
before the first. A line that is lost or changed breaks the chain at the next one; the log knows the
head of the last one (`metering.lineage`).
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, astuple, dataclass, replace
from typing import TYPE_CHECKING

from metering.schema.record import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MANIFEST_NAME = "manifest.jsonl"

_NAME = re.compile(r"p(\d{1,9})-(\d{1,19})-(\d{1,19})\.parquet")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ManifestError(ValueError):
    """A manifest that cannot be relied on; the message names the line."""


@dataclass(frozen=True, slots=True)
class SourceRange:
    """The records first_seq to last_seq, all of them, of one node and epoch."""

    node: str
    epoch: int
    first_seq: int
    last_seq: int
    incarnation: int = 0

    def to_list(self) -> list[str | int]:
        """As it stands in a line."""
        fields: list[str | int] = [self.node, self.epoch, self.first_seq, self.last_seq]
        return [*fields, self.incarnation] if self.incarnation else fields


NO_LINES = "0" * 64
"""Head of a manifest without lines."""


@dataclass(frozen=True, slots=True)
class Head:
    """How many lines a manifest has, and their head."""

    lines: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One file of the archive, offsets [from_offset, to_offset) of queue `queue`."""

    queue: int
    from_offset: int
    to_offset: int
    rows: int
    kinds: dict[str, int]
    window_start_us: int
    window_end_us: int
    sources: tuple[SourceRange, ...]
    size_bytes: int
    sha256: str
    source_sha256: str
    writer: str
    previous: str = ""
    missing: int = 0

    @property
    def name(self) -> str:
        return file_name(self.queue, self.from_offset, self.to_offset)

    def to_line(self) -> bytes:
        """The entry as one line, ending in a newline."""
        fields = asdict(self) | {
            "schema": SCHEMA_VERSION,
            "name": self.name,
            "sources": [item.to_list() for item in self.sources],
        }
        for name in ("previous", "missing"):
            if not fields[name]:
                del fields[name]
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return text.encode() + b"\n"


def file_name(queue: int, from_offset: int, to_offset: int) -> str:
    return f"p{queue}-{from_offset}-{to_offset}.parquet"


def parse_manifest(content: bytes) -> list[ManifestEntry]:
    """The entries of a manifest, in its order.

    A last line without its newline was never finished and is left out. Raises ManifestError if a
    line is malformed or does not follow the one before it, or if the files of a queue leave a gap
    or overlap.
    """
    entries: list[ManifestEntry] = []
    head = NO_LINES
    ends: dict[int, int] = {}
    lines = content.split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            entry = _parse_line(line)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise ManifestError(f"manifest line {number}: {error}") from error
        if entry.previous != head and (entry.previous or (entries and entries[-1].previous)):
            raise ManifestError(
                f"manifest line {number}: it was not written behind the lines that stand before it:"
                " one of them was lost or changed"
            )
        head = next_head(head, line + b"\n")
        expected = ends.get(entry.queue, entry.from_offset)
        if entry.from_offset != expected:
            raise ManifestError(
                f"manifest line {number}: {entry.name} begins at {entry.from_offset},"
                f" the file before it ends at {expected}"
            )
        ends[entry.queue] = entry.to_offset
        entries.append(entry)
    return entries


def next_head(head: str, line: bytes) -> str:
    """The head with one line more, its newline included."""
    return hashlib.sha256(head.encode() + line).hexdigest()


def heads_of(content: bytes) -> list[Head]:
    """The heads of a manifest: without lines, with one, and so on."""
    heads = [Head(0, NO_LINES)]
    for line in content.split(b"\n")[:-1]:
        last = heads[-1]
        heads.append(Head(last.lines + 1, next_head(last.sha256, line + b"\n")))
    return heads


def forked_epochs(entries: Iterable[ManifestEntry]) -> list[tuple[str, int]]:
    """Epochs of a node that the log has lived through twice: it was put back in between."""
    found: dict[tuple[str, int], set[int]] = {}
    for entry in entries:
        for item in entry.sources:
            found.setdefault((item.node, item.epoch), set()).add(item.incarnation)
    return sorted(epoch for epoch, incarnations in found.items() if len(incarnations) > 1)


def merge_ranges(ranges: Iterable[SourceRange]) -> Iterator[SourceRange]:
    """The same records as runs that neither touch nor overlap, in order."""
    run: SourceRange | None = None
    for item in sorted(ranges, key=astuple):
        if run is None:
            run = item
        elif (item.node, item.epoch, item.incarnation) == (
            run.node,
            run.epoch,
            run.incarnation,
        ) and item.first_seq <= run.last_seq + 1:
            run = replace(run, last_seq=max(run.last_seq, item.last_seq))
        else:
            yield run
            run = item
    if run is not None:
        yield run


def sequence_gaps(entries: Iterable[ManifestEntry]) -> list[SourceRange]:
    """The records that are missing between seq 0 and the highest, for each node and epoch."""
    gaps: list[SourceRange] = []
    expected: dict[tuple[str, int], int] = {}
    for run in merge_ranges(source for entry in entries for source in entry.sources):
        first = expected.get((run.node, run.epoch), 0)
        if run.first_seq > first:
            gaps.append(SourceRange(run.node, run.epoch, first, run.first_seq - 1))
        expected[run.node, run.epoch] = max(first, run.last_seq + 1)
    return gaps


def repeating_files(entries: Iterable[ManifestEntry]) -> set[str]:
    """The names of the files that may hold a record twice, or one that another file holds too.

    Every other file is free of repeats by its ranges alone: nobody has to compare its rows.
    """
    names: set[str] = set()
    ranges: list[tuple[str, int, int, int, int, str]] = []
    for entry in entries:
        if entry.rows != sum(item.last_seq - item.first_seq + 1 for item in entry.sources):
            names.add(entry.name)
        ranges += [(*astuple(item), entry.name) for item in entry.sources]
    # The range that reaches furthest so far; one that begins within it overlaps it.
    source, reach, holder = ("", -1), -1, ""
    for node, epoch, first_seq, last_seq, _, name in sorted(ranges):
        if (node, epoch) != source:
            source, reach = (node, epoch), -1
        if first_seq <= reach:
            names.update((name, holder))
        if last_seq > reach:
            reach, holder = last_seq, name
    return names


def _parse_line(line: bytes) -> ManifestEntry:
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ManifestError("not an object")
    if fields.get("schema") != SCHEMA_VERSION:
        raise ManifestError(f"schema {fields.get('schema')!r}, known is {SCHEMA_VERSION}")
    match = _NAME.fullmatch(str(fields["name"]))
    if match is None:
        raise ManifestError(f"{fields['name']!r} is no name of an archive file")
    queue, from_offset, to_offset = (int(part) for part in match.groups())
    if to_offset <= from_offset:
        raise ManifestError(f"{fields['name']} holds no offset")
    for name in ("sha256", "source_sha256"):
        if _SHA256.fullmatch(str(fields[name])) is None:
            raise ManifestError(f"{name} is no SHA-256")
    sources = tuple(
        SourceRange(str(node), *map(int, numbers)) for node, *numbers in fields["sources"]
    )
    previous = str(fields.get("previous", ""))
    if previous and _SHA256.fullmatch(previous) is None:
        raise ManifestError("previous is no SHA-256")
    return ManifestEntry(
        queue=queue,
        from_offset=from_offset,
        to_offset=to_offset,
        rows=int(fields["rows"]),
        kinds={str(kind): int(rows) for kind, rows in fields["kinds"].items()},
        window_start_us=int(fields["window_start_us"]),
        window_end_us=int(fields["window_end_us"]),
        sources=sources,
        size_bytes=int(fields["size_bytes"]),
        sha256=fields["sha256"],
        source_sha256=fields["source_sha256"],
        writer=str(fields["writer"]),
        previous=previous,
        missing=int(fields.get("missing", 0)),
    )
