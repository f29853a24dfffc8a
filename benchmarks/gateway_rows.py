"""The rows of clusters, by AMQP: what stores apart from gateways cost, and three of them.

All processes are on this machine. CPU is what all server processes of a side have used.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.amqp_rows import WEIR, Row
from benchmarks.cluster_peers import RabbitmqCluster, WeirApart, WeirCluster, WeirFive
from benchmarks.peers import Weir
from benchmarks.results import Line, Outcome
from benchmarks.samples import Sample

if TYPE_CHECKING:
    from benchmarks.load.report import LoadReport
    from benchmarks.peers import Broker
    from benchmarks.session import Measure, Session

CLUSTER, APART, QUORUM = WeirCluster.name, WeirApart.name, RabbitmqCluster.name
FIVE = WeirFive.name
FIVE_RATIO_MAX = 1.05
"""Stores that have no replica of a group should cost it nothing."""
CPU_RATIO_MAX = 4.0
ADDED_MS_MAX = 1.0
STEADY_RATE = 1_000
QUEUES = {QUORUM: ["--queue-type", "quorum"]}


def _sides(session: Session, arguments: list[str]) -> dict[str, Measure]:
    def run(side: str, broker: Broker) -> dict[str, float] | None:
        report = session.load(broker, *arguments, *QUEUES.get(side, ()))
        return None if report is None else _figures(report)

    return {side: partial(run, side, broker) for side, broker in session.brokers.items()}


def _figures(report: LoadReport) -> dict[str, float]:
    return {
        "published/s": report.published_per_s,
        "consumed/s": report.consumed_per_s,
        "confirm p50 ms": report.confirm.p50_us / 1e3,
        "confirm p99 ms": report.confirm.p99_us / 1e3,
        "end-to-end p50 ms": report.end_to_end.p50_us / 1e3,
        "end-to-end p99 ms": report.end_to_end.p99_us / 1e3,
        "server CPU us/msg": report.server.cpu_us_per_message if report.server else 0.0,
        "busiest generator %": max(part.cpu_share for part in report.generators) * 100,
    }


class _Taken:
    """What the rounds gave, figure by figure."""

    def __init__(self, session: Session, arguments: list[str]) -> None:
        self._taken = session.alternate(_sides(session, arguments))
        self.sides = list(self._taken)

    def line(self, figure: str) -> Line:
        """A figure without a bar."""
        return Line(figure, {side: self._of(side, figure) for side in self.sides})

    def held(self, figure: str, side: str, other: str, bar: str, limit: float) -> Line:
        """A figure whose ratio has a bar: at least it, or at most where CPU is spent."""
        ratio = self._of(side, figure).over(self._of(other, figure))
        met = None
        if ratio.median is not None:
            met = ratio.median <= limit if "CPU" in figure else ratio.median >= limit
        return Line(figure, self.line(figure).cells, ratio, bar, met)

    def added(self, figure: str, side: str, other: str) -> Line:
        """How much more it is on one side, round by round."""
        pairs = zip(self._of(side, figure).values, self._of(other, figure).values, strict=False)
        more = Sample(tuple(a - b if a is not None and b is not None else None for a, b in pairs))
        met = None if more.median is None else more.median <= ADDED_MS_MAX
        bar = f"added ≤ {ADDED_MS_MAX:g} ms"
        return Line(f"{figure}, added", {side: more}, None, bar, met)

    def _of(self, side: str, figure: str) -> Sample:
        return self._taken.get(side, {}).get(figure, Sample())


def three_stores(session: Session) -> Outcome:
    """Everything on one machine: what three copies and a hop cost."""
    taken = _Taken(session, ["--duration", str(session.duration_s)])
    cpu = taken.held(
        "server CPU us/msg", CLUSTER, WEIR, f"≤ {CPU_RATIO_MAX:g}× {WEIR}", CPU_RATIO_MAX
    )
    lines = [
        cpu,
        taken.held("published/s", CLUSTER, QUORUM, f"≥ 1× {QUORUM}", 1.0),
        taken.held("consumed/s", CLUSTER, QUORUM, f"≥ 1× {QUORUM}", 1.0),
        *map(taken.line, ("confirm p50 ms", "confirm p99 ms", "busiest generator %")),
    ]
    note = f"The ratio of CPU is to {WEIR} in one process, that of rates to {QUORUM}."
    return Outcome(taken.sides, lines, [note])


def five_stores(session: Session) -> Outcome:
    """What it costs that there are stores which have no replica of a group."""
    taken = _Taken(session, ["--duration", str(session.duration_s)])
    bar = f"≤ {FIVE_RATIO_MAX:g}× {CLUSTER}"
    lines = [
        taken.held("server CPU us/msg", FIVE, CLUSTER, bar, FIVE_RATIO_MAX),
        *map(
            taken.line,
            (
                "published/s",
                "consumed/s",
                "confirm p50 ms",
                "confirm p99 ms",
                "busiest generator %",
            ),
        ),
    ]
    return Outcome(taken.sides, lines)


def apart(session: Session) -> Outcome:
    """A steady load: what the way between gateway and store adds."""
    rate = ["--rate", str(STEADY_RATE), "--duration", str(session.duration_s)]
    taken = _Taken(session, rate)
    lines = [
        taken.added("end-to-end p50 ms", APART, WEIR),
        taken.added("confirm p50 ms", APART, WEIR),
        *map(
            taken.line,
            ("end-to-end p50 ms", "end-to-end p99 ms", "confirm p50 ms", "server CPU us/msg"),
        ),
    ]
    return Outcome(taken.sides, lines)


ROWS = (
    Row(
        "cluster-amqp",
        "AMQP: 1 producer, 1 consumer, 1 KB, confirms: 3 stores + 1 gateway",
        three_stores,
        (Weir, WeirCluster, RabbitmqCluster),
    ),
    Row(
        "cluster-five",
        "AMQP: 1 producer, 1 consumer, 1 KB, confirms: 3 stores of 5 beside 3 of 3",
        five_stores,
        (WeirCluster, WeirFive),
    ),
    Row(
        "cluster-apart",
        f"AMQP: latency at {STEADY_RATE:,} msg/s, gateway and store in processes of their own",
        apart,
        (Weir, WeirApart),
    ),
)
