"""Makes a backup of a node that runs: it pins the files of a moment, this process copies them.

So what reads and sums gigabytes is not the process that serves. The archive of the metering belongs
to the node's log (`metering.lineage`): its manifest has to be the same before and after the moment,
else the moment is taken again. That of a gateway is copied after the moment of the cut, and has all
that the log of the cut knows: files are only added. Lines of what came after the cut are left out
after a restore, by comparison with the log.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

import gateway
from gateway.backups.manifest import Backup, BackupCut, BackupError
from gateway.backups.repository import Repository, tail_of
from metering.schema import ManifestError, parse_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.backups.manifest import BackupFile

TOUCH_MS = 5_000
"""Between two words that a pin is still needed. A node drops it after a minute without one, in
which who gives way to everybody (`gateway.process.giving_way`) copies a piece however busy the
machine is."""

TRIES = 5
"""Moments, if the archive of the metering changes at each."""

ARCHIVE = "metering"
ARCHIVE_MANIFEST = "manifest.jsonl"
KEYS = "secrets.key"
BILLS = "bills"
"""Where the runs of `weir bill` are in a restored directory."""

SUMMARY = "summary.json"
"""What a run of it writes last."""

PARTIAL = ".partial"
"""Of the name of a run that has not ended."""

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
        now_ms: Callable[[], int],
    ) -> None:
        """`make`: of the word of the backups' directory, whose last pin goes if there is one.
        `touch` raises if the pin was dropped; one of number 0 is none: that of a gateway.
        `now_ms`: a clock that never goes back.
        """
        self._make = make
        self._touch = touch
        self._drop = drop
        self._now_ms = now_ms
        self._touched_ms = 0

    def make(self, maker: str) -> Pin:
        """The files of this moment."""
        pin = self._make(maker)
        pin.setdefault("cut", "")  # of a server from before clusters could be cut
        self._touched_ms = self._now_ms()
        return pin

    def touch(self, pin: Pin) -> None:
        """Say that it is still needed, unless that was said a moment ago."""
        if self._now_ms() >= self._touched_ms + TOUCH_MS:
            self.check(pin)

    def check(self, pin: Pin) -> None:
        """Say so in any case: it raises if the pin was dropped."""
        self._touched_ms = self._now_ms()
        self._touch(pin["number"])

    def drop(self, pin: Pin) -> None:
        """Let go of it."""
        if pin["number"]:
            self._drop(pin["number"])


class Progress:
    """What a backup has cost so far."""

    def __init__(self) -> None:
        self.copied_bytes = 0
        self.copied = 0
        self.known = 0


def create(
    repository: Repository,
    pins: Pins,
    progress: Progress,
    ident: str,
    *,
    incremental: bool,
    bills: Path | None = None,
) -> Backup:
    """Make a backup, of an id that no other has; it counts once this returns. `bills`: where the
    runs of `weir bill` are that are to be in it. Raises BackupError, OSError, and what asking the
    node raises.
    """
    issued = _bills(bills)
    lock = repository.make()
    try:
        known = repository.backups()
        if known and not incremental:
            text = f"{repository.directory} has {len(known)} backups: add one with --incremental"
            raise BackupError(f"{text}, or name another directory")
        pin, archive = _moment(pins, repository.maker(ident))
        try:
            if repository.directory.resolve().is_relative_to(Path(pin["data"]).resolve()):
                text = f"{repository.directory} is in the data directory that it is to outlive"
                raise BackupError(f"{text}: name another directory, on another disk")
            last = known[-1] if known else None
            others = [(name, Path(pin["data"]) / name, length) for name, length in archive]
            others += [(name, path, -1) for name, path in issued]
            backup = _copied(repository, pins, progress, ident, pin, others, last)
        finally:
            pins.drop(pin)
        repository.write(backup)
        return backup
    finally:
        repository.drop_unfinished()
        lock.release()


def _moment(pins: Pins, maker: str) -> tuple[Pin, list[tuple[str, int]]]:
    """A pin, and (name, bytes) of the files of the archive as of then, its manifest last."""
    for _ in range(TRIES):
        pin = pins.make(maker)
        data = Path(pin["data"])
        if not (data / pin["files"][-1]["pinned"]).exists():
            pins.drop(pin)
            text = f"the node's data directory {data} is not here: make its backup on its machine"
            raise BackupError(text)
        archived = _bytes_of(data / ARCHIVE / ARCHIVE_MANIFEST)
        if pin["cut"] or archived == pin["archive_bytes"]:
            return pin, _archived(data, pin["archive_bytes"])
        pins.drop(pin)
    raise BackupError(f"the archive of the metering changed at each of {TRIES} moments")


def _archived(data: Path, manifest_bytes: int) -> list[tuple[str, int]]:
    """The files that so much of the manifest names, and as much of it as is whole lines."""
    if not manifest_bytes:
        return []
    path = data / ARCHIVE / ARCHIVE_MANIFEST
    content = path.read_bytes()[:manifest_bytes]
    content = content[: content.rfind(b"\n") + 1]
    try:
        entries = parse_manifest(content)
    except ManifestError as error:
        raise BackupError(f"{path}: {error}") from None
    found = [(f"{ARCHIVE}/{each.name}", each.size_bytes) for each in entries]
    found.append((f"{ARCHIVE}/{ARCHIVE_MANIFEST}", len(content)))
    return found


def _bills(directory: Path | None) -> list[tuple[str, Path]]:
    """Runs of `weir bill` that have ended, and what points to the last of each month."""
    if directory is None:
        return []
    found = sorted(directory.glob("period=*/CURRENT"))
    for each in sorted(directory.glob(f"period=*/run=*/{SUMMARY}")):
        if each.parent.suffix == PARTIAL:
            continue
        found += sorted(path for path in each.parent.rglob("*") if path.is_file())
    if not found:
        raise BackupError(f"{directory} has no run of `weir bill`")
    return [(f"{BILLS}/{path.relative_to(directory)}", path) for path in found]


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
    others: list[tuple[str, Path, int]],
    last: Backup | None,
) -> Backup:
    data = Path(pin["data"])
    timeline = timeline_of(data)
    same = last is not None and last.store == pin["store"] and last.timeline == timeline
    known = {each.name: each for each in last.files} if last is not None and same else {}
    files: list[BackupFile] = []

    def take(name: str, path: Path, length: int, size: int) -> None:
        pins.touch(pin)
        try:
            found(name, path, length, size)
        except FileNotFoundError:
            pins.check(pin)  # it may be gone because the pin is: then that is what is said
            raise

    def found(name: str, path: Path, length: int, size: int) -> None:
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
        made = repository.add(path, name, length, size, lambda: pins.touch(pin))
        files.append(made)
        progress.copied += 1
        progress.copied_bytes += made.length

    for name, path, length in others:
        take(name, path, length, length)
    keys = Path(pin["key_file"])
    if keys.exists():
        take(KEYS, keys, -1, -1)
    for each in pin["files"]:
        take(each["name"], data / each["pinned"], each["length"], each["size"])
    pins.check(pin)  # what was copied last was still pinned
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
