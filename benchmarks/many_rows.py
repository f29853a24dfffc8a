"""Very many queues, and a restart with very many messages: kernel only, no adapter.

    python benchmarks/many_rows.py queues|sessions|restart [--queues 1000000] [--sessions 100000]
        [--write benchmarks/RESULTS.md]

`queues` makes so many queues on one node and puts a message of 100 bytes into each: memory of the
process before, between and after; then bursts of 1 KB messages to one further queue and to the only
queue of an empty store take turns, both in the same process; then the process is started anew.
`sessions` opens so many subscribers of the topic tree, as persistent MQTT sessions do, each with a
filter of its own, twenty at a time, and leaves them; what a connection costs is not counted. The
CPU time of the last fifth, checkpoints included, is held against that of the second 1,000.
`restart` fills 10,000 queues with 1,000,000 messages of 1 KB, is killed (SIGKILL) while it goes on
publishing and consuming, and starts anew. A start is timed from the call of a new process to the
first message published and confirmed; what was confirmed before is counted then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import results
from benchmarks.kernel_load import Drain, Publisher, make_topic, open_at, put, rss_mb
from gateway.app import SWITCH_INTERVAL_S, loop_factory
from gateway.process.garbage import Garbage
from kernel.api.client import ConsumerSpec, PutTopic
from kernel.api.model import GroupOptions, TopicInfo, TopicOptions
from kernel.api.tree import Subscriber, SubscriberSpec, Subscription
from kernel.in_process.opening import LocalStore

STEP = 500
"""Queues made, or published to, at once."""

AT_ONCE = 20
SOME = 1_000
ROUNDS = 9
BURST = 50_000
RESTART_QUEUES = 10_000
RESTART_MESSAGES = 1_000_000
UNDER_LOAD_S = 5.0


@asynccontextmanager
async def opened(data: Path) -> AsyncIterator[LocalStore]:
    """A store, the process set up as a node is."""
    garbage = Garbage(asyncio.get_running_loop())
    local = await open_at(data)
    garbage.start()
    try:
        yield local
    finally:
        garbage.stop()
        await local.stop()


async def make(local: LocalStore, first: int, last: int) -> list[TopicInfo]:
    """Queues number `first` to `last` (exclusive), as AMQP's queue.declare makes them."""
    made = await asyncio.gather(
        *(
            local.client.administer(
                PutTopic("default", f"queue-{n}", TopicOptions(), {"default": GroupOptions()})
            )
            for n in range(first, last)
        )
    )
    return [each for each in made if isinstance(each, TopicInfo)]


async def fill(local: LocalStore, count: int, per_queue: int, size: int) -> None:
    """So many messages for each of `count` queues."""
    session = local.client.open_session("bench")
    for first in range(0, count, STEP):
        names = range(first, min(first + STEP, count))
        found = (local.client.topic("default", f"queue-{n}") for n in names)
        topics = [each for each in found if each is not None]
        publisher = Publisher(local, session, topics)
        publisher.body = bytes(size)
        await publisher.publish(per_queue * len(topics))


async def burst_s(local: LocalStore, topic: TopicInfo) -> float:
    """Seconds of a burst to one queue, which is emptied afterwards."""
    session = local.client.open_session("burst")
    publisher = Publisher(local, session, [topic])
    started = time.perf_counter()
    await publisher.publish(BURST)
    took = time.perf_counter() - started
    sink = Drain(local)
    consumer = local.client.attach(ConsumerSpec(topic, "default", session), sink)
    consumer.grant(2_000)
    await sink.until(BURST)
    consumer.cancel()
    return took


async def queues(data: Path, count: int) -> dict[str, float]:
    """See the module's head."""
    async with opened(data / "full") as full:
        before = rss_mb()
        started = time.process_time()
        for first in range(0, count, STEP):
            await make(full, first, min(first + STEP, count))
        create_us = (time.process_time() - started) / count * 1e6
        made = rss_mb()
        started = time.process_time()
        await fill(full, count, 1, 100)
        fill_us = (time.process_time() - started) / count * 1e6
        await asyncio.sleep(20)  # a checkpoint
        filled = rss_mb()
        further = await make_topic(full, "further", TopicOptions())
        async with opened(data / "empty") as empty:
            only = await make_topic(empty, "only", TopicOptions())
            ratios = []
            for number in range(ROUNDS + 1):
                if number % 2:
                    there, here = await burst_s(empty, only), await burst_s(full, further)
                else:
                    here, there = await burst_s(full, further), await burst_s(empty, only)
                ratios.append(there / here)
    ratios = sorted(ratios[1:])
    return {
        "queues": count,
        "rss_mb_before": round(before),
        "rss_mb_made": round(made),
        "rss_mb_filled": round(filled),
        "cpu_us_a_queue_made": round(create_us),
        "cpu_us_a_message_in_each": round(fill_us, 1),
        "rate_over_empty": round(median(ratios), 2),
        "least": round(ratios[0], 2),
        "most": round(ratios[-1], 2),
    }


class _SubscriberConnection:
    """A session's connection."""

    def taken_over(self, subscriber: Subscriber) -> None:
        """Not expected."""
        raise AssertionError(subscriber)


async def connect(local: LocalStore, number: int) -> None:
    """What CONNECT, SUBSCRIBE and DISCONNECT of a persistent session ask of the kernel."""
    tree = local.client.tree
    spec = SubscriberSpec("default", f"client-{number}", clean=False, expiry_ms=None, will=None)
    subscriber = await tree.open(spec, _SubscriberConnection())
    await subscriber.subscribe(Subscription(f"devices/{number}/commands", ""), b"1")
    await subscriber.close(will=False, expiry_ms=-1)


async def connect_some(local: LocalStore, first: int, last: int) -> float:
    """CPU seconds of so many sessions."""
    started = time.process_time()
    for at in range(first, last, AT_ONCE):
        await asyncio.gather(*(connect(local, n) for n in range(at, min(at + AT_ONCE, last))))
    return time.process_time() - started


async def sessions(data: Path, count: int) -> dict[str, float]:
    """See the module's head."""
    async with opened(data) as local:
        await connect_some(local, 0, SOME)
        before = rss_mb()
        early_s = await connect_some(local, SOME, 2 * SOME)
        late = count // 5
        await connect_some(local, 2 * SOME, count - late)
        late_s = await connect_some(local, count - late, count) / late * SOME
        after = rss_mb()
    return {
        "sessions": count,
        "kib_each": round((after - before) / (count - SOME) * 1e6 / 1024, 2),
        "cpu_us_of_the_second_1000": round(early_s / SOME * 1e6),
        "cpu_us_of_the_last_fifth": round(late_s / SOME * 1e6),
        "rate_over_early": round(early_s / late_s, 2),
    }


async def load(data: Path) -> None:
    """Fill the store, then publish and consume until killed; a line for each step."""
    async with opened(data / "restart") as local:
        for first in range(0, RESTART_QUEUES, STEP):
            await make(local, first, first + STEP)
        await fill(local, RESTART_QUEUES, RESTART_MESSAGES // RESTART_QUEUES, 1_000)
        topic = await make_topic(local, "busy", TopicOptions())
        session = local.client.open_session("busy")
        sink = Drain(local)
        local.client.attach(ConsumerSpec(topic, "default", session), sink).grant(2_000)
        sys.stdout.write("filled\n")
        sys.stdout.flush()
        while True:
            await Publisher(local, session, [topic]).publish(10_000)


async def restarted(data: Path) -> dict[str, float]:
    """Open the store, publish one message, count what is there."""
    async with opened(data) as local:
        session = local.client.open_session("after")
        after = await make_topic(local, "after", TopicOptions())
        await Publisher(local, session, [after]).publish(1)
        serving, cpu_s = time.time(), time.process_time()
        queues = messages = 0
        for replica in local.store.replicas():
            for queue in replica.state.queues.values():
                queues += 1
                if queue.topic.name.startswith("queue-"):
                    messages += queue.index.tail - queue.groups["default"].floor
        return {
            "serving": serving,
            "restart_cpu_s": round(cpu_s, 1),
            "queues": queues,
            "messages": messages,
            "rss_mb": round(rss_mb()),
        }


def start_anew(data: Path) -> dict[str, float]:
    """Open a store in a process of its own: how long it took, what was there."""
    called = time.time()
    child = [sys.executable, __file__, "restarted", "--data", str(data)]
    out = subprocess.run(child, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(out)
    return {"restart_s": round(found.pop("serving") - called, 1), **found}


def killed_under_load(data: Path) -> dict[str, float]:
    """See the module's head."""
    command = [sys.executable, __file__, "load", "--data", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "filled\n"
        time.sleep(UNDER_LOAD_S)
        os.kill(child.pid, signal.SIGKILL)
    return start_anew(data / "restart")


def main() -> None:
    """Run a row, or be a process of one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", choices=("queues", "sessions", "restart", "load", "restarted"))
    parser.add_argument("--data", type=Path, default=Path(".bench/many"))
    parser.add_argument("--queues", type=int, default=1_000_000)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--write", type=Path, help="page whose section of the row is renewed")
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        if options.row == "load":
            runner.run(load(options.data))
            return
        if options.row == "restarted":
            sys.stdout.write(json.dumps(runner.run(restarted(options.data))))
            return
        shutil.rmtree(options.data, ignore_errors=True)
        before = " ".join(f"{each:.1f}" for each in os.getloadavg())
        if options.row == "queues":
            found = runner.run(queues(options.data, options.queues))
            again = start_anew(options.data / "full")
            found |= {f"again_{name}": figure for name, figure in again.items()}
        elif options.row == "sessions":
            found = runner.run(sessions(options.data, options.sessions))
        else:
            found = killed_under_load(options.data)
    put(options.row, **found)
    shutil.rmtree(options.data, ignore_errors=True)
    if options.write is not None:
        command = f"python benchmarks/many_rows.py {options.row}"
        if options.row == "queues":
            command += f" --queues {options.queues}"
        if options.row == "sessions":
            command += f" --sessions {options.sessions}"
        text = section(options.row, found, command, before)
        results.write(options.write, f"many-{options.row}", text)


TITLES = {
    "queues": "Kernel: very many queues on one node, a message in each",
    "sessions": "Kernel: persistent MQTT sessions, each with a filter of its own",
    "restart": "Kernel: restart with 1,000,000 messages in 10,000 queues, after SIGKILL under load",
}
AT_MOST = {
    ("queues", "rss_mb_filled"): 1_000.0,
    ("restart", "restart_s"): 10.0,
    ("sessions", "kib_each"): 4.0,
}
AT_LEAST = {("queues", "rate_over_empty"): 0.8, ("sessions", "rate_over_early"): 0.8}


def section(row: str, found: dict[str, float], command: str, load: str) -> str:
    """The row as a section of the results page."""
    lines = []
    for name, figure in found.items():
        bar = met = ""
        if (row, name) in AT_MOST:
            bar = f"≤ {AT_MOST[row, name]:,g}"
            met = "yes" if figure <= AT_MOST[row, name] else "**no**"
        elif (row, name) in AT_LEAST:
            bar = f"≥ {AT_LEAST[row, name]:,g}"
            met = "yes" if figure >= AT_LEAST[row, name] else "**no**"
        lines.append(f"| {name} | {figure:,} | {bar} | {met} |\n")
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return (
        f"## {TITLES[row]}\n\n| figure | | bar | met |\n| --- | --- | --- | --- |\n"
        f"{''.join(lines)}\n"
        f"`{command}`, {date}, load average before {load}.\n"
    )


if __name__ == "__main__":
    main()
