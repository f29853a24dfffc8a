"""The rows of AMQP 0-9-1: what is run, which figure is taken, what it is held against.

"The faster queue" of RabbitMQ is the type, classic or quorum, with the higher median of the
row's figure (the lower one for latencies): Weir is compared with that one alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.disk import count_syncs
from benchmarks.peers import Broker, RabbitMQ, Weir
from benchmarks.results import Line, Outcome
from benchmarks.samples import Sample

if TYPE_CHECKING:
    from benchmarks.load.report import LoadReport
    from benchmarks.session import Measure, Session

WEIR = "Weir"
CLASSIC = "RabbitMQ classic"
QUORUM = "RabbitMQ quorum"
FANOUT_QUEUES = 100
FANOUT_MESSAGES = 3000
MANY_QUEUES = 1000
MANY_PRODUCERS = 8
STEADY_RATE = 2000
BACKLOG_WINDOW = 1000

Figures = Callable[["LoadReport"], dict[str, float]]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the comparison: its name on the command line, its title on the page."""

    name: str
    title: str
    measure: Callable[[Session], Outcome]
    sides: tuple[type[Broker], ...] = (Weir, RabbitMQ)


def _sides(session: Session) -> dict[str, tuple[Broker, list[str]]]:
    """Side → its broker and what `weir bench amqp` is told for it alone."""
    sides: dict[str, tuple[Broker, list[str]]] = {}
    if WEIR in session.brokers:
        sides[WEIR] = (session.brokers[WEIR], [])
    if "RabbitMQ" in session.brokers:
        rabbit = session.brokers["RabbitMQ"]
        sides[CLASSIC] = (rabbit, ["--queue-type", "classic"])
        sides[QUORUM] = (rabbit, ["--queue-type", "quorum"])
    return sides


def _measure(session: Session, broker: Broker, arguments: list[str], figures: Figures) -> Measure:
    def measure() -> dict[str, float] | None:
        report = session.load(broker, *arguments)
        return None if report is None else figures(report)

    return measure


def _compare(
    session: Session, arguments: list[str], figures: Figures
) -> dict[str, dict[str, Sample]]:
    """The same run on every side, in turn."""
    return session.alternate(
        {
            side: _measure(session, broker, [*arguments, *own], figures)
            for side, (broker, own) in _sides(session).items()
        }
    )


def _of(taken: dict[str, dict[str, Sample]], figure: str) -> dict[str, Sample]:
    return {side: figures.get(figure, Sample()) for side, figures in taken.items()}


def _best_peer(cells: dict[str, Sample], *, lower: bool) -> str | None:
    """The side of RabbitMQ with the better median."""
    medians = {s: c.median for s, c in cells.items() if s != WEIR}
    known = {side: median for side, median in medians.items() if median is not None}
    if not known:
        return None
    return min(known, key=known.__getitem__) if lower else max(known, key=known.__getitem__)


def _against_peer(
    figure: str, cells: dict[str, Sample], peer: str | None, bar: str, limit: float, *, lower: bool
) -> Line:
    """A line with the ratio to `peer` and whether its median keeps `limit`."""
    if peer is None or WEIR not in cells:
        return Line(figure, cells, None, bar)
    ratio = cells[WEIR].over(cells[peer])
    return Line(figure, cells, ratio, bar, _met(ratio, limit, lower=lower))


def _met(sample: Sample, limit: float, *, lower: bool) -> bool | None:
    if sample.median is None:
        return None
    return sample.median <= limit if lower else sample.median >= limit


def _throughput(report: LoadReport) -> dict[str, float]:
    return {
        "published/s": report.published_per_s,
        "consumed/s": report.consumed_per_s,
        "slower of both/s": min(report.published_per_s, report.consumed_per_s),
        "confirm p99 ms": report.confirm.p99_us / 1e3,
        "server CPU us/msg": report.server.cpu_us_per_message if report.server else 0.0,
        "busiest generator %": max(part.cpu_share for part in report.generators) * 100,
    }


def one_producer_one_consumer(session: Session) -> Outcome:
    arguments = ["--duration", str(session.duration_s)]
    taken = _compare(session, arguments, _throughput)
    peer = _best_peer(_of(taken, "slower of both/s"), lower=False)
    held = [
        _against_peer(figure, _of(taken, figure), peer, "≥ 1.0× (goal 2×)", 1.0, lower=False)
        for figure in ("published/s", "consumed/s")
    ]
    rest = [
        Line(figure, _of(taken, figure))
        for figure in ("confirm p99 ms", "server CPU us/msg", "busiest generator %")
    ]
    return Outcome(list(taken), held + rest, _peer_note(peer))


def _peer_note(peer: str | None) -> list[str]:
    return [f"Held against {peer}, the better of RabbitMQ's two here."] if peer else []


def steady_latency(session: Session) -> Outcome:
    arguments = ["--rate", str(STEADY_RATE), "--duration", str(session.duration_s)]

    def figures(report: LoadReport) -> dict[str, float]:
        return {
            "end-to-end p50 ms": report.end_to_end.p50_us / 1e3,
            "end-to-end p99 ms": report.end_to_end.p99_us / 1e3,
            "confirm p99 ms": report.confirm.p99_us / 1e3,
        }

    taken = _compare(session, arguments, figures)
    p99 = _of(taken, "end-to-end p99 ms")
    peer = _best_peer(p99, lower=True)
    lines = [
        _against_peer("end-to-end p99 ms", p99, peer, "≤ 1.5× (goal 1×)", 1.5, lower=True),
        Line("end-to-end p50 ms", _of(taken, "end-to-end p50 ms")),
        Line("confirm p99 ms", _of(taken, "confirm p99 ms")),
    ]
    return Outcome(list(taken), lines, _peer_note(peer))


def lone_producer(session: Session) -> Outcome:
    arguments = ["--pattern", "lone", "--duration", str(session.duration_s / 2)]

    def figures(report: LoadReport) -> dict[str, float]:
        bare_us = session.fdatasync_us()
        allowed_us = 2 * bare_us + 500
        return {
            "confirm p50 us": report.confirm.p50_us,
            "confirm p99 us": report.confirm.p99_us,
            "bare fdatasync us": bare_us,
            "of 2 fdatasyncs + 0.5 ms": report.confirm.p50_us / allowed_us,
        }

    taken = _compare(session, arguments, figures)
    share = _of(taken, "of 2 fdatasyncs + 0.5 ms")
    bar = "confirm p50 ≤ 2 fdatasyncs + 0.5 ms, so ≤ 1"
    met = _met(share[WEIR], 1.0, lower=True) if WEIR in share else None
    lines = [
        Line("confirm p50, of 2 fdatasyncs + 0.5 ms", share, None, bar, met),
        *(
            Line(figure, _of(taken, figure))
            for figure in ("confirm p50 us", "confirm p99 us", "bare fdatasync us")
        ),
    ]
    return Outcome(list(taken), lines)


def fanout(session: Session) -> Outcome:
    arguments = ["--pattern", "fanout", "--fanout", str(FANOUT_QUEUES), "--consumers", "0"]
    arguments += ["--messages", str(FANOUT_MESSAGES)]

    def figures(report: LoadReport) -> dict[str, float]:
        return {
            "server CPU us/reference": report.server.cpu_us_per_message if report.server else 0.0,
            "published/s": report.published_per_s,
        }

    taken = _compare(session, arguments, figures)
    cost = _of(taken, "server CPU us/reference")
    met = _met(cost[WEIR], 3.0, lower=True) if WEIR in cost else None
    lines = [
        Line("server CPU us/reference", cost, None, "≤ 3 µs (goal 1.5 µs)", met),
        Line("published/s", _of(taken, "published/s")),
    ]
    return Outcome(list(taken), lines)


def many_queues(session: Session) -> Outcome:
    """Every side twice a round: all producers on one queue, and spread over MANY_QUEUES.

    Judged by the slower of publishing and consuming: with one queue the producers outrun the
    consumers, and what they published ahead is no rate that lasts.
    """
    count = str(MANY_PRODUCERS)
    shape = ["--producers", count, "--consumers", count, "--duration", str(session.duration_s)]
    sides: dict[str, Measure] = {}
    for side, (broker, own) in _sides(session).items():
        if side != QUORUM:  # 1,000 Raft groups are no fair peer: said in the notes
            for queues in (1, MANY_QUEUES):
                arguments = [*shape, *own, "--queues", str(queues)]
                sides[f"{side}, {queues}"] = _measure(session, broker, arguments, _throughput)
    taken = session.alternate(sides)
    names = [side for side in _sides(session) if side != QUORUM]
    lines = []
    for figure in ("slower of both/s", "published/s", "consumed/s", "server CPU us/msg"):
        one = {name: taken[f"{name}, 1"].get(figure, Sample()) for name in names}
        many = {name: taken[f"{name}, {MANY_QUEUES}"].get(figure, Sample()) for name in names}
        lines += [
            Line(f"{figure}, one queue", one),
            Line(f"{figure}, {MANY_QUEUES:,} queues", many),
        ]
        if figure == "slower of both/s":
            share = {name: many[name].over(one[name]) for name in names}
            met = _met(share[WEIR], 0.7, lower=False) if WEIR in share else None
            lines.append(
                Line(f"{MANY_QUEUES:,} queues over one", share, None, "≥ 0.7× (goal 0.9×)", met)
            )
    notes = [
        "RabbitMQ with classic queues only: a quorum queue is a Raft group of its own.",
        (
            "Where Weir's time goes with very many queues: what is done per queue and commit "
            "(enqueue, dispatch, delivery, ack) is done for each message there, 3 to 5 us each of "
            "25, and no function has more than 13 %. One queue gains from every commit that gets "
            "cheaper, so the ratio falls while both rates rise."
        ),
    ]
    return Outcome(names, lines, notes)


def cold_drain(session: Session) -> Outcome:
    """Fill, restart, drain; the hot rate is the consumed rate with one producer beside it."""

    def measure(broker: Broker, own: list[str]) -> Measure:
        def run() -> dict[str, float] | None:
            hot = session.load(broker, *own, "--duration", str(session.duration_s))
            fill = ["--mode", "produce", "--keep", "--window", str(BACKLOG_WINDOW)]
            fill += ["--messages", str(session.cold_messages)]
            filled = session.load(broker, *own, *fill)
            broker.stop()
            broker.start()
            # The count is told: a quorum queue says 0 until it has recovered.
            drain = ["--mode", "consume", "--messages", str(session.cold_messages)]
            cold = session.load(broker, *own, *drain)
            if hot is None or filled is None or cold is None:
                return None
            return {
                "hot consumed/s": hot.consumed_per_s,
                "filled/s": filled.published_per_s,
                "cold drained/s": cold.consumed_per_s,
                "resident MiB, filled": filled.server.resident_mib if filled.server else 0.0,
            }

        return run

    taken = session.alternate(
        {side: measure(broker, own) for side, (broker, own) in _sides(session).items()}
    )
    hot, cold = _of(taken, "hot consumed/s"), _of(taken, "cold drained/s")
    share = {side: cold[side].over(hot[side]) for side in taken}
    met = _met(share[WEIR], 0.5, lower=False) if WEIR in share else None
    lines = [
        Line("cold over hot", share, None, "≥ 0.5× (goal 0.8×)", met),
        Line(f"cold drain of {session.cold_messages:,}, msg/s", cold),
        Line("hot, msg/s", hot),
        Line("filling, msg/s", _of(taken, "filled/s")),
        Line("resident MiB, filled", _of(taken, "resident MiB, filled")),
    ]
    note = "Hot: what one consumer gets while one producer publishes (row amqp-1p1c)."
    return Outcome(list(taken), lines, [note])


def fdatasyncs(session: Session) -> Outcome:
    """From Weir's own counter where its build has one, else by strace."""
    arguments = ["--duration", str(session.duration_s)]

    def measure(broker: Broker, own: list[str]) -> Measure:
        def traced() -> int:
            report = session.load(broker, *own, *arguments, "--warmup", "0")
            return 0 if report is None else report.verification.published

        def run() -> dict[str, float] | None:
            if broker.metrics_url:
                report = session.load(broker, *own, *arguments)
                if report is not None and report.fdatasyncs_per_1000 is not None:
                    return {"syncs per 1,000": report.fdatasyncs_per_1000}
            counted = count_syncs(_threads_of(broker), traced)
            if counted is None:
                session.note("strace is not there or may not attach: syncs were not counted")
                return None
            session.note(f"{broker.name}: counted by strace, which slows it")
            return {"syncs per 1,000": counted}

        return run

    taken = session.alternate(
        {side: measure(broker, own) for side, (broker, own) in _sides(session).items()}
    )
    cells = _of(taken, "syncs per 1,000")
    met = _met(cells[WEIR], 20.0, lower=True) if WEIR in cells else None
    line = Line("fdatasync and fsync per 1,000 messages", cells, None, "≤ 20 (goal 5)", met)
    return Outcome(list(taken), [line])


def _threads_of(broker: Broker) -> list[int]:
    """The broker's processes; strace -f follows the threads of each."""
    from benchmarks.load.procfs import descendants

    return [each for pid in broker.pids for each in descendants(pid)]


ROWS = [
    Row(
        "amqp-1p1c",
        "AMQP: 1 producer, 1 consumer, 1 KB persistent, window 200, prefetch 200, single acks",
        one_producer_one_consumer,
    ),
    Row("amqp-p99", f"AMQP: end-to-end latency at {STEADY_RATE:,} msg/s", steady_latency),
    Row("amqp-lone", "AMQP: a lone producer, window 1", lone_producer),
    Row("amqp-fanout", f"AMQP: fanout to {FANOUT_QUEUES} durable queues", fanout),
    Row(
        "amqp-queues",
        f"AMQP: {MANY_QUEUES:,} queues, {MANY_PRODUCERS} producers, {MANY_PRODUCERS} consumers",
        many_queues,
    ),
    Row("amqp-cold", "AMQP: cold drain after a restart", cold_drain),
    Row("amqp-syncs", "AMQP: fdatasyncs, saturated", fdatasyncs),
]
