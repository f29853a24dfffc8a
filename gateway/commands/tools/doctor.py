"""`weir doctor`: whether a data directory is what was written, and going on without what is lost.

Exit code 0: all of it is sound, or was repaired; 3: something is damaged; 1: it cannot be told, or
not be repaired. Without --repair nothing is changed but the lock file.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.commands.common.api import DEFAULT_DATA
from gateway.commands.common.options import DataOption, FormatOption, ServersFile, load_adapters
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put, say
from gateway.process.data_lock import DataDirectoryInUse, lock_data_directory
from kernel.common.errors import KernelError
from kernel.log.errors import JournalError
from kernel.log.format.files import JOURNAL_DIRECTORY
from kernel.log.hard_read import hard_read
from kernel.store.drivers.disk import ReadOnlyDisk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from adapters.base import Declaration
    from kernel.store.recovery.examination import Examination

COPIED_BYTES = 1024 * 1024
"""Of a segment at once."""

SHOWN_MAX = 100
"""Findings in a table: who wants all of more asks for JSON."""


def doctor(
    data: DataOption = None,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Give up what is lost, and keep its bytes in lost/."),
    ] = False,
    config: ServersFile = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Check the data directory of a server that does not run: exit code 3 if it is damaged."""
    from kernel.log.format.meta import META_NAME
    from kernel.log.reading.aside import LOST_DIRECTORY

    directory = data or Path(DEFAULT_DATA)
    if not directory.is_dir():
        raise CommandError(
            f"{directory} is no data directory", ExitCode.FAILED, "name the server's with --data"
        )
    if not (directory / META_NAME).exists() and not (directory / JOURNAL_DIRECTORY).exists():
        raise CommandError(
            f"{directory} holds no store", ExitCode.FAILED, "a gateway without a store keeps none"
        )
    with _locked(directory):
        found = _examined(directory)
        _show(found, output)
        if not found.findings:
            say(f"{directory} is sound")
            return
        if not repair:
            raise typer.Exit(ExitCode.UNHEALTHY)
        _repair(directory, found, load_adapters(config))
        left = _examined(directory)
        if left.findings:
            _show(left, output)
            raise CommandError("something is still damaged", ExitCode.UNHEALTHY)
        say(f"{directory} is repaired: what was given up is in {directory / LOST_DIRECTORY}")


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    try:
        lock = lock_data_directory(directory)
    except (DataDirectoryInUse, OSError) as error:
        hint = "`weir health` tells of a server that runs"
        raise CommandError(str(error), ExitCode.FAILED, hint) from error
    try:
        yield
    finally:
        lock.release()


def _examined(directory: Path) -> Examination:
    from kernel.cluster.roster import read_home
    from kernel.store.recovery.examination import examine

    disk = ReadOnlyDisk(directory)
    try:
        home = read_home(disk)
        return examine(disk, home.number if home is not None else 1)
    except OSError as error:
        about = f" ({error.filename})" if error.filename else ""
        raise CommandError(
            f"{directory} cannot be read: {error.strerror}{about}",
            ExitCode.FAILED,
            "copy what can be read to a disk that is well (ddrescue), and ask again there",
        ) from error
    except KernelError as error:
        raise CommandError(str(error), ExitCode.FAILED) from error


def _show(found: Examination, output: Format) -> None:
    rows = [
        (each.where, each.what, each.lost, "yes" if each.repairable else "no")
        for each in found.findings
    ]
    if output is Format.TABLE and len(rows) > SHOWN_MAX:
        more = len(rows) - SHOWN_MAX
        rows = [*rows[:SHOWN_MAX], ("...", f"and {more} more: -o json", "", "")]
    if rows or output is not Format.TABLE:
        put(
            {"findings": found.findings},
            Table(("where", "what", "lost", "repairable"), rows),
            output,
        )


def _repair(directory: Path, found: Examination, declared: Mapping[str, Declaration]) -> None:
    import asyncio

    from kernel.cluster.roster import FILE as HOME_FILE

    if (directory / HOME_FILE).exists():
        raise CommandError(
            f"{directory} is the data directory of a cluster's store: nothing was changed",
            ExitCode.FAILED,
            "start it, and it is healed by the others; if it refuses, begin with an empty directory"
            " and `weir cluster join` (docs/cluster.md)",
        )
    hopeless = [each.where for each in found.findings if not each.repairable]
    if hopeless:
        raise CommandError(
            f"{', '.join(hopeless)} cannot be repaired: nothing was changed",
            ExitCode.FAILED,
            "bring back a copy of the whole directory, or begin with an empty one",
        )
    try:
        _keep(directory, found.holes)
        asyncio.run(_go_on(directory, found, declared))
    except (JournalError, KernelError, OSError) as error:
        raise CommandError(f"{directory} cannot be repaired: {error}", ExitCode.FAILED) from error


def _keep(directory: Path, names: Sequence[str]) -> None:
    """Copies of the segments from which records are lost: somebody may find more in them. What the
    disk does not read is 0xFF there.
    """
    from kernel.log.reading.aside import LOST_DIRECTORY

    disk = ReadOnlyDisk(directory)
    for name in names:
        kept = directory / LOST_DIRECTORY / Path(name).name
        if not (directory / name).exists() or kept.exists():
            continue
        kept.parent.mkdir(mode=0o700, exist_ok=True)
        temporary = kept.with_suffix(".tmp")
        source = disk.open(name)
        try:
            with temporary.open("wb") as copy:
                for at in range(0, source.size(), COPIED_BYTES):
                    copy.write(hard_read(source, COPIED_BYTES, at)[0])
                copy.flush()
                os.fsync(copy.fileno())
        finally:
            source.close()
        temporary.rename(kept)


async def _go_on(directory: Path, found: Examination, declared: Mapping[str, Declaration]) -> None:
    """Open the store as a server would, give up what is lost, and end it in order."""
    import asyncio
    from functools import partial

    from gateway.config.declared import register_readers
    from gateway.process.running import fatal
    from kernel.in_process.opening import open_store
    from kernel.store.drivers.disk import DirectoryDisk
    from kernel.store.drivers.system import SystemClock, SystemRandom
    from kernel.store.drivers.worker import Worker

    loop = asyncio.get_running_loop()
    local = open_store(
        DirectoryDisk(directory),
        SystemClock(),
        SystemRandom(),
        partial(Worker, loop),
        fatal,
        repair=True,
    )
    register_readers(local.client.origins, declared)
    await local.start()
    try:
        await local.store.unreadable.give_up_all(found.lost)
    finally:
        await local.stop()
