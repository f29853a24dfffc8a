"""Which pin there is: one at a time, for as long as somebody asks for it.

    pin() -> waits for housekeeping, BEGIN_SECONDS at most -> is made -> held -> dropped: by whoever
    made it, or for the next one of the same maker; once nobody has asked for it for PIN_SECONDS
    (CUT_SECONDS if it belongs to a cut); when the disk is full; at the next start

    prepare(cut) -> the same wait -> housekeeping rests, READY_SECONDS at most -> take(cut): this is
    the moment, which all stores of a cluster have while they hold -> is made -> keep(cut) -> held

A pin keeps room that housekeeping would give back. So a full disk drops it: a backup can be made
again, and what clients publish comes first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ...common.errors import Code, KernelError
from ...common.ports import Disk
from ...log.journal import Journal, JournalPrefix
from .pinning import (
    BEGIN_SECONDS,
    CUT_SECONDS,
    PIN_SECONDS,
    READY_SECONDS,
    UNUSED_SECONDS,
    Pin,
    PinJob,
    files_of,
    unpin,
)


@dataclass(slots=True)
class Pinning:
    """A job of housekeeping."""

    run: Callable[[], None]
    """Belongs to a thread."""
    done: Callable[[], None]
    failed: Callable[[], None]


class _Cut:
    """A pin that belongs to a cut of the cluster."""

    def __init__(self, number: int, ready: asyncio.Future[None]) -> None:
        self.number = number
        self.ready = ready
        """Housekeeping rests."""
        self.prefix: JournalPrefix | None = None
        """Of the moment."""
        self.lapses: asyncio.TimerHandle | None = None


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
        self._asked_at = 0.0
        """When somebody asked for what is pinned."""
        self._made = 0
        self._cut: _Cut | None = None
        """Of which the pin is wanted."""
        self.beside: tuple[str, ...] = ()
        """See `files_of`."""

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
        self._check_free()
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

    # --- The cut of a cluster ------------------------------------------------------------------

    async def prepare(self, cut: int) -> None:
        """Return once housekeeping rests for `take`. What an earlier cut has pinned goes, unless
        somebody copies it. Raises KernelError: IN_USE (there is a pin); BUSY (it could not begin
        in time).
        """
        pin = self._pin
        if pin is not None and pin.cut and self._loop.time() >= self._asked_at + UNUSED_SECONDS:
            self.drop(pin.number)
        self._check_free()
        self._maker = ""
        self._wanted = self._loop.create_future()
        self._wanted.add_done_callback(_heard)
        self._cut = made = _Cut(cut, self._loop.create_future())
        made.lapses = self._loop.call_later(BEGIN_SECONDS, self._lapse, made)
        self._poke()
        await made.ready

    def waits_for_cut(self) -> bool:
        """Whether housekeeping is to begin nothing now: it was waited for, and waits in its turn
        for the moment of a cut. Asked by housekeeping while no job runs.
        """
        cut = self._cut
        if cut is None or cut.prefix is not None:
            return False
        if not cut.ready.done():
            cut.ready.set_result(None)
            if cut.lapses is not None:
                cut.lapses.cancel()
            cut.lapses = self._loop.call_later(READY_SECONDS, self._lapse, cut)
        return True

    def take(self, cut: int) -> None:
        """Now is the moment: what is on the disk, of which no file has gone since `prepare`.
        The links are made next. Raises KernelError NOT_FOUND: nothing is ready for that cut.
        """
        made = self._cut
        if made is None or made.number != cut or not made.ready.done() or made.prefix is not None:
            raise KernelError(Code.NOT_FOUND, f"nothing is ready for cut {cut:016x}")
        if made.lapses is not None:
            made.lapses.cancel()
        made.prefix = self._journal.prefix()
        self._poke()

    async def keep(self, cut: int) -> Pin:
        """The pin of a cut, once it is made. Raises KernelError: NOT_FOUND (there is none of that
        number); UNAVAILABLE (the links could not be made).
        """
        made, wanted = self._cut, self._wanted
        if made is not None and made.number == cut and wanted is not None:
            return await asyncio.shield(wanted)
        if self._pin is None or self._pin.cut != cut:
            raise KernelError(Code.NOT_FOUND, f"nothing is pinned of cut {cut:016x}, or not now")
        return self.touch(self._pin.number)

    def drop_cut(self, cut: int) -> None:
        """The cut does not count: let go of what was, or is to be, pinned for it."""
        if self._pin is not None and self._pin.cut == cut:
            self.drop(self._pin.number)
        elif self._cut is not None and self._cut.number == cut:
            self._lapse(self._cut)

    def _lapse(self, cut: _Cut) -> None:
        """The moment has not come in time, or nobody wants it any more."""
        if self._cut is not cut:
            return
        if cut.lapses is not None:
            cut.lapses.cancel()
        wanted = self._wanted
        if not cut.ready.done():
            text = f"housekeeping was busy for {BEGIN_SECONDS:g} s: nothing was pinned"
            cut.ready.set_exception(KernelError(Code.BUSY, text))
        if wanted is not None and not wanted.done():
            # A job that is under way sees it when it is done, and drops the pin.
            text = f"cut {cut.number:016x} was given up"
            wanted.set_exception(KernelError(Code.NOT_FOUND, text))
        if not self._making:
            self._cut = self._wanted = None
        self._poke()

    # --- What is pinned ------------------------------------------------------------------------

    def _check_free(self) -> None:
        if self._wanted is not None or self._pin is not None:
            raise KernelError(Code.IN_USE, "a backup is being made: one at a time")

    def touch(self, number: int) -> Pin:
        """Ask for a pin, so that it stays. Raises KernelError NOT_FOUND: it was dropped."""
        if self._pin is None or self._pin.number != number:
            raise KernelError(Code.NOT_FOUND, f"pin {number} was dropped")
        self._asked_at = self._loop.time()
        return self._pin

    def drop(self, number: int) -> None:
        """Let go of a pin; nothing if it was dropped before."""
        if self._pin is not None and self._pin.number == number:
            self._pin = None
            self._untidy = True
            self._poke()

    def look(self, *, full: bool) -> None:
        """Once a second: drop what nobody asks for any more, or what the disk has no room for."""
        if self._pin is None:
            return
        seconds = CUT_SECONDS if self._pin.cut else PIN_SECONDS
        if full or self._loop.time() >= self._asked_at + seconds:
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
        cut = self._cut
        taken = cut.prefix if cut is not None else None
        prefix = self._journal.prefix() if taken is None else taken
        job = PinJob(self._disk, files_of(prefix, self.beside), prefix.checkpoint)
        self._making = True
        self._untidy = False

        def ended() -> None:
            self._making = False
            self._cut = self._wanted = None

        def done() -> None:
            ended()
            self._made += 1
            self._pin = Pin(self._made, prefix, job.files, cut.number if cut is not None else 0)
            self._asked_at = self._loop.time()
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


def _heard(wanted: asyncio.Future[Pin]) -> None:
    """Nobody may wait for it any more: its error is no surprise then."""
    if not wanted.cancelled():
        wanted.exception()


def _nothing() -> None:
    """What was pinned is gone: nobody waits for that."""
