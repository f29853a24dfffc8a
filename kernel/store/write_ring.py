"""Writes that the kernel carries out beside the event loop: io_uring, by way of `caio`.

A thread of ours has to wait for the interpreter before each system call, and the loop gives it up
only when its turn is over: just when commits are many, the disk has nothing to do meanwhile. What
is begun here is under way when `begin` returns, and its end is an event of the loop.
"""

from __future__ import annotations

import contextlib
import errno
import os
from functools import partial
from typing import TYPE_CHECKING, Final

from ..log.files import write_all

try:
    from caio.linux_uring import Context, Operation
except ImportError:  # another system, a kernel before 5.6, a container that forbids io_uring
    HAS_RINGS = False
else:
    HAS_RINGS = True

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from .disk import DiskFile

_ENTRIES: Final = 2
"""Room in the ring: a write, and the sync that follows it."""

_REFUSALS: Final = frozenset(
    {errno.EAGAIN, errno.EINTR, errno.ECANCELED, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
)
"""What a ring may answer on its own account. Every other error is the disk's."""


class _Write:
    """The write under way."""

    __slots__ = ("content", "done", "expected", "file", "offset", "to_sync")

    def __init__(
        self,
        file: DiskFile,
        content: bytes,
        offset: int,
        done: Callable[[BaseException | None], None],
        *,
        to_sync: bool,
    ) -> None:
        self.file = file
        self.content = content
        self.offset = offset
        self.done = done
        self.to_sync = to_sync
        """Whether a sync has to follow."""
        self.expected = len(content)
        """What the kernel answers to the operation under way."""


class WriteRing:
    """One event loop's synced writes, one at a time (a process has one journal, which begins the
    next write when it has heard of the last).

    A write is one operation, on a descriptor with O_DSYNC, where the file system leaves it to the
    kernel's own threads (ext4). Some carry it out in the turn of whoever begins it (xfs, btrfs),
    and the loop would stand still until the disk has synced: once that has been seen, it is a write
    to the page cache, and then an fdatasync, which is never carried out so.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """OSError: this process can have no ring."""
        if not HAS_RINGS:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        try:
            self._context: Context | None = Context(max_requests=_ENTRIES)
        except SystemError as error:  # caio's word for whatever the kernel answers
            raise OSError(*error.args) from error
        self._loop = loop
        self._fileno = self._context.fileno
        self._loop.add_reader(self._fileno, self._look)
        self._write: _Write | None = None
        self._result: int | None = None
        """What the kernel has answered, not looked at yet."""
        self.splits = False
        """Whether a synced write is two operations."""
        self.given_up: Callable[[str], None] = lambda _reason: None
        """Hears why nothing is written this way any more, if that happens."""

    def begin(
        self,
        file: DiskFile,
        buffers: Sequence[bytes],
        offset: int,
        done: Callable[[BaseException | None], None],
    ) -> bool:
        """Begin to write the buffers, which are copied here. `done(error)` is called in a later
        turn of the loop, once they are on the disk. False: nothing has begun.
        """
        if self._context is None or self._write is not None:
            return False
        through = None if self.splits else file.through()
        to = file.descriptor if through is None else through
        content = b"".join(buffers)
        operation = Operation.write(content, to, offset)
        self._write = _Write(file, content, offset, done, to_sync=through is None)
        if not self._submit(operation):
            self._write = None
            return False
        if self._result is not None:
            self._ended_in_our_turn(self._write)
        return True

    def close(self) -> None:
        """Begin nothing any more. What is under way goes on; nobody hears of its end."""
        if self._context is not None:
            self._loop.remove_reader(self._fileno)
            self._context = None

    def _submit(self, operation: Operation) -> bool:
        """False: the kernel has not taken it, and this ring is closed: what stands in its queue
        must not go along with a later write.
        """
        assert self._context is not None
        operation.set_callback(self._heard)
        try:
            self._context.submit(operation)
            self._context.flush()
        except (SystemError, OverflowError) as error:
            self.close()
            self.given_up(f"not taken: {error}")
            return False
        return True

    def _heard(self, result: int) -> None:
        """Called by caio, which would only print what is raised here."""
        self._result = result

    def _ended_in_our_turn(self, write: _Write) -> None:
        self.splits = True
        if write.to_sync and self._result == write.expected:
            self._result = None
            self._sync(write)
        else:
            self._loop.call_soon(self._look)

    def _sync(self, write: _Write) -> None:
        write.to_sync = False
        write.expected = 0
        if not self._submit(Operation.fdsync(write.file.descriptor)):
            self._result = -errno.ECANCELED
        if self._result is not None:
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """The kernel may have ended something."""
        if self._context is not None:
            with contextlib.suppress(BlockingIOError):
                self._context.poll()
            self._context.process_events()
        write, result = self._write, self._result
        if write is None or result is None:
            return
        self._result = None
        if result == write.expected and write.to_sync:
            self._sync(write)
            return
        self._write = None
        if result == write.expected:
            write.done(None)
        elif result < 0 and -result not in _REFUSALS:
            write.done(OSError(-result, os.strerror(-result)))
        else:
            self._give_up(write, result)

    def _give_up(self, write: _Write, result: int) -> None:
        """The ring has refused the write, or written less than all: do it again by a thread, which
        hears what is the matter with the disk if anything is. From now on all go that way.
        """
        if self._context is not None:  # else it has been told
            self.close()
            short = f"{result} of {write.expected} bytes written"
            self.given_up(short if result >= 0 else os.strerror(-result))
        job = partial(write_all, write.file, (write.content,), write.offset, synced=True)
        future = self._loop.run_in_executor(None, job)
        future.add_done_callback(lambda ended: write.done(ended.exception()))


def open_ring(loop: asyncio.AbstractEventLoop) -> WriteRing | None:
    """A ring, or None where this process can have none: writes go by a thread then."""
    try:
        return WriteRing(loop)
    except OSError:
        return None
