"""Whole files through the Disk port: atomic replacement, complete writes, names."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from ...common.ports import Disk, File

JOURNAL_DIRECTORY = "journal"
ROOT_DIRECTORY = ""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def segment_name(number: int) -> str:
    """File of segment `number`."""
    return f"{JOURNAL_DIRECTORY}/{number:08d}.seg"


def locations_name(number: int) -> str:
    """Location file of sealed segment `number`."""
    return f"{JOURNAL_DIRECTORY}/{number:08d}.loc"


def write_all(file: File, buffers: Sequence[bytes], offset: int, *, synced: bool = False) -> None:
    """Write every byte of `buffers` at `offset`, however often the file writes short; `synced`:
    they are on the disk then. OSError.
    """
    rest = list(buffers)
    left = sum(map(len, rest))
    while left:
        written = file.pwritev(rest, offset, synced=synced)
        if written <= 0:
            raise OSError(errno.EIO, "the disk accepts no more bytes")
        left -= written
        offset += written
        if left:
            rest = _after(rest, written)


def _after(buffers: Sequence[bytes], written: int) -> list[bytes]:
    """The buffers without their first `written` bytes."""
    for number, buffer in enumerate(buffers):
        if written < len(buffer):
            return [buffer[written:], *buffers[number + 1 :]]
        written -= len(buffer)
    return []


def read_all(disk: Disk, name: str) -> bytes | None:
    """Content of a file, None if there is none. OSError, which says where in the file."""
    try:
        file = disk.open(name)
    except FileNotFoundError:
        return None
    try:
        size = file.size()
        chunks: list[bytes] = []
        at = 0
        while at < size:
            chunk = _read(file, size - at, at, name)
            if not chunk:
                break
            chunks.append(chunk)
            at += len(chunk)
        return b"".join(chunks)
    finally:
        file.close()


def _read(file: File, length: int, offset: int, name: str) -> bytes:
    try:
        return file.pread(length, offset)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} at {offset}", name) from error


def replace_file(disk: Disk, name: str, content: bytes) -> None:
    """Durably replace a file: after a crash it is the old or the new one.

    Blocking (four disk operations, two of them syncs); OSError. A temporary file left by an
    earlier crash is overwritten: formats carry their own length and checksum.
    """
    temporary = name + ".tmp"
    file = disk.open(temporary, create=True)
    try:
        write_all(file, [content], 0)
        file.fdatasync()
    except OSError as error:
        if error.errno in NO_SPACE:
            disk.remove(temporary)  # it only takes room from what comes next
        raise
    finally:
        file.close()
    disk.rename(temporary, name)
    directory, _slash, _name = name.rpartition("/")
    disk.sync_directory(directory or ROOT_DIRECTORY)
