"""The real disk: `kernel.ports.Disk` over the system calls, for one data directory.

Every method may be called from any thread; none keeps state beyond file descriptors.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

BUFFERS_MAX = 1024
"""Buffers of one pwritev: IOV_MAX of Linux and macOS."""

_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class DiskFile:
    """`kernel.ports.File` over a descriptor."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def pwritev(self, buffers: Sequence[bytes], offset: int) -> int:
        """One system call per BUFFERS_MAX buffers; stops at the first short one."""
        if len(buffers) <= BUFFERS_MAX:
            return os.pwritev(self._descriptor, buffers, offset)
        done = 0
        for at in range(0, len(buffers), BUFFERS_MAX):
            part = buffers[at : at + BUFFERS_MAX]
            written = os.pwritev(self._descriptor, part, offset + done)
            done += written
            if written < sum(map(len, part)):
                break
        return done

    def pread(self, length: int, offset: int) -> bytes:
        return os.pread(self._descriptor, length, offset)

    def fdatasync(self) -> None:
        if hasattr(os, "fdatasync"):
            os.fdatasync(self._descriptor)
        else:
            os.fsync(self._descriptor)

    def allocate(self, length: int) -> None:
        """Reserve real space where the file system can; elsewhere extend the file (sparse)."""
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(self._descriptor, 0, length)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
            else:
                return
        if os.fstat(self._descriptor).st_size < length:
            os.ftruncate(self._descriptor, length)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class DirectoryDisk:
    """`kernel.ports.Disk` over a directory, which is made if it is missing."""

    def __init__(self, directory: Path | str) -> None:
        self._root = Path(directory)
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def open(self, name: str, *, create: bool = False) -> DiskFile:
        path = self._root / name
        flags = os.O_RDWR | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT
            self._make_directory(path.parent)
        return DiskFile(os.open(path, flags, 0o600))

    def rename(self, old: str, new: str) -> None:
        (self._root / old).replace(self._root / new)

    def remove(self, name: str) -> None:
        (self._root / name).unlink()

    def names(self, directory: str) -> list[str]:
        try:
            with os.scandir(self._root / directory) as entries:
                return sorted(entry.name for entry in entries if entry.is_file())
        except FileNotFoundError:
            return []

    def sync_directory(self, directory: str) -> None:
        descriptor = os.open(self._root / directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self) -> int:
        volume = os.statvfs(self._root)
        return volume.f_bavail * volume.f_frsize

    def total_bytes(self) -> int:
        volume = os.statvfs(self._root)
        return volume.f_blocks * volume.f_frsize

    def _make_directory(self, path: Path) -> None:
        """Make a directory below the root durably: its name is in its parent."""
        if path == self._root or path.is_dir():
            return
        self._make_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        self.sync_directory(str(path.parent.relative_to(self._root)))
