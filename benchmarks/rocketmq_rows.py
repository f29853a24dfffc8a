"""The rows of RocketMQ. No RocketMQ broker runs here: what is held against is gRPC itself.

An empty grpc.aio server answers at once and stores nothing; whatever Weir does with a message
comes on top of that. The same load tester drives both, in turn.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import grpc
import msgspec

from benchmarks.amqp_rows import WEIR, Row
from benchmarks.load.rocketmq_report import RocketmqReport
from benchmarks.peers import BrokerFailed, Weir, free_port
from benchmarks.results import Line, Outcome
from benchmarks.samples import Sample
from benchmarks.session import ROOT, RUN_TIMEOUT_S

if TYPE_CHECKING:
    from benchmarks.session import Measure, Session

EMPTY = "empty grpc.aio"
TOPIC = "weir-bench"
START_TIMEOUT_S = 30.0
LOGIN = "weir:weir-secret"

BARS = {1: 0.7, 32: 0.5}
"""Batch → the least share of the empty server's requests."""


def _run(session: Session, side: str, port: int, pid: int, batch: int) -> dict[str, float] | None:
    """One run of `weir bench rocketmq` without consumers; None when it did not count."""
    command = [sys.executable, "-m", "gateway", "bench", "rocketmq", "-o", "json"]
    command += ["--url", f"rocketmq://{LOGIN}@127.0.0.1:{port}", "--pid", str(pid)]
    command += ["--topic", TOPIC, "--consumers", "0", "--batch", str(batch)]
    command += ["--producer-processes", "2", "--producers", "2", "--window", "16"]
    command += ["--duration", str(session.duration_s)]
    done = subprocess.run(
        command, capture_output=True, check=False, cwd=ROOT, timeout=RUN_TIMEOUT_S
    )
    if done.returncode:
        session.note(f"{side}: run refused: {done.stderr.decode().strip()}")
        return None
    report = msgspec.json.decode(done.stdout, type=RocketmqReport)
    assert report.server is not None, "a pid was given"
    session.others_share_max = max(session.others_share_max, report.server.others_cpu_share)
    if report.generator_saturated:
        session.note(f"{side}: run refused: a generator used over 80 % of a core")
        return None
    return {
        "requests/s": report.requests_per_s,
        "messages/s": report.published_per_s,
        "server CPU us/request": report.server.cpu_us_per_message * batch,
        "send p50 ms": report.send.p50_us / 1e3,
        "send p99 ms": report.send.p99_us / 1e3,
    }


def _start_empty(port: int) -> subprocess.Popen[bytes]:
    """The empty server, once it answers. Raises BrokerFailed."""
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.empty_grpc", str(port)], cwd=ROOT)
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    try:
        grpc.channel_ready_future(channel).result(START_TIMEOUT_S)
    except grpc.FutureTimeoutError:
        process.terminate()
        raise BrokerFailed("the empty gRPC server does not answer") from None
    finally:
        channel.close()
    return process


def send(session: Session) -> Outcome:
    """Both sides with batches of 1 and of 32, in turn."""
    weir = session.brokers.get(WEIR)
    if not isinstance(weir, Weir):
        return Outcome([], [])
    weir.run("topic", "create", TOPIC, "--type", "normal")
    port = free_port()
    empty = _start_empty(port)
    places = {WEIR: (weir.rocketmq_port, weir.pid), EMPTY: (port, empty.pid)}
    sides: dict[str, Measure] = {}
    for batch in BARS:
        for side, (at, pid) in places.items():
            sides[f"{side}, {batch}"] = partial(_run, session, side, at, pid, batch)
    try:
        taken = session.alternate(sides)
    finally:
        empty.terminate()
        empty.wait()
    lines = [line for batch in BARS for line in _lines(taken, places, batch)]
    note = (
        "Where Weir's time goes in a request of 32: what gRPC takes, and 12 us a message for its "
        "fields, the entry, the write and the answer; the profile is flat."
    )
    return Outcome(list(places), lines, [note])


def _lines(
    taken: dict[str, dict[str, Sample]], places: dict[str, tuple[int, int]], batch: int
) -> list[Line]:
    def cells(figure: str) -> dict[str, Sample]:
        return {side: taken[f"{side}, {batch}"].get(figure, Sample()) for side in places}

    def held(figure: str, over: str, under: str) -> Line:
        found = cells(figure)
        ratio = found[over].over(found[under])
        met = None if ratio.median is None else ratio.median >= BARS[batch]
        return Line(f"batch {batch}: {figure}", found, ratio, f"≥ {BARS[batch]:.0%}", met)

    return [
        held("requests/s", WEIR, EMPTY),
        # The same bar in work: what the empty server uses, of what Weir uses.
        held("server CPU us/request", EMPTY, WEIR),
        *(
            Line(f"batch {batch}: {figure}", cells(figure))
            for figure in ("messages/s", "send p50 ms", "send p99 ms")
        ),
    ]


ROWS = (
    Row(
        "rocketmq-send",
        "RocketMQ: SendMessage of 1 KB, batch 1 and 32, 32 requests under way, beside an empty "
        "gRPC server",
        send,
    ),
)
