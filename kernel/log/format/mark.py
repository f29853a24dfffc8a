"""`synced`: how far the journal is known to be on the disk, so that a hole is told from the end.

    2 slots of 512 bytes, written in turn:
    8 bytes magic | u32 version | 16 bytes store id | u64 write | u64 sequence
    u64 segment | u64 offset | u32 crc32c of all before it | zeros

Behind the last record a segment reads as zeros, and so does a stretch of records that the disk has
lost. What was synced last is proven by nothing in the journal but the next batch, or a checkpoint.
So what *is* on the disk is noted here, some milliseconds after each batch: by a write that nobody
waits for, since a process that is killed leaves it in the page cache. Against a power loss the file
is synced now and then (`MarkJob`): once a second at most, so that what is proven is at most about a
second old.

The mark may be older than the journal, never newer: it is written when the sync has returned. A
journal that ends before its mark has lost what was acknowledged. A slot is one sector, and a torn
or damaged one leaves the other, which says less; without both nothing is known, as in a directory
of an older build. `write` tells the younger slot, not the sequence: that begins lower again when an
owner accepts that the end is lost.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from ...common.ports import Disk, File
from ..errors import FormatError
from ..hard_read import is_unread
from .files import NO_SPACE, ROOT_DIRECTORY, read_all, write_all

MARK_NAME = "synced"
MAGIC = b"WEIRMARK"
VERSION = 1
SLOT_BYTES = 512
"""What a disk writes whole or not at all."""

_SLOT = struct.Struct("<8sI16sQQQQ")
_SUM = struct.Struct("<I")
_WHOLE_BYTES = _SLOT.size + _SUM.size


class Mark(NamedTuple):
    """What is on the disk."""

    sequence: int = 0
    """Of the last record; 0: nothing is known."""
    segment: int = 0
    offset: int = 0
    """Where that record ends."""


def read_mark(disk: Disk, store: bytes) -> tuple[Mark, int]:
    """The younger slot that reads, and the number of its write; zeros if none does. OSError;
    FormatError: of a newer version, or another store's.
    """
    try:
        content = read_all(disk, MARK_NAME) or b""
    except OSError as error:
        if not is_unread(error):
            raise
        content = b""
    best, written = Mark(), 0
    for at in (0, SLOT_BYTES):
        slot = content[at : at + _WHOLE_BYTES]
        if len(slot) < _WHOLE_BYTES or not slot.startswith(MAGIC):
            continue
        if _SUM.unpack_from(slot, _SLOT.size)[0] != crc32c(slot[: _SLOT.size]):
            continue
        _magic, version, owner, write, sequence, segment, offset = _SLOT.unpack_from(slot)
        if version != VERSION:
            raise FormatError(f"{MARK_NAME} has format version {version}, this Weir knows 1")
        if owner != store:
            raise FormatError(f"{MARK_NAME} belongs to another store")
        if write > written:
            best, written = Mark(sequence, segment, offset), write
    return best, written


class MarkJob:
    """Syncs the mark. `run` belongs to a thread; then `MarkFile.end`."""

    __slots__ = ("_failure", "_file")

    def __init__(self, file: File, failure: OSError | None) -> None:
        self._file = file
        self._failure = failure

    def run(self) -> None:
        """Thread: one sync. OSError, also of a write before it: the process has to end."""
        if self._failure is not None:
            raise self._failure
        self._file.fdatasync()


class MarkFile:
    """The mark of a journal that is open."""

    def __init__(self, disk: Disk, store: bytes, written: int) -> None:
        """`written`: the number of its last write (`read_mark`)."""
        self._disk = disk
        self._store = store
        self._written = written
        self._file: File | None = None
        """None: there is no room for it on the disk."""
        self._mark = Mark()
        self._is_dirty = False
        """Something was written that is not synced."""
        self._syncing: MarkJob | None = None
        self._failure: OSError | None = None
        """Of a write: nobody waited for it, so that the next sync tells."""

    def open(self, mark: Mark) -> None:
        """Have the file say this, and nothing else, durably. Blocking; OSError, but not for want of
        room: a full disk goes without a mark.
        """
        try:
            if not self._written and MARK_NAME in self._disk.names(ROOT_DIRECTORY):
                # Nothing of it reads: what its sectors do not read they may not take either.
                self._disk.remove(MARK_NAME)
            self._file = self._disk.open(MARK_NAME, create=True)
            for _slot in range(2):
                self._write(self._file, mark)
            MarkJob(self._file, self._failure).run()
            self._disk.sync_directory(ROOT_DIRECTORY)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self.close()
        self._is_dirty = False

    def note(self, mark: Mark) -> None:
        """So much is on the disk. Nothing is written while a thread syncs the file: on some file
        systems that would wait for the disk. Whoever calls does it again behind `end`.
        """
        if self._syncing is None and self._file is not None and mark != self._mark:
            self._write(self._file, mark)

    def _write(self, file: File, mark: Mark) -> None:
        self._mark = mark
        self._written += 1
        slot = _SLOT.pack(MAGIC, VERSION, self._store, self._written, *mark)
        content = (slot + _SUM.pack(crc32c(slot))).ljust(SLOT_BYTES, b"\0")
        try:
            write_all(file, (content,), (self._written & 1) * SLOT_BYTES)
        except OSError as error:
            if error.errno not in NO_SPACE:
                self._failure = error
        self._is_dirty = True

    def job(self) -> MarkJob | None:
        """What syncs it, if that is due and not under way."""
        if not self._is_dirty or self._syncing is not None or self._file is None:
            return None
        self._is_dirty = False
        self._syncing = MarkJob(self._file, self._failure)
        return self._syncing

    def end(self) -> None:
        """The job has run."""
        self._syncing = None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
