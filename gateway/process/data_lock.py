"""One process a data directory: a lock that the system releases however the process ends.

    DATA/lock     locked with flock while a process serves; holds its pid, for people

The file stays when the process ends; only the lock on it counts. Two journals in one directory
would overwrite each other, so that this is taken before anything else is opened.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LOCK_FILE = "lock"

PID_BYTES_MAX = 32
"""More than any pid has digits; what else the file holds is not read."""


class DataDirectoryInUse(Exception):
    """Another process serves from the data directory; the text names it and says what to do."""


class DataLock:
    """The lock on one data directory, held until `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Let another process have the directory. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def lock_data_directory(directory: Path) -> DataLock:
    """Take the lock of an existing directory.

    Raises DataDirectoryInUse if another process holds it, OSError if the file cannot be made.
    """
    path = directory / LOCK_FILE
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        holder = _holder(descriptor)
        os.close(descriptor)
        raise DataDirectoryInUse(
            f"the data directory {directory} is in use by {holder}: stop that one first, or give "
            "this one another directory with --data DIR"
        ) from None
    except OSError:
        os.close(descriptor)
        raise
    return DataLock(descriptor)


def _holder(descriptor: int) -> str:
    """Words for the process that holds the lock, which writes its pid just after taking it."""
    text = os.pread(descriptor, PID_BYTES_MAX, 0).strip()
    return f"process {text.decode()}" if text.isdigit() else "another process"
