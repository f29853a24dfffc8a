"""Moves time and bytes between the meter, the collector and the log. It decides nothing.

Two tasks: one closes windows on time, also while the log does not answer; the other sends
flushes, one at a time, and waits longer after each that was not acknowledged.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metering.collector import Collector, Flush, State
from metering.counters import Meter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from metering.schema import FlushId
    from metering.window import Window

# Without an answer for so long the outcome counts as unknown and the flush is sent again.
FLUSH_TIMEOUT_S = 5.0

# Wait before sending again: doubled from the first to the last.
RETRY_WAIT_MIN_S = 0.1
RETRY_WAIT_MAX_S = 5.0


async def _nothing_more(_start_us: int, _end_us: int) -> Iterable[Window]:
    return ()


class FlushFenced(Exception):
    """The log refused the flush: a higher epoch of this node is registered."""


class FlushUnavailable(Exception):
    """No acknowledgement now; the log may or may not have taken it."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What the driver needs from outside.

    clock_us   wall time, microseconds since 1970 UTC
    sleep      waits for so many seconds
    register   the epoch the store grants this node; raises FlushUnavailable to be asked again
    flush      appends a body to `__metering` under its identity and returns once it is committed
               (the topic's own durability); raises FlushFenced or FlushUnavailable
    gather     counts into the meter what others have counted for it (the transient topics); called
               before a window closes
    more       windows of other meters (the store's) for the span [start, end); may be empty, and
               take some time
    """

    clock_us: Callable[[], int]
    sleep: Callable[[float], Awaitable[None]]
    register: Callable[[], Awaitable[int]]
    flush: Callable[[bytes, FlushId], Awaitable[None]]
    gather: Callable[[], None] = lambda: None
    more: Callable[[int, int], Awaitable[Iterable[Window]]] = _nothing_more


class MeteringDriver:
    """Run `run` as a task for as long as the node lives; after cancelling it, await `drain`."""

    def __init__(self, meter: Meter, collector: Collector, ports: Ports) -> None:
        self._meter = meter
        self._collector = collector
        self._ports = ports
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._retry_wait_s = RETRY_WAIT_MIN_S

    async def run(self) -> None:
        """Close windows and send flushes until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._close_windows())
            group.create_task(self._send_flushes())

    async def drain(self, timeout_s: float) -> bool:
        """Close the open window and send everything; False if that took longer than timeout_s.

        Only after `run` has ended. What is left then is lost with the process, in the customer's
        favour; `Collector.statistics` tells how much.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._close_early()
                while not self._collector.drained():
                    await self._send_one()
        except TimeoutError:
            return False
        return True

    async def flush_now(self, timeout_s: float) -> bool:
        """Close the open window and return once everything is in the log; False if that took
        longer than timeout_s. While `run` runs.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._close_early()
                if self._collector.drained():
                    return True
                self._idle.clear()
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _close_early(self) -> None:
        self._ports.gather()
        start_us, now_us = self._meter.window_start_us(), self._ports.clock_us()
        end_us = start_us + self._meter.window_us
        await self._offer(self._meter.close(now_us), start_us, end_us)

    async def _close_windows(self) -> None:
        while True:
            window_us = self._meter.window_us
            wait_us = self._meter.window_start_us() + window_us - self._ports.clock_us()
            # At least a millisecond: a clock that stands still must not turn this into a spin.
            await self._ports.sleep(max(wait_us, 1_000) / 1e6)
            now_us, start_us = self._ports.clock_us(), self._meter.window_start_us()
            if not start_us <= now_us < start_us + window_us:
                self._ports.gather()
                await self._offer(self._meter.roll(now_us), start_us, start_us + window_us)

    async def _send_flushes(self) -> None:
        while True:
            if self._collector.drained():
                self._idle.set()
                self._work.clear()
                await self._work.wait()
            await self._send_one()

    async def _send_one(self) -> None:
        """One registration or one flush, with the wait that a failure asks for."""
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                if self._collector.state is State.UNREGISTERED:
                    self._collector.registered(await self._ports.register())
                flush = self._collector.next_flush(self._ports.clock_us())
                if flush is not None:
                    await self._flush(flush)
        except (FlushUnavailable, FlushFenced, TimeoutError):
            await self._ports.sleep(self._retry_wait_s)
            self._retry_wait_s = min(2 * self._retry_wait_s, RETRY_WAIT_MAX_S)
        else:
            self._retry_wait_s = RETRY_WAIT_MIN_S

    async def _flush(self, flush: Flush) -> None:
        try:
            await self._ports.flush(flush.body, flush.flush_id)
        except FlushFenced:
            self._collector.fenced()
            raise
        except BaseException:
            # Cancelled, timed out or failed: the log may have it. Sent again, it is dropped there.
            self._collector.outcome_unknown()
            raise
        self._collector.acknowledged(flush.flush_id)

    async def _offer(self, window: Window | None, start_us: int, end_us: int) -> None:
        if window is not None:
            self._collector.offer(window)
        for more in await self._ports.more(start_us, end_us):
            self._collector.offer(more)
        self._work.set()
