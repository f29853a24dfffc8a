"""Snapshot files: `snap/GGGG-INDEX.snap`, records behind their lengths, a checksum at the end.

magic "weirsnap" | u32 format (1) | (u32 length | record) ... | u32 crc32c of all before
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from crc32c import crc32c

from ..log.files import read_all, replace_file
from ..ports import Disk

DIRECTORY = "snap"
_HEAD = struct.Struct("<8sI")
_LENGTH = struct.Struct("<I")
_MAGIC = b"weirsnap"
FORMAT = 1


class SnapshotDamaged(Exception):
    """The file is not what was written."""


def name_of(group: int, index: int) -> str:
    """Name of a group's snapshot at an applied index."""
    return f"{DIRECTORY}/{group:04x}-{index:016x}.snap"


class SnapshotJob:
    """Writes one snapshot. `run` belongs to a thread."""

    def __init__(self, disk: Disk, name: str, records: Iterable[bytes]) -> None:
        self._disk = disk
        self.name = name
        self._records = list(records)

    def run(self) -> None:
        """Thread: write, fdatasync, rename, sync the directory. OSError."""
        parts = [_HEAD.pack(_MAGIC, FORMAT)]
        for record in self._records:
            parts += (_LENGTH.pack(len(record)), record)
        content = b"".join(parts)
        replace_file(self._disk, self.name, content + _LENGTH.pack(crc32c(content)))


def read(disk: Disk, name: str) -> Iterator[bytes]:
    """Records of a snapshot. Raises SnapshotDamaged if it is missing or not whole."""
    content = read_all(disk, name)
    if content is None:
        raise SnapshotDamaged(f"{name} is missing")
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
