"""A generator process, seen from inside: its commands, its reports, its measured window.

The coordinator writes one JSON object a line to the process's stdin and reads the same from its
stdout; the first line is the process's spec. When stdin ends, the coordinator is gone and so is the
process.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from benchmarks.load.errors import BenchError
from benchmarks.load.stats import Histogram
from benchmarks.load.talk import Command, Failed, Go, Progress, Report, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Spec = TypeVar("Spec")
PROGRESS_INTERVAL_S = 0.25
READ_BYTES = 65_536


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed, for the least CPU a message."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run_worker(
    decode: Callable[[bytes], Spec], run: Callable[[Spec], Coroutine[object, object, None]]
) -> int:
    """The whole of a worker's program: take the spec, run; the exit code."""
    spec = decode(sys.stdin.buffer.readline())
    # Ctrl-C reaches the whole process group: the coordinator cleans up and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The hot loops make no cycles, and a collection in the middle of a run is a false latency.
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(run(spec))
    except BenchError as error:
        sys.stdout.buffer.write(msgspec.json.encode(Failed(str(error))) + b"\n")
        return 1
    return 0


class WindowMeter:
    """Counts messages, CPU and latency between the two edges of the measured window."""

    def __init__(self) -> None:
        self.latency = Histogram()
        self._messages = 0
        self._started_ns = 0
        self._cpu_ns = 0
        self._closed: Window | None = None

    def open(self, messages: int, latency: Histogram, begins_ns: int) -> None:
        """The window begins, now or at `begins_ns` to come; `latency` is filled from now on."""
        self.latency = latency
        self._messages = messages
        self._started_ns = max(time.monotonic_ns(), begins_ns)
        self._cpu_ns = time.process_time_ns()

    def close(self, messages: int, ended_ns: int = 0) -> None:
        """The window ends, now or at `ended_ns`; later calls change nothing."""
        if self._closed is None:
            self._closed = Window(
                messages=messages - self._messages,
                elapsed_ns=(ended_ns or time.monotonic_ns()) - self._started_ns,
                cpu_ns=time.process_time_ns() - self._cpu_ns,
                latency=self.latency.to_pairs(),
                latency_max_ns=self.latency.max_ns,
            )

    def window(self) -> Window:
        assert self._closed is not None, "the window is read after it was closed"
        return self._closed


class Worker:
    """The pipe to the coordinator, on the running event loop."""

    def __init__(self, on_command: Callable[[Command], None], progress: Callable[[], int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_command = on_command
        self._progress = progress
        self._rest = b""
        self._ended = asyncio.Event()
        self._decoder = msgspec.json.Decoder(Command)
        self._loop.add_reader(sys.stdin.fileno(), self._read)
        self._loop.set_exception_handler(self._broken)

    def _read(self) -> None:
        data = os.read(sys.stdin.fileno(), READ_BYTES)
        if not data:
            self.end()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._on_command(self._decoder.decode(line))

    def report(self, message: Report) -> None:
        """Write one line; a coordinator that is gone ends the process."""
        try:
            sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            self.end()

    def _broken(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """An error that no callback caught is a bug of the tester: say so and stop."""
        error = context.get("exception")
        self.fail(f"the load tester itself failed: {error!r} ({context.get('message')})")

    def fail(self, reason: str) -> None:
        if not self._ended.is_set():
            self.report(Failed(reason))
            self.end()

    def end(self) -> None:
        self._ended.set()

    def at(self, when_ns: int, call: Callable[[], None]) -> None:
        """Call at a time of CLOCK_MONOTONIC (both loops have clocks of their own)."""
        self._loop.call_later(max(when_ns - time.monotonic_ns(), 0) / 1e9, call)

    def run(
        self,
        go: Go,
        start: Callable[[], None],
        open_window: Callable[[int], None],
        stop: Callable[[], None],
    ) -> None:
        """Do these at a run's times; `open_window` hears when the window begins."""

        def start_measured() -> None:
            open_window(go.measure_ns)
            start()

        if go.whole:
            self.at(go.start_ns, start_measured)
        else:
            self.at(go.start_ns, start)
            self.at(go.measure_ns, partial(open_window, go.measure_ns))
        if go.stop_ns:
            self.at(go.stop_ns, stop)

    async def wait_ended(self) -> None:
        """Report progress until `end`."""
        last = -1
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), PROGRESS_INTERVAL_S)
            messages = self._progress()
            if messages != last and not self._ended.is_set():
                self.report(Progress(messages))
                last = messages
        self._loop.remove_reader(sys.stdin.fileno())
