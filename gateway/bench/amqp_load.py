"""The coordinator of `weir bench amqp`: set up, start the processes, wait, judge, clean up.

    set up      declare PREFIX-0000 ... (fresh unless only consuming) and the fanout exchange
    ready       every generator process has connected
    go          consumers start, then producers; the warm-up, the measured window
    drain       producers await their confirms, consumers the rest of the messages
    judge       loss, duplicates and order over all that was ever sent (verify)
    clean up    delete what was declared, unless the messages were to stay

Every wait ends: by its event, by a process that gives up, or when nothing moved for
`drain_timeout_s`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gateway.bench import procfs
from gateway.bench.amqp_plan import LoadOptions, Mode, consumer_specs, producer_specs
from gateway.bench.amqp_queues import clean_up, queue_depths, set_up
from gateway.bench.amqp_spec import ConsumerResult, Finish, Go, ProducerResult
from gateway.bench.amqp_wire import AmqpUrl, BenchError, parse_url
from gateway.bench.process import GeneratorProcess

if TYPE_CHECKING:
    from gateway.bench.amqp_client import Identity

CONNECT_TIMEOUT_S = 60.0  # 1,000 channels on a busy machine
CONSUMER_LEAD_NS = 200_000_000  # consumers are there before the first publish
START_LEAD_NS = 300_000_000  # every process has read its Go before the start
POLL_S = 0.02
SETTLE_S = 0.3  # after the last expected message, for duplicates to show themselves
METRICS_TIMEOUT_S = 5.0
METRIC_FDATASYNCS = "weir_store_fdatasyncs_total"


@dataclass(frozen=True, slots=True)
class ServerSample:
    """What the server, and the machine, had used at one moment."""

    at_ns: int
    cpu_s: float
    busy_s: float  # of the whole machine
    fdatasyncs: int


@dataclass(slots=True)
class LoadResult:
    """Everything that was measured; `report` makes figures of it."""

    options: LoadOptions
    identity: Identity
    backlog: int  # messages in the queues before the start
    producers: list[ProducerResult]
    consumers: list[ConsumerResult]
    before: ServerSample
    after: ServerSample
    resident_bytes: int
    depths: list[int]  # ready messages of each queue at the end, when nobody consumed


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


def sample(options: LoadOptions) -> ServerSample:
    try:
        cpu_s = procfs.cpu_s(options.pids) if options.pids else 0.0
    except procfs.ProcessGone as error:
        raise BenchError(f"--pid: {error}") from None
    fdatasyncs = read_fdatasyncs(options.metrics_url)
    return ServerSample(time.monotonic_ns(), cpu_s, procfs.busy_s(), fdatasyncs)


class _Run:
    """The phases of one run, over processes that are listening."""

    def __init__(
        self,
        options: LoadOptions,
        backlog: int,
        producers: list[GeneratorProcess],
        consumers: list[GeneratorProcess],
    ) -> None:
        self.options = options
        self.backlog = backlog
        self.producers = producers
        self.consumers = consumers

    async def all_ready(self) -> None:
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        while not all(child.ready for child in self.producers + self.consumers):
            if time.monotonic() > deadline:
                raise BenchError(f"not connected after {CONNECT_TIMEOUT_S:.0f} s")
            await asyncio.sleep(POLL_S)

    def go(self) -> Go:
        """Start everything; return the producers' times (the consumers' when alone)."""
        options = self.options
        start = time.monotonic_ns() + START_LEAD_NS
        measure = start + int(options.lead_s * 1e9)
        stop = 0 if options.by_messages else measure + int(options.duration_s * 1e9)
        times = Go(start, measure, stop)
        for child in self.producers:
            child.send(times)
        lead = CONSUMER_LEAD_NS if self.producers else 0
        for child in self.consumers:
            child.send(Go(start - lead, measure, stop))
        return times

    async def window(self, times: Go) -> tuple[ServerSample, ServerSample]:
        """Sample the server at both edges of the measured window."""
        await _sleep_until(times.measure_ns)
        before = await asyncio.to_thread(sample, self.options)
        if times.stop_ns:
            await _sleep_until(times.stop_ns)
            after = await asyncio.to_thread(sample, self.options)
            await self.drain()
        else:
            await self.drain()
            after = await asyncio.to_thread(sample, self.options)
        return before, after

    async def drain(self) -> None:
        """Await every confirm, then every message."""
        if self.producers:
            await self._wait(self.producers, None)
            for child in self.producers:
                child.send(Finish())
            await self._results(self.producers)
        if self.consumers:
            await self._wait(self.consumers, self._expected())

    def _expected(self) -> int:
        """How many deliveries there should be in all."""
        if self.options.mode is Mode.CONSUME:
            return self.options.messages or self.backlog
        sent = sum(
            total.sent - len(total.nacked)
            for child in self.producers
            if isinstance(child.result, ProducerResult)
            for total in child.result.producers
        )
        return sent * self.options.copies

    async def _wait(self, children: list[GeneratorProcess], expected: int | None) -> None:
        """Until all have results, or `expected` messages came, or nothing moves any more."""
        seen = -1
        moved = time.monotonic()
        while time.monotonic() - moved < self.options.drain_timeout_s:
            messages = sum(child.messages for child in children)
            if messages != seen:
                seen, moved = messages, time.monotonic()
            if expected is None and all(child.result is not None for child in children):
                return
            if expected is not None and messages >= expected:
                return
            await asyncio.sleep(POLL_S)

    async def _results(self, children: list[GeneratorProcess]) -> None:
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        while not all(child.result is not None for child in children):
            if time.monotonic() > deadline:
                raise BenchError("a generator process does not report")
            await asyncio.sleep(POLL_S)

    async def finish(self) -> None:
        """Let late duplicates arrive, then take the consumers' results."""
        if self.consumers:
            await asyncio.sleep(SETTLE_S)
            for child in self.consumers:
                child.send(Finish())
            await self._results(self.consumers)


async def _sleep_until(when_ns: int) -> None:
    await asyncio.sleep(max(when_ns - time.monotonic_ns(), 0) / 1e9)


async def _settled_depths(options: LoadOptions, url: AmqpUrl, published: int) -> list[int]:
    """The queues' depths, once they add up or have stopped changing."""
    depths = await asyncio.to_thread(queue_depths, options, url)
    for _ in range(int(options.drain_timeout_s / 0.5)):
        if sum(depths) >= published:
            break
        await asyncio.sleep(0.5)
        again = await asyncio.to_thread(queue_depths, options, url)
        if again == depths:
            break
        depths = again
    return depths


async def _measure(options: LoadOptions, identity: Identity, backlog: int) -> LoadResult:
    producers: list[GeneratorProcess] = []
    consumers: list[GeneratorProcess] = []
    try:
        for consumer_spec in consumer_specs(options):
            child = await GeneratorProcess.start(consumer_spec)
            consumers.append(child)
        for producer_spec in producer_specs(options):
            child = await GeneratorProcess.start(producer_spec)
            producers.append(child)
        run = _Run(options, backlog, producers, consumers)
        async with asyncio.TaskGroup() as group:
            for child in producers + consumers:
                group.create_task(child.listen())
            await run.all_ready()
            before, after = await run.window(run.go())
            resident = procfs.resident_bytes(options.pids)
            await run.finish()
    except* BenchError as failures:
        raise BenchError(str(failures.exceptions[0])) from None
    finally:
        for child in producers + consumers:
            await child.end()
    return LoadResult(
        options=options,
        identity=identity,
        backlog=backlog,
        producers=[c.result for c in producers if isinstance(c.result, ProducerResult)],
        consumers=[c.result for c in consumers if isinstance(c.result, ConsumerResult)],
        before=before,
        after=after,
        resident_bytes=resident,
        depths=[],
    )


async def run_load(options: LoadOptions) -> LoadResult:
    """Run one load. Raises BenchError when it cannot be carried through."""
    url = parse_url(options.url)
    identity, backlog = await asyncio.to_thread(set_up, options, url)
    try:
        result = await _measure(options, identity, backlog)
        if not result.consumers:
            sent = sum(total.sent for part in result.producers for total in part.producers)
            result.depths = await _settled_depths(options, url, sent * options.copies)
        return result
    finally:
        if not options.keep:
            with contextlib.suppress(BenchError):
                await asyncio.to_thread(clean_up, options, url)
