"""Backup and restore of a node under load: how long each takes, and what publishers notice.

    python benchmarks/backup.py [--gib 10] [--body 4096] [--rate 200] [--directory DIR] [--cluster]

One `weir serve` in a folder of its own, filled by AMQP with so much that nobody consumes. While one
publisher with confirms goes on at --rate messages a second: its p99 without a backup, during the
first one, and during incremental ones, one after the other. Then the node is killed, the last
backup is verified and restored, and the time until the restored node answers a publisher is
measured.

    RPO   what an incremental backup may be behind: from one moment to the next, if they are made
          one after the other: how long an incremental one takes
    RTO   restore, and start

With --cluster: three stores and a gateway on this machine, by `weir backup cluster`, which copies
one after the other; all are killed, and restored at other addresses. It takes room for nine times
as much.

Exit code 1 if p99 during a backup is above 1.5 of that without.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import pika

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.cluster_peers import DATA_GROUPS, Stores
from benchmarks.peers import free_port
from tests.gateway.cluster import STORES
from tests.gateway.serving import Process

P99_RATIO_MAX = 1.5
QUIET_S = 10
INCREMENTALS = 10
DURABLE = pika.BasicProperties(delivery_mode=2)
GATEWAY = (sys.executable, "-m", "gateway")


class Served(Protocol):
    """Who can be published to."""

    def connect(self) -> pika.BlockingConnection: ...


class Node:
    """`weir serve` over one data directory."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = free_port()
        settings = (
            f"amqp.listeners.tcp.port={self.port}",
            "node.admin.port=0",
            "amqp.listeners.tls.port=0",
        )
        flags = [flag for each in settings for flag in ("--set", each)]
        others = [f"{name}.enabled=false" for name in ("sqs", "mqtt", "rocketmq")]
        flags += [flag for each in others for flag in ("--set", each)]
        command = [*GATEWAY, "serve", "--data", str(data), *flags]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def connect(self, seconds: float = 120) -> pika.BlockingConnection:
        """A connection, as soon as there is one."""
        url = f"amqp://guest:guest@127.0.0.1:{self.port}/%2f?heartbeat=0"
        until = time.monotonic() + seconds
        while True:
            try:
                return pika.BlockingConnection(pika.URLParameters(url))
            except pika.exceptions.AMQPConnectionError:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Gateway:
    """A cluster's gateway."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def connect(self) -> pika.BlockingConnection:
        """A connection: it serves."""
        return self.process.amqp()


class Publisher(threading.Thread):
    """Publishes at a rate; keeps how long each confirm took."""

    def __init__(self, node: Served, rate: float, body: bytes) -> None:
        super().__init__(daemon=True)
        self._node, self._rate, self._body = node, rate, body
        self._over = threading.Event()
        self.taken_ms: list[float] = []

    def run(self) -> None:
        with self._node.connect() as connection:
            channel = connection.channel()
            channel.queue_declare("beside", durable=True)
            channel.confirm_delivery()
            due = time.monotonic()
            while not self._over.is_set():
                began = time.monotonic()
                channel.basic_publish("", "beside", self._body, DURABLE)
                self.taken_ms.append(1_000 * (time.monotonic() - began))
                due += 1 / self._rate
                time.sleep(max(0.0, due - time.monotonic()))

    def lap(self) -> float:
        """p99 since the last lap, in ms."""
        taken, self.taken_ms = sorted(self.taken_ms), []
        return round(taken[int(len(taken) * 0.99)], 2) if taken else 0.0

    def stop(self) -> None:
        self._over.set()
        self.join()


def fill(node: Served, size: int, body: bytes) -> None:
    """Publish so many bytes without confirms, and wait for all of them."""
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("kept", durable=True)
        channel.tx_select()
        for number in range(size // len(body)):
            channel.basic_publish("", "kept", body, DURABLE)
            if number % 1_000 == 999:
                channel.tx_commit()
        channel.tx_commit()


def weir(*arguments: str) -> dict[str, Any]:
    """The answer of a command of `weir backup`, as JSON."""
    command = [*GATEWAY, "backup", *arguments, "-o", "json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(ran.stderr or ran.stdout)
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def measured(arguments: argparse.Namespace, root: Path) -> dict[str, Any]:
    body = os.urandom(arguments.body)
    node = Node(root / "data")
    fill(node, int(arguments.gib * 2**30), body)
    publisher = Publisher(node, arguments.rate, os.urandom(1_024))
    publisher.start()
    time.sleep(QUIET_S)
    row: dict[str, Any] = {"gib": arguments.gib, "p99_ms_without": publisher.lap()}
    create = ("create", str(root / "backups"), "--data", str(node.data))
    first = weir(*create)
    row |= {"first_s": first["milliseconds"] / 1_000, "p99_ms_first": publisher.lap()}
    time.sleep(QUIET_S)
    publisher.lap()
    others = [weir(*create, "--incremental") for _ in range(INCREMENTALS)]
    row |= {
        "incremental_s": median(each["milliseconds"] for each in others) / 1_000,
        "incremental_mib": round(others[0]["copied_bytes"] / 2**20, 1),
        "p99_ms_incremental": publisher.lap(),
    }
    publisher.stop()
    node.kill()
    began = time.monotonic()
    weir("verify", str(root / "backups"), "--backup", str(INCREMENTALS + 1))
    row["verify_s"] = round(time.monotonic() - began, 2)
    began = time.monotonic()
    weir("restore", str(root / "backups"), "--data", str(root / "restored"))
    row["restore_s"] = round(time.monotonic() - began, 2)
    restored = Node(root / "restored")
    restored.connect().close()
    row["rto_s"] = round(time.monotonic() - began, 2)
    restored.kill()
    row["load"] = round(os.getloadavg()[0], 1)
    return row


def measured_cluster(arguments: argparse.Namespace, root: Path) -> dict[str, Any]:
    backups = root / "backups"
    with contextlib.ExitStack() as stack:
        cluster = Stores(root / "data", stack, DATA_GROUPS)
        cluster.form()
        gateway = Gateway(cluster.start_gateway("gateway").serves())
        fill(gateway, int(arguments.gib * 2**30), os.urandom(arguments.body))
        publisher = Publisher(gateway, arguments.rate, os.urandom(1_024))
        publisher.start()
        time.sleep(QUIET_S)
        row: dict[str, Any] = {"gib": arguments.gib, "p99_ms_without": publisher.lap()}
        members = [*(each.data for each in cluster.stores.values()), gateway.process.data]
        here = [word for each in members for word in ("--here", str(each))]
        began = time.monotonic()
        first = weir("cluster", str(backups), *here)
        row |= {"first_s": time.monotonic() - began, "p99_ms_first": publisher.lap()}
        row["copied_mib"] = sum(each["copied_bytes"] for each in first["made"]) / 2**20
        time.sleep(QUIET_S)
        publisher.lap()
        began = time.monotonic()
        for _ in range(INCREMENTALS):
            weir("cluster", str(backups), *here)
        row["incremental_s"] = (time.monotonic() - began) / INCREMENTALS
        row["p99_ms_incremental"] = publisher.lap()
        publisher.stop()
    began = time.monotonic()
    weir("verify", *(str(backups / each["member"]) for each in first["made"]))
    row["verify_s"] = time.monotonic() - began
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        anew = root / "anew"
        cluster = Stores(anew, stack, DATA_GROUPS)
        at = [w for n, (h, p) in cluster.addresses.items() for w in ("--at", f"{n}@{h}:{p}")]
        word: list[str] = []
        for number in STORES:
            restore = ("restore", str(backups / f"store-{number}"), *at, *word)
            word = ["--timeline", weir(*restore, "--data", str(anew / f"{number}"))["timeline"]]
        kept = str(backups / first["made"][-1]["member"])
        weir("restore", kept, "--data", str(anew / "gateway"))
        row["restore_s"] = time.monotonic() - began
        for number in STORES:
            cluster.start_store(number)
        key = f"node.key_file={anew / 'gateway' / 'secrets.key'}"
        Gateway(cluster.start_gateway("gateway", key).serves()).connect().close()
        row["rto_s"] = time.monotonic() - began
    row["load"] = os.getloadavg()[0]
    return {name: round(figure, 2) for name, figure in row.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gib", type=float, default=10.0)
    parser.add_argument("--body", type=int, default=4_096)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument(
        "--directory", type=Path, help="where there is room for three times as much"
    )
    parser.add_argument("--cluster", action="store_true", help="three stores and a gateway")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="weir-backup-", dir=arguments.directory))
    try:
        row = (measured_cluster if arguments.cluster else measured)(arguments, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(datetime.now(UTC).isoformat(timespec="minutes"), json.dumps(row, indent=1))
    worst = max(row["p99_ms_first"], row["p99_ms_incremental"])
    return int(worst > P99_RATIO_MAX * row["p99_ms_without"])


if __name__ == "__main__":
    sys.exit(main())
