"""What the kernel asks of the world: clocks, randomness, disk. A run is a function of these.

The drivers in `kernel/store` bring the real ones; tests and the simulator bring others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol


class Clock(Protocol):
    """Time. Only drivers and the leader's stamping of log time read it."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, UTC; may jump."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some point; never goes back."""


class Random(Protocol):
    """The source of all random bits: a seed makes a run repeatable."""

    def bits(self, count: int) -> int:
        """A uniform integer of `count` bits."""


Written = Callable[["BaseException | None"], None]
"""Hears how a write has ended."""


class File(Protocol):
    """An open file. Every method may raise OSError, as the system call does."""

    def pwritev(self, buffers: Sequence[bytes], offset: int, *, synced: bool = False) -> int:
        """Write the buffers at `offset`; returns the bytes written, which may be fewer. `synced`:
        once these are on the disk, as if `fdatasync` had followed; what was written before may not
        be.
        """

    def begin_write(self, buffers: Sequence[bytes], offset: int, done: Written) -> bool:
        """Begin to write all buffers, synced; `done(error)` is called in the event loop, in a later
        turn, when they are on the disk, or may not be. The file stays open until then. False: it
        takes a `pwritev` by a thread; nothing has begun.
        """

    def pread(self, length: int, offset: int) -> bytes:
        """Read up to `length` bytes; fewer at the end of the file, or before what does not read."""

    def forget_cached(self) -> None:
        """Have the next reads ask the disk, not the page cache, if the system can do that."""

    def fdatasync(self) -> None:
        """Return once everything written so far is on the disk."""

    def allocate(self, length: int) -> None:
        """Reserve space for the first `length` bytes (they read as zeros)."""

    def size(self) -> int:
        """Length in bytes."""

    def close(self) -> None:
        """Close; never syncs."""


class Disk(Protocol):
    """One data directory. Names are relative to it, parts separated by `/`."""

    def open(self, name: str, *, create: bool = False) -> File:
        """Open for reading and writing. FileNotFoundError without `create` if missing."""

    def rename(self, old: str, new: str) -> None:
        """Atomically replace `new` by `old` (durable after `sync_directory`)."""

    def link(self, name: str, other: str) -> None:
        """Give a file another name besides; its bytes stay as long as it has one. FileExistsError
        if that is taken.
        """

    def remove(self, name: str) -> None:
        """Delete a file."""

    def names(self, directory: str) -> list[str]:
        """Names of the files in a directory, sorted; empty if there is no such directory."""

    def sync_directory(self, directory: str) -> None:
        """Make creations, renames and removals in a directory durable."""

    def free_bytes(self) -> int:
        """Bytes that an unprivileged writer can still allocate on the volume."""

    def total_bytes(self) -> int:
        """Size of the volume."""
