"""The programs of a run, one a lane, and the history they write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.chaos.clients.lanes import LANES, Lane
from tests.chaos.clients.mqtt import subscribe
from tests.chaos.clients.sqs import connect
from tests.chaos.history import Event, Fault, Got, Note, Sent, read, spell
from tests.chaos.processes import ChaosError, Server, Unavailable, until

PREPARE_SECONDS = 30
DEDUPLICATION_MS = 300_000
"""As SQS has it."""

DRAIN_SECONDS = 90
"""For what is under way at the end: a lease, a claim window, and a slow machine."""


def prepare(names: Iterable[str], admin: Server, gateways: list[dict[str, int]]) -> None:
    """Make what the lanes publish to, and what consumes from a certain message on. ChaosError."""
    for name in names:
        make(name, LANES[name], admin, gateways[0])


def make(name: str, lane: Lane, admin: Server, ports: dict[str, int]) -> None:
    """What one lane needs."""
    of_groups = lane.protocol == "sqs" and lane.order
    if lane.topic_type:
        topic: dict[str, object] = {"name": lane.topic, "type": lane.topic_type}
        if of_groups:
            topic |= {"queues": lane.queues, "deduplication_ms": DEDUPLICATION_MS}
        ask(admin, "/topics", topic)
    if lane.protocol == "rocketmq":
        group = {"name": f"{name}-group", "start": "earliest"}
        ask(admin, f"/topics/{lane.topic}/groups", group)
    if lane.protocol == "sqs":
        attributes = {"FifoQueue": "true"}
        if of_groups:
            ask(admin, f"/topics/{lane.topic}/groups/default", {"ordered": True}, "PATCH")
            attributes |= {
                "DeduplicationScope": "messageGroup",
                "FifoThroughputLimit": "perMessageGroupId",
            }
        connect(ports["sqs"]).create_queue(QueueName=lane.topic, Attributes=attributes)
    if lane.protocol == "mqtt":
        subscribe(ports["mqtt"], lane.topic, name, 2 if lane.promise.comes_once else 1)


def ask(admin: Server, path: str, body: Mapping[str, object], method: str = "POST") -> None:
    """A request to the admin API, again while it asks for that. ChaosError."""
    ends = time.monotonic() + PREPARE_SECONDS
    while True:
        try:
            admin.api(method, path, body, seconds=PREPARE_SECONDS)
            return
        except Unavailable:
            if time.monotonic() > ends:
                raise
            time.sleep(0.2)


class Programs:
    """All lanes at work."""

    def __init__(self, names: Iterable[str], gateways: list[dict[str, int]], folder: Path) -> None:
        self.names = tuple(names)
        self._folder = folder
        self._file = (folder / "history.jsonl").open("wb")
        self._lock = threading.Lock()
        self.history: list[Event] = []
        self._answered: dict[str, set[str]] = {name: set() for name in self.names}
        self._came: dict[str, set[str]] = {name: set() for name in self.names}
        self._last_ok: dict[str, float] = dict.fromkeys(self.names, 0.0)
        self._last_got: dict[str, float] = dict.fromkeys(self.names, 0.0)
        self._processes = {name: self._start(name, gateways) for name in self.names}
        self._readers = [
            threading.Thread(target=self._read, args=(process,), daemon=True)
            for process in self._processes.values()
        ]
        for reader in self._readers:
            reader.start()

    def _start(self, name: str, gateways: list[dict[str, int]]) -> subprocess.Popen[bytes]:
        words = [name, LANES[name].topic, json.dumps(gateways)]
        with (self._folder / f"load-{name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.clients.program", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | {"HOME": str(self._folder)},
            )

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.tell(read(line))

    def tell(self, event: Event) -> None:
        """Add to the history."""
        with self._lock:
            self.history.append(event)
            self._file.write(spell(event))
            match event:
                case Sent(outcome="ok"):
                    self._answered[event.lane].add(event.ident)
                    self._last_ok[event.lane] = event.ended
                case Got():
                    self._came[event.lane].add(event.ident)
                    self._last_got[event.lane] = event.at

    def snapshot(self) -> list[Event]:
        with self._lock:
            return list(self.history)

    @property
    def counts(self) -> dict[str, int]:
        """Messages answered with ok, by lane."""
        return {name: len(idents) for name, idents in self._answered.items()}

    def missing(self) -> dict[str, int]:
        """Messages answered with ok that have not come, by lane."""
        with self._lock:
            found = {n: len(self._answered[n] - self._came[n]) for n in self.names}
        return {name: count for name, count in found.items() if count}

    # --- Waiting ----------------------------------------------------------------------------

    def until_flowing(self, since: float, seconds: float) -> None:
        """Wait until every lane has published and consumed after a time. ChaosError."""

        def still() -> list[str]:
            return [
                name
                for name in self.names
                if self._last_ok[name] <= since or self._last_got[name] <= since
            ]

        try:
            until(lambda: not still(), seconds, "every lane publishes and consumes")
        except ChaosError:
            raise ChaosError(
                f"after {seconds:.0f} s these lanes still stand: "
                + ", ".join(f"{name} ({self.last_words(name)})" for name in still())
            ) from None

    def last_words(self, name: str) -> str:
        """What a lane said last, for people."""
        with self._lock:
            own = [each for each in self.history if getattr(each, "lane", "") == name]
        published = "publishes" if self._last_ok[name] > self._last_got[name] else "consumes"
        texts = [getattr(each, "text", "") or getattr(each, "why", "") for each in own]
        said = [text for text in texts if text][-2:]
        return f"last it {published}; it said: {' | '.join(said)}"

    def drain(self) -> dict[str, int]:
        """End publishing, and wait until everything that was answered has come; what has not."""
        for process in self._processes.values():
            assert process.stdin is not None
            process.stdin.write(b"halt\n")
            process.stdin.flush()

        def published() -> set[str]:
            return {e.lane for e in self.snapshot() if isinstance(e, Note) and "all" in e.text}

        until(lambda: published() == set(self.names), DRAIN_SECONDS, "the last is published")
        ends = time.monotonic() + DRAIN_SECONDS
        while self.missing() and time.monotonic() < ends:
            time.sleep(0.1)
        return self.missing()

    def stop(self) -> None:
        """End all programs."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        for reader in self._readers:
            reader.join()
        for process in self._processes.values():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.stdout.close()
        self._file.close()


def faults_of(history: Iterable[Event]) -> list[Fault]:
    return [each for each in history if isinstance(each, Fault)]
