"""What each stage of the hot path costs, in µs a message.

    python benchmarks/micro.py

No disk and no sockets: journal writes go nowhere and take no time. A round is one commit that
brings 100 messages of 1 KB, to one queue or to as many as there are messages, each queue with a
consumer that acks at once; the acks of one round are applied in the next. The best of the rounds
counts, so that other work on the machine hardly does. The adapter's own stages (codec, routing and
rights, frames of deliveries) are in `python -m tests.adapters.amqp.microbenchmark`.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.kernel_load import fail, make_topic
from kernel.api import message as messages
from kernel.api.client import (
    Consumer,
    ConsumerSpec,
    Deliveries,
    PublishBatch,
    Settlement,
)
from kernel.api.model import TopicOptions
from kernel.common.errors import KernelError
from kernel.in_process.opening import LocalStore, open_store
from kernel.store.drivers.disk import DirectoryDisk, DiskFile
from kernel.store.drivers.system import SystemClock, SystemRandom
from kernel.store.drivers.worker import Done, Job
from metering.counters import Meter
from metering.window import RowKey

BODY = bytes(1000)
BATCH = 100
ROUNDS = 400
QUEUES = (1, 100, 1_000)
BUDGET = {
    "add and submit, entry and framing": 2.0,
    "apply and index": 3.0,
    "dispatch and settle": 3.0,
    "metering": 0.5,
}


class NowhereFile(DiskFile):
    """A file of the journal that takes everything and keeps nothing."""

    def pwritev(self, buffers: Sequence[bytes], offset: int, *, synced: bool = False) -> int:
        return sum(map(len, buffers))

    def fdatasync(self) -> None:
        """Nothing to wait for."""

    def allocate(self, length: int) -> None:
        """Nothing to allocate."""


class NowhereDisk(DirectoryDisk):
    """A disk whose journal costs nothing."""

    def open(self, name: str, *, create: bool = False) -> DiskFile:
        file = super().open(name, create=create)
        return NowhereFile(file.descriptor) if name.endswith(".seg") else file


class Inline:
    """`Runner` that does the job at once and reports in the next turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def submit(self, job: Job, done: Done) -> None:
        """Run it here: no thread, no hand-over."""
        job()
        self._loop.call_soon(done, None)

    def stop(self) -> None:
        """Nothing is queued."""


class Stage:
    """Time spent inside one function, summed up until `take`."""

    def __init__(self, owner: object, name: str) -> None:
        self._spent = 0.0
        self.best = float("inf")
        inner: Callable[..., object] = getattr(owner, name)

        def timed(*arguments: object) -> object:
            started = time.perf_counter()
            try:
                return inner(*arguments)
            finally:
                self._spent += time.perf_counter() - started

        setattr(owner, name, timed)

    def take(self) -> float:
        """Seconds since the last take."""
        spent, self._spent = self._spent, 0.0
        return spent


class Sink:
    """Acks what it is given; says when a batch and its deliveries are done."""

    def __init__(self, local: LocalStore) -> None:
        self._client = local.client
        self.delivered_count = 0

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        """Ack, and take as many again."""
        self.delivered_count += len(deliveries.offsets)
        self._client.settle(consumer, Settlement.ACK, deliveries.offsets)

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        """Not expected."""
        raise error

    def published(self, batch: PublishBatch) -> None:
        """A batch is applied: nothing is counted but what is delivered."""


async def measure(data: Path, queues: int) -> dict[str, float]:
    """µs a message of each stage, with the messages spread over so many queues."""
    loop = asyncio.get_running_loop()
    local = open_store(
        NowhereDisk(data),
        SystemClock(),
        SystemRandom(),
        lambda _: Inline(loop),
        fail,
        data_groups=1,
    )
    await local.start()
    session = local.client.open_session("micro")
    topics = [await make_topic(local, f"q{n}", TopicOptions()) for n in range(queues)]
    sink = Sink(local)
    for topic in topics:
        spec = ConsumerSpec(topic, "default", session)
        local.client.attach(spec, sink).grant(1_000_000)
    await local.store.wait_idle()
    to = [local.client.to_topic(topic) for topic in topics]
    replica = local.store.replica(topics[0].queues[0].group)
    write = Stage(local.store, "_start_write")
    apply = Stage(replica, "apply")
    dispatch = Stage(replica, "dispatch")
    best = dict.fromkeys(list(BUDGET)[:3], float("inf"))
    pack, size = messages.HEADER.pack, messages.HEADER_BYTES + len(BODY)
    gc.disable()
    for number in range(ROUNDS):
        wanted = sink.delivered_count + BATCH
        for stage in (write, apply, dispatch):
            stage.take()
        started = time.perf_counter()
        batch = local.client.batch(session, sink)
        for place in range(BATCH):
            header = pack(1, 0, 0, 0, len(BODY), 0, 0, *batch.uid(), 0, 0, 0, 0, 0, 0)
            batch.add(to[(number * BATCH + place) % queues], (header, BODY), size)
        local.client.submit(batch)
        spent = time.perf_counter() - started
        while sink.delivered_count < wanted:  # noqa: ASYNC110 - a few turns of the loop
            await asyncio.sleep(0)
        taken = (spent + write.take(), apply.take(), dispatch.take())
        for name, seconds in zip(best, taken, strict=True):
            best[name] = min(best[name], seconds / BATCH * 1e6)
    gc.enable()
    await local.stop()
    return best


def metering() -> float:
    """µs of counting one message."""
    counter = Meter(0).counter(RowKey(topic="q"))
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(BATCH):
            counter.count_one(1_000)
        best = min(best, time.perf_counter() - started)
    return best / BATCH * 1e6


def main() -> None:
    """Print the table."""
    columns: dict[int, dict[str, float]] = {}
    for queues in QUEUES:
        folder = Path(tempfile.mkdtemp())
        try:
            columns[queues] = asyncio.run(measure(folder / "data", queues))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        columns[queues]["metering"] = metering()
    print(f"{'us a message':36}{'budget':>8}" + "".join(f"{n:>7,} q" for n in QUEUES))
    for stage, budget in BUDGET.items():
        cells = "".join(f"{columns[queues][stage]:9.2f}" for queues in QUEUES)
        print(f"{stage:36}{budget:8.1f}{cells}")


if __name__ == "__main__":
    main()
