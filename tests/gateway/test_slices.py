"""Long work in slices."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
import uvloop

from gateway.process import slices
from gateway.process.slices import Slice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

STEPS = 5
"""Of something that others do: each asks for one more turn of the loop."""

STEP_S = 0.001
"""A hundred times what a turn takes that brings nothing."""


def run(work: Awaitable[None]) -> None:
    """On the loop that a node runs on."""

    async def waiting() -> None:
        await work

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(waiting())


def spend(seconds: float) -> None:
    """Keep the loop for so long."""
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        pass


class Others:
    """Who does something in each of so many turns, one after the other."""

    def __init__(self, steps: float) -> None:
        self.done = 0
        self._steps = steps
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._step)

    def _step(self) -> None:
        spend(STEP_S)
        self.done += 1
        if self.done < self._steps:
            self._loop.call_soon(self._step)


def test_a_slice_ends_within_one_turn_of_the_loop() -> None:
    async def work() -> None:
        piece = Slice(5.0)
        assert not piece.is_over
        piece = Slice(0.005)
        spend(0.006)
        assert piece.is_over

    run(work())


def test_a_pause_lasts_until_others_have_nothing_left_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All turns that a publish takes until it waits for the disk, not only the first."""
    monkeypatch.setattr(slices, "PAUSE_S", 60.0)
    monkeypatch.setattr(slices, "SLICE_S", 60.0)

    async def work() -> None:
        piece = Slice(0.0)
        others = Others(STEPS)
        await piece.pause()
        assert others.done == STEPS
        assert not piece.is_over

    run(work())


def test_on_a_busy_loop_a_pause_ends_and_the_slice_behind_it_is_half_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "PAUSE_S", 0.5)
    monkeypatch.setattr(slices, "SLICE_S_MAX", 60.0)

    async def work() -> None:
        piece = Slice()
        others = Others(float("inf"))
        began = time.perf_counter()
        await piece.pause()
        assert time.perf_counter() - began >= 0.5
        assert others.done > 1
        assert not piece.is_over
        spend(2 * (time.perf_counter() - began))
        assert piece.is_over

    run(work())


def test_a_slice_is_short_however_long_others_took(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        piece = Slice()
        asyncio.get_running_loop().call_soon(spend, 0.5)
        await piece.pause()
        spend(slices.SLICE_S_MAX)
        assert piece.is_over

    run(work())


def test_a_pause_stands_before_another_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many long works there are, others meet one slice in a turn."""
    monkeypatch.setattr(slices, "NOTHING_S", 0.0)
    monkeypatch.setattr(slices, "PAUSE_S", 0.002)
    ended: list[float] = []
    begun: list[float] = []

    async def long() -> None:
        piece = Slice()
        for _ in range(5):
            await piece.pause()
            begun.append(time.perf_counter())
            spend(0.001)
            ended.append(time.perf_counter())

    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(long())

    run(work())
    assert len(begun) == 15
    for before, at in zip(ended, begun[1:], strict=False):
        assert at - before >= 0.002


def test_who_is_cancelled_in_a_pause_keeps_nobody_from_pausing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "NOTHING_S", 0.0)
    monkeypatch.setattr(slices, "PAUSE_S", 60.0)

    async def work() -> None:
        pausing = [asyncio.ensure_future(Slice().pause()) for _ in range(2)]
        for _ in range(10):
            await asyncio.sleep(0)
        for each in pausing:
            each.cancel()
        monkeypatch.setattr(slices, "PAUSE_S", 0.0)
        await Slice().pause()

    run(work())


class SlowDisk:
    """Writes until it is told that it has."""

    def __init__(self) -> None:
        self.is_writing = True
        self.waiting: list[Callable[[], None]] = []

    def when_written(self, action: Callable[[], None]) -> None:
        self.waiting.append(action)

    def has_written(self, *, goes_on: bool) -> None:
        self.is_writing = goes_on
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each()


def test_a_pause_lasts_until_the_disk_has_written_and_that_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "DISK_S", 60.0)
    monkeypatch.setattr(slices, "PAUSE_S", 60.0)

    async def work() -> None:
        disk = SlowDisk()
        slices.give_way_to(disk)
        paused = asyncio.ensure_future(Slice(0.0).pause())
        for goes_on in (True, False):
            await asyncio.sleep(0.02)
            assert not paused.done()
            disk.has_written(goes_on=goes_on)
        others = Others(STEPS)
        await paused
        assert others.done == STEPS

    run(work())


def test_a_pause_does_not_wait_for_ever_for_a_disk() -> None:
    async def work() -> None:
        disk = SlowDisk()
        slices.give_way_to(disk)
        began = time.perf_counter()
        for _ in range(10):
            await Slice(0.0).pause()
        assert time.perf_counter() - began >= 10 * slices.DISK_S
        assert len(disk.waiting) == 1, "what stands still is to tell once, not of each pause"

    run(work())
