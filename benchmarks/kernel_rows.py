"""Kernel benchmarks without an adapter: speed beside raw group commit, memory, space, latency.

    python benchmarks/kernel_rows.py speed|memory|features|space|snapshot|rewrite [--data DIR]

Each row prints one line of JSON. `speed` alternates our kernel with a bare loop that writes as many
bytes with as many fdatasyncs; `memory` and `space` print what the bounds of the README are about;
`snapshot` and `rewrite` (`kernel_latency`) what a publish waits while housekeeping works.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.kernel_latency import rewrite_rows, snapshot_rows
from benchmarks.kernel_load import Drain, Publisher, make_topic, open_at, put, rss_mb, used
from benchmarks.kernel_speed import speed
from gateway.app import SWITCH_INTERVAL_S, loop_factory
from kernel.api.client import ConsumerSpec, ReceiveSpec
from kernel.api.model import TopicOptions


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


async def calm(data: Path) -> None:
    """Return once housekeeping has nothing left to do: two checkpoints' time without a change."""
    before, unchanged = -1, 0
    for _ in range(60):
        await asyncio.sleep(3)
        now = used(data)
        before, unchanged = now, unchanged + 1 if now == before else 0
        if unchanged == 7:
            return


async def space(data: Path, gigabytes: float) -> None:
    """Bytes on disk after much has gone through: one stuck message; 50 queues with one unacked in
    every 200.
    """
    count = int(gigabytes * 1_000_000)
    for row, queues, every in (("space-one-stuck", 1, count), ("space-50-queues", 50, 200)):
        local = await open_at(data / row)
        session = local.client.open_session("bench")
        topics = [await make_topic(local, f"q{n}", TopicOptions()) for n in range(queues)]
        sink = Drain(local, every)
        for topic in topics:
            consumer = local.client.attach(ConsumerSpec(topic, "default", session), sink)
            consumer.grant(2_000)
        highest = beyond = 0
        publisher = Publisher(local, session, topics)
        for done in range(0, count, 100_000):
            await publisher.publish(100_000)
            await sink.until(done + 100_000)
            now = used(data / row)
            highest = max(highest, now)
            beyond = max(beyond, now - 5 * local.store.journal.statistics().live_bytes)
        await calm(data / row)
        journal = local.store.journal.statistics()
        put(
            row,
            gigabytes=gigabytes,
            highest_mb=highest // 10**6,
            beyond_5x_live_mb=beyond // 10**6,
            after_mb=used(data / row) // 10**6,
            live_mb=journal.live_bytes // 10**6,
            rewritten_mb=journal.rewritten_bytes // 10**6,
            rss_mb=round(rss_mb()),
        )
        await local.stop()


def main() -> None:
    """Run the rows asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "rows", choices=("speed", "memory", "features", "space", "snapshot", "rewrite"), nargs="+"
    )
    parser.add_argument("--data", type=Path, default=Path(".bench/kernel"))
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--gigabytes", type=float, default=5)
    options = parser.parse_args()
    shutil.rmtree(options.data, ignore_errors=True)
    sys.setswitchinterval(SWITCH_INTERVAL_S)  # as a node does
    for row in options.rows:
        if row == "speed":
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(speed(options.data, options.messages // 25))
        elif row == "memory":
            asyncio.run(memory(options.data, options.messages))
        elif row == "features":
            asyncio.run(memory_features(options.data, options.messages))
        elif row == "snapshot":
            asyncio.run(snapshot_rows(options.data, options.messages))
        elif row == "rewrite":
            asyncio.run(rewrite_rows(options.data))
        else:
            asyncio.run(space(options.data, options.gigabytes))
    shutil.rmtree(options.data, ignore_errors=True)


if __name__ == "__main__":
    main()
