"""The producers of one generator process.

Closed loop: a producer keeps `window` requests under way, each by a task of its own that sends the
next one as soon as the last is answered. A message that was not stored ends the run with the
broker's words: a figure of refused messages would measure nothing.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.load.errors import BenchError
from benchmarks.load.rocketmq_client import Connection, expect_ok
from benchmarks.load.rocketmq_spec import SendSpec
from benchmarks.load.rocketmq_wire import SendRequests
from benchmarks.load.stats import Histogram
from benchmarks.load.talk import Command, Go, ProducerResult, ProducerTotal, Ready
from benchmarks.load.verify import first_key
from benchmarks.load.worker import WindowMeter, Worker


class Producer:
    """One connection and its requests."""

    def __init__(self, group: ProducerGroup, number: int, quota: int) -> None:
        spec = group.spec
        self.number = number
        self.sent = 0
        self.answered = 0
        self.latency = Histogram()
        self.running = True
        self._quota = quota or (1 << 62)
        self._batch = spec.batch
        self._window = spec.window
        self._first_key = first_key(number)
        self._requests = SendRequests(spec.topic, spec.size_bytes, spec.batch, spec.run, number)
        self.connection = Connection(spec.url, f"weir-bench-producer-{number}@{spec.run}")

    async def run(self) -> None:
        """Send until `running` is false or the quota is reached; every request is awaited."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._window):
                tasks.create_task(self._loop())

    async def _loop(self) -> None:
        connection, requests, batch = self.connection, self._requests, self._batch
        while self.running and self.sent < self._quota:
            key = self._first_key + self.sent
            self.sent += batch
            began_ns = time.monotonic_ns()
            answer = await connection.send(requests.make(key, began_ns))
            self.latency.record(time.monotonic_ns() - began_ns)
            expect_ok(answer, connection.address)
            self.answered += batch


class ProducerGroup:
    """All producers of this process, their window and their result."""

    def __init__(self, spec: SendSpec) -> None:
        self.spec = spec
        self._meter = WindowMeter()
        self._worker = Worker(self._command, self._answered)
        self._producers = [
            Producer(self, number, quota)
            for number, quota in zip(spec.numbers, spec.quotas, strict=True)
        ]
        self._started = asyncio.Event()

    async def run(self) -> None:
        """Connect, then do as the coordinator says until the result is reported."""
        for producer in self._producers:
            await producer.connection.check(self.spec.topic)
        self._worker.report(Ready())
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(self._work())
            await self._worker.wait_ended()
            work.cancel()
        for producer in self._producers:
            await producer.connection.close()

    async def _work(self) -> None:
        await self._started.wait()
        try:
            async with asyncio.TaskGroup() as tasks:
                for producer in self._producers:
                    tasks.create_task(producer.run())
        except* BenchError as failures:
            self._worker.fail(first_of(failures))
        else:
            self._report()

    def _report(self) -> None:
        self._meter.close(self._answered())
        totals = [
            ProducerTotal(each.number, each.sent, each.answered, nacked=[])
            for each in self._producers
        ]
        self._worker.report(ProducerResult(self._meter.window(), totals))
        self._worker.end()

    def _answered(self) -> int:
        return sum(producer.answered for producer in self._producers)

    def _command(self, command: Command) -> None:
        if isinstance(command, Go):
            self._worker.run(command, self._started.set, self._open_window, self._stop)
        else:
            self._halt()

    def _open_window(self, begins_ns: int) -> None:
        latency = Histogram()
        for producer in self._producers:
            producer.latency = latency
        self._meter.open(self._answered(), latency, begins_ns)

    def _stop(self) -> None:
        self._meter.close(self._answered())
        self._halt()

    def _halt(self) -> None:
        for producer in self._producers:
            producer.running = False


def first_of(failures: BaseExceptionGroup[BenchError]) -> str:
    """The words of the first failure, however deep."""
    failure: BaseException = failures
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return str(failure)
