"""An event loop whose time is a number: when nothing is ready it jumps to the next timer.

Two simulated seconds of a stalled disk, forty days of a delay and a lease of thirty seconds then
cost a test nothing, and no test depends on how fast the machine is. Real sockets, threads and
subprocesses do not belong on this loop: nothing outside ever wakes it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from heapq import heapify, heappop, heappush
from typing import Any

WALL_START_MS = 1_764_000_000_000
"""Wall clock of a world at its start (24 November 2025): a fixed date, so that runs are equal."""

_ROUNDING_MS = 1e-3
"""Timers are floats: one that is due at 5 ms must not read as 4.999."""


TURNS_MAX = 200_000
"""Turns of the loop without any time passing: a program that needs more is going in a circle."""


CANCELLED_MAX = 1_000
"""So many cancelled timers, and more than half of all, are taken out before they are due."""


class Stuck(Exception):
    """The program would wait, or go in a circle, for ever."""


class _Call:
    """`asyncio.TimerHandle`, and `asyncio.Handle`, of a call that the loop owes."""

    __slots__ = ("_loop", "args", "callback", "context", "due")

    def __init__(
        self,
        loop: VirtualLoop,
        due: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        context: Context | None,
    ) -> None:
        self._loop = loop
        self.due = due
        self.callback: Callable[..., object] | None = callback
        """None: it was cancelled."""
        self.args = args
        self.context = context

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback, self.args = None, ()
            self._loop.cancelled += 1

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.due


class VirtualLoop(asyncio.AbstractEventLoop):
    """See the module's head. What callbacks raise is kept in `errors`, for the test to fail on.

    asyncio's own loop in all that tests here ask of one, but for the price: that one spends a sixth
    of a simulation on its handles, the comparison of timers and questions to the system. Timers of
    the same time are called in the order in which they were made. A callback has the context it was
    given (as those of tasks and futures are), and else none of its own: nothing here has any.
    """

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.cancelled = 0
        """Timers, and calls, that were cancelled since cancelled ones were taken out last."""
        self._now = 0.0
        self._made = 0
        self._ready: deque[_Call] = deque()
        self._timers: list[tuple[float, int, _Call]] = []
        self._turns = 0
        """Without any time passing."""
        self._quiescent: list[asyncio.Future[None]] = []
        self._interrupted: BaseException | None = None
        self._running = self._stopping = self._closed = False

    # --- asyncio.AbstractEventLoop ----------

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]  # a handle in all but its base
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Call:
        call = _Call(self, self._now, callback, args, context)
        self._ready.append(call)
        return call

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Call:
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _Call:
        call = _Call(self, when, callback, args, context)
        self._made += 1
        heappush(self._timers, (when, self._made, call))
        return call

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _Call:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def add_reader(self, fd: object, callback: Callable[..., object], *args: Any) -> None:
        """Nobody connects to who listens here: what a script sends comes without a socket."""

    def remove_reader(self, fd: object) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def stop(self) -> None:
        self._stopping = True

    def close(self) -> None:
        assert not self._running
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    def call_exception_handler(self, context: Mapping[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, Exception):
            # The test runner's own (a time limit): a loop hands it to us, but it is not ours.
            self._interrupted = error
        self.errors.append(error if error is not None else RuntimeError(str(context["message"])))

    def run_until_complete(self, future: Any) -> Any:
        assert not self._running
        assert not self._closed
        begun = asyncio.ensure_future(future, loop=self)
        begun.add_done_callback(self._completed)
        self._running = True
        asyncio._set_running_loop(self)
        try:
            while not self._stopping:
                self._turn()
        except BaseException:
            if begun.done() and not begun.cancelled():
                begun.exception()  # heard: nobody else will ask
            raise
        finally:
            asyncio._set_running_loop(None)
            self._running = self._stopping = False
            begun.remove_done_callback(self._completed)
        return begun.result()

    def _completed(self, _done: asyncio.Future[Any]) -> None:
        self._stopping = True

    # --- Turns ----------

    def _turn(self) -> None:
        """Let time pass if nothing else is to be done, then make the calls that are due."""
        if self._interrupted is not None:
            raise self._interrupted
        ready, timers = self._ready, self._timers
        if self.cancelled > CANCELLED_MAX and self.cancelled > len(timers) // 2:
            timers[:] = [each for each in timers if each[2].callback is not None]
            heapify(timers)
            self.cancelled = 0
        while timers and timers[0][2].callback is None:
            heappop(timers)
        if ready or (timers and timers[0][0] <= self._now):
            self._turns += 1
        elif self._quiescent:  # nothing is ready: no time passes, they go on
            while self._quiescent:
                future = self._quiescent.pop()
                if not future.done():
                    future.set_result(None)
        elif timers:
            self._now, self._turns = timers[0][0], 0
        else:
            raise Stuck("nothing is scheduled: this would wait for ever")
        if self._turns > TURNS_MAX:
            raise Stuck("no time has passed for TURNS_MAX turns")
        now = self._now
        while timers and timers[0][0] <= now:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            call = ready.popleft()
            callback = call.callback
            if callback is None:
                continue
            try:
                if call.context is None:
                    callback(*call.args)
                else:
                    call.context.run(callback, *call.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - as asyncio's loop does
                self.call_exception_handler({"message": str(error), "exception": error})

    # --- Of simulations ----------

    async def rested(self) -> None:
        """Return once nothing is left to do before time passes (Trio: `wait_all_tasks_blocked`)."""
        future = self.create_future()
        self._quiescent.append(future)
        await future

    @property
    def timers_left(self) -> int:
        """Timers that are neither called nor cancelled."""
        return sum(not each[2].cancelled() for each in self._timers)

    def go_on(self) -> None:
        """Forget what stopped the loop: its tasks are to be cancelled."""
        self._interrupted = None
        self._turns = 0


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
