"""Two builds of Weir side by side: CPU a message, row by row, in alternating rounds.

    git worktree add --detach OLD COMMIT
    python benchmarks/builds.py --old OLD [--rows NAME ...] [--rounds 12] [--duration 3]
        [--set rocketmq.listeners.grpc.tls=false] [--write benchmarks/RESULTS.md]

Both serve at the same time, each in a folder of its own, run by the same interpreter from its own
tree; the load tester is this tree's. Servers run on the first core and load on the second, and who
begins changes with each round. A row fails if the median of the rounds' ratios is above RATIO_MAX;
then the exit code is 1. `--set` is for this tree's side alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import results
from benchmarks.peers import free_port
from benchmarks.samples import Sample
from benchmarks.session import ROOT, load_average, machine

FOLDER = ROOT / ".bench"
RATIO_MAX = 1.05
READY_S = 60.0
LOAD_S_MAX = 120.0

LISTENERS = (
    "amqp.port",
    "amqp.listeners.tls.port",
    "mqtt.port",
    "mqtt.listeners.tls.port",
    "mqtt.listeners.websocket.port",
    "sqs.port",
    "sqs.listeners.tls.port",
    "rocketmq.port",
    "rocketmq.listeners.tls.port",
    "node.admin.port",
)

HOLDER = """
import json, sys
from pathlib import Path
from benchmarks.cluster_peers import WeirCluster
cluster = WeirCluster(Path(sys.argv[1]))
try:
    cluster.start()
    print(json.dumps([cluster.pids, cluster.port]), flush=True)
    sys.stdin.readline()
finally:
    cluster.stop()
"""
"""Run from a tree: its cluster, until a line comes."""


class Row(NamedTuple):
    """One load."""

    protocol: str
    arguments: tuple[str, ...] = ()
    cluster: bool = False


AMQP_MANY = ("--queues", "1000", "--producers", "8", "--consumers", "8")
ROWS = {
    "amqp-1p1c": Row("amqp"),
    "amqp-lone": Row("amqp", ("--pattern", "lone")),
    "amqp-1000": Row("amqp", AMQP_MANY),
    "mqtt": Row("mqtt", ("--load", "pairs", "--qos", "1", "--kept", "--pairs", "4")),
    "sqs": Row("sqs", ("--mode", "cycle", "--connections", "8", "--messages", "10000")),
    "rocketmq": Row("rocketmq", ("--topic", "builds", "--group", "builds")),
    "cluster": Row("amqp", cluster=True),
}
URLS = {
    "amqp": "amqp://guest:guest@127.0.0.1:{}/",
    "mqtt": "mqtt://guest:guest@127.0.0.1:{}",
    "sqs": "http://127.0.0.1:{}",
    "rocketmq": "rocketmq://weir:weir-secret@127.0.0.1:{}",
}


class Side(NamedTuple):
    """A build that serves."""

    pids: list[int]
    ports: dict[str, int]


def environment(tree: Path) -> dict[str, str]:
    """That of a process which runs this tree's code."""
    return {**os.environ, "PYTHONPATH": str(tree)}


def pinned(core: int, *arguments: str) -> list[str]:
    """A command of Python on one core."""
    return ["taskset", "-c", str(core), sys.executable, *arguments]


@contextmanager
def node(
    tree: Path, folder: Path, settings: list[str], config: Path | None = None
) -> Iterator[Side]:
    """One `weir serve` of a tree, ready. `config`: a file of settings."""
    ports = {name: free_port() for name in LISTENERS}
    every = [f"{name}={port}" for name, port in ports.items()] + settings
    sets = [word for setting in every for word in ("--set", setting)]
    if config is not None:
        sets += ["--config", str(config)]
    command = pinned(0, "-m", "gateway", "serve", "--data", str(folder / "data"), *sets)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=tree, env=environment(tree), stdout=log, stderr=subprocess.STDOUT
        )
    try:
        wait_ready(ports["node.admin.port"], folder / "log")
        making = ["-m", "gateway", "topic", "create", "builds", "--data", str(folder / "data")]
        command = [sys.executable, *making]
        subprocess.run(
            command, cwd=tree, env=environment(tree), check=True, stdout=subprocess.DEVNULL
        )
        short = {name.removesuffix(".port"): port for name, port in ports.items()}
        yield Side([process.pid], short)
    finally:
        process.terminate()
        process.wait(READY_S)


def wait_ready(port: int, log: Path) -> None:
    """Until it serves. SystemExit."""
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1).close()
        except (OSError, urllib.error.URLError):
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"it does not serve:\n{log.read_text()[-2_000:]}")


@contextmanager
def cluster(tree: Path, folder: Path) -> Iterator[Side]:
    """Three stores and a gateway of a tree."""
    process = subprocess.Popen(
        pinned(0, "-c", HOLDER, str(folder / "cluster")),
        cwd=tree,
        env=environment(tree),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        if not said:
            raise SystemExit(f"the cluster of {tree} does not form")
        pids, port = json.loads(said)
        yield Side(pids, {"amqp": port})
        process.stdin.write("\n")
    finally:
        process.stdin.close()
        process.wait(READY_S)


def cpu_us(row: Row, side: Side, duration_s: float) -> float:
    """Of the server's processes, a message. SystemExit if the load fails."""
    timed = () if row.protocol == "sqs" else ("--duration", str(duration_s), "--warmup", "1")
    pids = [word for pid in side.pids for word in ("--pid", str(pid))]
    url = URLS[row.protocol].format(side.ports[row.protocol])
    words = [row.protocol, "--url", url, *row.arguments, *timed, *pids, "-o", "json"]
    done = subprocess.run(
        pinned(1, "-m", "gateway", "bench", *words),
        cwd=ROOT,
        env=environment(ROOT),
        capture_output=True,
        text=True,
        timeout=LOAD_S_MAX,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the load failed:\n{done.stdout[-1_000:]}{done.stderr[-1_000:]}")
    report = json.loads(done.stdout)
    server = report.get("server") or {"cpu_us_per_message": report.get("server_cpu_us_per_message")}
    return float(server["cpu_us_per_message"])


def measured(row: Row, sides: dict[str, Side], options: argparse.Namespace) -> dict[str, Sample]:
    """A value a side and round."""
    values: dict[str, list[float]] = {name: [] for name in sides}
    for round_ in range(options.rounds):
        for name in list(sides)[:: 1 if round_ % 2 else -1]:
            values[name].append(cpu_us(row, sides[name], options.duration))
    return {name: Sample(tuple(each)) for name, each in values.items()}


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--old", type=Path, required=True, help="a tree of the other build")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--duration", type=float, default=3.0, help="seconds a round")
    parser.add_argument("--set", action="append", default=[], help="a setting of this side's node")
    parser.add_argument("--write", type=Path, help="the page to put the rows on")
    return parser.parse_args()


def commit_of(tree: Path) -> str:
    """The commit that a tree is at."""
    command = ["git", "-C", str(tree), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def compared(options: argparse.Namespace) -> dict[str, dict[str, Sample]]:
    """Each row, both sides."""
    found: dict[str, dict[str, Sample]] = {}
    trees = {"old": options.old.resolve(), "new": ROOT}
    for name in options.rows:
        row = ROWS[name]
        FOLDER.mkdir(exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="builds-", dir=FOLDER))
        try:
            with ExitStack() as stack:
                sides: dict[str, Side] = {}
                for side, tree in trees.items():
                    own = folder / side
                    own.mkdir()
                    settings = options.set if side == "new" else []
                    runs = cluster(tree, own) if row.cluster else node(tree, own, settings)
                    sides[side] = stack.enter_context(runs)
                found[name] = measured(row, sides, options)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        told(name, found[name])
    return found


def ratio(sides: dict[str, Sample]) -> Sample:
    """New over old, round by round."""
    return sides["new"].over(sides["old"])


def told(name: str, sides: dict[str, Sample]) -> None:
    """A line for who waits."""
    old, new = sides["old"].text(), sides["new"].text()
    print(f"{name}: old {old}, new {new}, ratio {ratio(sides).text()}", flush=True)


def is_met(sides: dict[str, Sample]) -> bool:
    """Whether a row is within the bar."""
    return (ratio(sides).median or RATIO_MAX + 1) <= RATIO_MAX


def write(options: argparse.Namespace, found: dict[str, dict[str, Sample]], load: str) -> None:
    """Put the rows on the page of results."""
    old, new = commit_of(options.old), commit_of(ROOT)
    lines = [
        "## Two builds: CPU of the server, us a message",
        "",
        f"| row | {old} | {new} | ratio | bar | met |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, sides in found.items():
        texts = [sides["old"].text(), sides["new"].text(), ratio(sides).text()]
        met = "yes" if is_met(sides) else "**no**"
        lines.append(f"| {name} | {' | '.join(texts)} | ≤ {RATIO_MAX} | {met} |")
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    command = (
        f"`python benchmarks/builds.py --rows {' '.join(options.rows)} --rounds {options.rounds} "
        f"--duration {options.duration:g}`, {now} UTC; {machine()}; load average before {load}, "
        f"after {load_average()}"
    )
    results.write(options.write, "builds", "\n".join([*lines, "", command]))


def main() -> int:
    """Compare two builds as the command line says; 1 if a row is too much slower."""
    options = parsed()
    load = load_average()
    found = compared(options)
    if options.write:
        write(options, found, load)
    return 0 if all(map(is_met, found.values())) else 1


if __name__ == "__main__":
    sys.exit(main())
