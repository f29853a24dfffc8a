"""The outcome of `weir bench rocketmq` as figures: judged, put into one record, printed.

The record is the stable face (`-o json`): keys are only ever added, `version` counts other
changes. Rates are messages a second, times microseconds, shares fractions of one core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gateway.bench.report import GENERATOR_SHARE_MAX, Generator, Latency, Server
from gateway.bench.stats import Histogram
from gateway.bench.verify import Arrivals, Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.bench.amqp_spec import Window
    from gateway.bench.rocketmq_load import LoadResult

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
    options = result.options
    producing = [part.window for part in result.producers]
    consuming = [part.window for part in result.consumers]
    published = sum(map(_per_s, producing))
    handled = sum(window.messages for window in producing)
    syncs = result.after.fdatasyncs - result.before.fdatasyncs
    generators = [
        Generator(
            role=f"{role} {number}",
            messages_per_s=round(_per_s(window), 1),
            cpu_share=round(window.cpu_ns / max(window.elapsed_ns, 1), 3),
            cpu_us_per_message=round(window.cpu_ns / 1e3 / max(window.messages, 1), 2),
        )
        for role, windows in (("producer", producing), ("consumer", consuming))
        for number, window in enumerate(windows, start=1)
    ]
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
        window_s=round((result.after.at_ns - result.before.at_ns) / 1e9, 3),
        published_per_s=round(published, 1),
        requests_per_s=round(published / options.batch, 1),
        consumed_per_s=round(sum(map(_per_s, consuming)), 1),
        send=_latency(producing),
        end_to_end=_latency(consuming),
        generators=generators,
        generator_saturated=any(each.cpu_share > GENERATOR_SHARE_MAX for each in generators),
        server=_server(result, handled, [*producing, *consuming]),
        fdatasyncs_per_1000=(
            round(syncs * 1e3 / max(handled, 1), 2) if result.before.fdatasyncs >= 0 else None
        ),
        verification=_verification(result),
    )


def _per_s(window: Window) -> float:
    return window.messages * 1e9 / window.elapsed_ns if window.elapsed_ns > 0 else 0.0


def _latency(windows: Sequence[Window]) -> Latency:
    merged = Histogram()
    for window in windows:
        merged.add_pairs(window.latency, window.latency_max_ns)
    p50, p99 = merged.percentile_ns(50), merged.percentile_ns(99)
    return Latency(
        merged.total, round(p50 / 1e3, 1), round(p99 / 1e3, 1), round(merged.max_ns / 1e3, 1)
    )


def _server(result: LoadResult, handled: int, windows: Sequence[Window]) -> Server | None:
    if not result.options.pids:
        return None
    used_s = result.after.cpu_s - result.before.cpu_s
    elapsed_s = (result.after.at_ns - result.before.at_ns) / 1e9
    others_s = result.after.busy_s - result.before.busy_s - used_s
    others_s -= sum(window.cpu_ns for window in windows) / 1e9
    return Server(
        cpu_share=round(used_s / elapsed_s, 3),
        cpu_us_per_message=round(used_s * 1e6 / max(handled, 1), 2),
        resident_mib=round(result.resident_bytes / (1 << 20), 1),
        others_cpu_share=round(max(others_s, 0.0) / elapsed_s, 3),
    )


def _verification(result: LoadResult) -> Verification:
    totals = [total for part in result.producers for total in part.producers]
    parts: dict[int, list[Arrivals]] = {}
    for consumer in result.consumers:
        for seen in consumer.seen:
            arrived = Arrivals(seen.intervals, seen.duplicated, 0, seen.misrouted)
            parts.setdefault(seen.producer, []).append(arrived)
    verdict = Verdict()
    if result.consumers:
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
        redelivered=sum(part.redelivered for part in result.consumers),
        foreign=sum(part.foreign for part in result.consumers),
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
        "send latency": _latency_line(report.send),
        "end-to-end latency": _latency_line(report.end_to_end),
    }
    for part in report.generators:
        rows[f"generator {part.role}"] = (
            f"{part.cpu_share:.0%} of a core, {part.cpu_us_per_message:.2f} us/msg"
        )
    if report.server is not None:
        rows["server"] = (
            f"{report.server.cpu_share:.0%} of a core, "
            f"{report.server.cpu_us_per_message:.2f} us/msg, "
            f"{report.server.resident_mib:,.0f} MiB resident"
        )
        rows["everything else"] = f"{report.server.others_cpu_share:.0%} of a core"
    if report.fdatasyncs_per_1000 is not None:
        rows["fdatasyncs"] = f"{report.fdatasyncs_per_1000:.2f} per 1,000 messages"
    check = report.verification
    rows["published in all"] = f"{check.published:,}, {check.unanswered:,} unanswered"
    if report.settings["consumers"]:
        rows["verified"] = (
            f"{check.received:,} received, {check.lost:,} lost, {check.duplicated:,} duplicated, "
            f"{check.redelivered:,} redelivered, {check.foreign:,} of other runs"
        )
    return list(rows.items())


def _latency_line(latency: Latency) -> str:
    if not latency.samples:
        return "-"
    return (
        f"p50 {latency.p50_us / 1e3:,.2f} ms, p99 {latency.p99_us / 1e3:,.2f} ms, "
        f"max {latency.max_us / 1e3:,.2f} ms"
    )
