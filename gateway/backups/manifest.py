"""What a backup says of itself: JSON, with the SHA-256 of all but that sum.

`previous` is the sum of the backup before, so that one that is missing in between, or was put back
from an older copy of the directory, shows.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec import UNSET, Struct, UnsetType

from kernel.common.errors import UNDECODABLE
from kernel.common.feature_levels import newer

FORMAT = 1


class BackupError(Exception):
    """A backup that cannot be made, read or relied on; the message says why."""


class BackupFile(Struct, frozen=True, kw_only=True):
    """A file of the data directory."""

    name: str
    length: int
    """Bytes that are kept."""
    size: int
    """Bytes that it has in a data directory: zeros behind those that are kept."""
    sha256: str
    tail: str
    """SHA-256 of the last bytes (`repository.TAIL_BYTES`): a file that goes on growing is the same
    one only with the same tail."""


class BackupCut(Struct, frozen=True, kw_only=True):
    """Of a store of a cluster: all that were cut at the same moment have the same `cut`."""

    cut: str
    store: int
    """Its number; 0: it is a gateway's, which has no store."""


class Backup(Struct, frozen=True, kw_only=True):
    """One backup."""

    format: int = FORMAT
    number: int
    """Rising in its directory, from 1 on."""
    id: str
    weir: str
    """Version that made it."""
    taken_ms: int
    """Wall clock of the moment that it shows."""
    store: str
    """Id of the store, or name of the gateway."""
    timeline: str
    """Changes with each restore: what a store writes afterwards has the names of what was lost."""
    sequence: int
    """Last record of the journal."""
    level: int
    """Features of the log that are on."""
    files: tuple[BackupFile, ...]
    """In the order in which they are restored: the last one makes a store of the rest."""
    previous: str = ""
    sum: str = ""
    cut: BackupCut | UnsetType = UNSET
    """Not there for a node alone."""

    @property
    def of_gateway(self) -> bool:
        """Whether there is no store in it, but what a gateway of a cluster has."""
        return self.cut is not UNSET and not self.cut.store

    @property
    def bytes(self) -> int:
        """Of all of its files."""
        return sum(each.length for each in self.files)


def not_understood(backup: Backup, understands: int) -> str | None:
    """Why this build, which understands the log's features up to a level, cannot go on from it."""
    if backup.level <= understands:
        return None
    return newer(f"backup {backup.number}", backup.level, understands)


def encode(backup: Backup) -> bytes:
    """The file of a backup, with its sum."""
    plain = msgspec.structs.replace(backup, sum="")
    summed = msgspec.structs.replace(backup, sum=_sum(plain))
    return msgspec.json.format(msgspec.json.encode(summed), indent=1) + b"\n"


def decode(content: bytes, name: str) -> Backup:
    """A backup from its file. Raises BackupError."""
    try:
        backup = msgspec.json.decode(content, type=Backup)
    except UNDECODABLE as error:
        raise BackupError(f"{name} does not read: {error}") from None
    if backup.format != FORMAT:
        text = f"{name} has format {backup.format}, this Weir knows {FORMAT}"
        raise BackupError(text)
    if _sum(msgspec.structs.replace(backup, sum="")) != backup.sum:
        raise BackupError(f"{name} is not what was written: its sum does not match")
    for each in backup.files:
        if each.name.startswith("/") or ".." in each.name.split("/"):
            raise BackupError(f"{name} names {each.name}, which is outside of a data directory")
    return backup


def _sum(backup: Backup) -> str:
    return hashlib.sha256(msgspec.json.encode(backup)).hexdigest()
