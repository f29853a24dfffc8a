"""Long work in slices."""

from __future__ import annotations

import asyncio
import time

import uvloop

from gateway.process.slices import Slice


def test_a_slice_ends_within_one_turn_of_the_loop() -> None:
    async def work() -> tuple[bool, bool, bool]:
        piece = Slice(5.0)
        first = piece.is_over
        piece = Slice(0.005)
        ends = time.perf_counter() + 0.006
        while time.perf_counter() < ends:
            pass
        second = piece.is_over
        piece = Slice(5.0)
        piece.renew()
        return first, second, piece.is_over

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(work()) == (False, True, False)
