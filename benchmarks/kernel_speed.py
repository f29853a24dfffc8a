"""How fast the kernel stores batches of 1 KB messages, beside a bare loop that writes as much.

Bursts of both alternate in one store and one process, each pair on the same disk within a second
or two, and take turns in going first. The bare loop writes what the kernel's burst came to: as many
bytes in as many pieces, each with one fdatasync, into space that was allocated before. Its bytes
are made in advance, and so are the kernel's messages: what an adapter does is not counted. Two
waves of batches are under way, as with any publisher that does not wait for each answer, so that
one is written while the other is made; with one, disk and processor would wait for each other.

Messages are added to a batch one by one, as a protocol with frames brings them, or as columns, as
one with batches does: a figure each.

The process is set up as a node is (event loop, collector, threads), and the first pair comes after
the journal's cache has been filled twice: before that, every entry is written into memory that the
system has to find and clear first, which takes 0.5 us of each message's time, once in its life.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.kernel_load import BATCH, BODY, make_topic, open_at, put
from gateway.process.garbage import Garbage
from kernel.api import message as messages
from kernel.api.client import PublishBatch, Session
from kernel.api.model import TopicInfo, TopicOptions
from kernel.in_process.opening import LocalStore
from kernel.log.journal import JournalOptions

PAIRS = 15

SIZE = messages.HEADER_BYTES + len(BODY)

WAVE = 6
"""Client batches of one wave: what 6 connections bring between two syncs."""


class Columns(NamedTuple):
    """One batch of messages: the parts of each, and its bytes."""

    heads: list[bytes]
    bodies: list[bytes]
    sizes: list[int]


class Waves:
    """Publishes messages that are ready, two waves of batches under way."""

    def __init__(
        self, local: LocalStore, session: Session, topic: TopicInfo, *, alike: bool
    ) -> None:
        self._alike = alike
        self._client = local.client
        self._session = session
        self._to = self._client.to_topic(topic)
        self._loop = asyncio.get_running_loop()
        self._left: list[Columns] = []
        self._waiting = 0
        self._done = self._loop.create_future()

    async def publish(self, batches: list[Columns]) -> None:
        """Return once all are on disk."""
        self._left = batches[::-1]
        self._waiting = sum(len(each.sizes) for each in batches)
        self._done = self._loop.create_future()
        for _ in range(2):
            for _ in range(WAVE):
                self._next()
            for _ in range(3):  # the first wave is on its way to the disk
                await asyncio.sleep(0)
        await self._done

    def _next(self) -> None:
        if not self._left:
            return
        heads, bodies, sizes = self._left.pop()
        batch = self._client.batch(self._session, self)
        to = self._to
        if self._alike:
            batch.add_alike(to, heads, bodies, sizes)
        else:
            for head, body, size in zip(heads, bodies, sizes, strict=True):
                batch.add(to, (head, body), size, BODY)  # all ask for the same
        self._client.submit(batch)

    def published(self, batch: PublishBatch) -> None:
        """A batch is on disk."""
        assert batch.failures is None, batch.failures
        self._waiting -= batch.count
        self._next()
        if not self._waiting:
            self._done.set_result(None)


async def speed(data: Path, count: int) -> None:
    """Kernel batch publish of 1 KB, beside raw group commit, in pairs."""
    for name, alike in (("kernel-publish", False), ("kernel-publish-columns", True)):
        await _speed(data / name, count, name, alike=alike)


async def _speed(data: Path, count: int, name: str, *, alike: bool) -> None:
    local = await open_at(data / "kernel")
    topic = await make_topic(local, "q", TopicOptions())
    waves = Waves(local, local.client.open_session("bench"), topic, alike=alike)
    ours: list[float] = []
    raw: list[float] = []
    cpu: list[float] = []
    sizes: list[float] = []
    garbage = Garbage(asyncio.get_running_loop())
    garbage.start()
    for _ in range(2 * JournalOptions().cache_bytes // (count * SIZE) + 1):
        await waves.publish(made(count))
    for turn in range(PAIRS):
        parts = made(count)
        if turn % 2 and sizes:
            raw.append(await asyncio.to_thread(raw_commits, data / "raw", count, sizes[-1]))
        commits = local.store.statistics().commits
        start, start_cpu = time.perf_counter(), time.process_time()
        await waves.publish(parts)
        cpu.append((time.process_time() - start_cpu) / count * 1e6)
        ours.append(count / (time.perf_counter() - start))
        sizes.append(count / (local.store.statistics().commits - commits))
        if not turn % 2:
            raw.append(await asyncio.to_thread(raw_commits, data / "raw", count, sizes[-1]))
    garbage.stop()
    await local.stop()
    ratios = [a / b for a, b in zip(ours, raw, strict=True)]
    put(
        name,
        kernel_per_s=round(median(ours)),
        raw_per_s=round(median(raw)),
        ratio=round(median(ratios), 2),
        spread=[round(each, 2) for each in ratios],
        messages_per_commit=round(median(sizes)),
        cpu_us=round(median(cpu), 2),
        cpu_us_least=round(min(cpu), 2),
    )


def made(count: int) -> list[Columns]:
    """So many messages."""
    pack = messages.HEADER.pack
    heads = [
        pack(1, 0, 0, 0, len(BODY), 0, 0, 1, number, 0, 0, 0, 0, 0, 0) for number in range(count)
    ]
    return [
        Columns(some, [BODY] * len(some), [SIZE] * len(some))
        for some in (heads[at : at + BATCH] for at in range(0, count, BATCH))
    ]


def raw_commits(path: Path, count: int, per_commit: float) -> float:
    """Messages a second of a loop that writes as many pieces, with one fdatasync each."""
    commits = max(1, round(count / per_commit))
    chunk = bytes(count * SIZE // commits)
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.posix_fallocate(file, 0, len(chunk) * commits)
        os.fsync(file)
        start = time.perf_counter()
        for number in range(commits):
            os.pwrite(file, chunk, number * len(chunk))
            os.fdatasync(file)
        return count / (time.perf_counter() - start)
    finally:
        os.close(file)
        path.unlink()
