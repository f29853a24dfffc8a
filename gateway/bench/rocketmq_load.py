"""The coordinator of `weir bench rocketmq`: start the processes, wait, judge.

    ready       every generator process has connected; the consumer group exists
    go          consumers start, then producers; the warm-up, the measured window
    drain       producers await their answers, consumers the rest of the messages
    judge       loss and duplicates over all that was ever sent (verify)

Every wait ends: by its event, by a process that gives up, or when nothing moved for
`drain_timeout_s`. The topic is there before: clients of RocketMQ make none.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass, field

import msgspec

from gateway.bench import procfs
from gateway.bench.amqp_load import (
    CONNECT_TIMEOUT_S,
    CONSUMER_LEAD_NS,
    POLL_S,
    SETTLE_S,
    START_LEAD_NS,
    ServerSample,
    read_fdatasyncs,
)
from gateway.bench.amqp_spec import ConsumerResult, Finish, Go, ProducerResult
from gateway.bench.amqp_wire import BenchError
from gateway.bench.process import LINE_BYTES_MAX, GeneratorProcess
from gateway.bench.rocketmq_spec import ReceiveSpec, SendSpec, Spec
from gateway.bench.rocketmq_wire import parse_url


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """One run. Times in seconds; see `weir bench rocketmq --help` for each."""

    url: str
    topic: str = "weir-bench"
    group: str = "weir-bench"
    size_bytes: int = 1024
    batch: int = 1
    producers: int = 1
    consumers: int = 1
    producer_processes: int = 1
    consumer_processes: int = 1
    window: int = 32
    receive_batch: int = 32
    ack_batch: int = 32
    duration_s: float = 10.0
    messages: int = 0  # 0 = by time
    warmup_s: float = 2.0
    pids: list[int] = field(default_factory=list)
    metrics_url: str = ""
    drain_timeout_s: float = 30.0

    @property
    def lead_s(self) -> float:
        """Seconds from the start to the measured window; a counted run is measured whole."""
        return 0.0 if self.messages else self.warmup_s


@dataclass(slots=True)
class LoadResult:
    """Everything that was measured; `rocketmq_report` makes figures of it."""

    options: LoadOptions
    producers: list[ProducerResult]
    consumers: list[ConsumerResult]
    before: ServerSample
    after: ServerSample
    resident_bytes: int


class RocketmqProcess(GeneratorProcess):
    """A generator process of this protocol."""

    @classmethod
    async def launch(cls, spec: Spec) -> RocketmqProcess:
        """Start one with its spec."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway.bench.rocketmq_worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(spec) + b"\n")
        return cls(process)


def _shares(count: int, parts: int) -> list[list[int]]:
    """0..count-1 dealt out to at most `parts` non-empty hands."""
    return [list(range(part, count, parts)) for part in range(min(parts, count))]


def specs(options: LoadOptions, run: int) -> tuple[list[ReceiveSpec], list[SendSpec]]:
    """What each process does; messages are divided among the producers, in whole requests."""
    requests = -(-options.messages // options.batch)
    share, rest = divmod(requests, options.producers)
    quotas = [(share + (number < rest)) * options.batch for number in range(options.producers)]
    receiving = [
        ReceiveSpec(
            url=options.url,
            run=run,
            consumers=len(numbers),
            topic=options.topic,
            group=options.group,
            batch=options.receive_batch,
            ack_batch=options.ack_batch,
        )
        for numbers in _shares(options.consumers, options.consumer_processes)
    ]
    sending = [
        SendSpec(
            url=options.url,
            run=run,
            numbers=numbers,
            quotas=[quotas[number] for number in numbers],
            topic=options.topic,
            size_bytes=options.size_bytes,
            batch=options.batch,
            window=options.window,
        )
        for numbers in _shares(options.producers, options.producer_processes)
        if not options.messages or any(quotas[number] for number in numbers)
    ]
    return receiving, sending


def sample(options: LoadOptions) -> ServerSample:
    """What the server has used by now. Raises BenchError for a pid that is none."""
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
        producers: list[RocketmqProcess],
        consumers: list[RocketmqProcess],
    ) -> None:
        self.options = options
        self.producers = producers
        self.consumers = consumers

    async def until(self, children: list[RocketmqProcess], what: str) -> None:
        """Until each has a result, or (before the start) is ready."""
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        while not all(child.ready if what == "ready" else child.result for child in children):
            if time.monotonic() > deadline:
                raise BenchError(f"a generator process is not {what} in {CONNECT_TIMEOUT_S:.0f} s")
            await asyncio.sleep(POLL_S)

    def go(self) -> Go:
        """Start everything; return the producers' times."""
        options = self.options
        start = time.monotonic_ns() + START_LEAD_NS
        measure = start + int(options.lead_s * 1e9)
        stop = 0 if options.messages else measure + int(options.duration_s * 1e9)
        for child in self.producers:
            child.send(Go(start, measure, stop))
        for child in self.consumers:
            child.send(Go(start - CONSUMER_LEAD_NS, measure, stop))
        return Go(start, measure, stop)

    async def window(self, times: Go) -> tuple[ServerSample, ServerSample]:
        """Sample the server at both edges of the measured window."""
        await _sleep_until(times.measure_ns)
        before = await asyncio.to_thread(sample, self.options)
        if times.stop_ns:
            await _sleep_until(times.stop_ns)
            after = await asyncio.to_thread(sample, self.options)
            await self._drain()
        else:
            await self._drain()
            after = await asyncio.to_thread(sample, self.options)
        return before, after

    async def _drain(self) -> None:
        """Await every answer, then every message."""
        await self._still(self.producers, None)
        for child in self.producers:
            child.send(Finish())
        await self.until(self.producers, "done")
        if self.consumers:
            sent = sum(
                total.answered
                for child in self.producers
                if isinstance(child.result, ProducerResult)
                for total in child.result.producers
            )
            await self._still(self.consumers, sent)
            await asyncio.sleep(SETTLE_S)
            for child in self.consumers:
                child.send(Finish())
            await self.until(self.consumers, "done")

    async def _still(self, children: list[RocketmqProcess], expected: int | None) -> None:
        """Until all have results, or `expected` messages came, or nothing moves any more."""
        seen, moved = -1, time.monotonic()
        while time.monotonic() - moved < self.options.drain_timeout_s:
            messages = sum(child.messages for child in children)
            if messages != seen:
                seen, moved = messages, time.monotonic()
            if expected is None and all(child.result is not None for child in children):
                return
            if expected is not None and messages >= expected:
                return
            await asyncio.sleep(POLL_S)


async def _sleep_until(when_ns: int) -> None:
    await asyncio.sleep(max(when_ns - time.monotonic_ns(), 0) / 1e9)


async def run_load(options: LoadOptions) -> LoadResult:
    """Run one load. Raises BenchError when it cannot be carried through."""
    parse_url(options.url)
    receiving, sending = specs(options, time.monotonic_ns())
    consumers: list[RocketmqProcess] = []
    producers: list[RocketmqProcess] = []
    try:
        for receive_spec in receiving:
            consumer = await RocketmqProcess.launch(receive_spec)
            consumers.append(consumer)
        for send_spec in sending:
            producer = await RocketmqProcess.launch(send_spec)
            producers.append(producer)
        run = _Run(options, producers, consumers)
        async with asyncio.TaskGroup() as group:
            for child in producers + consumers:
                group.create_task(child.listen())
            await run.until(producers + consumers, "ready")
            before, after = await run.window(run.go())
            resident = procfs.resident_bytes(options.pids)
    except* BenchError as failures:
        raise BenchError(str(failures.exceptions[0])) from None
    finally:
        for child in producers + consumers:
            await child.end()
    return LoadResult(
        options=options,
        producers=[c.result for c in producers if isinstance(c.result, ProducerResult)],
        consumers=[c.result for c in consumers if isinstance(c.result, ConsumerResult)],
        before=before,
        after=after,
        resident_bytes=resident,
    )
