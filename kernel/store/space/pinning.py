"""Pins the files of a moment, for a backup of a store that goes on (docs/operations/backup.md).

A pinned file is a second name (a hard link) below `pinned/`: a segment that is removed or a
snapshot that is tidied away meanwhile stays there until the pin goes. Nothing in a segment is
written twice, so that its first bytes, as many as were on the disk at that moment, are those of
that moment for ever. `ckpt` alone is written anew: as the journal has it, with the last record that
is on the disk.

What is pinned is the journal up to one record, all Raft groups of the store together: what a power
loss at that moment leaves (ADR 34).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...common.ports import Disk
from ...log.format.checkpoint import CHECKPOINT_NAME, Checkpoint, encode_checkpoint
from ...log.format.files import segment_name, write_all
from ...log.format.meta import META_NAME
from ...log.journal import JournalPrefix

DIRECTORY = "pinned"
PIN_SECONDS = 60.0
"""A pin that nobody has asked for so long is dropped: whoever made it is gone. Who copies asks at
each file, and within large ones."""

CUT_SECONDS = 600.0
"""The same for what a cut of the cluster has pinned, which waits for commands on other machines."""

BEGIN_SECONDS = 2.0
"""A pin that could not begin so long is given up: housekeeping is busy, and what is pinned later is
not of the moment asked for."""

READY_SECONDS = 5.0
"""Housekeeping waits so long for the moment of a cluster's cut, at most: all stores have to be
ready first (BEGIN_SECONDS), then they hold (`raft_groups.holding`, half a second)."""

UNUSED_SECONDS = 60.0
"""What a cut has pinned, and nobody has asked for as long, makes room for the next cut."""


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A file of that moment."""

    name: str
    """In the data directory of that moment."""
    pinned: str
    """Where it is now, below the data directory."""
    length: int
    """Its bytes that count, from the first on; -1: all of them."""
    size: int
    """Bytes that the file had: zeros behind those; -1: no more."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Files of a moment, kept."""

    number: int
    """Of this process, rising."""
    prefix: JournalPrefix
    files: tuple[PinnedFile, ...]
    cut: int = 0
    """Of the cluster, that it belongs to; 0: none."""


def files_of(prefix: JournalPrefix, beside: tuple[str, ...] = ()) -> tuple[PinnedFile, ...]:
    """What a backup of a moment consists of; `store.meta` last: it makes a store of the rest.
    `beside`: files of the data directory that are replaced as a whole, if ever.
    """
    snapshots = sorted(each.snapshot for each in prefix.checkpoint.groups.values() if each.snapshot)
    names = [
        *((segment_name(number), length, size) for number, length, size in prefix.segments),
        *((name, -1, -1) for name in (*snapshots, *beside)),
        (CHECKPOINT_NAME, -1, -1),
        (META_NAME, -1, -1),
    ]
    return tuple(
        PinnedFile(name, f"{DIRECTORY}/{name.rpartition('/')[2]}", length, size)
        for name, length, size in names
    )


class PinJob:
    """Makes the second names. `run` belongs to a thread."""

    __slots__ = ("_checkpoint", "_disk", "error", "files")

    def __init__(self, disk: Disk, files: tuple[PinnedFile, ...], checkpoint: Checkpoint) -> None:
        self._disk = disk
        self._checkpoint = checkpoint
        self.files = files
        self.error: OSError | None = None

    def run(self) -> None:
        """Thread: a link for each file; of what was pinned before nothing is left. OSError."""
        try:
            unpin(self._disk)
            for each in self.files:
                if each.name == CHECKPOINT_NAME:
                    self._write(each.pinned)
                else:
                    self._disk.link(each.name, each.pinned)
        except OSError as error:
            self.error = error
            raise

    def _write(self, name: str) -> None:
        file = self._disk.open(name, create=True)
        try:
            write_all(file, [encode_checkpoint(self._checkpoint)], 0)
        finally:
            file.close()


def unpin(disk: Disk) -> None:
    """Thread: let go of all that is pinned. OSError."""
    for name in disk.names(DIRECTORY):
        disk.remove(f"{DIRECTORY}/{name}")
