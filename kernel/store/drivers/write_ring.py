"""Writes that the kernel carries out beside the event loop: io_uring, by way of `caio`.

A thread of ours has to wait for the interpreter before each system call, and the loop gives it up
only when its turn is over: just when commits are many, the disk has nothing to do meanwhile. What
is begun here is under way when `begin` returns, and its end is an event of the loop.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from functools import partial
from typing import TYPE_CHECKING, Final

from ...log.format.files import write_all

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from caio.linux_uring import Context, Operation

    from .disk import DiskFile

LINUX_MIN: Final = (5, 15)
"""Before 5.12 a write under way could outlive a process that was killed, and the lock on its data
directory, and come down on what the next process has written. 5.15 is the next one that lasts."""

_ENTRIES: Final = 2
"""Room in the ring: a write, and the sync that follows it."""

_REFUSALS: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""What a ring that cannot do this answers to its first operation. From one that has done one these,
as every other error but ECANCELED, are the disk's."""

_WINDOW: Final = 64
_IN_OUR_TURN_MAX: Final = 16
"""Of so many writes: a write that seems to end in our turn may also have ended while the loop's
thread had to wait for a processor (of 100 on ext4 up to 4; on xfs 33 to 90, on btrfs all)."""


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
    and the loop would stand still until the disk has synced: when that has been seen often enough,
    it is a write to the page cache, and then an fdatasync, which is never carried out so.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """OSError: this process can have no ring."""
        context, self._operation = _caio()
        try:
            self._context: Context | None = context(max_requests=_ENTRIES)
        except SystemError as error:  # caio's word for whatever the kernel answers
            raise OSError(*error.args) from error
        self._loop = loop
        self._fileno = self._context.fileno
        self._loop.add_reader(self._fileno, self._look)
        self._write: _Write | None = None
        self._result: int | None = None
        """What the kernel has answered, not looked at yet."""
        self._proven = False
        """Whether it has ever done anything."""
        self._seen = self._in_our_turn = 0
        """Writes with O_DSYNC in this window, and those that ended in our turn."""
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
        try:
            content = b"".join(buffers)
            operation = self._operation.write(content, to, offset)
            self._write = _Write(file, content, offset, done, to_sync=through is None)
        except MemoryError:
            return False
        if not self._submit(operation):
            self._write = None
            return False
        if through is not None:
            self._note(in_our_turn=self._result is not None)
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
        except MemoryError:
            return True  # raised when it looks for what has ended: `_look` will
        except (SystemError, OverflowError) as error:
            self.close()
            self._loop.call_soon(self.given_up, f"not taken: {error}")
            return False
        return True

    def _heard(self, result: int) -> None:
        """Called by caio, which would only print what is raised here."""
        self._result = result

    def _note(self, *, in_our_turn: bool) -> None:
        """Who syncs in our turn is asked so no more."""
        if self._seen == _WINDOW:
            self._seen = self._in_our_turn = 0
        self._seen += 1
        self._in_our_turn += in_our_turn
        self.splits = self._in_our_turn == _IN_OUR_TURN_MAX

    def _ended_in_our_turn(self, write: _Write) -> None:
        if write.to_sync and self._result == write.expected:
            self._result = None
            self._sync(write)
        else:
            self._loop.call_soon(self._look)

    def _sync(self, write: _Write) -> None:
        self._proven = True
        write.to_sync = False
        write.expected = 0
        if not self._submit(self._operation.fdsync(write.file.descriptor)):
            self._result = -errno.ECANCELED
        if self._result is not None:
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """The kernel may have ended something."""
        if self._context is not None:
            with contextlib.suppress(BlockingIOError):
                self._context.poll()
            try:
                self._context.process_events()
            except MemoryError:  # it has not looked: nobody else will say that there is something
                self._loop.call_soon(self._look)
                return
        write, result = self._write, self._result
        if write is None or result is None:
            return
        self._result = None
        if result == write.expected and write.to_sync:
            self._sync(write)
            return
        self._write = None
        if result == write.expected:
            self._proven = True
            write.done(None)
        elif result >= 0 or self._is_refusal(-result):
            self._give_up(write, result)
        else:
            write.done(OSError(-result, os.strerror(-result)))

    def _is_refusal(self, error: int) -> bool:
        """Whether an error is the ring's own, and says nothing of the disk."""
        return error == errno.ECANCELED or (error in _REFUSALS and not self._proven)

    def _give_up(self, write: _Write, result: int) -> None:
        """The ring has refused the write, or written less than all: do it again by a thread, which
        hears what is the matter with the disk if anything is. From now on all go that way.
        """
        if self._context is not None:  # else it has been told
            self.close()
            short = f"{result} of {write.expected} bytes written"
            reason = short if result >= 0 else os.strerror(-result)
            self._loop.call_soon(self.given_up, reason)
        job = partial(write_all, write.file, (write.content,), write.offset, synced=True)
        future = self._loop.run_in_executor(None, job)
        future.add_done_callback(lambda ended: write.done(ended.exception()))


def _caio() -> tuple[type[Context], type[Operation]]:
    """What rings are made of. OSError: not here. Imported only now, for it asks the kernel for a
    ring at once, and some kill a process that does.
    """
    system = os.uname()
    release = tuple(int(part) for part in re.findall(r"\d+", system.release)[:2])
    if system.sysname != "Linux" or release < LINUX_MIN:
        raise OSError(errno.ENOSYS, f"no io_uring to be used in {system.sysname} {system.release}")
    try:
        from caio.linux_uring import Context, Operation
    except ImportError as error:  # forbidden, as in many containers
        raise OSError(errno.ENOSYS, str(error)) from error
    return Context, Operation


def open_ring(loop: asyncio.AbstractEventLoop) -> WriteRing | None:
    """A ring, or None where this process can have none: writes go by a thread then."""
    try:
        return WriteRing(loop)
    except OSError:
        return None
