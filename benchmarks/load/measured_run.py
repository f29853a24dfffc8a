"""A run that generator processes make, from the coordinator's side: what two protocols share.

    ready       every process has connected
    go          consumers start, then producers; the warm-up
    window      the server is sampled at both edges of the measured part
    drain       producers await their answers, consumers the rest of the messages
    finish      late duplicates have had their time; consumers report

Every wait ends: by its event, by a process that gives up, or when nothing moved for
`drain_timeout_s`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import msgspec

from benchmarks.load import procfs
from benchmarks.load.errors import BenchError
from benchmarks.load.process import GeneratorProcess
from benchmarks.load.talk import ConsumerResult, Finish, Go, ProducerResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

CONNECT_TIMEOUT_S = 60.0  # 1,000 channels on a busy machine
CONSUMER_LEAD_NS = 200_000_000  # consumers are there before the first publish
START_LEAD_NS = 300_000_000  # every process has read its Go before the start
POLL_S = 0.02
SETTLE_S = 0.3  # after the last expected message, for duplicates to show themselves
METRICS_TIMEOUT_S = 5.0
METRIC_FDATASYNCS = "weir_store_fdatasyncs_total"


class RunOptions(Protocol):
    """What the phases ask of a load's options."""

    @property
    def pids(self) -> list[int]:
        """The server's processes; none: they are not measured."""

    @property
    def metrics_url(self) -> str:
        """Where the server counts its fdatasyncs; empty: nowhere."""

    @property
    def duration_s(self) -> float:
        """Length of the measured window, unless the run ends with its last message."""

    @property
    def lead_s(self) -> float:
        """From the start to the measured window."""

    @property
    def by_messages(self) -> bool:
        """The run ends with its last message; else at its time."""

    @property
    def drain_timeout_s(self) -> float:
        """Without anything moving, the end of every wait for messages."""


@dataclass(frozen=True, slots=True)
class ServerSample:
    """What the server, and the machine, had used at one moment."""

    at_ns: int
    cpu_s: float
    busy_s: float  # of the whole machine
    fdatasyncs: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What came out of a run."""

    producers: list[ProducerResult]
    consumers: list[ConsumerResult]
    before: ServerSample
    after: ServerSample
    resident_bytes: int


def read_fdatasyncs(metrics_url: str) -> int:
    """The server's own count of fdatasyncs; -1 without a metrics URL or such a counter."""
    if not metrics_url:
        return -1
    parts = urlsplit(metrics_url)
    if parts.scheme != "http" or not parts.hostname:
        raise BenchError(f"{metrics_url!r} is not an http:// URL")
    connection = HTTPConnection(parts.hostname, parts.port, timeout=METRICS_TIMEOUT_S)
    try:
        connection.request("GET", parts.path or "/metrics")
        text = connection.getresponse().read().decode(errors="replace")
    except (HTTPException, OSError) as error:
        raise BenchError(f"cannot read {metrics_url}: {error}") from None
    finally:
        connection.close()
    counts = [
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith(METRIC_FDATASYNCS)
    ]
    return int(sum(counts)) if counts else -1


def sample(options: RunOptions) -> ServerSample:
    """What the server has used by now. Raises BenchError for a pid that is none."""
    try:
        cpu_s = procfs.cpu_s(options.pids) if options.pids else 0.0
    except procfs.ProcessGone as error:
        raise BenchError(f"--pid: {error}") from None
    fdatasyncs = read_fdatasyncs(options.metrics_url)
    return ServerSample(time.monotonic_ns(), cpu_s, procfs.busy_s(), fdatasyncs)


def shares(count: int, parts: int) -> list[list[int]]:
    """0..count-1 dealt out to at most `parts` non-empty hands."""
    return [list(range(part, count, parts)) for part in range(min(parts, count))]


@contextlib.asynccontextmanager
async def generators(
    module: str, specs: Sequence[msgspec.Struct]
) -> AsyncIterator[list[GeneratorProcess]]:
    """A process of a worker module for each spec, which all end with the block."""
    started: list[GeneratorProcess] = []
    try:
        for spec in specs:
            child = await GeneratorProcess.start(module, spec)
            started.append(child)
        yield started
    finally:
        for child in started:
            await child.end()


class MeasuredRun(ABC):
    """The phases of one run, over processes that have been started."""

    def __init__(
        self,
        options: RunOptions,
        producers: list[GeneratorProcess],
        consumers: list[GeneratorProcess],
    ) -> None:
        self._options = options
        self._producers = producers
        self._consumers = consumers

    @abstractmethod
    def expected(self, produced: list[ProducerResult]) -> int:
        """How many deliveries there should be in all, by what the producers report."""

    async def measure(self) -> Measured:
        """All phases. Raises BenchError when they cannot be carried through."""
        children = self._producers + self._consumers
        try:
            async with asyncio.TaskGroup() as group:
                for child in children:
                    group.create_task(child.listen())
                await _until(children, lambda child: child.ready, "has connected")
                before, after = await self._window(self._go())
                resident_bytes = procfs.resident_bytes(self._options.pids)
                await self._finish()
        except* BenchError as failures:
            raise BenchError(str(failures.exceptions[0])) from None
        results = [child.result for child in self._consumers]
        return Measured(
            producers=self._produced(),
            consumers=[each for each in results if isinstance(each, ConsumerResult)],
            before=before,
            after=after,
            resident_bytes=resident_bytes,
        )

    def _produced(self) -> list[ProducerResult]:
        results = [child.result for child in self._producers]
        return [each for each in results if isinstance(each, ProducerResult)]

    def _go(self) -> Go:
        """Start everything; return the producers' times (the consumers' when alone)."""
        options = self._options
        start = time.monotonic_ns() + START_LEAD_NS
        measure = start + int(options.lead_s * 1e9)
        stop = 0 if options.by_messages else measure + int(options.duration_s * 1e9)
        go = Go(start, measure, stop, whole=not options.lead_s)
        for child in self._producers:
            child.send(go)
        lead = CONSUMER_LEAD_NS if self._producers else 0
        for child in self._consumers:
            child.send(msgspec.structs.replace(go, start_ns=start - lead))
        return go

    async def _window(self, times: Go) -> tuple[ServerSample, ServerSample]:
        """Sample the server at both edges of the measured window."""
        await _sleep_until(times.measure_ns)
        before = await asyncio.to_thread(sample, self._options)
        if times.stop_ns:
            await _sleep_until(times.stop_ns)
            after = await asyncio.to_thread(sample, self._options)
            await self._drain()
        else:
            await self._drain()
            after = await asyncio.to_thread(sample, self._options)
        return before, after

    async def _drain(self) -> None:
        """Await every answer, then every message."""
        if self._producers:
            await self._still(self._producers, None)
            await _results(self._producers)
        if self._consumers:
            await self._still(self._consumers, self.expected(self._produced()))

    async def _still(self, children: list[GeneratorProcess], expected: int | None) -> None:
        """Until all have results, or `expected` messages came, or nothing moves any more."""
        seen, moved = -1, time.monotonic()
        while time.monotonic() - moved < self._options.drain_timeout_s:
            messages = sum(child.messages for child in children)
            if messages != seen:
                seen, moved = messages, time.monotonic()
            if expected is None and all(child.result is not None for child in children):
                return
            if expected is not None and messages >= expected:
                return
            await asyncio.sleep(POLL_S)

    async def _finish(self) -> None:
        """Let late duplicates arrive, then take the consumers' results."""
        if self._consumers:
            await asyncio.sleep(SETTLE_S)
            await _results(self._consumers)


async def _results(children: list[GeneratorProcess]) -> None:
    for child in children:
        child.send(Finish())
    await _until(children, lambda child: child.result is not None, "has reported")


async def _until(
    children: list[GeneratorProcess], done: Callable[[GeneratorProcess], bool], what: str
) -> None:
    """Until `done` holds for each. Raises BenchError after CONNECT_TIMEOUT_S."""
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    while not all(map(done, children)):
        if time.monotonic() > deadline:
            raise BenchError(f"not every generator process {what} in {CONNECT_TIMEOUT_S:.0f} s")
        await asyncio.sleep(POLL_S)


async def _sleep_until(when_ns: int) -> None:
    await asyncio.sleep(max(when_ns - time.monotonic_ns(), 0) / 1e9)
