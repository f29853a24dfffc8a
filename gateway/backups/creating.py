"""Makes a backup of a node that runs: it pins the files of a moment, this process copies them.

So what reads and sums gigabytes is not the process that serves. The archive of the metering belongs
to the node's log (`metering.lineage`): its manifest has to be the same before and after the moment,
else the moment is taken again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

import gateway
from gateway.backups.manifest import Backup, BackupCut, BackupError
from gateway.backups.repository import Repository, tail_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.backups.manifest import BackupFile

TRIES = 5
"""Moments, if the archive of the metering changes at each."""

ARCHIVE = "metering"
ARCHIVE_MANIFEST = "manifest.jsonl"
KEYS = "secrets.key"
RESTORED = "restored.json"
"""Of a data directory that was restored: its timeline."""

Pin = dict[str, Any]
"""As the admin API has it (`gateway.admin.resources.backups.PinShown`)."""


class Pins:
    """What is asked of the node."""

    def __init__(
        self,
        make: Callable[[str], Pin],
        touch: Callable[[int], object],
        drop: Callable[[int], object],
    ) -> None:
        """`make`: of the word of the backups' directory, whose last pin goes if there is one.
        `touch` raises if the pin was dropped.
        """
        self.make = make
        self.touch = touch
        self.drop = drop


class Progress:
    """What a backup has cost so far."""

    def __init__(self) -> None:
        self.copied_bytes = 0
        self.copied = 0
        self.known = 0


def create(
    repository: Repository, pins: Pins, progress: Progress, ident: str, *, incremental: bool
) -> Backup:
    """Make a backup, of an id that no other has; it counts once this returns. Raises BackupError,
    OSError, and what asking the node raises.
    """
    lock = repository.make()
    try:
        known = repository.backups()
        if known and not incremental:
            text = f"{repository.directory} has {len(known)} backups: add one with --incremental"
            raise BackupError(f"{text}, or name another directory")
        pin, archive = _moment(pins, repository.maker(ident))
        try:
            last = known[-1] if known else None
            backup = _copied(repository, pins, progress, ident, pin, archive, last)
        finally:
            pins.drop(pin["number"])
        repository.write(backup)
        return backup
    finally:
        lock.release()


def _moment(pins: Pins, maker: str) -> tuple[Pin, list[tuple[str, int]]]:
    """A pin, and (name, bytes) of the files of the archive as of then, its manifest last."""
    for _ in range(TRIES):
        pin = pins.make(maker)
        data = Path(pin["data"])
        if not (data / pin["files"][-1]["pinned"]).exists():
            pins.drop(pin["number"])
            text = f"the node's data directory {data} is not here: make its backup on its machine"
            raise BackupError(text)
        before = pin["archive_bytes"]
        names = _archived(data)
        if _bytes_of(data / ARCHIVE / ARCHIVE_MANIFEST) == before:
            return pin, names
        pins.drop(pin["number"])
        if pin["cut"]:  # there is no other moment; a store of a cluster has no archive anyway
            raise BackupError("the archive of the metering has changed since the cut: make another")
    raise BackupError(f"the archive of the metering changed at each of {TRIES} moments")


def _archived(data: Path) -> list[tuple[str, int]]:
    directory = data / ARCHIVE
    if not directory.is_dir():
        return []
    names = sorted(each.name for each in directory.glob("*.parquet"))
    found = [(f"{ARCHIVE}/{name}", _bytes_of(directory / name)) for name in names]
    if (directory / ARCHIVE_MANIFEST).exists():
        name = f"{ARCHIVE}/{ARCHIVE_MANIFEST}"
        found.append((name, _bytes_of(data / name)))
    return found


def _bytes_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _copied(
    repository: Repository,
    pins: Pins,
    progress: Progress,
    ident: str,
    pin: Pin,
    archive: list[tuple[str, int]],
    last: Backup | None,
) -> Backup:
    data = Path(pin["data"])
    timeline = timeline_of(data)
    same = last is not None and last.store == pin["store"] and last.timeline == timeline
    known = {each.name: each for each in last.files} if last is not None and same else {}
    files: list[BackupFile] = []

    def take(name: str, path: Path, length: int, size: int) -> None:
        pins.touch(pin["number"])
        if length < 0:
            length = size = path.stat().st_size
        before = known.get(name)
        if (
            before is not None
            and (before.length, before.size) == (length, size)
            and repository.has(before)
            and tail_of(path, length) == before.tail
        ):
            files.append(before)
            progress.known += 1
            return
        made = repository.add(path, name, length, size)
        files.append(made)
        progress.copied += 1
        progress.copied_bytes += made.length

    for name, length in archive:
        take(name, data / name, length, length)
    keys = Path(pin["key_file"])
    if keys.exists():
        take(KEYS, keys, -1, -1)
    for each in pin["files"]:
        take(each["name"], data / each["pinned"], each["length"], each["size"])
    pins.touch(pin["number"])  # what was copied last was still pinned
    return Backup(
        number=1 if last is None else last.number + 1,
        id=ident,
        weir=gateway.__version__,
        taken_ms=pin["taken_ms"],
        store=pin["store"],
        timeline=timeline,
        sequence=pin["sequence"],
        level=pin["level"],
        files=tuple(files),
        previous="" if last is None else last.sum,
        cut=BackupCut(cut=pin["cut"], store=pin["node"]) if pin["cut"] else UNSET,
    )


def timeline_of(data: Path) -> str:
    """Of a data directory: empty for one that was never restored."""
    try:
        timeline: str = json.loads((data / RESTORED).read_text())["timeline"]
    except FileNotFoundError:
        return ""
    except (ValueError, KeyError, TypeError):
        raise BackupError(f"{data / RESTORED} does not read") from None
    return timeline
