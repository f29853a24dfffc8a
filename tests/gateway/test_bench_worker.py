"""A generator process's own clockwork."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator

import pytest

from benchmarks.load.stats import Histogram
from benchmarks.load.talk import Go
from benchmarks.load.worker import WindowMeter, Worker


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A coordinator that says nothing."""
    reader, writer = os.pipe()
    with os.fdopen(reader) as stdin, os.fdopen(writer, "w"):
        monkeypatch.setattr("sys.stdin", stdin)
        yield


async def done_by(go: Go) -> list[str]:
    """What a worker does, in turns of the loop, that hears of a run's times."""
    worker = Worker(lambda command: None, lambda: 0)
    turns: list[list[str]] = [[]]
    worker.run(
        go,
        lambda: turns[-1].append("start"),
        lambda _begins_ns: turns[-1].append("open"),
        lambda: turns[-1].append("stop"),
    )
    while sum(len(each) for each in turns) < 2 + bool(go.stop_ns):
        await asyncio.sleep(0)
        turns.append([])
    asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
    return [" ".join(each) for each in turns if each]


@pytest.mark.usefixtures("coordinator")
async def test_a_run_without_warmup_is_measured_whole_by_a_process_that_comes_late() -> None:
    past = time.monotonic_ns() - 1_000_000_000
    assert await done_by(Go(past, past, 0, whole=True)) == ["open start"]


@pytest.mark.usefixtures("coordinator")
async def test_consumers_that_start_before_the_producers_of_such_a_run_miss_nothing() -> None:
    now = time.monotonic_ns()
    assert await done_by(Go(now, now + 5_000_000_000, 0, whole=True)) == ["open start"]


def test_a_window_that_opens_early_begins_when_the_run_does() -> None:
    meter = WindowMeter()
    begins_ns = time.monotonic_ns() + 1_000_000_000
    meter.open(0, Histogram(), begins_ns)
    meter.close(10, begins_ns + 2_000)
    assert (meter.window().messages, meter.window().elapsed_ns) == (10, 2_000)


@pytest.mark.usefixtures("coordinator")
async def test_the_window_opens_after_the_warmup_and_closes_at_the_stop() -> None:
    now = time.monotonic_ns()
    times = Go(now, now + 5_000_000, now + 10_000_000, whole=False)
    first, *later = await done_by(times)
    # A turn of the loop may be longer than the window, on a machine that does other things.
    assert (first, " ".join(later)) == ("start", "open stop")
