"""Scrapes of one node with very many topics, and what they do to who publishes meanwhile.

    python benchmarks/scrape_row.py [--topics 100000] [--seconds 20] [--write benchmarks/RESULTS.md]

Fills a data directory with so many topics, a message in each, and has `weir serve` serve it. One
AMQP publisher sends messages of 1 KB, each after the confirm of the one before, and notes how long
each took: by itself, then while another process scrapes /metrics each two seconds, then while it
scrapes a family of /metrics/detailed after the other. The server runs on the first core, publisher
and scraper on the second, where the scraper gives way: in life it runs elsewhere.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

import pika

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import results
from benchmarks.kernel_load import put
from benchmarks.load.procfs import cpu_s
from benchmarks.many_rows import STEP, fill, make, opened
from benchmarks.peers import free_port
from benchmarks.session import ROOT, circumstances, load_average
from gateway.admin.metrics.topic_families import FAMILIES

LISTENERS = ("amqp", "mqtt", "sqs", "rocketmq")
READY_S = 120.0
METERED_S = 80.0
"""A window of the metering is a minute; the rows of 100,000 topics take some seconds more."""
STOP_S = 120.0
SCRAPE_S = 2.0
P99_RATIO_MAX = 1.5
SCRAPE_S_MAX = 1.0


async def prepare(data: Path, topics: int) -> None:
    """The topics, each with a message."""
    async with opened(data) as local:
        for first in range(0, topics, STEP):
            await make(local, first, min(first + STEP, topics))
        await fill(local, topics, 1, 100)


class Server:
    """`weir serve` on a data directory."""

    def __init__(self, data: Path) -> None:
        self.amqp, self.admin, self._data = free_port(), free_port(), data
        ports = [f"amqp.port={self.amqp}", f"node.admin.port={self.admin}"]
        ports += [f"{each}.enabled=false" for each in LISTENERS[1:]]
        ports += ["amqp.listeners.tls.enabled=false"]
        flags = [word for each in ports for word in ("--set", each)]
        command = ["taskset", "-c", "0", sys.executable, "-m", "gateway", "serve"]
        command += ["--data", str(data), *flags]
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)

    def scrape(self, path: str) -> tuple[float, int]:
        """Seconds and bytes of one scrape."""
        token = (self._data / "admin.token").read_text().strip()
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=60)
        started, size = time.perf_counter(), 0
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        while part := response.read(1 << 20):
            size += len(part)
        connection.close()
        assert response.status == 200, response.status
        return time.perf_counter() - started, size

    def wait(self) -> None:
        """Until it serves."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                self.scrape("/metrics")
                return
            time.sleep(0.2)
        raise SystemExit("it does not serve")

    def cpu_s(self) -> float:
        """Seconds of a core that it has used."""
        return cpu_s([self.process.pid])

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(STOP_S)


@contextlib.contextmanager
def served(data: Path, topics: int) -> Iterator[Server]:
    """A node with so many topics on the first core; this process is on the second."""
    shutil.rmtree(data, ignore_errors=True)
    asyncio.run(prepare(data, topics))
    server = Server(data)
    os.sched_setaffinity(0, {1})
    try:
        server.wait()
        yield server
    finally:
        server.stop()
        shutil.rmtree(data, ignore_errors=True)


def publish(port: int, seconds: float) -> list[float]:
    """Milliseconds that each confirmed message took."""
    url = f"amqp://guest:guest@127.0.0.1:{port}/%2f?heartbeat=0"
    took: list[float] = []
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare("latency", durable=True)
        channel.confirm_delivery()
        properties, body = pika.BasicProperties(delivery_mode=2), bytes(1_000)
        ends = time.perf_counter() + seconds
        while (started := time.perf_counter()) < ends:
            channel.basic_publish("", "latency", body, properties)
            took.append((time.perf_counter() - started) * 1_000)
    return took


@contextlib.contextmanager
def scraping(server: Server, paths: list[str], every_s: float) -> Iterator[list[float]]:
    """Another process scrapes these in turn, if there are any; how long each took, in s, stands in
    the list afterwards.
    """
    took: list[float] = []
    if not paths:
        yield took
        return
    hears, says = os.pipe()
    child = os.fork()
    if not child:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        for path in itertools.cycle(paths):
            one, _ = server.scrape(path)
            os.write(says, b"%f\n" % one)
            time.sleep(max(0.0, every_s - one))
    os.close(says)
    try:
        yield took
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        with os.fdopen(hears, "rb") as pipe:
            took += map(float, pipe)


def measure(server: Server, seconds: float) -> dict[str, float]:
    """See the module's head."""
    found: dict[str, float] = {}
    families = [f"/metrics/detailed?family={each}" for each in FAMILIES if each != "wait"]
    for path in ("/metrics", *families):
        runs = [server.scrape(path) for _ in range(5)]
        name = path.rpartition("=")[2].replace("/", "")
        found[f"{name}_s"] = round(median(each[0] for each in runs), 2)
        found[f"{name}_mb"] = round(runs[-1][1] / 1e6, 1)
    publish(server.amqp, 2)
    time.sleep(METERED_S)
    for name, paths in (("alone", []), ("metrics", ["/metrics"]), ("detailed", families)):
        with scraping(server, paths, SCRAPE_S) as scrapes:
            took = publish(server.amqp, seconds)
        if scrapes:
            found[f"{name}_beside_publisher_s"] = round(median(scrapes), 2)
        found[f"publish_p50_ms_{name}"] = round(median(took), 2)
        found[f"publish_p99_ms_{name}"] = round(quantiles(took, n=100)[98], 2)
    for name in ("metrics", "detailed"):
        ratio = found[f"publish_p99_ms_{name}"] / found["publish_p99_ms_alone"]
        found[f"publish_p99_ratio_{name}"] = round(ratio, 2)
    return found


def bar_of(name: str) -> float | None:
    """What a figure must not be above; None: nothing."""
    if name.endswith("_s"):
        return SCRAPE_S_MAX
    return P99_RATIO_MAX if "ratio" in name else None


def main() -> None:
    """Measure, and write the row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / ".bench" / "scrape")
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--write", type=Path, help="page whose section of the row is renewed")
    options = parser.parse_args()
    before = load_average()
    with served(options.data, options.topics) as server:
        found = measure(server, options.seconds)
    put("scrape", **found)
    if options.write is not None:
        command = f"python benchmarks/scrape_row.py --topics {options.topics}"
        title = "Metrics: a scrape of very many topics, and publishing meanwhile"
        how = circumstances(command, before)
        text = results.figures_section(title, found, bar_of, how)
        results.write(options.write, "scrape", text)


if __name__ == "__main__":
    main()
