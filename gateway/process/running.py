"""What every serving process does: take its data directory, run until told to stop, end."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from typing import TYPE_CHECKING

import structlog

import gateway
from gateway.process.data_lock import DataLock, lock_data_directory
from gateway.process.service_manager import STOPPING, tell_manager
from kernel.common.feature_levels import LATEST
from kernel.definitions.automatic_size import CALM_MS
from kernel.log.errors import FormatError
from kernel.store.drivers.write_ring import open_ring

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from gateway.config.schema import Node
    from kernel.store.drivers.write_ring import WriteRing

EXIT_STORAGE = 74
"""Exit code after a failed sync (sysexits' EX_IOERR): nothing more was written or answered."""

_log = structlog.get_logger("weir.node")


GATEWAY_FILE = "gateway.id"
"""In a gateway's data directory: its name."""


RESTORING_FILE = "restoring"
"""In a directory that a backup is being restored into, until all of it is there."""


class StartRefused(Exception):
    """The process must not start; the text says why and what to do."""


def take_data_directory(path: Path) -> DataLock:
    """Make the directory if it is missing, and have it for this process alone. Raises
    StartRefused, DataDirectoryInUse, OSError.
    """
    make_data_directory(path)
    lock = lock_data_directory(path)
    _log.info("starting", version=gateway.__version__, data=str(path))
    return lock


def open_ring_of(settings: Node) -> WriteRing | None:
    """What the journal is written by beside the loop, unless the settings or the system forbid it.
    The caller closes it.
    """
    ring = open_ring(asyncio.get_running_loop()) if settings.io_uring else None
    _log.info("journal", written_by="io_uring" if ring is not None else "a thread")
    if ring is not None:
        ring.given_up = _ring_given_up
    return ring


def _ring_given_up(reason: str) -> None:
    _log.warning("journal", written_by="a thread", io_uring_given_up=reason)


def make_data_directory(path: Path) -> None:
    """Make the directory if it is missing. Raises StartRefused, also for a part of a backup."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = f"{path} is a file" if isinstance(error, FileExistsError) else error.strerror
        raise StartRefused(
            f"the data directory {path} cannot be made: {reason}. Name another one: --data DIR"
        ) from error
    if (path / RESTORING_FILE).exists():
        raise StartRefused(
            f"{path} has a part of a backup: restoring it did not end. Do that again, with "
            "`weir backup restore`, which begins anew"
        )


def check_no_gateway(path: Path) -> None:
    """Raise StartRefused for a gateway's data directory: a store in it would keep it from being
    one.
    """
    if (path / GATEWAY_FILE).exists():
        raise StartRefused(
            f"{path} is the data directory of a gateway: name another one with --data DIR"
        )


async def run_until_told(
    start: Callable[[asyncio.TaskGroup], Awaitable[None]],
    stop: Callable[[], Awaitable[None]],
    reload: Callable[[], None],
    drain_seconds: float,
) -> None:
    """Start, serve until SIGTERM or SIGINT, stop; `stop` also follows a start that has failed.
    SIGHUP is `reload`, but on a terminal another word for stopping.
    Raises an ExceptionGroup of what these and the tasks of the group raise.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    # On a terminal it says that the terminal is gone.
    hung_up = stopping.set if sys.stderr.isatty() else reload
    loop.add_signal_handler(signal.SIGHUP, hung_up)
    async with asyncio.TaskGroup() as tasks:
        try:
            await start(tasks)
            await stopping.wait()
            _log.info("draining", within_seconds=drain_seconds)
            tell_manager(STOPPING)
        finally:
            await stop()


def command_typed() -> str:
    """How this process was started, for advice to start it again."""
    return shlex.join(["weir", *sys.argv[1:]])


UNDERSTANDS_VARIABLE = "WEIR_TEST_UNDERSTANDS"
"""For tests: a process takes itself for an older build, which understands the log's features only
up to this level."""


def understands() -> int:
    """The level up to which this build understands the log's features. Raises StartRefused."""
    text = os.environ.get(UNDERSTANDS_VARIABLE)
    if text is None:
        return LATEST
    if not text.isdecimal() or int(text) > LATEST:
        raise StartRefused(f"{UNDERSTANDS_VARIABLE} is no number from 0 to {LATEST}")
    return int(text)


CALM_VARIABLE = "WEIR_TEST_CALM_S"
"""For tests: after so many seconds of calm a topic of automatic size shrinks, not after an hour."""


def calm_ms() -> int:
    """How long a topic has to be calm before it shrinks. Raises StartRefused."""
    text = os.environ.get(CALM_VARIABLE)
    if text is None:
        return CALM_MS
    if not text.isdecimal() or not int(text):
        raise StartRefused(f"{CALM_VARIABLE} is no number of seconds")
    return int(text) * 1_000


def fatal(text: str, error: BaseException) -> None:
    """End the process at once: after a failed sync nobody can say what the disk holds, so nothing
    more may be written or answered (docs/design/storage.md#write); the same of a log that says what
    this build does not know.
    """
    if isinstance(error, FormatError):
        sys.stderr.write(f"weir: {text}: {error}. Ending: nothing of it was answered.\n")
    else:
        sys.stderr.write(f"weir: {text}: {error!r}. Ending; start again once the disk is well.\n")
    sys.stderr.flush()
    os._exit(EXIT_STORAGE)
