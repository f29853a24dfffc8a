"""Brings log entries that are only on disk into memory; each at most once at a time.

What fails with EIO is asked for again, with growing pauses: a cable, a controller or a network
volume may only have had a bad moment, and what is given up does not come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..common.ids import RaftGroup
from ..log.errors import JournalError, RecordUnread
from ..log.journal import Journal
from .drivers.worker import Runner

PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0)
"""Before each further try to read what fails with EIO. A link that is reset is there again by then;
a sector that does not read so long will not."""


class Reader:
    """Reads for everybody of a store."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        journal: Journal,
        runner: Runner,
        failed: Callable[[RaftGroup, int, BaseException, bool], None],
    ) -> None:
        """`failed` is told of a group's entry that cannot be read, and whether by a reader of its
        log: who waits for it hears nothing before `over`.
        """
        self._loop = loop
        self._journal = journal
        self._runner = runner
        self._failed = failed
        self._stopped = False
        self.errors = 0
        """Reads that failed with EIO."""
        self._failing: set[tuple[RaftGroup, int]] = set()
        self._waiting: dict[tuple[RaftGroup, int], list[Callable[[], None]]] = {}

    def fetch(
        self, group: RaftGroup, index: int, done: Callable[[], None], *, log: bool = False
    ) -> None:
        """Read an entry (and what follows it in the segment, which is the group's whole log or what
        is held of all groups), then call `done`.
        """
        key = (group, index)
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(done)
            return
        self._waiting[key] = [done]
        try:
            job = self._journal.read_ahead(group, index, log=log)
        except JournalError as error:
            self._failed(group, index, error, log)
            return

        pauses = iter(PAUSES_SECONDS)

        def finished(error: BaseException | None) -> None:
            self._failing.discard(key)
            if isinstance(error, RecordUnread):
                self.errors += 1
                pause = None if self._stopped else next(pauses, None)
                if pause is not None:
                    self._failing.add(key)
                    self._loop.call_later(pause, again)
                    return
            self._journal.end_read(job)
            if error is None:
                self.over(group, index)
            else:
                self._failed(group, index, error, log)

        def again() -> None:
            if not self._stopped:
                self._runner.submit(job.run, finished)

        self._runner.submit(job.run, finished)

    @property
    def failing(self) -> int:
        """Entries that are asked for again and again."""
        return len(self._failing)

    def over(self, group: RaftGroup, index: int) -> None:
        """The entry is in memory, or given up: whoever waits looks again."""
        for each in self._waiting.pop((group, index), ()):
            each()

    async def fetched(self, group: RaftGroup, index: int) -> None:
        """Return once an entry that something refers to has been read."""
        future: asyncio.Future[None] = self._loop.create_future()

        def done() -> None:
            if not future.done():
                future.set_result(None)

        self.fetch(group, index, done)
        await future

    def stop(self) -> None:
        """Finish what is queued."""
        self._stopped = True
        self._runner.stop()
