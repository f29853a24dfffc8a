"""Runs a node: chooses the event loop, sets up logging, turns failures into exit codes."""

from __future__ import annotations

import asyncio
import errno
import importlib
import logging
import os
import sys
from typing import TYPE_CHECKING, Final

import structlog

from auth.errors import AuthError
from gateway.commands.common.output import ExitCode, say
from gateway.process.data_lock import DataDirectoryInUse
from gateway.process.garbage import spare_what_is_loaded
from gateway.process.open_files import allow_open_files
from gateway.process.running import StartRefused
from gateway.reporting.events import EVENTS
from kernel.common.errors import KernelError
from kernel.log.errors import JournalDamaged, JournalError

if TYPE_CHECKING:
    from gateway.config.loading import Loaded
    from gateway.config.schema import Settings

SWITCH_INTERVAL_S = 0.00005
"""How long a thread waits for another before it asks for the interpreter. The journal's writer
waits so up to three times a commit, while the disk has nothing to do: a commit of 600 messages,
which the disk takes 0.6 ms for, took 1.55 ms with an interval of 0.5 ms and takes 1.25 ms with
this one. Where no thread waits it costs nothing."""

_log = structlog.get_logger("weir.app")


def run(settings: Settings, loaded: Loaded | None = None) -> int:
    """Serve until told to stop; the exit code. `loaded`: where the settings come from, to be
    shown.
    """
    spare_what_is_loaded()
    set_up_logging()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    files = allow_open_files()
    _log.info("open files", limit=files.now, before=files.before)
    code = ExitCode.OK
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serve(settings, loaded))
    except* (
        StartRefused,
        DataDirectoryInUse,
        OSError,
        AuthError,
        JournalError,
        KernelError,
    ) as failed:
        for failure in failed.exceptions:
            say(f"weir cannot serve: {words_for(failure, settings.node.data)}")
            if isinstance(failure, JournalDamaged):
                say(f"hint: {DAMAGED[settings.node.role]}")
        code = ExitCode.FAILED
    return code


DAMAGED: Final = {
    "all": "nothing was changed; put back what is missing if there is a copy, or see with "
    "`weir doctor --data DIR` what is lost, and go on without it with --repair (docs/formats.md)",
    "store": "nothing was changed; if the other stores have it all, begin with an empty data "
    "directory and run `weir cluster join` (docs/cluster.md)",
}
"""What is left to do about synced data that cannot be read, by role."""


def words_for(failure: BaseException, data: str) -> str:
    """What is said of a start that has failed: of the system's errors without their numbers, with
    the file, and what to do about a disk without room or a directory of another user.
    """
    if not isinstance(failure, OSError) or failure.strerror is None:
        return str(failure)
    about = f": {failure.filename}" if failure.filename else ""
    if failure.errno == errno.ENOSPC:
        about += f". Make room on the disk of {data}, or name a directory on another: --data DIR"
    if failure.errno == errno.EACCES and str(failure.filename).startswith(data):
        about += f". Weir runs as user {os.geteuid()} here, to whom {data} has to belong"
    return f"{failure.strerror}{about}"


async def serve(settings: Settings, loaded: Loaded | None = None) -> None:
    """Run the process of a role. Raises StartRefused and what the process of the role raises."""
    # A role is imported when it is played: a store starts in half the time without the adapters.
    match settings.node.role:
        case "all":
            from gateway.serving.node import Node

            await Node(settings, loaded).run()
        case "store":
            from gateway.serving.store_node import StoreNode

            await StoreNode(settings).run()
        case "gateway":
            from gateway.serving.gateway_node import GatewayNode

            await GatewayNode(settings, loaded).run()


def loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed (3 to 4 times asyncio's rate at small messages)."""
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        return None
    factory: type[asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def set_up_logging() -> None:
    """Structured lines to stderr: for people on a terminal, JSON elsewhere."""
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=False)
        if sys.stderr.isatty()
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            EVENTS.line,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
