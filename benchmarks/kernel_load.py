"""What the kernel benchmarks share: a store, topics, load, one line of result."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from kernel.api import message as messages
from kernel.api.client import (
    Consumer,
    Deliveries,
    PublishBatch,
    PutTopic,
    Session,
    Settlement,
)
from kernel.api.model import GroupOptions, TopicInfo, TopicOptions
from kernel.common.errors import KernelError
from kernel.in_process.opening import LocalStore, open_store
from kernel.store.drivers.disk import DirectoryDisk
from kernel.store.drivers.system import SystemClock, SystemRandom
from kernel.store.drivers.worker import Worker
from kernel.store.drivers.write_ring import open_ring
from kernel.store.space.housekeeper import SPARSE_BYTES_MIN

BODY = bytes(1000)
BATCH = 100
"""Messages of one client batch: what one socket read of an AMQP publisher brings."""

WINDOW = 6
"""Batches under way."""


def fail(text: str, error: BaseException) -> None:
    """The store cannot go on."""
    raise SystemExit(f"{text}: {error!r}")


async def open_at(data: Path, sparse_bytes_min: int = SPARSE_BYTES_MIN) -> LocalStore:
    """A started store; `sparse_bytes_min`: see `open_store`."""
    loop = asyncio.get_running_loop()
    data.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - before anything is measured
    local = open_store(
        DirectoryDisk(data, open_ring(loop)),
        SystemClock(),
        SystemRandom(),
        lambda name: Worker(loop, name),
        fail,
        sparse_bytes_min=sparse_bytes_min,
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
        self.body = BODY

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
        body = self.body
        pack, size = messages.HEADER.pack, messages.HEADER_BYTES + len(body)
        for _ in range(min(BATCH, self._left)):
            self._sent += 1
            level = self._sent % self.levels
            header = pack(
                1, 0, level, 0, len(body), 0, 0, *batch.uid(), 0, self._ttl_ms, 0, 0, 0, 0
            )
            batch.add(self._to[self._sent % len(self._to)], (header, body), size)
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


def used(path: Path) -> int:
    """Bytes that a directory takes on the disk."""
    return sum(each.stat().st_blocks * 512 for each in path.rglob("*") if each.is_file())


def put(row: str, **figures: object) -> None:
    """One line of the result."""
    sys.stdout.write(json.dumps({"row": row, **figures}) + "\n")
    sys.stdout.flush()
