"""An event loop whose time is a number: when nothing is ready it jumps to the next timer.

Two simulated seconds of a stalled disk, forty days of a delay and a lease of thirty seconds then
cost a test nothing, and no test depends on how fast the machine is. Real sockets, threads and
subprocesses do not belong on this loop: nothing outside ever wakes it.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Mapping
from typing import Any

WALL_START_MS = 1_764_000_000_000
"""Wall clock of a world at its start (24 November 2025): a fixed date, so that runs are equal."""

_ROUNDING_MS = 1e-3
"""Timers are floats: one that is due at 5 ms must not read as 4.999."""


TURNS_MAX = 200_000
"""Turns of the loop without any time passing: a program that needs more is going in a circle."""


class Stuck(Exception):
    """The program would wait, or go in a circle, for ever."""


class _Jumping(selectors.DefaultSelector):
    """A selector that never blocks: waiting moves the loop's time. It does not even ask the system,
    which would take a fourteenth of a simulation: nothing outside has anything to say.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.interrupted: BaseException | None = None
        self.turns = 0
        self.quiescent: list[asyncio.Future[None]] = []

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.interrupted is not None:
            raise self.interrupted
        if self.quiescent and timeout != 0:  # nothing is ready: no time passes, they go on
            while self.quiescent:
                future = self.quiescent.pop()
                if not future.done():
                    future.set_result(None)
            return []
        if timeout is None:
            raise Stuck("nothing is scheduled: this would wait for ever")
        self.turns = 0 if timeout else self.turns + 1
        if self.turns > TURNS_MAX:
            raise Stuck("no time has passed for TURNS_MAX turns")
        self.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module's head. What callbacks raise is kept in `errors`, for the test to fail on."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        self.errors: list[BaseException] = []
        super().__init__(self._jumping)
        self.set_exception_handler(self._keep)

    def time(self) -> float:
        return self._jumping.now

    async def rested(self) -> None:
        """Return once nothing is left to do before time passes (Trio: `wait_all_tasks_blocked`)."""
        future = self.create_future()
        self._jumping.quiescent.append(future)
        await future

    def go_on(self) -> None:
        """Forget what stopped the loop: its tasks are to be cancelled."""
        self._jumping.interrupted = None
        self._jumping.turns = 0

    def _keep(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, Exception):
            # The test runner's own (a time limit): a loop hands it to us, but it is not ours.
            self._jumping.interrupted = error
        self.errors.append(error if error is not None else RuntimeError(str(context["message"])))


class SimulatedClock:
    """`kernel.common.ports.Clock` of a virtual loop. A test may make the wall clock jump."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wall_start_ms: int = WALL_START_MS) -> None:
        self._loop = loop
        self._wall_start_ms = wall_start_ms
        self.wall_offset_ms = 0

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000 + _ROUNDING_MS)

    def wall_ms(self) -> int:
        return self._wall_start_ms + self.monotonic_ms() + self.wall_offset_ms
