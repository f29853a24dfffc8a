"""The directory of backups: files by their sums, and the backups made of them.

Durability: a file has its name once its bytes are on the disk, a backup once all of its files and
their names are. Until then its files are in a directory of their own. If it comes to nothing that
is removed: by whoever makes it, or by who comes next if that was killed.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import shutil
from fcntl import F_GETFL, F_SETFL, fcntl
from mmap import PAGESIZE, mmap
from typing import TYPE_CHECKING, Self

from gateway.backups.manifest import Backup, BackupError, BackupFile, decode, encode
from gateway.process.data_lock import DataDirectoryInUse, lock_data_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gateway.process.data_lock import DataLock

COPIED_BYTES = 256 * 1024
"""Of a file at once, and between two pauses."""

TAIL_BYTES = 64 * 1024

_DIRECT = getattr(os, "O_DIRECT", 0)
"""Linux's; elsewhere every piece is synced."""

OBJECTS = "objects"
UNFINISHED = "unfinished"
"""Files of the backup that is being made."""
BACKUPS = "backups"
MAKER = "maker"
"""A word of the directory, in a file, by which a node drops what a command that was killed had
pinned for it."""

MAKER_CHARS = 64
"""Of that word: of a file that is damaged no more is taken."""

PRIVATE = 0o700
"""Keys are in it, and what users say to each other."""


class Repository:
    """See the module's head."""

    def __init__(self, directory: Path, pause: Callable[[], object] = int) -> None:
        """`pause`: waits a little, after each COPIED_BYTES that were taken in."""
        self.directory = directory
        self._pause = pause

    def make(self) -> DataLock:
        """Make the directory if it is missing, and keep others out. Raises BackupError."""
        try:
            for each in (self.directory, self.directory / OBJECTS, self.directory / BACKUPS):
                each.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            lock = lock_data_directory(self.directory)
        except DataDirectoryInUse:
            raise BackupError(f"another backup is being made in {self.directory}") from None
        self.drop_unfinished()
        return lock

    def drop_unfinished(self) -> None:
        """Remove what was copied for a backup that does not count. Only for who keeps others
        out.
        """
        shutil.rmtree(self.directory / UNFINISHED, ignore_errors=True)

    def maker(self, word: str) -> str:
        """The directory's word; `word`, which no other directory has, if it has none yet. Only for
        who keeps others out (`make`). OSError.
        """
        path = self.directory / MAKER
        if not path.exists():
            write_synced(path, word.encode())
        return path.read_text("ascii", "replace")[:MAKER_CHARS]

    def backups(self) -> list[Backup]:
        """All of them, the oldest first. Raises BackupError for one that cannot be relied on."""
        found = [self.read(name) for name in self.names()]
        for before, after in itertools.pairwise(found):
            if after.previous != before.sum or after.number != before.number + 1:
                text = (
                    f"backup {after.number} does not follow backup {before.number}: one in between"
                    " is missing, or of another time"
                )
                raise BackupError(text)
        if found and found[0].number != 1:
            raise BackupError(f"the first backup is number {found[0].number}: others are missing")
        return found

    def names(self) -> list[str]:
        """Of the files of backups, in order."""
        try:
            names = os.listdir(self.directory / BACKUPS)
        except FileNotFoundError:
            return []
        return sorted(name for name in names if name.endswith(".json"))

    def read(self, name: str) -> Backup:
        """One of them. Raises BackupError."""
        return decode((self.directory / BACKUPS / name).read_bytes(), name)

    def path_of(self, sha256: str) -> Path:
        """Where a file is, or would be."""
        return self.directory / OBJECTS / sha256[:2] / sha256

    def has(self, file: BackupFile) -> bool:
        """Whether a file is there, by its size: what is in it `verify` looks at."""
        try:
            return self.path_of(file.sha256).stat().st_size == file.length
        except FileNotFoundError:
            return False

    def strays(self, backups: Sequence[Backup]) -> int:
        """How many files are there that none of these backups has."""
        named = {file.sha256 for backup in backups for file in backup.files}
        objects = self.directory / OBJECTS
        return sum(each.name not in named for each in objects.glob("*/*"))

    def add(
        self,
        source: Path,
        name: str,
        length: int,
        size: int,
        touch: Callable[[], object] = int,
    ) -> BackupFile:
        """Take in the first `length` bytes of a file, which is to have `size`; `touch` is called
        after each COPIED_BYTES. Raises BackupError if it has fewer; OSError.
        """
        unfinished = self.directory / UNFINISHED
        unfinished.mkdir(mode=PRIVATE, exist_ok=True)
        temporary = unfinished / "new"
        digest, left = hashlib.sha256(), length
        tail = b""
        with source.open("rb", buffering=0) as file, Copy(temporary) as copy:
            while left and (count := file.readinto(copy.piece[: min(left, COPIED_BYTES)])):
                piece = copy.piece[:count]
                digest.update(piece)
                copy.write(count)
                left -= count
                touch()
                tail = (tail + bytes(piece[-TAIL_BYTES:]))[-TAIL_BYTES:]
                self._pause()
        if left:
            raise BackupError(f"{name} is cut short: {left} bytes are missing")
        sha256 = digest.hexdigest()
        temporary.rename(unfinished / sha256)
        return BackupFile(
            name=name,
            length=length,
            size=size,
            sha256=sha256,
            tail=hashlib.sha256(tail).hexdigest(),
        )

    def write(self, backup: Backup) -> None:
        """Have a backup count, now that all of its files are there."""
        parents = {self.directory / OBJECTS}
        unfinished = self.directory / UNFINISHED
        added = list(unfinished.iterdir()) if unfinished.exists() else []
        temporary = self.directory / BACKUPS / "new.tmp"
        # One after the other: a file system that keeps a journal writes it at the first, for all of
        # them. The node would wait at each that is synced by itself.
        write_synced(temporary, encode(backup))
        for path in added:
            sync(path)
        for path in added:
            there = self.path_of(path.name)
            there.parent.mkdir(mode=PRIVATE, exist_ok=True)
            path.rename(there)
            parents.add(there.parent)
        for each in parents:
            sync(each)
        name = f"{backup.number:06d}-{backup.id}.json"
        temporary.rename(self.directory / BACKUPS / name)
        sync(self.directory / BACKUPS)


class Copy:
    """A new file that is written piece by piece, each at once: what the node syncs meanwhile would
    wait behind all that is only in memory. Past the page cache, where the file system can do that
    (O_DIRECT): to sync each piece has the file system write its journal, and the node waits for it.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            self._file = os.open(path, flags | _DIRECT, 0o600)
            self._is_direct = _DIRECT != 0
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._file = os.open(path, flags, 0o600)
            self._is_direct = False
        self._length = 0
        self.piece = memoryview(mmap(-1, COPIED_BYTES))
        """Where the next piece is to be: on a page, as O_DIRECT asks for."""

    def write(self, count: int) -> None:
        """Append the first `count` bytes of `piece`. OSError."""
        self._length += count
        # The last one as whole pages, of which what is too much is cut off.
        more = -count % PAGESIZE if self._is_direct else 0
        left = self.piece[: count + more]
        while left:
            try:
                left = left[os.write(self._file, left) :]
            except OSError as error:
                if error.errno != errno.EINVAL or not self._is_direct:
                    raise
                self._stop_direct()
        if more:
            self._stop_direct()
            os.ftruncate(self._file, self._length)
            os.lseek(self._file, self._length, os.SEEK_SET)
        elif not self._is_direct:
            os.fdatasync(self._file)

    def _stop_direct(self) -> None:
        fcntl(self._file, F_SETFL, fcntl(self._file, F_GETFL) & ~_DIRECT)
        self._is_direct = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def tail_of(path: Path, length: int) -> str:
    """SHA-256 of the last bytes of the first `length` of a file."""
    with path.open("rb") as file:
        file.seek(max(0, length - TAIL_BYTES))
        return hashlib.sha256(file.read(min(length, TAIL_BYTES))).hexdigest()


def write_synced(path: Path, content: bytes) -> None:
    """Write a file for its owner alone; it is on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Bring a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
