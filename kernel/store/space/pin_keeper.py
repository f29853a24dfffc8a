"""Which pin there is: one at a time, for as long as somebody asks for it.

    pin() -> waits for housekeeping, BEGIN_SECONDS at most -> is made -> held -> dropped: by whoever
    made it, or for the next one of the same maker; once nobody has asked for it for PIN_SECONDS;
    when the disk is full; at the next start

A pin keeps room that housekeeping would give back. So a full disk drops it: a backup can be made
again, and what clients publish comes first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ...common.errors import Code, KernelError
from ...common.ports import Disk
from ...log.journal import Journal
from .pinning import BEGIN_SECONDS, PIN_SECONDS, Pin, PinJob, files_of, unpin


@dataclass(slots=True)
class Pinning:
    """A job of housekeeping."""

    run: Callable[[], None]
    """Belongs to a thread."""
    done: Callable[[], None]
    failed: Callable[[], None]


class PinKeeper:
    """See the module's head. Belongs to one event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        disk: Disk,
        journal: Journal,
        poke: Callable[[], None],
    ) -> None:
        """`poke` has housekeeping ask for `next_job`."""
        self._loop = loop
        self._disk = disk
        self._journal = journal
        self._poke = poke
        self._wanted: asyncio.Future[Pin] | None = None
        self._wanted_until = 0.0
        self._making = False
        self._untidy = True
        """Something is pinned that nobody wants: of the last run, before all."""
        self._pin: Pin | None = None
        self._maker = ""
        """Of what is pinned, or wanted."""
        self._kept_until = 0.0
        self._made = 0

    @property
    def held(self) -> Pin | None:
        """What is pinned."""
        return self._pin

    async def pin(self, maker: str = "") -> Pin:
        """Pin what is on the disk at a moment from now on; the moment is when housekeeping begins.
        `maker`: a word of whoever asks, who makes one at a time: what it had pinned before goes.
        Empty: nobody's.

        Raises KernelError: IN_USE (there is a pin); BUSY (it could not begin in time); UNAVAILABLE
        (the links could not be made: no room, no hard links on that file system).
        """
        if self._pin is not None and maker and self._maker == maker:
            self.drop(self._pin.number)
        if self._wanted is not None or self._pin is not None:
            raise KernelError(Code.IN_USE, "a backup is being made: one at a time")
        self._maker = maker
        self._wanted = self._loop.create_future()
        self._wanted_until = self._loop.time() + BEGIN_SECONDS
        timer = self._loop.call_at(self._wanted_until, self._give_up)
        self._poke()
        try:
            return await self._wanted
        finally:
            timer.cancel()
            if not self._making:
                self._wanted = None

    def touch(self, number: int) -> Pin:
        """Ask for a pin, so that it stays. Raises KernelError NOT_FOUND: it was dropped."""
        if self._pin is None or self._pin.number != number:
            raise KernelError(Code.NOT_FOUND, f"pin {number} was dropped")
        self._kept_until = self._loop.time() + PIN_SECONDS
        return self._pin

    def drop(self, number: int) -> None:
        """Let go of a pin; nothing if it was dropped before."""
        if self._pin is not None and self._pin.number == number:
            self._pin = None
            self._untidy = True
            self._poke()

    def look(self, *, full: bool) -> None:
        """Once a second: drop what nobody asks for any more, or what the disk has no room for."""
        if self._pin is not None and (full or self._loop.time() >= self._kept_until):
            self.drop(self._pin.number)

    def next_job(self) -> Pinning | None:
        """What is to be done now, None if nothing is. No other job runs meanwhile."""
        if self._wanted is not None and not self._wanted.done() and not self._making:
            return self._begin(self._wanted)
        if self._untidy:
            self._untidy = False
            return Pinning(lambda: unpin(self._disk), _nothing, self._not_tidied)
        return None

    def _begin(self, wanted: asyncio.Future[Pin]) -> Pinning:
        prefix = self._journal.prefix()
        job = PinJob(self._disk, files_of(prefix), prefix.checkpoint)
        self._making = True
        self._untidy = False

        def ended() -> None:
            self._making = False
            self._wanted = None

        def done() -> None:
            ended()
            self._made += 1
            self._pin = Pin(self._made, prefix, job.files)
            self._kept_until = self._loop.time() + PIN_SECONDS
            if wanted.done():  # whoever asked has gone
                self.drop(self._made)
            else:
                wanted.set_result(self._pin)

        def failed() -> None:
            ended()
            self._untidy = True
            if not wanted.done():
                text = f"the files could not be pinned: {job.error}"
                wanted.set_exception(KernelError(Code.UNAVAILABLE, text))

        return Pinning(job.run, done, failed)

    def _not_tidied(self) -> None:
        self._untidy = True

    def _give_up(self) -> None:
        if self._wanted is not None and not self._wanted.done() and not self._making:
            text = f"housekeeping was busy for {BEGIN_SECONDS:g} s: nothing was pinned"
            self._wanted.set_exception(KernelError(Code.BUSY, text))


def _nothing() -> None:
    """What was pinned is gone: nobody waits for that."""
