"""A simulated `kernel.common.ports.Disk`: what a disk may do to a program that trusts it too much.

The model, per file: `content` is what reads see (the page cache), `durable` what a power loss
leaves, `dirty` the writes in between, in order. Names: creations, renames and removals are in
force at once and durable after `sync_directory`; a power loss may keep any prefix of those that
were not (metadata journals are ordered).

Every write, sync, allocation and change of a name is one **boundary**: `on_boundary(n, what)` is
called before it and may raise `Crash` or take `crashed_copy`. A write is a boundary twice, before
and after it has reached the page cache, so that a copy can tear it.

    fail        errors by boundary kind: disk.fail("fdatasync", OSError(errno.EIO, "..."), after=3)
                A failed sync marks the file clean, as ext4 does: reads go on seeing data that a
                power loss takes, and no later sync brings to the disk.
    capacity    bytes that files may take; beyond it ENOSPC
    sync_gate   called in every fdatasync: a test blocks there, or raises
    flip        one bit of a file, in page cache and on disk
    spoil       sectors that do not read: a read that begins in one fails with EIO, one that comes
                to one ends before it, as Linux has it; or whatever touches one fails. So does a
                write to its page, which would have to be read first
"""

from __future__ import annotations

import errno
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b

from kernel.common.ports import Written
from kernel.log.format.files import write_all
from kernel.log.hard_read import PAGE_BYTES
from kernel.store.drivers.worker import Runner

SECTOR_BYTES = 512
"""What power loss tears: a sector is old or new."""


class Crash(BaseException):
    """The machine has stopped: nothing in the program may catch this."""


@dataclass
class _Inode:
    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: list[tuple[int, bytes]] = field(default_factory=list)
    spoilt: list[_Spoilt] = field(default_factory=list)


@dataclass
class _Spoilt:
    begin: int
    end: int
    reads: float
    """So many still fail."""


@dataclass
class _Failure:
    what: str
    error: OSError
    after: int
    times: int


class SimulatedFile:
    """`kernel.common.ports.File`."""

    def __init__(self, disk: SimulatedDisk, inode: _Inode, name: str) -> None:
        self._disk = disk
        self._inode = inode
        self._name = name
        self._open = True
        disk.open_files += 1

    def pwritev(self, buffers: Sequence[bytes], offset: int, *, synced: bool = False) -> int:
        self._check_open()
        content = b"".join(buffers)
        disk = self._disk
        disk.boundary("pwritev", self._name)
        if disk.touches(self._inode.spoilt, offset, len(content)):
            raise OSError(errno.EIO, "Input/output error")
        short = disk.short_write_bytes
        if short is not None:
            content = content[:short]
        growth = max(0, offset + len(content) - len(self._inode.content))
        disk.take_space(growth)
        self._inode.content.extend(bytes(growth))
        self._inode.content[offset : offset + len(content)] = content
        self._inode.dirty.append((offset, content))
        disk.boundary("written", self._name)
        if synced:
            self._sync(self._inode.dirty[-1:])
        return len(content)

    def begin_write(self, buffers: Sequence[bytes], offset: int, done: Written) -> bool:
        """By the disk's own runner, if it has one."""
        if self._disk.beside is None:
            return False
        job = partial(write_all, self, buffers, offset, synced=True)
        self._disk.beside.submit(job, done)
        return True

    def pread(self, length: int, offset: int) -> bytes:
        self._check_open()
        self._disk.bytes_read += length
        length = self._disk.readable(self._inode.spoilt, offset, length)
        return bytes(self._inode.content[offset : offset + length])

    def forget_cached(self) -> None:
        self._check_open()

    def fdatasync(self) -> None:
        self._check_open()
        self._sync(self._inode.dirty)

    def _sync(self, writes: Sequence[tuple[int, bytes]]) -> None:
        """Bring these writes to the disk, which are the last of the dirty ones."""
        dirty = self._inode.dirty
        before = dirty[: len(dirty) - len(writes)]
        try:
            self._disk.boundary("fdatasync", self._name)
        except OSError:
            # Nothing says that they reached the disk, and nothing will try again.
            self._inode.dirty = before
            raise
        if self._disk.sync_gate is not None:
            self._disk.sync_gate()
        durable = self._inode.durable
        durable.extend(bytes(len(self._inode.content) - len(durable)))
        for offset, written in writes:
            durable[offset : offset + len(written)] = written
        self._inode.dirty = before
        self._disk.syncs += 1
        self._disk.boundary("synced", self._name)

    def allocate(self, length: int) -> None:
        self._check_open()
        self._disk.boundary("allocate", self._name)
        growth = max(0, length - len(self._inode.content))
        self._disk.take_space(growth)
        self._inode.content.extend(bytes(growth))

    def size(self) -> int:
        self._check_open()
        return len(self._inode.content)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._disk.open_files -= 1

    def _check_open(self) -> None:
        if not self._open:
            raise OSError(errno.EBADF, f"{self._name} is closed")


class SimulatedDisk:
    """`kernel.common.ports.Disk`. Deterministic: nothing here depends on anything but the calls."""

    def __init__(self, capacity: int = 1 << 40) -> None:
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self._changes: list[tuple[str, str, _Inode | None]] = []
        """(directory, name, inode or None for removed) not durable yet, in order."""
        self.capacity = capacity
        self.used = 0
        self.boundaries = 0
        self.syncs = 0
        self.bytes_read = 0
        self.open_files = 0
        self.on_boundary: Callable[[int, str], None] | None = None
        self.sync_gate: Callable[[], None] | None = None
        self.short_write_bytes: int | None = None
        self.beside: Runner | None = None
        """What begins writes beside the loop, if this disk can."""
        self.reads_fail = False
        """It has gone away: every read fails with EIO."""
        self.ends_short = True
        """Whether a read ends before what does not read, or fails."""
        self.torn = False
        """Of a copy after a power loss: some file has a part of what was not synced."""
        self._failures: list[_Failure] = []
        self._stopped = False

    # --- kernel.common.ports.Disk ----------

    def open(self, name: str, *, create: bool = False) -> SimulatedFile:
        self._check_running()
        inode = self._names.get(name)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", name)
            self.boundary("create", name)
            inode = self._names[name] = _Inode()
            self._changes.append((_directory(name), name, inode))
        return SimulatedFile(self, inode, name)

    def rename(self, old: str, new: str) -> None:
        self.boundary("rename", new)
        if old not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        replaced = self._names.get(new)
        if replaced is not None:
            self.used -= len(replaced.content)
        inode = self._names[new] = self._names.pop(old)
        # One change of the directory, so that no crash sees half of it.
        self._changes.append((_directory(new), f"{old}\0{new}", inode))

    def link(self, name: str, other: str) -> None:
        self.boundary("link", other)
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        if other in self._names:
            raise FileExistsError(errno.EEXIST, "there is one", other)
        self._names[other] = self._names[name]
        self._changes.append((_directory(other), other, self._names[name]))

    def remove(self, name: str) -> None:
        self.boundary("remove", name)
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        inode = self._names.pop(name)
        if not any(each is inode for each in self._names.values()):
            self.used -= len(inode.content)
        self._changes.append((_directory(name), name, None))

    def names(self, directory: str) -> list[str]:
        self._check_running()
        found = (name for name in self._names if _directory(name) == directory)
        return sorted(name.rpartition("/")[2] for name in found)

    def sync_directory(self, directory: str) -> None:
        self.boundary("sync_directory", directory)
        kept = []
        for change in self._changes:
            if change[0] == directory:
                _change(self._durable_names, change)
            else:
                kept.append(change)
        self._changes = kept
        self.syncs += 1
        self.boundary("synced_directory", directory)

    def free_bytes(self) -> int:
        return max(0, self.capacity - self.used)

    def total_bytes(self) -> int:
        return self.capacity

    # --- Faults -----------------------------------------------------------------------------

    def fail(self, what: str, error: OSError, *, after: int = 0, times: int = 1) -> None:
        """Raise `error` at the boundaries of that kind, after so many that go well."""
        self._failures.append(_Failure(what, error, after, times))

    def flip(self, name: str, offset: int, bit: int = 0) -> None:
        """Change one bit of a file, on disk and in the page cache."""
        inode = self._names[name]
        inode.content[offset] ^= 1 << bit
        if offset < len(inode.durable):
            inode.durable[offset] ^= 1 << bit

    def spoil(self, name: str, offset: int, length: int = 1, *, reads: float = math.inf) -> None:
        """The sectors of these bytes do not read any more, or for so many times."""
        end = -(-(offset + length) // SECTOR_BYTES) * SECTOR_BYTES
        begin = offset // SECTOR_BYTES * SECTOR_BYTES
        self._names[name].spoilt.append(_Spoilt(begin, end, reads))

    def mend(self, name: str) -> None:
        """All of a file reads again."""
        self._names[name].spoilt.clear()

    def overwrite(self, name: str, offset: int, content: bytes) -> None:
        """Change bytes of a file behind the program's back."""
        inode = self._names[name]
        for held in (inode.content, inode.durable):
            held[offset : offset + len(content)] = content

    def content(self, name: str) -> bytes:
        """What reads of a file see."""
        return bytes(self._names[name].content)

    def put(self, name: str, content: bytes) -> None:
        """Make a durable file, as a backup restored would be."""
        inode = _Inode(bytearray(content), bytearray(content))
        self._names[name] = self._durable_names[name] = inode
        self.used += len(content)

    def stop(self) -> None:
        """The machine is off: every further call raises `Crash`."""
        self._stopped = True

    def crashed_copy(self, seed: int | None = None) -> SimulatedDisk:
        """The disk after a power loss now.

        Without a seed what was not synced is gone (clean cut). With one, each sector of what was
        not synced is there or not, and so is a prefix of the changes of names.
        """
        chance = random.Random(seed) if seed is not None else None
        copy = SimulatedDisk(self.capacity)
        names = dict(self._durable_names)
        kept = chance.randint(0, len(self._changes)) if chance is not None else 0
        for change in self._changes[:kept]:
            _change(names, change)
        for name, inode in names.items():
            content = _after_power_loss(inode, chance)
            if inode.dirty and content not in (inode.durable, inode.content):
                copy.torn = True
            copy.put(name, bytes(content))
            copy._names[name].spoilt = inode.spoilt
        return copy

    def killed_copy(self) -> SimulatedDisk:
        """The disk as a new process finds it after a kill: the page cache is still there, and
        what is not durable still is not."""
        copy = SimulatedDisk(self.capacity)
        copies = {
            id(inode): _copied(inode)
            for table in (self._names, self._durable_names)
            for inode in table.values()
        }
        for _, _, inode in self._changes:
            if inode is not None and id(inode) not in copies:
                copies[id(inode)] = _copied(inode)
        copy._names = {name: copies[id(inode)] for name, inode in self._names.items()}
        copy._durable_names = {n: copies[id(inode)] for n, inode in self._durable_names.items()}
        copy._changes = [
            (directory, name, copies[id(inode)] if inode is not None else None)
            for directory, name, inode in self._changes
        ]
        copy.used = self.used
        return copy

    def fingerprint(self) -> bytes:
        """A hash of all that decides what a program finds here, now and after a power loss."""
        met: dict[int, tuple[int, _Inode]] = {}

        def number(inode: _Inode) -> int:
            return met.setdefault(id(inode), (len(met), inode))[0]

        tables = [
            [(name, number(table[name])) for name in sorted(table)]
            for table in (self._names, self._durable_names)
        ]
        changes = [
            (directory, name, number(inode) if inode is not None else None)
            for directory, name, inode in self._changes
        ]
        digest = blake2b(repr((tables, changes)).encode(), digest_size=16)
        for _, inode in met.values():
            spoilt = [(each.begin, each.end, each.reads) for each in inode.spoilt]
            held = (len(inode.content), len(inode.durable), inode.dirty, spoilt)
            digest.update(repr(held).encode())
            digest.update(inode.content)
            digest.update(inode.durable)
        return digest.digest()

    # --- Used by files ----------------------------------------------------------------------

    def boundary(self, what: str, name: str) -> None:
        """Count, call the observer, fail if a failure is due."""
        self._check_running()
        self.boundaries += 1
        for failure in self._failures:
            if failure.what == what:
                if failure.after > 0:
                    failure.after -= 1
                elif failure.times > 0:
                    failure.times -= 1
                    raise failure.error
        if self.on_boundary is not None:
            try:
                self.on_boundary(self.boundaries, f"{what} {name}")
            except Crash:
                self._stopped = True
                raise

    def readable(self, spoilt: Sequence[_Spoilt], offset: int, length: int) -> int:
        """How much of a read is had. OSError: nothing."""
        met = [each for each in spoilt if each.begin < offset + length and offset < each.end]
        met = [each for each in met if each.reads > 0]
        for each in met:
            each.reads -= 1
        begin = min((each.begin for each in met), default=offset + length)
        if self.reads_fail or begin <= offset or (met and not self.ends_short):
            raise OSError(errno.EIO, "Input/output error")
        return begin - offset

    def touches(self, spoilt: Sequence[_Spoilt], offset: int, length: int) -> bool:
        """Whether a write reaches into a page that does not read."""
        first, last = offset // PAGE_BYTES, (offset + length - 1) // PAGE_BYTES
        return any(
            each.reads > 0
            and each.begin // PAGE_BYTES <= last
            and first <= (each.end - 1) // PAGE_BYTES
            for each in spoilt
        )

    def take_space(self, length: int) -> None:
        if self.used + length > self.capacity:
            raise OSError(errno.ENOSPC, "no space left on device")
        self.used += length

    def _check_running(self) -> None:
        if self._stopped:
            raise Crash


def _copied(inode: _Inode) -> _Inode:
    content, durable = bytearray(inode.content), bytearray(inode.durable)
    return _Inode(content, durable, [*inode.dirty], inode.spoilt)


def _directory(name: str) -> str:
    return name.rpartition("/")[0]


def _change(names: dict[str, _Inode], change: tuple[str, str, _Inode | None]) -> None:
    _directory_name, name, inode = change
    old, renamed, new = name.partition("\0")
    if renamed:
        names.pop(old, None)
        name = new
    if inode is None:
        names.pop(name, None)
    else:
        names[name] = inode


def _after_power_loss(inode: _Inode, chance: random.Random | None) -> bytearray:
    """Durable content plus, with a chance, sectors of what was written since."""
    if chance is None:
        # The size is metadata: a file whose allocation was not synced may be short.
        return bytearray(inode.durable)
    content = bytearray(inode.durable)
    if len(inode.content) > len(content) and chance.random() < 0.5:
        content.extend(bytes(len(inode.content) - len(content)))
    for offset, written in inode.dirty:
        for sector in range(
            offset // SECTOR_BYTES, (offset + len(written) - 1) // SECTOR_BYTES + 1
        ):
            if chance.random() < 0.5:
                start = max(offset, sector * SECTOR_BYTES)
                end = min(offset + len(written), (sector + 1) * SECTOR_BYTES, len(content))
                if start < end:
                    content[start:end] = written[start - offset : end - offset]
    return content
