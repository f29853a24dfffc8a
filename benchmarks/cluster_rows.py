"""What many Raft groups cost, and what the loss of a leader does to publishers.

    python benchmarks/cluster_rows.py groups|idle|kill [--rounds N] [--write benchmarks/RESULTS.md]

`groups`: CPU a message, of one store with 1, 4 and 16 groups, 8 producers of 1 KB messages, a topic
each; the three stores in one process take turns. `idle`: CPU and memory of three `weir store`
processes with 4, 16 and 64 groups that nobody uses. `kill`: three `weir store` and a `weir
gateway`, default timeouts; AMQP publishes with confirms go on while the leader of the queue's group
is killed (SIGKILL): the longest time without a confirm. The store that was killed is started again
before the next round.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pika
import pika.exceptions

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import results
from benchmarks.cluster_peers import Stores
from benchmarks.kernel_load import Drain, Publisher, fail, make_topic, put
from gateway.app import SWITCH_INTERVAL_S, loop_factory
from kernel.api.client import ConsumerSpec
from kernel.api.model import TopicInfo, TopicOptions
from kernel.in_process.opening import LocalStore, open_store
from kernel.store.drivers.disk import DirectoryDisk
from kernel.store.drivers.system import SystemClock, SystemRandom
from kernel.store.drivers.worker import Worker
from kernel.store.drivers.write_ring import open_ring
from tests.gateway.cluster import until

if TYPE_CHECKING:
    from tests.gateway.serving import Process

PRODUCERS = 8
GROUPS = (1, 4, 16)
BURST = 10_000
"""Messages of one producer and burst."""

IDLE_GROUPS = (4, 16, 64)
IDLE_S = 20.0
QUEUE = "kill"
TICKS = os.sysconf("SC_CLK_TCK")


# --- groups ---------------------------------------------------------------------------------------


async def opened(data: Path, groups: int) -> LocalStore:
    """A started store with so many groups for data."""
    loop = asyncio.get_running_loop()
    data.mkdir(parents=True)  # noqa: ASYNC240 - before anything is measured
    store = open_store(
        DirectoryDisk(data, open_ring(loop)),
        SystemClock(),
        SystemRandom(),
        lambda name: Worker(loop, name),
        fail,
        data_groups=groups,
    )
    await store.start()
    return store


async def burst_us(store: LocalStore, topics: list[TopicInfo]) -> float:
    """CPU a message that is published, consumed and acked, each producer with a topic."""
    session = store.client.open_session("bench")
    sink = Drain(store)
    consumers = [
        store.client.attach(ConsumerSpec(each, "default", session), sink) for each in topics
    ]
    for consumer in consumers:
        consumer.grant(2_000)
    began = time.process_time()
    publishers = [Publisher(store, session, [topic]) for topic in topics]
    await asyncio.gather(*(each.publish(BURST) for each in publishers))
    await sink.until(BURST * len(topics))
    spent = time.process_time() - began
    for consumer in consumers:
        consumer.cancel()
    return spent / (BURST * len(topics)) * 1e6


async def groups_row(data: Path, rounds: int) -> dict[str, float]:
    """See the module's head."""
    stores = {count: await opened(data / str(count), count) for count in GROUPS}
    topics = {
        count: [await make_topic(store, f"t{n}", TopicOptions()) for n in range(PRODUCERS)]
        for count, store in stores.items()
    }
    spent: dict[int, list[float]] = {count: [] for count in GROUPS}
    for number in range(rounds + 1):
        for count in GROUPS if number % 2 else reversed(GROUPS):
            took = await burst_us(stores[count], topics[count])
            if number:
                spent[count].append(took)
    for store in stores.values():
        await store.stop()
    least = {f"{count} groups: CPU us a message": median(spent[count]) for count in GROUPS}
    ratios = [max(each) / min(each) for each in zip(*spent.values(), strict=True)]
    found = {name: round(each, 2) for name, each in least.items()}
    return found | {
        "most over least": round(max(least.values()) / min(least.values()), 3),
        "most over least, a round": round(median(ratios), 3),
    }


# --- processes ------------------------------------------------------------------------------------


def cpu_s(process: Process) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{process.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mb(process: Process) -> float:
    """Memory that a process has."""
    pages = int(Path(f"/proc/{process.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def idle_row(data: Path, _rounds: int) -> dict[str, float]:
    """See the module's head."""
    found: dict[str, float] = {}
    for groups in IDLE_GROUPS:
        with contextlib.ExitStack() as stack:
            cluster = Stores(data / str(groups), stack, groups)
            (data / str(groups)).mkdir()
            cluster.form()
            time.sleep(30)  # checkpoints, and rest
            stores = cluster.stores.values()
            before = sum(map(cpu_s, stores))
            time.sleep(IDLE_S)
            spent = (sum(map(cpu_s, stores)) - before) / IDLE_S * 100
            memory = sum(map(resident_mb, stores)) / len(stores)
        found[f"{groups} groups: % of a core, all three stores"] = round(spent, 2)
        found[f"{groups} groups: MB of memory, a store"] = round(memory, 1)
    return found


class Confirms(threading.Thread):
    """Publishes one message after the other, and notes when each was confirmed."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self.times: list[float] = []
        self.ended = False

    def run(self) -> None:
        """Until `ended`; a lost connection or a negative answer is tried again."""
        url = f"amqp://guest:guest@127.0.0.1:{self._port}/%2f?heartbeat=0"
        while not self.ended:
            try:
                connection = pika.BlockingConnection(pika.URLParameters(url))
                channel = connection.channel()
                channel.queue_declare(QUEUE, durable=True)
                channel.confirm_delivery()
                while not self.ended:
                    channel.basic_publish(
                        "", QUEUE, b"x" * 1_000, pika.BasicProperties(delivery_mode=2)
                    )
                    self.times.append(time.monotonic())
                    time.sleep(0.005)
            except (pika.exceptions.AMQPError, OSError):
                time.sleep(0.05)

    def wait_beyond(self, moment: float) -> None:
        """Return once something was confirmed after a moment."""
        until(lambda: self.times[-1] > moment, "publishes go on")

    def gap_s(self, start: float, end: float) -> float:
        """The longest time without a confirm within these."""
        marks = [start, *(each for each in self.times if start < each < end), end]
        return max(after - before for before, after in pairwise(marks))


def kill_row(data: Path, rounds: int) -> dict[str, float]:
    """See the module's head."""
    gaps: list[float] = []
    with contextlib.ExitStack() as stack:
        cluster = Stores(data, stack, 1)
        cluster.form()
        gateway = cluster.start_gateway("gateway").serves()
        publisher = Confirms(gateway.listeners["amqp.tcp"])
        publisher.start()
        until(lambda: len(publisher.times) > 50, "publishes go through")
        for _ in range(rounds):
            leader = cluster.leaders()[1]
            killed = time.monotonic()
            cluster.stores[leader].kill()
            publisher.wait_beyond(killed + 0.5)
            time.sleep(2)
            gaps.append(publisher.gap_s(killed - 1, time.monotonic()))
            put("kill", gap_s=round(gaps[-1], 2))
            cluster.start_store(leader)
            cluster.stores[leader].serves()
            until(lambda: all(cluster.leaders().values()), "every group is led")
            time.sleep(5)
        publisher.ended = True
        publisher.join(10)
    gaps.sort()
    return {
        "p50 s": round(median(gaps), 2),
        "least s": round(gaps[0], 2),
        "most s": round(gaps[-1], 2),
        "rounds": rounds,
    }


# --- all ------------------------------------------------------------------------------------------

TITLES = {
    "groups": "Kernel: CPU a message with many Raft groups, 8 producers, 1 KB",
    "idle": "Cluster: CPU and memory of three stores with groups that nobody uses",
    "kill": "Cluster: time without a confirmed publish when a leader is killed, default timeouts",
}
BARS = {("groups", "most over least"): 1.15, ("kill", "p50 s"): 3.0}


def section(row: str, found: dict[str, float], command: str, load: str) -> str:
    """The row as a section of the results page."""
    lines = []
    for name, figure in found.items():
        limit = BARS.get((row, name))
        bar = "" if limit is None else f"≤ {limit}"
        met = "" if limit is None else "yes" if figure <= limit else "**no**"
        lines.append(f"| {name} | {figure:,} | {bar} | {met} |\n")
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return (
        f"## {TITLES[row]}\n\n| figure | | bar | met |\n| --- | --- | --- | --- |\n"
        f"{''.join(lines)}\n`{command}`, {date}, load average before {load}.\n"
    )


def main() -> None:
    """Run the rows asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", choices=tuple(TITLES))
    parser.add_argument("--data", type=Path, default=Path(".bench/cluster"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write", type=Path, help="page whose section of the row is renewed")
    options = parser.parse_args()
    shutil.rmtree(options.data, ignore_errors=True)
    options.data.mkdir(parents=True)
    data = options.data.resolve()
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    if options.row == "groups":
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            found = runner.run(groups_row(data, options.rounds))
    else:
        found = {"idle": idle_row, "kill": kill_row}[options.row](data, options.rounds)
    put(options.row, **found)
    shutil.rmtree(options.data, ignore_errors=True)
    if options.write is not None:
        command = f"python benchmarks/cluster_rows.py {options.row} --rounds {options.rounds}"
        text = section(options.row, found, command, load)
        results.write(options.write, f"cluster-{options.row}", text)


if __name__ == "__main__":
    main()
