"""The outcome of `weir bench rocketmq` as figures: judged, put into one record, printed.

The record is the stable face (`-o json`): keys are only ever added, `version` counts other
changes. Rates are messages a second, times microseconds, shares fractions of one core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from benchmarks.load.report import (
    GENERATOR_SHARE_MAX,
    Generator,
    Latency,
    Server,
    cost_rows,
    fdatasyncs_per_1000,
    generators_of,
    latency_line,
    merged_latency,
    per_s,
    server_of,
    window_s,
)
from benchmarks.load.verify import Arrivals, Verdict, judge

if TYPE_CHECKING:
    from benchmarks.load.measured_run import Measured
    from benchmarks.load.rocketmq_load import LoadResult

REPORT_VERSION = 1


class Verification(msgspec.Struct, frozen=True):
    """Messages of the whole run, warm-up and drain included. Without consumers none is checked."""

    published: int
    unanswered: int
    received: int
    lost: int
    duplicated: int
    redelivered: int
    foreign: int  # of earlier runs
    ok: bool


class RocketmqReport(msgspec.Struct, frozen=True):
    version: int
    settings: dict[str, str | int | float]
    window_s: float
    published_per_s: float
    requests_per_s: float
    consumed_per_s: float
    send: Latency  # of a request
    end_to_end: Latency
    generators: list[Generator]
    generator_saturated: bool
    server: Server | None
    fdatasyncs_per_1000: float | None
    verification: Verification


def report_of(result: LoadResult) -> RocketmqReport:
    """All figures of one run."""
    options, measured = result.options, result.measured
    producing = [part.window for part in measured.producers]
    consuming = [part.window for part in measured.consumers]
    published = sum(map(per_s, producing))
    handled = sum(window.messages for window in producing)
    generators = generators_of(measured)
    return RocketmqReport(
        version=REPORT_VERSION,
        settings={
            "size_bytes": options.size_bytes,
            "batch": options.batch,
            "producers": options.producers,
            "consumers": options.consumers,
            "window": options.window,
            "receive_batch": options.receive_batch,
            "ack_batch": options.ack_batch,
            "duration_s": 0.0 if options.messages else options.duration_s,
            "messages": options.messages,
            "warmup_s": options.lead_s,
        },
        window_s=round(window_s(measured), 3),
        published_per_s=round(published, 1),
        requests_per_s=round(published / options.batch, 1),
        consumed_per_s=round(sum(map(per_s, consuming)), 1),
        send=merged_latency(producing),
        end_to_end=merged_latency(consuming),
        generators=generators,
        generator_saturated=any(each.cpu_share > GENERATOR_SHARE_MAX for each in generators),
        server=server_of(measured, handled) if options.pids else None,
        fdatasyncs_per_1000=fdatasyncs_per_1000(measured, handled),
        verification=_verification(measured),
    )


def _verification(measured: Measured) -> Verification:
    totals = [total for part in measured.producers for total in part.producers]
    parts: dict[int, list[Arrivals]] = {}
    for consumer in measured.consumers:
        for seen in consumer.seen:
            arrived = Arrivals(seen.intervals, seen.duplicated, 0, seen.misrouted)
            parts.setdefault(seen.producer, []).append(arrived)
    verdict = Verdict()
    if measured.consumers:
        for total in totals:
            verdict += judge(parts.get(total.number, []), total.sent)
    published = sum(total.sent for total in totals)
    unanswered = published - sum(total.answered for total in totals)
    return Verification(
        published=published,
        unanswered=unanswered,
        received=verdict.received,
        lost=verdict.lost,
        duplicated=verdict.duplicated,
        redelivered=sum(part.redelivered for part in measured.consumers),
        foreign=sum(part.foreign for part in measured.consumers),
        ok=bool(published) and not (verdict.lost or unanswered),
    )


def rows_of(report: RocketmqReport) -> list[tuple[str, str]]:
    """The report for people: (figure, value)."""
    rows = {
        "window": f"{report.window_s:.1f} s",
        "published and stored": (
            f"{report.published_per_s:,.0f} msg/s in {report.requests_per_s:,.0f} requests/s"
        ),
        "consumed": f"{report.consumed_per_s:,.0f} msg/s",
        "send latency": latency_line(report.send),
        "end-to-end latency": latency_line(report.end_to_end),
    }
    rows |= cost_rows(report.generators, report.server, report.fdatasyncs_per_1000)
    check = report.verification
    rows["published in all"] = f"{check.published:,}, {check.unanswered:,} unanswered"
    if report.settings["consumers"]:
        rows["verified"] = (
            f"{check.received:,} received, {check.lost:,} lost, {check.duplicated:,} duplicated, "
            f"{check.redelivered:,} redelivered, {check.foreign:,} of other runs"
        )
    return list(rows.items())
