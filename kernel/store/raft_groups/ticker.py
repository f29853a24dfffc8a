"""Raft's time: ticks of the event loop, made up for when the process was held up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...common.ports import Clock


class Ticker:
    """Calls `tick(elapsed)` every `tick_ms`; `elapsed` is more than 1 after a pause."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        tick_ms: int,
        tick: Callable[[int], None],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._tick_ms = tick_ms
        self._tick = tick
        self._due_ms = 0
        self._handle: asyncio.TimerHandle | None = None

    def run(self, *, wanted: bool) -> None:
        """Tick from now on, or no more."""
        if wanted and self._handle is None:
            self._due_ms = self._clock.monotonic_ms() + self._tick_ms
            self._handle = self._loop.call_later(self._tick_ms / 1000, self._fire)
        elif not wanted:
            self.stop()

    def stop(self) -> None:
        """Tick no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        now = self._clock.monotonic_ms()
        elapsed = 1 + max(0, now - self._due_ms) // self._tick_ms
        self._due_ms += elapsed * self._tick_ms
        self._handle = self._loop.call_later(max(0, self._due_ms - now) / 1000, self._fire)
        self._tick(elapsed)
