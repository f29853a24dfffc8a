"""The producers of one generator process.

Closed loop: a producer keeps `window` publishes open; what a chunk of confirms frees is
published again in one write. Open loop: message i is due at start + i / rate whatever the
broker does, its latency counts from then, and a full window makes it late, never left out.
"""

from __future__ import annotations

import asyncio
import time
from typing import cast

from benchmarks.load.amqp_client import SetupConnection
from benchmarks.load.amqp_confirms import ConfirmTracker
from benchmarks.load.amqp_spec import ProducerSpec, first_lane
from benchmarks.load.amqp_wire import PublishBatch, parse_url, publish_template
from benchmarks.load.errors import BenchError
from benchmarks.load.precise_timer import PreciseTimer
from benchmarks.load.stats import Histogram
from benchmarks.load.talk import Command, Go, ProducerResult, ProducerTotal, Ready
from benchmarks.load.verify import first_key
from benchmarks.load.worker import WindowMeter, Worker

WRITE_BUFFER_BYTES = 8 << 20  # above this the socket, not the window, holds a producer back
TICK_NS = 200_000  # the open loop's shortest sleep: 5,000 wake-ups a second are 1/5 of a core


class Producer(asyncio.Protocol):
    """One connection in confirm mode."""

    def __init__(self, group: ProducerGroup, number: int, quota: int, batch: PublishBatch) -> None:
        self.number = number
        self.tracker = ConfirmTracker()
        self._group = group
        self._batch = batch
        self._quota = quota or (1 << 62)
        self._window = group.spec.window
        self._rate = group.spec.rate
        self._start_ns = 0
        self._writable = True
        self._running = False
        self._timer = PreciseTimer(self._wake) if self._rate else None
        self._alarm_ns = 0  # when the timer fires; 0 = not set
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, not a check: uvloop's transports do not derive from asyncio's.
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._pump(time.monotonic_ns())

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        try:
            self.tracker.feed(data, now_ns)
        except BenchError as error:
            self._group.fail(str(error))
            return
        self._pump(now_ns)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.finished:
            self._group.fail(f"a producer lost its connection: {exc or 'closed by the broker'}")

    @property
    def finished(self) -> bool:
        """Nothing more to send and every publish answered."""
        return not self._running and not self.tracker.open

    def start(self) -> None:
        self._start_ns = time.monotonic_ns()
        self._running = True
        self._pump(self._start_ns)

    def stop(self) -> None:
        """Publish nothing more; what is open is still awaited."""
        self._running = False
        if self._timer is not None:
            self._timer.clear()

    def close(self) -> None:
        self.stop()
        if self._timer is not None:
            self._timer.close()
        if self._transport is not None:
            self._transport.close()

    def _pump(self, now_ns: int) -> None:
        if self._running:
            if self._rate:
                self._publish_due(now_ns)
            else:
                self._publish_window(now_ns)
            if self.tracker.sent >= self._quota:
                self.stop()
        if not self._running and not self.tracker.open:
            self._group.check_finished()

    def _room(self) -> int:
        """How many publishes the window, the quota and the socket admit now."""
        if not self._writable:
            return 0
        tracker = self.tracker
        return min(self._window - tracker.open, self._quota - tracker.sent, self._batch.count_max)

    def _publish_window(self, now_ns: int) -> None:
        assert self._transport is not None
        while (count := self._room()) > 0:
            self._transport.write(self._batch.make(count, now_ns))
            self.tracker.published(count, now_ns)

    def _publish_due(self, now_ns: int) -> None:
        assert self._transport is not None
        if now_ns < self._alarm_ns:
            return  # a confirm came; the next message is not due
        self._alarm_ns = 0
        tracker, start_ns, rate = self.tracker, self._start_ns, self._rate / 1e9
        while True:
            due = int((now_ns - start_ns) * rate) + 1 - tracker.sent
            count = min(due, self._room())
            if count <= 0:
                break
            times = [start_ns + int((tracker.sent + i) / rate) for i in range(count)]
            self._transport.write(self._batch.make_scheduled(times))
            for due_ns in times:
                tracker.published(1, due_ns)
        if due <= 0 and self._timer is not None:  # else a confirm, or the socket, wakes us
            self._alarm_ns = max(start_ns + int(tracker.sent / rate), now_ns + TICK_NS)
            self._timer.set(self._alarm_ns)

    def _wake(self) -> None:
        self._pump(time.monotonic_ns())


class ProducerGroup:
    """All producers of this process, their window and their result."""

    def __init__(self, spec: ProducerSpec) -> None:
        self.spec = spec
        self._meter = WindowMeter()
        self._worker = Worker(self._command, self._answered)
        self._producers: list[Producer] = []
        self._done = False

    async def run(self) -> None:
        """Connect, then do as the coordinator says until the result is reported."""
        for number, quota in zip(self.spec.numbers, self.spec.quotas, strict=True):
            self._producers.append(await self._connect(number, quota))
        self._worker.report(Ready())
        await self._worker.wait_ended()
        for producer in self._producers:
            producer.close()

    async def _connect(self, number: int, quota: int) -> Producer:
        spec = self.spec
        setup = SetupConnection(parse_url(spec.url))
        setup.open_channel(1)
        setup.select_confirms(1)
        templates = [
            publish_template(
                spec.exchange,
                key,
                spec.size_bytes,
                persistent=spec.persistent,
                frame_size_max=setup.frame_size_max,
            )
            for key in spec.routing_keys
        ]
        lane = first_lane(number, len(templates))
        producer = Producer(self, number, quota, PublishBatch(templates, first_key(number), lane))
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: producer, sock=setup.detach())
        return producer

    def fail(self, reason: str) -> None:
        if not self._done:
            self._worker.fail(reason)

    def _answered(self) -> int:
        return sum(producer.tracker.answered for producer in self._producers)

    def _command(self, command: Command) -> None:
        if isinstance(command, Go):
            self._worker.run(command, self._start, self._open_window, self._stop)
        else:
            self._finish()

    def _start(self) -> None:
        for producer in self._producers:
            producer.start()

    def _open_window(self, begins_ns: int) -> None:
        latency = Histogram()
        for producer in self._producers:
            producer.tracker.latency = latency
        self._meter.open(self._answered(), latency, begins_ns)

    def _stop(self) -> None:
        self._meter.close(self._answered())
        for producer in self._producers:
            producer.stop()
        self.check_finished()

    def check_finished(self) -> None:
        """Report the result once every producer is done."""
        if all(producer.finished for producer in self._producers):
            self._finish()

    def _finish(self) -> None:
        if self._done:
            return
        self._done = True
        for producer in self._producers:
            producer.stop()
        self._meter.close(self._answered())
        totals = [
            ProducerTotal(
                number=producer.number,
                sent=producer.tracker.sent,
                answered=producer.tracker.answered,
                nacked=[tag - 1 for tag in producer.tracker.nacked],
                unanswered=[tag - 1 for tag in producer.tracker.unanswered()],
            )
            for producer in self._producers
        ]
        self._worker.report(ProducerResult(self._meter.window(), totals))
        self._worker.end()
