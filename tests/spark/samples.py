"""Made-up metering data, written by the real codec and exporter."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

from metering.exporter import Archive, LogMessage, export_queue
from metering.schema import Batch, ManifestEntry, Record, encode
from spark.period import Period

NOVEMBER = Period.parse("2026-11")
HOUR_US = 3_600_000_000
WINDOW_US = 10_000_000
TENANTS = ("acme", "zebra", "tenant/with:odd name", "ünïcode")


def record(seq: int, at_us: int = NOVEMBER.start_us, **columns: object) -> Record:
    """A record of one window that starts at `at_us`, of node "n1" epoch 1 unless given."""
    start_us = at_us - at_us % WINDOW_US
    values: dict[str, object] = {
        "node": "n1",
        "epoch": 1,
        "seq": seq,
        "emitted_at_us": start_us + WINDOW_US,
        "window_start_us": start_us,
        "window_end_us": start_us + WINDOW_US,
        "kind": "api",
        "tenant": "acme",
        "protocol": "sqs",
    }
    return Record(**{**values, **columns})


def messages_of(records: Sequence[Record], first_offset: int = 0) -> list[LogMessage]:
    """The records as log messages, each run of consecutive seq as one message."""
    runs: list[list[Record]] = []
    for item in records:
        last = runs[-1][-1] if runs else None
        follows = last is not None and (item.node, item.epoch, item.seq, item.emitted_at_us) == (
            last.node,
            last.epoch,
            last.seq + 1,
            last.emitted_at_us,
        )
        if follows and len(runs[-1]) < 1000:
            runs[-1].append(item)
        else:
            runs.append([item])
    return [
        LogMessage(first_offset + number, run[0].window_end_us, encode(Batch.of(run)))
        for number, run in enumerate(runs)
    ]


class ListReader:
    """A log reader over messages in memory."""

    def __init__(self, messages: Sequence[LogMessage]) -> None:
        self.messages = list(messages)

    async def bounds(self, queue: int) -> tuple[int, int]:
        return self.messages[0].offset, self.messages[-1].offset + 1

    async def read(self, queue: int, from_offset: int, limit: int) -> Sequence[LogMessage]:
        first = from_offset - self.messages[0].offset
        return self.messages[first : first + limit]


def write_archive(directory: Path, records: Iterable[Record]) -> list[ManifestEntry]:
    """Export the records, in their order, as queue 0 of the archive in `directory`."""
    reader = ListReader(messages_of(list(records)))
    with Archive(directory) as archive:
        return asyncio.run(export_queue(archive, reader, 0, now_us=0, final=True))


def random_records(seed: int, count: int, *, repeats: bool = True) -> list[Record]:
    """Records of two nodes and two Raft groups around November 2026, with what goes wrong.

    The cumulative rows sometimes fall; some records lie in October and in December. With
    `repeats`, one in ten comes twice, one in fifty under an identity that was used before, and
    all come in any order.
    """
    random = Random(seed)
    protocols = ["sqs", "amqp", "mqtt", "rocketmq", "internal"]
    classes = ["standard", "fifo", "delay", "transaction", "qos0", "qos1", "qos2"]
    outcomes = ["ok"] * 6 + ["empty", "client_error", "server_error"]
    sequence = {("n1", 1): 0, ("n1", 2): 0, ("n2", 1): 0}
    cumulative: dict[tuple[object, ...], list[int]] = {}
    records: list[Record] = []
    for _ in range(count):
        node, epoch = random.choice(list(sequence))
        seq = sequence[node, epoch]
        sequence[node, epoch] += 1
        at_us = NOVEMBER.start_us + random.randrange(-3, 33) * 24 * HOUR_US
        at_us += random.choice([0, 1, 12, 23]) * HOUR_US + random.randrange(HOUR_US)
        columns: dict[str, object] = {
            "node": node,
            "epoch": epoch,
            "tenant": random.choice(TENANTS),
            "protocol": random.choice(protocols),
            "topic": random.choice(["orders", "events", ""]),
            "queue_class": random.choice(classes),
            "region": random.choice(["", "eu"]),
            "incarnation": 77 if node == "n2" else 0,
        }
        kind = random.choice(["api", "api", "store", "gauge"])
        if kind == "api":
            size = random.choice([0, 1, 10**6, 10**12])
            columns |= {
                "action": random.choice(["publish", "deliver", "return", "receive", "admin"]),
                "api_action": random.choice(["", "SendMessage"]),
                "outcome": random.choice(outcomes),
                "network": random.choice(["internal", "internet"]),
                "requests": random.randrange(5),
                "units_64k": random.randrange(9),
                "units_4k": random.randrange(size + 1),
                "messages": random.randrange(size + 1),
                "bytes_in": random.randrange(size + 1),
                "bytes_out": random.randrange(size + 1),
            }
        elif kind == "store":
            columns |= {
                "action": random.choice(["publish", "route", "deliver", "return", "ack"]),
                "raft_group": random.choice([0, 1]),
                "cum_since": random.choice([0, 7]),
            }
            key = tuple(sorted(columns.items(), key=str))
            counter = cumulative.setdefault(key, [0, 0, 0])
            for position in range(3):
                counter[position] += random.randrange(10**9)
            if random.random() < 0.05:
                counter[1] //= 2
            columns |= {
                # In order of time within a series, as a log index is.
                "log_index": (at_us - NOVEMBER.start_us) // 1_000_000 + 10**9,
                "cum_messages": counter[0],
                "cum_bytes": counter[1],
                "cum_units_4k": counter[2],
            }
        else:
            columns |= {
                "action": random.choice(["connections", "storage"]),
                "gauge_max": random.randrange(100),
                "gauge_integral": random.randrange(1000),
            }
        records.append(record(seq, at_us, kind=kind, **columns))
        if repeats and random.random() < 0.1:
            records.append(records[-1])
        if repeats and random.random() < 0.02:
            records.append(record(seq, at_us, kind=kind, **{**columns, "topic": "other"}))
    if repeats:
        random.shuffle(records)
    return records
