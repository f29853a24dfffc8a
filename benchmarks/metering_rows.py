"""What metering costs a message, in CPU time, path by path: no store, no socket, no disk.

    python benchmarks/metering_rows.py [--messages 1000000] [--write benchmarks/RESULTS.md]

Each row prints one line of JSON: nanoseconds of CPU a message (a run, a call), the least of five
rounds, less the empty loop around it. What is measured is the call that the hot path makes, on
what it has in hand there. `sum` adds up the ways of one message by AMQP (stored, pushed, acked)
and by SQS (stored, leased, acked), with one call a message in and out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from time import process_time_ns

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import results
from kernel.api.message import HEADER_BYTES
from kernel.api.model import GroupOptions, TopicOptions
from kernel.broker.group_state.state import TopicState
from kernel.broker.group_state.usage import Ledger
from kernel.broker.group_state.usage import measure_slots as measure_slot_sizes
from kernel.broker.index.features import COPY
from kernel.common.ids import TopicId
from kernel.log.format import entry as entries
from metering.counters import Meter, measure_slots
from metering.schema import Action
from metering.traffic import Traffic

BATCH = 100
"""Messages of one run: what one socket read of a busy AMQP publisher brings."""

SQS_BATCH = 10
ROUNDS = 5
SLOT = bytes(HEADER_BYTES + 1_000)
ORIGIN = 1


def cpu_ns(action: Callable[[], object], times: int) -> float:
    """CPU time of one call, the least of the rounds, less that of calling nothing."""

    def spent(what: Callable[[], object]) -> int:
        start = process_time_ns()
        for _ in range(times):
            what()
        return process_time_ns() - start

    nothing = min(spent(lambda: None) for _ in range(ROUNDS))
    return max(min(spent(action) for _ in range(ROUNDS)) - nothing, 0) / times


def entry_of(count: int) -> bytes:
    """A log entry of so many messages of 1 KB."""
    return entries.build(0, [], [len(SLOT)] * count, [SLOT] * count)


def counted() -> tuple[Ledger, TopicState]:
    """A topic with a consumer group, and what counts it."""
    groups = {"default": GroupOptions()}
    return Ledger(), TopicState(TopicId(1), "default", "orders", 1, TopicOptions(), (), groups)


def stored(count: int) -> Callable[[], object]:
    """The state machine, for one run of messages: sizes, units, the counter."""
    (ledger, topic), bounds = counted(), entries.directory(entry_of(count))

    def run() -> None:
        size = bounds[count] - bounds[0] - HEADER_BYTES * count
        ledger.sent(topic, 1, ORIGIN, 0, count, size, count)

    return run


def fanned_out(queues: int) -> Callable[[], object]:
    """The state machine, for one message to many queues: a run for each."""
    (ledger, _), bounds = counted(), entries.directory(entry_of(1))
    topics = [counted()[1] for _ in range(queues)]

    def run() -> None:
        for topic in topics:
            ledger.sent(topic, 1, ORIGIN, COPY, 1, bounds[1] - bounds[0] - HEADER_BYTES, 1)

    return run


def leased(count: int) -> Callable[[], object]:
    """A timed lease: sizes and units at the leader, the counter in the state machine."""
    (ledger, topic), slots = counted(), [SLOT] * count

    def run() -> None:
        size, units = measure_slot_sizes(list(map(len, slots)))
        ledger.leased(topic, 1, ORIGIN, "default", count, size, units)

    return run


def acked(count: int) -> Callable[[], object]:
    """An ack of a range."""
    ledger, topic = counted()
    return lambda: ledger.acked(topic, 1, ORIGIN, "default", count, ordered=False)


def pushed(count: int) -> Callable[[], object]:
    """The AMQP adapter, for what one turn hands to a consumer."""
    counter = traffic().delivery_counter("default", "orders", "default")
    slots = [SLOT] * count
    return lambda: counter.count(count, *measure_slots(slots))


def called() -> Callable[[], object]:
    """The adapters of SQS and RocketMQ, for one call: its counter is looked up each time, among
    those that the caller has.
    """
    calls = traffic().calls({"SendMessage": Action.PUBLISH})
    counters = {name: calls.counter("default", name) for name in ("ReceiveMessage", "SendMessage")}
    return lambda: counters["SendMessage"].call(1_100, 300)


def traffic() -> Traffic:
    """A protocol's meter."""
    return Traffic(Meter(0), "bench", lambda: 0)


def put(row: str, **figures: object) -> None:
    """One line of the result."""
    sys.stdout.write(json.dumps({"row": row, **figures}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure every row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--write", type=Path, help="page whose section `metering` is renewed")
    options = parser.parse_args()
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    times = options.messages // BATCH
    rows = {
        "stored": (stored(BATCH), BATCH),
        "stored, one message a run": (stored(1), 1),
        "stored, a reference of a fan-out to 100": (fanned_out(100), 100),
        "leased": (leased(SQS_BATCH), SQS_BATCH),
        "leased, one message": (leased(1), 1),
        "acked": (acked(BATCH), BATCH),
        "acked, one message": (acked(1), 1),
        "pushed": (pushed(BATCH), BATCH),
        "called": (called(), 1),
    }
    found = {name: cpu_ns(action, times) / share for name, (action, share) in rows.items()}
    alone, calls = found["stored, one message a run"], 3 * found["called"]
    taken = found["leased"] + found["acked"]
    found["sum: AMQP, batches of 100"] = found["stored"] + found["pushed"] + found["acked"]
    found["sum: SQS, calls of 10 messages"] = (alone + calls) / SQS_BATCH + taken
    found["sum: SQS, calls of one message to busy queues"] = alone + calls + taken
    taken = found["leased, one message"] + found["acked, one message"]
    found["sum: SQS, calls of one message, alone in all"] = alone + calls + taken
    for name, each in found.items():
        put(name, cpu_ns=round(each))
    if options.write is not None:
        command = f"python benchmarks/metering_rows.py --messages {options.messages}"
        results.write(options.write, "metering", section(found, command, load))


def section(found: dict[str, float], command: str, load: str) -> str:
    """The rows as a section of the results page."""
    rows = "".join(f"| {name} | {each:,.0f} |\n" for name, each in found.items())
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return (
        "## Metering: CPU time a message\n\n"
        f"| path | ns |\n| --- | --- |\n{rows}\n"
        "- The bar is 1 us a message in all; `called` is a call of the SQS API, however many"
        " messages it carries.\n- `stored, one message a run` is what a message costs that has"
        " its queue's part of a batch to itself.\n\n"
        f"`{command}`, {date}, the least of {ROUNDS} rounds, load average before {load}.\n"
    )


if __name__ == "__main__":
    main()
