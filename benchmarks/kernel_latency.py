"""How long a publish waits while the store's housekeeping works, beside how long it waits without.

`snapshot`: a million messages are leased, and a checkpoint comes every 10 s. `rewrite`: segments in
which one message in 200 is left are rewritten. Meanwhile a probe publishes one durable message of
1 KB every PERIOD_S, on time whatever came of the ones before; its latency counts from when it was
due, so that a stall is felt by everyone whom it would have met. Each round is a stretch of time
with the work and the one without just before or after it: the ratio of their p99 is one figure.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.kernel_load import BODY, Drain, Publisher, make_topic, open_at, put
from gateway.app import SWITCH_INTERVAL_S
from gateway.process.garbage import Garbage
from kernel.api import message as messages
from kernel.api.client import ConsumerSpec, PublishBatch, ReceiveSpec
from kernel.api.model import TopicInfo, TopicOptions
from kernel.in_process.opening import LocalStore
from kernel.store.space.housekeeper import SPARSE_BYTES_MIN

PERIOD_S = 0.002

SAMPLES_MIN = 100

NEVER = 1 << 40
"""`sparse_bytes_min` with which nothing is rewritten."""


class Due(NamedTuple):
    """When a message was due, and what housekeeping did when it was published."""

    at: float
    did: str


class Probe:
    """Publishes on time; (due, latency in seconds, what housekeeping did) of each message."""

    def __init__(self, local: LocalStore, topic: TopicInfo) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)  # as a node does
        self._local = local
        self._session = local.client.open_session("probe")
        self._to = local.client.to_topic(topic)
        self._loop = asyncio.get_running_loop()
        self._due = 0.0
        self._until = 0.0
        self._done = self._loop.create_future()
        self.samples: list[tuple[float, float, str]] = []

    async def run(self, seconds: float) -> None:
        """Publish for so long."""
        self._due = time.perf_counter()
        self._until = self._due + seconds
        self._done = self._loop.create_future()
        self._next()
        await self._done
        await asyncio.sleep(0.5)

    def _next(self) -> None:
        now = time.perf_counter()
        while self._due <= now:
            batch = self._local.client.batch(self._session, self)
            batch.tag = Due(self._due, self._local.housekeeper.under_way)
            header = messages.HEADER.pack(
                1, 0, 0, 0, len(BODY), 0, 0, *batch.uid(), 0, 0, 0, 0, 0, 0
            )
            batch.add(self._to, (header, BODY), messages.HEADER_BYTES + len(BODY))
            self._local.client.submit(batch)
            self._due += PERIOD_S
        if now < self._until:
            self._loop.call_later(max(0.0, self._due - time.perf_counter()), self._next)
        else:
            self._done.set_result(None)

    def published(self, batch: PublishBatch) -> None:
        """The message is on disk."""
        assert batch.failures is None, batch.failures
        due = batch.tag
        assert isinstance(due, Due)
        did = due.did or self._local.housekeeper.under_way
        self.samples.append((due.at, time.perf_counter() - due.at, did))


def rounds(samples: list[tuple[float, float, str]], work: str) -> list[tuple[float, float]]:
    """(p99 with the work, p99 without) in seconds of each stretch of it, paired with what lies
    between it and the one before (or, for the first, behind it).
    """
    stretches: list[tuple[bool, list[float]]] = []
    for _due, latency, did in sorted(samples):
        working = did == work
        if did not in (work, ""):
            continue
        if not stretches or stretches[-1][0] is not working:
            stretches.append((working, []))
        stretches[-1][1].append(latency)
    long = [each for each in stretches if len(each[1]) >= SAMPLES_MIN]
    found = []
    for (is_first, one), (_, other) in zip(long[::2], long[1::2], strict=False):
        found.append((p99(one), p99(other)) if is_first else (p99(other), p99(one)))
    return found


def p99(values: list[float]) -> float:
    """The value that one in a hundred exceeds."""
    return sorted(values)[-1 - len(values) // 100]


def report(row: str, pairs: list[tuple[float, float]], **more: object) -> None:
    """The row of all pairs."""
    if not pairs:
        raise SystemExit(f"{row}: too little of the work was seen")
    put(
        row,
        rounds=len(pairs),
        p99_with_ms=round(1e3 * median(each for each, _ in pairs), 2),
        p99_without_ms=round(1e3 * median(each for _, each in pairs), 2),
        ratio=round(median(a / b for a, b in pairs), 2),
        spread=[round(a / b, 2) for a, b in pairs],
        **more,
    )


async def snapshot_rows(data: Path, leases: int, seconds: float = 75) -> None:
    """Publish p99 during snapshots with so many leases."""
    garbage = Garbage(asyncio.get_running_loop())  # as a node does
    local = await open_at(data / "leases")
    session = local.client.open_session("bench")
    topic = await make_topic(local, "leased", TopicOptions())
    await Publisher(local, session, [topic]).publish(leases)
    spec = ReceiveSpec(topic, "default", messages=5_000, lease_ms=3_600_000)
    leased = 0
    while leased < leases:
        leased += len((await local.client.receive(spec)).tokens)
    probe = Probe(local, await topic_beside(local, topic))
    garbage.start()
    await asyncio.sleep(12)  # the checkpoint of all this
    before = local.housekeeper.checkpoints
    await probe.run(seconds)
    report(
        "publish-during-snapshot",
        rounds(probe.samples, "checkpoint"),
        leases=leased,
        checkpoints=local.housekeeper.checkpoints - before,
        max_with_ms=worst(probe, "checkpoint"),
        max_without_ms=worst(probe, ""),
    )
    garbage.stop()
    await local.stop()


async def topic_beside(local: LocalStore, other: TopicInfo) -> TopicInfo:
    """A topic in the same Raft group: only groups that change have a new snapshot made."""
    for number in range(100):
        topic = await make_topic(local, f"probed-{number}", TopicOptions())
        if topic.queues[0].group == other.queues[0].group:
            return topic
    raise AssertionError("100 topics, and none of them in that group")


def worst(probe: Probe, work: str) -> float:
    """The longest latency, in ms."""
    return round(1e3 * max((each for _, each, did in probe.samples if did == work), default=0), 1)


async def rewrite_rows(data: Path, megabytes: int = 600, repeat: int = 5) -> None:
    """Publish p99 while segments are rewritten: all samples of a store's start, in two heaps."""
    pairs: list[tuple[float, float]] = []
    highest: dict[str, float] = {"rewrite": 0.0, "": 0.0}
    rewritten = 0
    for turn in range(repeat):
        local = await open_at(data / f"sparse{turn}", sparse_bytes_min=NEVER)
        session = local.client.open_session("bench")
        topics = [await make_topic(local, f"q{n}", TopicOptions()) for n in range(8)]
        sink = Drain(local, 200)
        for topic in topics:
            local.client.attach(ConsumerSpec(topic, "default", session), sink).grant(2_000)
        load = Publisher(local, session, topics)
        load.body = 10 * BODY
        await load.publish(megabytes * 100)
        await sink.until(megabytes * 100)
        await local.stop()
        local = await open_at(data / f"sparse{turn}", sparse_bytes_min=NEVER)
        probe = Probe(local, await make_topic(local, "probed", TopicOptions()))
        await probe.run(3)
        local.housekeeper.sparse_bytes_min = SPARSE_BYTES_MIN
        await probe.run(6)
        during = [latency for _, latency, did in probe.samples if did == "rewrite"]
        without = [latency for _, latency, did in probe.samples if not did]
        if len(during) >= SAMPLES_MIN:
            pairs.append((p99(during), p99(without)))
        highest = {work: max(old, worst(probe, work)) for work, old in highest.items()}
        rewritten += local.store.journal.statistics().rewrites
        await local.stop()
    report(
        "publish-during-rewrite",
        pairs,
        segments=rewritten,
        max_with_ms=highest["rewrite"],
        max_without_ms=highest[""],
    )
