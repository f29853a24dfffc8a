"""Whether a backup is what was written: its sums, and whether a store can be made of it.

Sums find what has changed since; the examination (`weir doctor`'s own) finds what was damaged
before it was copied. Nothing is changed.
"""

from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import UNSET

from gateway.backups.creating import ARCHIVE, ARCHIVE_MANIFEST
from gateway.backups.manifest import not_understood
from gateway.backups.repository import COPIED_BYTES
from kernel.cluster.roster import FILE as HOME
from kernel.cluster.roster import read_home
from kernel.common.errors import KernelError
from kernel.store.recovery.examination import examine
from metering.schema import ManifestError, parse_manifest
from metering.schema.manifest import heads_of
from metering.topic import ARCHIVE_RECORD, head_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.backups.manifest import Backup, BackupFile
    from gateway.backups.repository import Repository
    from kernel.common.ports import File, Written
    from metering.schema.manifest import Head


@dataclass(slots=True)
class Verified:
    """What was found of the backups of a directory, of which the last one counts."""

    backup: Backup
    """That one."""
    faults: list[str]
    """What is wrong; nothing if it is empty."""
    heads: Sequence[Head] = ()
    """Of its archive of the metering: without lines, with one, and so on."""
    records: Mapping[str, tuple[int, bytes]] = field(default_factory=dict)
    """What its log knows for the whole cluster."""


def verify(repository: Repository, backups: Sequence[Backup], understands: int) -> Verified:
    """What is wrong with these backups, at least one, the last of which is also examined as a
    store. Each file is read once, however many backups have it. `understands`: the level up to
    which this build does. OSError.
    """
    faults: dict[str, str] = {}
    looked: set[str] = set()
    for backup in backups:
        for file in backup.files:
            if file.sha256 not in looked:
                looked.add(file.sha256)
                fault = _fault(repository, file)
                if fault is not None:
                    faults[file.sha256] = f"{file.name} of backup {backup.number} {fault}"
    last = backups[-1]
    found = Verified(last, list(faults.values()))
    found.faults += filter(None, [not_understood(last, understands)])
    if found.faults:
        return found
    _look_at_archive(found, repository)
    if last.of_gateway:
        return found
    disk = BackupDisk(repository, last)
    found.faults += _home_faults(disk, last)
    examined = examine(disk)
    found.records = examined.records
    found.faults += [
        f"{each.where} of backup {last.number}: {each.what}" for each in examined.findings
    ]
    if last.cut is UNSET and not found.faults:
        found.faults += _strange_archive(found, [found])
    return found


def _home_faults(disk: BackupDisk, backup: Backup) -> list[str]:
    """Whether a store of a cluster says which one it is."""
    try:
        home = read_home(disk)
    except KernelError as error:
        return [f"{HOME} of backup {backup.number}: {error.message}"]
    if backup.cut is UNSET or (home is not None and home.number == backup.cut.store):
        return []
    return [f"{HOME} of backup {backup.number}: it is not that of store {backup.cut.store}"]


def _look_at_archive(found: Verified, repository: Repository) -> None:
    """Whether the archive of the metering is whole: its manifest, and the files that it names."""
    number = found.backup.number
    files = {each.name: each for each in found.backup.files}
    manifest = files.get(f"{ARCHIVE}/{ARCHIVE_MANIFEST}")
    found.heads = heads_of(b"")
    if manifest is None:
        return
    content = repository.path_of(manifest.sha256).read_bytes()
    try:
        entries = parse_manifest(content)
    except ManifestError as error:
        found.faults.append(f"{manifest.name} of backup {number}: {error}")
        return
    found.heads = heads_of(content)
    named = {f"{ARCHIVE}/{each.name}": each.sha256 for each in entries}
    found.faults += [
        f"{name} of backup {number} is not what the manifest of the archive names"
        for name, sha256 in named.items()
        if name not in files or files[name].sha256 != sha256
    ]


def _strange_archive(archived: Verified, logs: Sequence[Verified]) -> list[str]:
    """Whether an archive is the one that was exported from these logs. What they know of it was in
    its manifest before they were told, committed or not; before the first export they know nothing.
    """
    backup, heads = archived.backup, archived.heads
    for log in logs:
        for name, (_, content) in log.records.items():
            kept = head_of(content) if name.startswith(ARCHIVE_RECORD) else None
            is_own = not backup.of_gateway or name == ARCHIVE_RECORD + backup.store
            if kept is None or not is_own:
                continue
            if kept.lines >= len(heads) or heads[kept.lines] != kept:
                knows = f"of which that knows {kept.lines} lines: nothing could be billed from it"
                return [
                    f"{ARCHIVE} of backup {backup.number} is not the archive of its log, {knows}"
                ]
    return []


def verify_together(found: Sequence[Verified]) -> list[str]:
    """What keeps backups, the last ones of several directories, from being those of one cluster."""
    backups = [each.backup for each in found]
    cuts = {each.cut.cut if each.cut is not UNSET else "none" for each in backups}
    faults = [] if len(cuts) == 1 else [f"they are of several cuts: {', '.join(sorted(cuts))}"]
    stores = [each.store for each in backups]
    if len(set(stores)) < len(stores):
        faults.append("two of them are of one store, or of one gateway")
    for each in found:
        if each.backup.of_gateway and not faults:
            faults += _strange_archive(each, found)
    return faults


def _fault(repository: Repository, file: BackupFile) -> str | None:
    digest, length = hashlib.sha256(), 0
    try:
        with repository.path_of(file.sha256).open("rb") as opened:
            while chunk := opened.read(COPIED_BYTES):
                digest.update(chunk)
                length += len(chunk)
    except FileNotFoundError:
        return "is missing"
    if digest.hexdigest() != file.sha256 or length != file.length:
        return "is not what was written: its sum does not match"
    return None


class BackupDisk:
    """A backup as `kernel.common.ports.Disk`, to be looked at."""

    def __init__(self, repository: Repository, backup: Backup) -> None:
        self._repository = repository
        self._files = {each.name: each for each in backup.files}

    def open(self, name: str, *, create: bool = False) -> File:
        """Open for reading. FileNotFoundError; PermissionError with `create`."""
        if create:
            raise _no_change(name)
        file = self._files.get(name)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        path = self._repository.path_of(file.sha256)
        return _BackupFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), file)

    def names(self, directory: str) -> list[str]:
        """Names of the files in a directory, sorted."""
        found = (name.rpartition("/") for name in self._files)
        return sorted(name for parent, _, name in found if parent == directory)

    def rename(self, old: str, new: str) -> None:
        """Refused, as all that changes something. Raises PermissionError."""
        raise _no_change(new)

    def link(self, name: str, other: str) -> None:
        """Refused. Raises PermissionError."""
        raise _no_change(other)

    def remove(self, name: str) -> None:
        """Refused. Raises PermissionError."""
        raise _no_change(name)

    def sync_directory(self, directory: str) -> None:
        """There is nothing to sync."""

    def free_bytes(self) -> int:
        """No byte: nothing is written."""
        return 0

    def total_bytes(self) -> int:
        """Of the files."""
        return sum(each.size for each in self._files.values())


class _BackupFile:
    """A file as it will be: what is kept, and zeros behind it."""

    def __init__(self, descriptor: int, file: BackupFile) -> None:
        self._descriptor = descriptor
        self._file = file

    def pread(self, length: int, offset: int) -> bytes:
        length = min(length, self._file.size - offset)
        found = os.pread(self._descriptor, max(0, length), offset)
        return found.ljust(max(0, length), b"\0") if len(found) < length else found

    def size(self) -> int:
        return self._file.size

    def close(self) -> None:
        os.close(self._descriptor)

    def forget_cached(self) -> None:
        """Whatever reads is as good."""

    def fdatasync(self) -> None:
        """Nothing was written."""

    def pwritev(self, buffers: Sequence[bytes], offset: int, *, synced: bool = False) -> int:
        raise _no_change(self._file.name)

    def begin_write(self, buffers: Sequence[bytes], offset: int, done: Written) -> bool:
        return False

    def allocate(self, length: int) -> None:
        raise _no_change(self._file.name)


def _no_change(name: str) -> PermissionError:
    return PermissionError(errno.EROFS, "nothing is changed here", name)
