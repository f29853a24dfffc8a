"""The consumers of one generator process: receive, ack, receive again.

Acks are sent while the next receive is under way, and all of them are awaited before the result.
Messages of other runs are acked and counted apart.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from benchmarks.load.errors import BenchError
from benchmarks.load.rocketmq_client import Connection, expect_ok
from benchmarks.load.rocketmq_producer import first_of
from benchmarks.load.rocketmq_wire import (
    MESSAGE_NOT_FOUND,
    OK,
    STAMP,
    Delivery,
    ack_request,
    delivery_of,
    receive_request,
    status_of,
)
from benchmarks.load.stats import Histogram
from benchmarks.load.talk import Command, ConsumerResult, Go, Ready, Seen
from benchmarks.load.verify import Ledger, arrivals
from benchmarks.load.worker import WindowMeter, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.load.rocketmq_spec import ReceiveSpec


class Consumer:
    """One connection that receives."""

    def __init__(self, spec: ReceiveSpec, number: int) -> None:
        self.ledger = Ledger()
        self.received = 0
        self.redelivered = 0
        self.foreign = 0
        self.last_ns = 0  # when the last message came
        self.latency = Histogram()
        self.running = True
        self.connection = Connection(spec.url, f"weir-bench-consumer-{number}@{spec.run}")
        self._spec = spec

    async def join(self) -> None:
        """Make the group known to the broker: a new one begins at the end of the topic."""
        spec = self._spec
        found = await self._receive(receive_request(spec.topic, spec.group, spec.batch, 0))
        await self._ack(found)

    async def run(self) -> None:
        """Receive and ack while `running`; returns when every ack is answered."""
        spec = self._spec
        request = receive_request(spec.topic, spec.group, spec.batch)
        async with asyncio.TaskGroup() as tasks:
            while self.running:
                found = await self._receive(request)
                if found:
                    tasks.create_task(self._ack(found))

    async def _receive(self, request: bytes) -> list[Delivery]:
        parts = await self.connection.receive(request)
        code, said = status_of(parts[0]) if parts else (0, "an empty stream")
        if code not in {OK, MESSAGE_NOT_FOUND}:
            raise BenchError(f"{self.connection.address} refused: {code} {said}")
        found = [each for each in map(delivery_of, parts) if each is not None]
        self._note(found)
        return found

    def _note(self, found: Sequence[Delivery]) -> None:
        self.last_ns = now_ns = time.monotonic_ns()
        ledger = self.ledger
        for delivery in found:
            self.redelivered += delivery.attempt > 1
            body = delivery.body
            key, sent_ns, run = STAMP.unpack_from(body) if len(body) >= STAMP.size else (0, 0, 0)
            if run != self._spec.run:
                self.foreign += 1
                continue
            self.received += 1
            self.latency.record(now_ns - sent_ns)
            if key != ledger.expected:
                ledger.expected = ledger.turn(key, ledger.expected)
            else:
                ledger.expected = key + ledger.stride

    async def _ack(self, found: Sequence[Delivery]) -> None:
        spec = self._spec
        for at in range(0, len(found), spec.ack_batch):
            entries = [(each.ident, each.handle) for each in found[at : at + spec.ack_batch]]
            answer = await self.connection.ack(ack_request(spec.topic, spec.group, entries))
            expect_ok(answer, self.connection.address)


class ConsumerGroup:
    """All consumers of this process, their window and their result."""

    def __init__(self, spec: ReceiveSpec) -> None:
        self.spec = spec
        self._meter = WindowMeter()
        self._worker = Worker(self._command, self._received)
        self._consumers = [Consumer(spec, number) for number in range(spec.consumers)]
        self._started = asyncio.Event()

    async def run(self) -> None:
        """Connect, then do as the coordinator says until the result is reported."""
        await self._consumers[0].connection.check(self.spec.topic)
        for consumer in self._consumers:
            await consumer.join()
        self._worker.report(Ready())
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(self._work())
            await self._worker.wait_ended()
            work.cancel()
        for consumer in self._consumers:
            await consumer.connection.close()

    async def _work(self) -> None:
        await self._started.wait()
        try:
            async with asyncio.TaskGroup() as tasks:
                for consumer in self._consumers:
                    tasks.create_task(consumer.run())
        except* BenchError as failures:
            self._worker.fail(first_of(failures))
        else:
            self._worker.report(self._result())
            self._worker.end()

    def _received(self) -> int:
        return sum(consumer.received for consumer in self._consumers)

    def _command(self, command: Command) -> None:
        if isinstance(command, Go):
            self._worker.run(command, self._started.set, self._open_window, self._close_window)
        else:
            for consumer in self._consumers:
                consumer.running = False

    def _open_window(self, begins_ns: int) -> None:
        latency = Histogram()
        for consumer in self._consumers:
            consumer.latency = latency
        self._meter.open(self._received(), latency, begins_ns)

    def _close_window(self) -> None:
        self._meter.close(self._received())

    def _result(self) -> ConsumerResult:
        """A window without a stop time ended with the last delivery."""
        self._meter.close(self._received(), max(each.last_ns for each in self._consumers))
        return ConsumerResult(
            window=self._meter.window(),
            received=self._received(),
            redelivered=sum(consumer.redelivered for consumer in self._consumers),
            foreign=sum(consumer.foreign for consumer in self._consumers),
            seen=list(self._seen()),
        )

    def _seen(self) -> Iterator[Seen]:
        """Where a message lay is the broker's affair: all queues count as one, in any order."""
        for consumer in self._consumers:
            ledger = consumer.ledger
            for producer, runs in ledger.runs(ledger.expected).items():
                part = arrivals(runs, 0, ledger.stride)
                yield Seen(
                    queue=0,
                    producer=producer,
                    intervals=part.intervals,
                    duplicated=part.duplicated,
                    disordered=0,
                    misrouted=part.misrouted,
                )
