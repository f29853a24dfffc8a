"""Snapshot files: `snap/GGGG-INDEX.snap`, records behind their lengths, a checksum at the end.

magic "weirsnap" | u32 format (1) | (u32 length | record) ... | u32 crc32c of all before
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from crc32c import crc32c

from ..log.files import read_all, write_all
from ..ports import Disk, File

DIRECTORY = "snap"
_HEAD = struct.Struct("<8sI")
_LENGTH = struct.Struct("<I")
_MAGIC = b"weirsnap"
FORMAT = 1


class SnapshotDamaged(ValueError):
    """The file is not what was written."""


def name_of(group: int, index: int) -> str:
    """Name of a group's snapshot at an applied index."""
    return f"{DIRECTORY}/{group:04x}-{index:016x}.snap"


class SnapshotWriter:
    """Writes one snapshot piece by piece: `add` and `take` in the event loop, a thread runs what
    `take` gives. Until the last piece has run the file has another name.
    """

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk = disk
        self.name = name
        self._parts = [_HEAD.pack(_MAGIC, FORMAT)]
        self.buffered_bytes = _HEAD.size
        self._file: File | None = None
        self._end = 0
        self._checksum = 0

    def add(self, record: bytes) -> None:
        """One more record."""
        self._parts += (_LENGTH.pack(len(record)), record)
        self.buffered_bytes += _LENGTH.size + len(record)

    def take(self, *, last: bool) -> SnapshotPiece:
        """A job that writes what was added since the last one."""
        parts, self._parts = self._parts, []
        self.buffered_bytes = 0
        return SnapshotPiece(self, parts, last=last)

    def write(self, parts: list[bytes], *, last: bool) -> None:
        """Thread: append the parts; after the last ones fdatasync, rename, sync the directory.
        OSError; then the file is closed, and what is left of it overwritten some day.
        """
        if self._file is None:
            self._file = self._disk.open(self.name + ".tmp", create=True)
        done = False
        try:
            for part in parts:
                self._checksum = crc32c(part, self._checksum)
            if last:
                parts.append(_LENGTH.pack(self._checksum))
            write_all(self._file, parts, self._end)
            self._end += sum(map(len, parts))
            if last:
                self._file.fdatasync()
            done = True
        finally:
            if last or not done:
                self._file.close()
        if last:
            self._disk.rename(self.name + ".tmp", self.name)
            self._disk.sync_directory(DIRECTORY)


class SnapshotPiece:
    """A job of a `SnapshotWriter`. `run` belongs to a thread."""

    __slots__ = ("_last", "_parts", "_writer")

    def __init__(self, writer: SnapshotWriter, parts: list[bytes], *, last: bool) -> None:
        self._writer = writer
        self._parts = parts
        self._last = last

    def run(self) -> None:
        """Thread: see `SnapshotWriter.write`."""
        self._writer.write(self._parts, last=self._last)


def read(disk: Disk, name: str) -> Iterator[bytes]:
    """Records of a snapshot. Raises SnapshotDamaged if it is missing or not whole."""
    content = read_all(disk, name)
    if content is None:
        raise SnapshotDamaged(f"{name} is missing")
    return records_of(content, name)


def records_of(content: bytes, name: str) -> Iterator[bytes]:
    """Records of a snapshot's content. Raises SnapshotDamaged if it is not whole."""
    if len(content) < _HEAD.size + 4:
        raise SnapshotDamaged(f"{name} is cut short")
    magic, version = _HEAD.unpack_from(content)
    if magic != _MAGIC or version != FORMAT:
        raise SnapshotDamaged(f"{name}: format {version}, this build reads {FORMAT}")
    (total,) = _LENGTH.unpack_from(content, len(content) - 4)
    if crc32c(memoryview(content)[:-4]) != total:
        raise SnapshotDamaged(f"{name}: checksum does not match")
    return _records(content)


def _records(content: bytes) -> Iterator[bytes]:
    at = _HEAD.size
    end = len(content) - 4
    while at < end:
        (length,) = _LENGTH.unpack_from(content, at)
        at += 4
        yield content[at : at + length]
        at += length
