"""The rows of SQS: what is run, which figure is taken, what it is held against."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.amqp_rows import WEIR, Row
from benchmarks.results import Line, Outcome
from benchmarks.samples import Sample
from benchmarks.sqs_peers import Fauxqs, Moto, SqsWeir

if TYPE_CHECKING:
    from benchmarks.load.sqs_report import SqsReport
    from benchmarks.peers import Broker
    from benchmarks.session import Measure, Session

FAUXQS = "fauxqs"
MOTO = "moto"
MESSAGES_A_SECOND = 5_000
"""How many messages a second of `--duration` stands for: about what both sides serve."""
CYCLE_SHARE = 0.1
"""Of them where each is sent, received and deleted."""
MOTO_MESSAGES = ["--messages", "300", "--warmup", "30"]
"""Moto serves some hundred a second, and slows down with what waits in a queue."""
BACKLOG = 100_000
POLLS = 1_000
SEND_MIN = 0.4
BACKLOG_MIN = 0.8
POLL_SHARE_MAX = 1.0

UNEQUAL = (
    "Weir verifies each signature and has each message on disk before its answer; the others do "
    "neither. Requests are signed before the run."
)

Figures = Callable[["SqsReport"], dict[str, float]]


def _measure(session: Session, broker: Broker, arguments: list[str], figures: Figures) -> Measure:
    def measure() -> dict[str, float] | None:
        report = session.load_sqs(broker, *arguments)
        return None if report is None else figures(report)

    return measure


def _figures(report: SqsReport) -> dict[str, float]:
    return {
        "messages/s": report.messages_per_s,
        "send p50 ms": report.send.p50_us / 1e3,
        "send p99 ms": report.send.p99_us / 1e3,
        "server CPU us/msg": report.server.cpu_us_per_message if report.server else 0.0,
        "generator %": report.generator.cpu_share * 100,
    }


def _of(taken: dict[str, dict[str, Sample]], figure: str) -> dict[str, Sample]:
    return {side: figures.get(figure, Sample()) for side, figures in taken.items()}


def _messages(session: Session, share: float = 1.0) -> list[str]:
    return ["--messages", str(max(1, int(session.duration_s * MESSAGES_A_SECOND * share)))]


def send(session: Session) -> Outcome:
    sides = {}
    for side, broker in session.brokers.items():
        count = MOTO_MESSAGES if side == MOTO else _messages(session)
        sides[side] = _measure(session, broker, ["--connections", "16", *count], _figures)
    taken = session.alternate(sides)
    rates = _of(taken, "messages/s")
    ratio = met = None
    if WEIR in rates and FAUXQS in rates:
        ratio = rates[WEIR].over(rates[FAUXQS])
        met = None if ratio.median is None else ratio.median >= SEND_MIN
    bar = f"≥ {SEND_MIN}× fauxqs (goal 1×)"
    names = ("send p50 ms", "send p99 ms", "server CPU us/msg", "generator %")
    lines = [Line("messages/s", rates, ratio, bar, met)]
    lines += [Line(figure, _of(taken, figure)) for figure in names]
    return Outcome(list(taken), lines, [UNEQUAL])


def backlog(session: Session) -> Outcome:
    """Weir twice a round: an empty queue, and one in which BACKLOG messages wait."""
    if WEIR not in session.brokers:
        return Outcome([], [])
    shape = ["--mode", "cycle", "--connections", "16", *_messages(session, CYCLE_SHARE)]
    broker = session.brokers[WEIR]
    empty, full = "Weir, empty queue", f"Weir, {BACKLOG:,} waiting"
    taken = session.alternate(
        {
            empty: _measure(session, broker, shape, _figures),
            full: _measure(session, broker, [*shape, "--backlog", str(BACKLOG)], _figures),
        }
    )
    rates = _of(taken, "messages/s")
    ratio = rates[full].over(rates[empty])
    met = None if ratio.median is None else ratio.median >= BACKLOG_MIN
    lines = [
        Line("messages/s", rates, ratio, f"≥ {BACKLOG_MIN}× of the empty queue's", met),
        Line("server CPU us/msg", _of(taken, "server CPU us/msg")),
    ]
    return Outcome(list(taken), lines, ["The ratio is of the long queue over the empty one."])


def polls(session: Session) -> Outcome:
    arguments = ["--mode", "poll", "--connections", str(POLLS)]
    arguments += ["--duration", str(session.duration_s)]

    def figures(report: SqsReport) -> dict[str, float]:
        return {
            "server, % of a core": report.server.cpu_share * 100 if report.server else 0.0,
            "wake-up ms": report.receive.p50_us / 1e3,
            "resident MiB": report.server.resident_mib if report.server else 0.0,
        }

    taken = session.alternate(
        {
            side: _measure(session, broker, arguments, figures)
            for side, broker in session.brokers.items()
            if side != MOTO  # it polls in a thread each: said in the notes
        }
    )
    share = _of(taken, "server, % of a core")
    median = share[WEIR].median if WEIR in share else None
    met = None if median is None else median < POLL_SHARE_MAX
    lines = [
        Line("server, % of a core", share, None, "< 1 %", met),
        Line("wake-up ms", _of(taken, "wake-up ms")),
        Line("resident MiB", _of(taken, "resident MiB")),
    ]
    return Outcome(list(taken), lines, ["Without moto, whose polls are threads that look again."])


SIDES = (SqsWeir, Fauxqs, Moto)

ROWS = [
    Row("sqs-send", "SQS: SendMessage, 16 connections, 1 KB, requests pre-signed", send, SIDES),
    Row(
        "sqs-backlog",
        f"SQS: send, receive and delete, with {BACKLOG:,} messages waiting and with none",
        backlog,
        SIDES,
    ),
    Row("sqs-polls", f"SQS: {POLLS:,} idle long polls", polls, SIDES),
]
