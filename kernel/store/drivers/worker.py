"""One thread that runs jobs in order and reports to the event loop.

The journal's writer, for what is not written beside the loop, is one worker, the reader of cold
entries another, checkpoints and deletions a third: a job does I/O on what it was given and touches
nothing else.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

Job = Callable[[], None]
Done = Callable[["BaseException | None"], None]


class Runner(Protocol):
    """Runs jobs in order, off the event loop (tests bring one that does it at once)."""

    def submit(self, job: Job, done: Done) -> None:
        """Run `job()`, then `done(error)` in the event loop."""

    def stop(self) -> None:
        """Finish what is queued."""


Workers = Callable[[str], Runner]
"""Makes a runner of that name."""


class Worker:
    """Runs `job()` in its thread, then `done(error)` in the loop, in order of `submit`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[tuple[Job, Done] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job, done: Done) -> None:
        """Queue a job. The queue is bounded by its callers: each has at most one job under way
        for the same thing.
        """
        self._jobs.put((job, done))

    def stop(self) -> None:
        """Finish what is queued, then end the thread; blocks until it has."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done = item
            error: BaseException | None = None
            try:
                job()
            except BaseException as failure:  # noqa: BLE001 - handed to the loop, which decides
                error = failure
            try:
                self._loop.call_soon_threadsafe(done, error)
            except RuntimeError:
                return  # the loop is closed: nobody is left to hear of it
