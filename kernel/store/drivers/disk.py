"""The real disk: `kernel.common.ports.Disk` over the system calls, for one data directory.

Every method may be called from any thread; none keeps state beyond file descriptors.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .file_system import file_system_of

if TYPE_CHECKING:
    from ...common.ports import Written
    from .write_ring import WriteRing

BUFFERS_MAX = 1024
"""Buffers of one pwritev: IOV_MAX of Linux and macOS."""

_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

_WRITE_THROUGH: Final[int] = getattr(os, "RWF_DSYNC", 0)
"""pwritev2's flag for a write that returns once it is on the disk; 0 where there is none."""

_WRITING_THROUGH: Final = frozenset({"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "xfs"})
"""File systems of Linux known to heed it (their writes end in generic_write_sync, which does what
fdatasync does, for the bytes written). 9p, for one, passes over it without a word."""


class DiskFile:
    """`kernel.common.ports.File` over a descriptor."""

    __slots__ = ("_has_written_through", "_ring", "_through", "_writes_through", "descriptor")

    def __init__(
        self, descriptor: int, *, writes_through: bool = False, ring: WriteRing | None = None
    ) -> None:
        """`writes_through`: a write may be asked to return once it is on the disk."""
        self.descriptor = descriptor
        self._writes_through = writes_through
        self._has_written_through = False
        self._ring = ring
        self._through = -1

    def begin_write(self, buffers: Sequence[bytes], offset: int, done: Written) -> bool:
        """By the ring, if there is one that takes it."""
        return self._ring is not None and self._ring.begin(self, buffers, offset, done)

    def through(self) -> int | None:
        """A descriptor of the same file whose writes end once they are on the disk; None on a file
        system that is not known for it.
        """
        if self._through < 0 and self._writes_through:
            own = f"/proc/self/fd/{self.descriptor}"  # not by name, which may be another file's now
            try:
                self._through = os.open(own, os.O_WRONLY | os.O_DSYNC | os.O_CLOEXEC)
            except OSError:  # no /proc, or no descriptor left: a write and a sync do as well
                self._writes_through = False
        return self._through if self._through >= 0 else None

    def pwritev(self, buffers: Sequence[bytes], offset: int, *, synced: bool = False) -> int:
        """One system call per BUFFERS_MAX buffers; stops at the first short one."""
        if synced:
            return self._write_through(buffers, offset)
        if len(buffers) <= BUFFERS_MAX:
            return os.pwritev(self.descriptor, buffers, offset)
        done = 0
        for at in range(0, len(buffers), BUFFERS_MAX):
            part = buffers[at : at + BUFFERS_MAX]
            written = os.pwritev(self.descriptor, part, offset + done)
            done += written
            if written < sum(map(len, part)):
                break
        return done

    def _write_through(self, buffers: Sequence[bytes], offset: int) -> int:
        """Write and sync, in one system call if that can be: after each of them a thread waits for
        the interpreter, and the event loop for the thread.
        """
        if self._writes_through and len(buffers) <= BUFFERS_MAX:
            try:
                written = os.pwritev(self.descriptor, buffers, offset, _WRITE_THROUGH)
            except OSError as error:
                # Once it has been done, whoever says that it cannot be is the disk.
                if error.errno not in _UNSUPPORTED or self._has_written_through:
                    raise
                self._writes_through = False
            else:
                self._has_written_through = True
                return written
        written = self.pwritev(buffers, offset)
        self.fdatasync()
        return written

    def pread(self, length: int, offset: int) -> bytes:
        return os.pread(self.descriptor, length, offset)

    def forget_cached(self) -> None:
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # advice that a file system does not take
                os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def fdatasync(self) -> None:
        if hasattr(os, "fdatasync"):
            os.fdatasync(self.descriptor)
        else:
            os.fsync(self.descriptor)

    def allocate(self, length: int) -> None:
        """Reserve real space where the file system can; elsewhere extend the file (sparse)."""
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(self.descriptor, 0, length)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
            else:
                return
        if os.fstat(self.descriptor).st_size < length:
            os.ftruncate(self.descriptor, length)

    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def close(self) -> None:
        for descriptor in (self.descriptor, self._through):
            if descriptor >= 0:
                os.close(descriptor)
        self.descriptor = self._through = -1


class DirectoryDisk:
    """`kernel.common.ports.Disk` over a directory, which is made if it is missing."""

    def __init__(self, directory: Path | str, ring: WriteRing | None = None) -> None:
        """`ring`: what files begin their writes with."""
        self._ring = ring
        self._root = Path(directory)
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._through: dict[Path, bool] = {}
        """Whether files of a directory can be written through: each may be another file system."""

    def open(self, name: str, *, create: bool = False) -> DiskFile:
        path = self._root / name
        flags = os.O_RDWR | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT
            self._make_directory(path.parent)
        descriptor = os.open(path, flags, 0o600)
        through = self._writes_through(path.parent)
        return DiskFile(descriptor, writes_through=through, ring=self._ring)

    def _writes_through(self, directory: Path) -> bool:
        known = self._through.get(directory)
        if known is None:
            known = bool(_WRITE_THROUGH) and file_system_of(directory) in _WRITING_THROUGH
            self._through[directory] = known
        return known

    def rename(self, old: str, new: str) -> None:
        (self._root / old).replace(self._root / new)

    def link(self, name: str, other: str) -> None:
        path = self._root / other
        self._make_directory(path.parent)
        path.hardlink_to(self._root / name)

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


class ReadOnlyDisk(DirectoryDisk):
    """A directory of which nothing may be changed: whoever tries hears PermissionError."""

    def __init__(self, directory: Path | str) -> None:
        """FileNotFoundError if there is none."""
        if not Path(directory).is_dir():
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(directory))
        super().__init__(directory)

    def open(self, name: str, *, create: bool = False) -> DiskFile:
        if create:
            raise PermissionError(errno.EROFS, "nothing is changed here", name)
        return DiskFile(os.open(self._root / name, os.O_RDONLY | os.O_CLOEXEC))

    def rename(self, old: str, new: str) -> None:
        raise PermissionError(errno.EROFS, "nothing is changed here", new)

    def link(self, name: str, other: str) -> None:
        raise PermissionError(errno.EROFS, "nothing is changed here", other)

    def remove(self, name: str) -> None:
        raise PermissionError(errno.EROFS, "nothing is changed here", name)
