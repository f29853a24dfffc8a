"""What publishers and consumers notice while a topic under load gets other queues.

    python benchmarks/resize_row.py [--seconds 5] [--rounds 5] [--write benchmarks/RESULTS.md]

Three `weir store` and a `weir gateway` with default timeouts. Four publishers with confirms, 250
messages a second each of 1 KB, one by one, and a consumer that acks them. Then, in each round, the
topic of one queue gets 16, and 4, and is left alone for as long; a new topic is used in the next
round. What each message took until its confirm, and the longest time without a confirm and without
a delivery: in the seconds before, and in those from each change on.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pika

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import results
from benchmarks.cluster_peers import DATA_GROUPS, Stores
from benchmarks.session import ROOT, circumstances, load_average

PUBLISHERS = 4
PERIOD_S = 0.004
SIZES = (16, 4)
DURABLE = pika.BasicProperties(delivery_mode=2)
PAUSE_MS_MAX = 2_000.0
"""What a change may hold up, as the chaos campaigns are held to it."""


class Confirmed(NamedTuple):
    """A message that was confirmed."""

    at: float
    took: float


class Load:
    """Publishers and a consumer of one topic, each a thread with a connection."""

    def __init__(self, port: int, topic: str) -> None:
        self._url = f"amqp://guest:guest@127.0.0.1:{port}/%2f?heartbeat=0"
        self._topic = topic
        self._over = threading.Event()
        self.confirmed: list[Confirmed] = []
        self.delivered: list[float] = []
        self._threads = [threading.Thread(target=self._publish) for _ in range(PUBLISHERS)]
        self._threads.append(threading.Thread(target=self._consume))
        for each in self._threads:
            each.start()

    def _publish(self) -> None:
        with pika.BlockingConnection(pika.URLParameters(self._url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            due = time.perf_counter()
            while not self._over.is_set():
                started = time.perf_counter()
                channel.basic_publish("", self._topic, bytes(1_000), DURABLE)
                ended = time.perf_counter()
                self.confirmed.append(Confirmed(ended, ended - started))
                due = max(due + PERIOD_S, ended - PERIOD_S)
                time.sleep(max(due - ended, 0))

    def _consume(self) -> None:
        with pika.BlockingConnection(pika.URLParameters(self._url)) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=200)
            for method, _, _ in channel.consume(self._topic, inactivity_timeout=0.2):
                if self._over.is_set():
                    return
                if method is not None:
                    channel.basic_ack(method.delivery_tag)
                    self.delivered.append(time.perf_counter())

    def end(self) -> None:
        """Have it end."""
        self._over.set()
        for each in self._threads:
            each.join(30)


class Seen(NamedTuple):
    """What was noticed in some seconds, in milliseconds."""

    p50: float
    p99: float
    confirms_pause: float
    deliveries_pause: float


def seen(load: Load, start: float, end: float) -> Seen:
    """Within these times."""
    took = sorted(each.took for each in load.confirmed if start < each.at < end)
    confirms = sorted(each.at for each in load.confirmed if start < each.at < end)
    deliveries = [each for each in load.delivered if start < each < end]
    if not took or not deliveries:
        raise SystemExit("nothing went through")
    return Seen(
        took[len(took) // 2] * 1e3,
        took[len(took) * 99 // 100] * 1e3,
        _pause(start, confirms, end),
        _pause(start, deliveries, end),
    )


def _pause(start: float, times: list[float], end: float) -> float:
    return max(after - before for before, after in pairwise([start, *times, end])) * 1e3


def measured(folder: Path, rounds: int, seconds: float) -> dict[str, Seen]:
    """The medians of what was noticed."""
    found: dict[str, list[Seen]] = {}
    with contextlib.ExitStack() as stack:
        cluster = Stores(folder, stack, DATA_GROUPS)
        cluster.form()
        gateway = cluster.start_gateway("gateway").serves()
        for number in range(rounds):
            name = f"resized-{number}"
            made = gateway.api("POST", "/topics", {"name": name, "type": "work", "queues": 1})
            assert made.status == 201, made.body
            load = Load(gateway.listeners["amqp.tcp"], name)
            time.sleep(2.0)
            steps: list[tuple[str, float]] = [("as it is", time.perf_counter())]
            time.sleep(seconds)
            for size in SIZES:
                steps.append((f"from the change to {size} queues on", time.perf_counter()))
                body = {"queues": size, "by_key": True}
                asked = gateway.api("POST", f"/topics/{name}/resize", body)
                assert asked.status == 200, asked.body
                time.sleep(seconds)
            load.end()
            for what, start in steps:
                found.setdefault(what, []).append(seen(load, start, start + seconds))
    return {
        what: Seen(*(median(column) for column in zip(*taken, strict=True)))
        for what, taken in found.items()
    }


def section(rows: dict[str, Seen], command: str, before: str) -> str:
    """The row as a section of the results page."""
    lines = [
        f"| {what} | {each.p50:.1f} | {each.p99:.1f} | {each.confirms_pause:.0f} "
        f"| {each.deliveries_pause:.0f} |\n"
        for what, each in rows.items()
    ]
    longest = max(max(each.confirms_pause, each.deliveries_pause) for each in rows.values())
    met = "met" if longest <= PAUSE_MS_MAX else "not met"
    return (
        "## A topic gets other queues under load: 1 to 16 to 4, 1,000 messages/s\n\n"
        "| | confirm p50 ms | confirm p99 ms | longest without a confirm, ms "
        "| without a delivery, ms |\n| --- | --- | --- | --- | --- |\n"
        f"{''.join(lines)}\n"
        f"Bar: nothing stands still for more than {PAUSE_MS_MAX / 1e3:g} s: {met}. Medians of the "
        "rounds; the clients share the machine with 3 stores and a gateway.\n\n"
        f"{circumstances(command, before)}\n"
    )


def main() -> None:
    """Measure, and write the row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / ".bench" / "resize")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--write", type=Path, help="page whose section of the row is renewed")
    options = parser.parse_args()
    shutil.rmtree(options.data, ignore_errors=True)
    options.data.mkdir(parents=True)
    before = load_average()
    rows = measured(options.data, options.rounds, options.seconds)
    shutil.rmtree(options.data, ignore_errors=True)
    command = f"python benchmarks/resize_row.py --rounds {options.rounds}"
    text = section(rows, f"{command} --seconds {options.seconds:g}", before)
    print(text)
    if options.write is not None:
        results.write(options.write, "resize", text)


if __name__ == "__main__":
    main()
