"""Snapshot files: `snap/GGGG-INDEX.snap`, records behind their lengths, a checksum at the end.

magic "weirsnap" | u32 format (1) | (u32 length | record) ... | u32 crc32c of all before
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator

from crc32c import crc32c

from ...common.ports import Disk, File
from ...log.errors import FormatError
from ...log.format.files import NO_SPACE, read_all, write_all
from ...log.hard_read import is_unread

DIRECTORY = "snap"
WRITING = ".tmp"
"""Ends the name of a file that is being written."""

SPARE = f"{DIRECTORY}/spare"
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
        """Append one record."""
        self._parts += (_LENGTH.pack(len(record)), record)
        self.buffered_bytes += _LENGTH.size + len(record)

    def take(self, *, last: bool) -> SnapshotPiece:
        """A job that writes what was added since the last one."""
        parts, self._parts = self._parts, []
        self.buffered_bytes = 0
        return SnapshotPiece(self, parts, last=last)

    def write(self, parts: list[bytes], *, last: bool) -> None:
        """Thread: append the parts and sync them, piece by piece: all of a large snapshot at once
        would keep the journal's next sync waiting. After the last ones rename; the name is durable
        once the directory is synced (`sync_names`). OSError; then the file is closed, and what is
        left of it overwritten some day.
        """
        if self._file is None:
            self._file = self._disk.open(self.name + WRITING, create=True)
        done = False
        try:
            for part in parts:
                self._checksum = crc32c(part, self._checksum)
            if last:
                parts.append(_LENGTH.pack(self._checksum))
            write_all(self._file, parts, self._end)
            self._end += sum(map(len, parts))
            self._file.fdatasync()
            done = True
        finally:
            if last or not done:
                self._file.close()
        if last:
            self._disk.rename(self.name + WRITING, self.name)


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


def tidy(disk: Disk, keep: Callable[[], set[str]], spare_bytes: int) -> None:
    """Thread: remove what no checkpoint names, nor will soon. `keep` says what to leave, finished
    or not, and is asked after the names were: a file that is made meanwhile is not among these, and
    one that another thread has finished or given up meanwhile may be gone. Keep so many bytes
    aside for the next one, if there is room, in a file that 0 removes. OSError.
    """
    names = [f"{DIRECTORY}/{name}" for name in disk.names(DIRECTORY)]
    kept = keep()
    others = [each for each in names if each.removesuffix(WRITING) not in kept and each != SPARE]
    for name in others:
        with contextlib.suppress(FileNotFoundError):
            disk.remove(name)
    kept_bytes = _spare_bytes(disk)
    if kept_bytes not in (0, spare_bytes):
        disk.remove(SPARE)
    if spare_bytes and kept_bytes != spare_bytes:
        _set_aside(disk, spare_bytes)
    if others or kept_bytes != spare_bytes:
        disk.sync_directory(DIRECTORY)


def _spare_bytes(disk: Disk) -> int:
    """Bytes that are set aside."""
    try:
        file = disk.open(SPARE)
    except FileNotFoundError:
        return 0
    try:
        return file.size()
    finally:
        file.close()


def _set_aside(disk: Disk, spare_bytes: int) -> None:
    """Make the spare file; nothing is there if it does not fit."""
    file = disk.open(SPARE, create=True)
    try:
        file.allocate(spare_bytes)
    except OSError as error:
        disk.remove(SPARE)
        if error.errno not in NO_SPACE:
            raise
    finally:
        file.close()


def sync_names(disk: Disk) -> None:
    """Thread: make the names of the snapshots written before durable. OSError."""
    disk.sync_directory(DIRECTORY)


def read(disk: Disk, name: str) -> Iterator[bytes]:
    """Records of a snapshot. Raises SnapshotDamaged if it is missing, not whole, or does not read;
    FormatError.
    """
    try:
        content = read_all(disk, name)
    except OSError as error:
        if not is_unread(error):
            raise
        raise SnapshotDamaged(f"{name}: the disk does not read it ({error.strerror})") from error
    if content is None:
        raise SnapshotDamaged(f"{name} is missing")
    return records_of(content, name)


def records_of(content: bytes, name: str) -> Iterator[bytes]:
    """Records of a snapshot's content. Raises SnapshotDamaged if it is not whole; FormatError."""
    if len(content) < _HEAD.size + 4:
        raise SnapshotDamaged(f"{name} is cut short")
    magic, version = _HEAD.unpack_from(content)
    (total,) = _LENGTH.unpack_from(content, len(content) - 4)
    if magic != _MAGIC or crc32c(memoryview(content)[:-4]) != total:
        raise SnapshotDamaged(f"{name}: checksum does not match")
    if version != FORMAT:
        raise FormatError(f"{name}: format {version}, this build reads {FORMAT}")
    return _records(content)


def _records(content: bytes) -> Iterator[bytes]:
    at = _HEAD.size
    end = len(content) - 4
    while at < end:
        (length,) = _LENGTH.unpack_from(content, at)
        at += 4
        yield content[at : at + length]
        at += length
