"""Makes a data directory of a backup.

A mark is in the directory until all of it is there: whatever ends on the way leaves a directory
that no server begins in, not even as in an empty one, and that the next restore empties first. The
store has its old id, and a timeline of its own; its metering draws another incarnation at each
start, by which a bill tells it from the one that was lost (ADR 21).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from gateway.backups.creating import ARCHIVE, RESTORED
from gateway.backups.manifest import BackupError, not_understood
from gateway.backups.repository import COPIED_BYTES, PRIVATE, sync, write_synced
from gateway.process.data_lock import LOCK_FILE, DataDirectoryInUse, lock_data_directory
from gateway.process.running import RESTORING_FILE
from kernel.cluster.roster import Restored, read_home, write_home
from kernel.store.drivers.disk import DirectoryDisk
from metering.exporter import RESTORED_MARK

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gateway.backups.manifest import Backup, BackupFile
    from gateway.backups.repository import Repository


Address = tuple[str, int]


def restore(
    repository: Repository,
    backup: Backup,
    data: Path,
    timeline: str,
    understands: int,
    elsewhere: Mapping[int, Address] = MappingProxyType({}),
) -> None:
    """Make `data`, which must be missing, empty, or what a restore that did not end has left, what
    the backup says; all of it is on the disk when this returns. `timeline`: a word that no other
    restore has, but of stores that were cut together and are restored together; `understands`: the
    level up to which this build does; `elsewhere`: of a store of a cluster: where stores are now,
    by number, that are not where they were. Raises BackupError; OSError.
    """
    newer = not_understood(backup, understands)
    if newer is not None:
        raise BackupError(newer)
    if backup.of_gateway and elsewhere:
        raise BackupError("this is a gateway's: where stores are its settings say")
    data.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    try:
        lock = lock_data_directory(data)
    except DataDirectoryInUse as error:
        raise BackupError(str(error)) from None
    try:
        _begin(data)
        *files, last = backup.files
        for each in files:
            _restore(repository, each, data)
        about = {
            "timeline": timeline,
            "backup": backup.id,
            "number": backup.number,
            "taken_ms": backup.taken_ms,
        }
        write_synced(data / RESTORED, json.dumps(about).encode())
        if backup.cut is not UNSET and backup.of_gateway:
            if (data / ARCHIVE).is_dir():
                write_synced(data / ARCHIVE / RESTORED_MARK, backup.cut.cut.encode())
        elif backup.cut is not UNSET:
            _join_restored(DirectoryDisk(data), timeline, elsewhere)
        for directory in {(data / each.name).parent for each in backup.files} | {data}:
            sync(directory)
        _restore(repository, last, data)
        sync(data)
        (data / RESTORING_FILE).unlink()
        sync(data)
    finally:
        lock.release()


def _begin(data: Path) -> None:
    """Mark a directory, which has to be empty, or is emptied if it was marked before."""
    left = set(os.listdir(data)) - {LOCK_FILE, RESTORING_FILE}
    if left and not (data / RESTORING_FILE).exists():
        raise BackupError(f"{data} is not empty: restore into a new directory")
    for path in (data / name for name in left):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    write_synced(data / RESTORING_FILE, b"")
    sync(data)


def _join_restored(disk: DirectoryDisk, timeline: str, elsewhere: Mapping[int, Address]) -> None:
    """Have a store know with whom it was restored, and where these are now."""
    home = read_home(disk)
    if home is None:
        raise BackupError("the backup does not say which store of which cluster it is of")
    known = {each.number: each for each in home.known}
    unknown = sorted(set(elsewhere) - set(known))
    if unknown:
        raise BackupError(f"there were no stores {unknown} in the cluster, but {sorted(known)}")
    where = {
        number: ((known[number].facts.host, known[number].facts.port), now)
        for number, now in elsewhere.items()
    }
    stores = [each.facts.store for each in home.known]
    write_home(disk, replace(home, restored=Restored(timeline, stores, where)))


def _restore(repository: Repository, file: BackupFile, data: Path) -> None:
    path = data / file.name
    path.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with (
            os.fdopen(descriptor, "wb") as made,
            repository.path_of(file.sha256).open("rb") as source,
        ):
            while chunk := source.read(COPIED_BYTES):
                digest.update(chunk)
                made.write(chunk)
            made.flush()
            os.ftruncate(made.fileno(), file.size)
            os.fsync(made.fileno())
    except FileNotFoundError:
        raise BackupError(f"{file.name} is missing in the backup") from None
    if digest.hexdigest() != file.sha256:
        raise BackupError(f"{file.name} is not what was written: its sum does not match")
