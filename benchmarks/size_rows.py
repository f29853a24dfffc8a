"""What it costs that topics have a size: CPU of a node that looks at each of them every second.

    python benchmarks/size_rows.py [--topics 1000] [--seconds 20] [--write benchmarks/RESULTS.md]

Fills a data directory with so many topics, has `weir serve` serve it, and takes its CPU: as it is,
then with a size that grows and shrinks for each topic, then with one by which publishers fail at
once. Nobody publishes. Besides, CPU of one publish by AMQP to such a topic, confirmed one by one,
and to one that has no size.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pika

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import results
from benchmarks.kernel_load import put
from benchmarks.load.procfs import cpu_s
from benchmarks.many_rows import STEP, make, opened
from benchmarks.scrape_row import Server
from benchmarks.session import ROOT, circumstances, load_average
from kernel.api.changes import PutRecord
from kernel.definitions.topic_sizes import Above, TopicSize, encode, key_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.api.model import TopicInfo

PUBLISHES = 3_000
SETTLES_S = 3.0
"""After a start, before anything is taken."""

BY_ITSELF = "between two sizes"
FAILS = "publishers fail above it"


async def prepare(data: Path, topics: int) -> None:
    """The topics."""
    async with opened(data) as local:
        for first in range(0, topics, STEP):
            await make(local, first, min(first + STEP, topics))


async def give_sizes(data: Path, topics: int, size: Callable[[TopicInfo], TopicSize]) -> None:
    """Each of them has a size, as the API gives it."""
    async with opened(data) as local:
        client = local.client
        for number in range(topics):
            topic = client.topic("default", f"queue-{number}")
            assert topic is not None
            key = key_of(topic.tenant, topic.name)
            version = client.records(key)[key][0] if client.records(key) else 0
            await client.administer(PutRecord(key, encode(size(topic)), version))


def publish_us(server: Server, queue: str) -> float:
    """Microseconds of the server's CPU for one message of 1 KB that is confirmed by itself."""
    url = f"amqp://guest:guest@127.0.0.1:{server.amqp}/%2f?heartbeat=0"
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        before = cpu_s([server.process.pid])
        for _ in range(PUBLISHES):
            channel.basic_publish("", queue, bytes(1_000))
        return (cpu_s([server.process.pid]) - before) / PUBLISHES * 1e6


def measure(data: Path, seconds: float) -> tuple[float, float]:
    """Percent of a core that it takes with nothing to do, and CPU of a publish."""
    server = Server(data)
    try:
        server.wait()
        time.sleep(SETTLES_S)
        before, started = cpu_s([server.process.pid]), time.perf_counter()
        time.sleep(seconds)
        used = cpu_s([server.process.pid]) - before
        idle = used / (time.perf_counter() - started) * 100
        return idle, publish_us(server, "queue-0")
    finally:
        server.stop()


def section(rows: dict[str, tuple[float, float]], command: str, before: str) -> str:
    """The row as a section of the results page."""
    lines = [f"| {name} | {idle:.2f} | {us:.0f} |\n" for name, (idle, us) in rows.items()]
    return (
        "## Topics with a size, which are looked at every second\n\n"
        "| | % of a core, nothing to do | CPU of a publish, us |\n| --- | --- | --- |\n"
        f"{''.join(lines)}\n"
        f"{circumstances(command, before)}\n"
    )


def main() -> None:
    """Measure, and write the row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / ".bench" / "sizes")
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--write", type=Path, help="page whose section of the row is renewed")
    options = parser.parse_args()
    shutil.rmtree(options.data, ignore_errors=True)
    before, topics = load_average(), options.topics
    sizes = {
        BY_ITSELF: lambda topic: TopicSize(topic.id, 500, 0, 50_000, 0, by_key=True),
        FAILS: lambda topic: TopicSize(topic.id, 50_000, 0, 50_000, 0, above=Above.FAIL),
    }
    rows: dict[str, tuple[float, float]] = {}
    try:
        asyncio.run(prepare(options.data, topics))
        rows[f"{topics:,} topics without a size"] = measure(options.data, options.seconds)
        for name, size in sizes.items():
            asyncio.run(give_sizes(options.data, topics, size))
            rows[f"each of them has one: {name}"] = measure(options.data, options.seconds)
    finally:
        shutil.rmtree(options.data, ignore_errors=True)
    for name, (idle, us) in rows.items():
        put(name, idle_percent=round(idle, 2), publish_us=round(us))
    if options.write is not None:
        command = f"python benchmarks/size_rows.py --topics {topics}"
        results.write(options.write, "sizes", section(rows, command, before))


if __name__ == "__main__":
    main()
