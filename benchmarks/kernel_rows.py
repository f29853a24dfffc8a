"""Kernel benchmarks without an adapter: speed beside raw group commit, memory, space, restart.

    python benchmarks/kernel_rows.py speed|memory|space|restart [--data DIR]

Each row prints one line of JSON. `speed` alternates our kernel with a bare loop that writes the
same bytes with one fdatasync a batch, in one run; `memory` and `space` print what the bounds of
the README are about.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernel import message as messages
from kernel.client import (
    Consumer,
    ConsumerSpec,
    Deliveries,
    PublishBatch,
    PutTopic,
    ReceiveSpec,
    Session,
    Settlement,
)
from kernel.errors import KernelError
from kernel.model import GroupOptions, TopicInfo, TopicOptions
from kernel.store.disk import DirectoryDisk
from kernel.store.opening import LocalStore, open_store
from kernel.store.system import SystemClock, SystemRandom
from kernel.store.worker import Worker

BODY = bytes(1000)
BATCH = 100
"""Messages of one client batch: what one socket read of an AMQP publisher brings."""

WINDOW = 6
"""Batches under way."""


def fail(text: str, error: BaseException) -> None:
    """The store cannot go on."""
    raise SystemExit(f"{text}: {error!r}")


async def open_at(data: Path) -> LocalStore:
    """A started store."""
    loop = asyncio.get_running_loop()
    data.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - before anything is measured
    local = open_store(
        DirectoryDisk(data), SystemClock(), SystemRandom(), lambda name: Worker(loop, name), fail
    )
    await local.start()
    return local


async def make_topic(local: LocalStore, name: str, options: TopicOptions) -> TopicInfo:
    """A topic with its built-in group."""
    group = GroupOptions(in_flight_max=2_000_000)
    topic = await local.client.administer(PutTopic("default", name, options, {"default": group}))
    assert isinstance(topic, TopicInfo)
    return topic


def rss_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class Publisher:
    """Publishes `count` messages over some topics, WINDOW batches under way."""

    def __init__(
        self, local: LocalStore, session: Session, topics: list[TopicInfo], ttl_ms: int = 0
    ) -> None:
        self._client = local.client
        self._session = session
        self._to = [local.client.to_topic(topic) for topic in topics]
        self._ttl_ms = ttl_ms
        self._left = 0
        self._waiting = 0
        self._sent = 0
        self._done: asyncio.Future[None] | None = None
        self.levels = 1

    async def publish(self, count: int) -> None:
        """Return once all are on disk."""
        self._left = self._waiting = count
        self._done = asyncio.get_running_loop().create_future()
        for _ in range(WINDOW):
            self._next()
        await self._done

    def _next(self) -> None:
        if self._left <= 0:
            return
        batch = self._client.batch(self._session, self)
        pack, size = messages.HEADER.pack, messages.HEADER_BYTES + len(BODY)
        for _ in range(min(BATCH, self._left)):
            self._sent += 1
            level = self._sent % self.levels
            header = pack(
                1, 0, level, 0, len(BODY), 0, 0, *batch.uid(), 0, self._ttl_ms, 0, 0, 0, 0
            )
            batch.add(self._to[self._sent % len(self._to)], (header, BODY), size)
        self._left -= batch.count
        self._client.submit(batch)

    def published(self, batch: PublishBatch) -> None:
        """A batch is on disk."""
        assert batch.failures is None, batch.failures
        self._waiting -= batch.count
        self._next()
        if not self._waiting and self._done is not None:
            self._done.set_result(None)


class Drain:
    """Consumes; acks everything but what `keep` says."""

    def __init__(self, local: LocalStore, every: int = 0) -> None:
        self._client = local.client
        self._every = every
        self.received = 0

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        """Ack what came, except one in `every`."""
        offsets = deliveries.offsets
        self.received += len(offsets)
        wanted = [each for each in offsets if not self._every or each % self._every]
        self._client.settle(consumer, Settlement.ACK, wanted)
        asyncio.get_running_loop().call_soon(consumer.grant, len(offsets))

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        """Not expected."""
        raise error

    async def until(self, count: int) -> None:
        """Return once so many have come."""
        while self.received < count:  # noqa: ASYNC110 - the sink is called per message batch
            await asyncio.sleep(0.01)


async def speed(data: Path, count: int) -> None:
    """Kernel batch publish of 1 KB, beside raw group commit, alternating in one run."""
    ours: list[float] = []
    raw: list[float] = []
    for turn in range(5):
        local = await open_at(data / f"k{turn}")
        topic = await make_topic(local, "q", TopicOptions())
        publisher = Publisher(local, local.client.open_session("bench"), [topic])
        start = time.perf_counter()
        await publisher.publish(count)
        ours.append(count / (time.perf_counter() - start))
        commits = local.store.statistics().commits
        await local.stop()
        per_commit = max(1, count // commits)
        raw.append(await asyncio.to_thread(raw_commits, data / f"r{turn}", count, per_commit))
    put(
        "kernel-publish",
        kernel_per_s=round(median(ours)),
        raw_per_s=round(median(raw)),
        ratio=round(median(a / b for a, b in zip(ours, raw, strict=True)), 2),
        spread=[round(a / b, 2) for a, b in zip(ours, raw, strict=True)],
    )


def raw_commits(path: Path, count: int, per_commit: int) -> float:
    """Messages a second of a loop that writes the same batches with one fdatasync each."""
    size = per_commit * (len(BODY) + messages.HEADER_BYTES)
    chunk = bytes(size)
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(file, 0, size * (count // per_commit + 1))
    start = time.perf_counter()
    at = 0
    for _ in range(count // per_commit):
        at += os.pwrite(file, chunk, at)
        os.fdatasync(file)
    took = time.perf_counter() - start
    os.close(file)
    path.unlink()
    return count / took


async def memory(data: Path, count: int) -> None:
    """RSS with `count` messages waiting (plain; ten priorities, TTL, every second one acked), and
    with all of them leased.
    """
    local = await open_at(data / "plain")
    session = local.client.open_session("bench")
    topic = await make_topic(local, "q", TopicOptions())
    await Publisher(local, session, [topic]).publish(count)
    put("memory-waiting", messages=count, rss_mb=round(rss_mb()))
    leased = 0
    while leased < count:
        pulled = await local.client.receive(
            ReceiveSpec(topic, "default", messages=5_000, lease_ms=3_600_000)
        )
        leased += len(pulled.tokens)
    put("memory-leased", messages=leased, rss_mb=round(rss_mb()))
    await local.stop()


async def memory_features(data: Path, count: int) -> None:
    """RSS with ten priorities, a TTL on every message and every second message acked."""
    local = await open_at(data / "features")
    session = local.client.open_session("bench")
    topic = await make_topic(local, "q", TopicOptions(priority_max=9))
    publisher = Publisher(local, session, [topic], ttl_ms=3_600_000)
    publisher.levels = 10
    await publisher.publish(count)
    put("memory-features-waiting", messages=count, rss_mb=round(rss_mb()))
    sink = Drain(local, every=2)
    consumer = local.client.attach(ConsumerSpec(topic, "default", session), sink)
    consumer.grant(2_000)
    await sink.until(count)
    put("memory-features-half-acked", messages=count // 2, rss_mb=round(rss_mb()))
    await local.stop()


async def space(data: Path, gigabytes: int) -> None:
    """Bytes on disk after much has gone through: one stuck message; 50 queues with one unacked in
    every 200.
    """
    count = gigabytes * 1_000_000
    for row, queues, every in (("space-one-stuck", 1, count), ("space-50-queues", 50, 200)):
        local = await open_at(data / row)
        session = local.client.open_session("bench")
        topics = [await make_topic(local, f"q{n}", TopicOptions()) for n in range(queues)]
        sink = Drain(local, every)
        for topic in topics:
            consumer = local.client.attach(ConsumerSpec(topic, "default", session), sink)
            consumer.grant(2_000)
        highest = 0
        publisher = Publisher(local, session, topics)
        for done in range(0, count, 100_000):
            await publisher.publish(100_000)
            await sink.until(done + 100_000)
            highest = max(highest, used(data / row))
        await asyncio.sleep(15)
        journal = local.store.journal.statistics()
        put(
            row,
            gigabytes=gigabytes,
            highest_mb=highest // 10**6,
            after_mb=used(data / row) // 10**6,
            live_mb=journal.live_bytes // 10**6,
            rewritten_mb=journal.rewritten_bytes // 10**6,
            rss_mb=round(rss_mb()),
        )
        await local.stop()


def used(path: Path) -> int:
    """Bytes that a directory takes on the disk."""
    return sum(each.stat().st_blocks * 512 for each in path.rglob("*") if each.is_file())


def put(row: str, **figures: object) -> None:
    """One line of the result."""
    sys.stdout.write(json.dumps({"row": row, **figures}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run the rows asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", choices=("speed", "memory", "features", "space"), nargs="+")
    parser.add_argument("--data", type=Path, default=Path(".bench/kernel"))
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--gigabytes", type=int, default=5)
    options = parser.parse_args()
    shutil.rmtree(options.data, ignore_errors=True)
    for row in options.rows:
        if row == "speed":
            asyncio.run(speed(options.data, options.messages // 5))
        elif row == "memory":
            asyncio.run(memory(options.data, options.messages))
        elif row == "features":
            asyncio.run(memory_features(options.data, options.messages))
        else:
            asyncio.run(space(options.data, options.gigabytes))
    shutil.rmtree(options.data, ignore_errors=True)


if __name__ == "__main__":
    main()
