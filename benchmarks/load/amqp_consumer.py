"""The consumers of one generator process."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, cast

from benchmarks.load.amqp_client import SetupConnection
from benchmarks.load.amqp_deliveries import AckMode, DeliveryScanner, Subscription
from benchmarks.load.amqp_spec import ConsumerSpec, first_sequence
from benchmarks.load.amqp_wire import basic_consume, parse_url
from benchmarks.load.errors import BenchError
from benchmarks.load.stats import Histogram
from benchmarks.load.talk import Command, ConsumerResult, Go, Ready, Seen
from benchmarks.load.verify import arrivals
from benchmarks.load.worker import WindowMeter, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator


class Consumer(asyncio.Protocol):
    """One connection with a channel and a consumer for each of its queues."""

    def __init__(self, group: ConsumerGroup, subscriptions: list[Subscription]) -> None:
        mode = AckMode(group.spec.acks)
        self.subscriptions = subscriptions
        self.scanner = DeliveryScanner(subscriptions, mode)
        self.last_ns = 0  # when the last delivery came
        self._group = group
        self._no_ack = mode is AckMode.NONE
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, not a check: uvloop's transports do not derive from asyncio's.
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        self.last_ns = now_ns = time.monotonic_ns()
        try:
            acks = self.scanner.feed(data, now_ns)
        except BenchError as error:
            self._group.fail(str(error))
            return
        if acks and self._transport is not None:
            self._transport.write(acks)

    def connection_lost(self, exc: Exception | None) -> None:
        self._group.fail(f"a consumer lost its connection: {exc or 'closed by the broker'}")

    def start(self) -> None:
        """Ask for deliveries on every channel."""
        assert self._transport is not None
        names = self._group.spec.queue_names
        self._transport.write(
            b"".join(
                basic_consume(sub.channel, names[sub.queue], no_ack=self._no_ack)
                for sub in self.subscriptions
            )
        )

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class ConsumerGroup:
    """All consumers of this process, their window and their result."""

    def __init__(self, spec: ConsumerSpec) -> None:
        self.spec = spec
        self._meter = WindowMeter()
        self._worker = Worker(self._command, self._received)
        self._consumers: list[Consumer] = []
        self._done = False

    async def run(self) -> None:
        """Connect, then do as the coordinator says until the result is reported."""
        for queues in self.spec.consumers:
            self._consumers.append(await self._connect(queues))
        self._worker.report(Ready())
        await self._worker.wait_ended()
        self._done = True
        for consumer in self._consumers:
            consumer.close()

    async def _connect(self, queues: list[int]) -> Consumer:
        setup = SetupConnection(parse_url(self.spec.url))
        if len(queues) > setup.channels_max:
            raise BenchError(
                f"a consumer of {len(queues)} queues needs as many channels, and the broker "
                f"allows {setup.channels_max}: use more --consumers"
            )
        subscriptions = []
        for channel, queue in enumerate(queues, start=1):
            setup.open_channel(channel)
            setup.set_prefetch(channel, self.spec.prefetch)
            subscriptions.append(Subscription(channel, queue, self.spec.stride))
        consumer = Consumer(self, subscriptions)
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: consumer, sock=setup.detach())
        return consumer

    def fail(self, reason: str) -> None:
        if not self._done:
            self._worker.fail(reason)

    def _received(self) -> int:
        return sum(consumer.scanner.received for consumer in self._consumers)

    def _command(self, command: Command) -> None:
        if isinstance(command, Go):
            self._worker.run(command, self._start, self._open_window, self._close_window)
        else:
            self._finish()

    def _start(self) -> None:
        for consumer in self._consumers:
            consumer.start()

    def _open_window(self, begins_ns: int) -> None:
        latency = Histogram()
        for consumer in self._consumers:
            consumer.scanner.latency = latency
        self._meter.open(self._received(), latency, begins_ns)

    def _close_window(self) -> None:
        self._meter.close(self._received())

    def _finish(self) -> None:
        """Report; a window without a stop time ended with the last delivery."""
        self._done = True
        last_ns = max((consumer.last_ns for consumer in self._consumers), default=0)
        self._meter.close(self._received(), last_ns)
        scanners = [consumer.scanner for consumer in self._consumers]
        foreign = sum(scanner.foreign for scanner in scanners) + sum(
            sub.ledger.foreign for consumer in self._consumers for sub in consumer.subscriptions
        )
        result = ConsumerResult(
            window=self._meter.window(),
            received=self._received(),
            redelivered=sum(scanner.redelivered for scanner in scanners),
            foreign=foreign,
            seen=list(self._seen()),
        )
        self._worker.report(result)
        self._worker.end()

    def _seen(self) -> Iterator[Seen]:
        stride = self.spec.stride
        for consumer in self._consumers:
            for sub in consumer.subscriptions:
                for producer, runs in sub.ledger.runs(sub.ledger.expected).items():
                    lane = sub.queue if stride > 1 else 0
                    part = arrivals(runs, first_sequence(producer, lane, stride), stride)
                    yield Seen(
                        queue=sub.queue,
                        producer=producer,
                        intervals=part.intervals,
                        duplicated=part.duplicated,
                        disordered=part.disordered,
                        misrouted=part.misrouted,
                    )
