"""The outcome of a load test as figures: judged, put into one record, printed.

The record is the stable face (`-o json`): keys are only ever added, `version` counts other
changes. Rates are messages a second, times microseconds, shares fractions of one core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from benchmarks.load.amqp_plan import Mode
from benchmarks.load.amqp_spec import first_sequence, sent_to_lane
from benchmarks.load.stats import Histogram
from benchmarks.load.verify import Arrivals, Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.load.amqp_load import LoadResult
    from benchmarks.load.amqp_plan import LoadOptions
    from benchmarks.load.measured_run import Measured
    from benchmarks.load.talk import ProducerTotal, Seen, Window

REPORT_VERSION = 1
GENERATOR_SHARE_MAX = 0.8  # of a core: above, the figures describe the generator


class Latency(msgspec.Struct, frozen=True):
    samples: int
    p50_us: float
    p99_us: float
    max_us: float


class Generator(msgspec.Struct, frozen=True):
    """One generator process in the measured window."""

    role: str
    messages_per_s: float
    cpu_share: float
    cpu_us_per_message: float


class Server(msgspec.Struct, frozen=True):
    """The broker's processes in the measured window; only with --pid."""

    cpu_share: float
    cpu_us_per_message: float  # for fanout: a reference, that is a queue reached
    resident_mib: float
    others_cpu_share: float  # of everything on the machine but the server and the generators


class Verification(msgspec.Struct, frozen=True):
    """Messages of the whole run, warm-up and drain included."""

    published: int
    unconfirmed: int  # no answer when the run ended; they may be missing and are never lost
    nacked: int
    expected: int
    received: int
    lost: int
    duplicated: int
    disordered: int
    misrouted: int
    redelivered: int
    foreign: int
    ok: bool


class LoadReport(msgspec.Struct, frozen=True):
    version: int
    broker: str
    settings: dict[str, str | int | float | bool]
    window_s: float
    published_per_s: float
    consumed_per_s: float
    confirm: Latency
    end_to_end: Latency
    generators: list[Generator]
    generator_saturated: bool
    server: Server | None
    fdatasyncs_per_1000: float | None
    verification: Verification


def latency_of(histogram: Histogram) -> Latency:
    """The figures of a histogram."""
    return Latency(
        samples=histogram.total,
        p50_us=round(histogram.percentile_ns(50) / 1e3, 1),
        p99_us=round(histogram.percentile_ns(99) / 1e3, 1),
        max_us=round(histogram.max_ns / 1e3, 1),
    )


def merged_latency(windows: Iterable[Window]) -> Latency:
    """The figures of several processes' histograms."""
    merged = Histogram()
    for window in windows:
        merged.add_pairs(window.latency, window.latency_max_ns)
    return latency_of(merged)


def per_s(window: Window) -> float:
    """Messages a second."""
    return window.messages * 1e9 / window.elapsed_ns if window.elapsed_ns > 0 else 0.0


def generators_of(measured: Measured) -> list[Generator]:
    """What each generator process did."""
    producing = [part.window for part in measured.producers]
    consuming = [part.window for part in measured.consumers]
    return [
        _generator(f"{role} {number}", window)
        for role, windows in (("producer", producing), ("consumer", consuming))
        for number, window in enumerate(windows, start=1)
    ]


def _generator(role: str, window: Window) -> Generator:
    return Generator(
        role=role,
        messages_per_s=round(per_s(window), 1),
        cpu_share=round(window.cpu_ns / window.elapsed_ns, 3) if window.elapsed_ns > 0 else 0.0,
        cpu_us_per_message=round(window.cpu_ns / 1e3 / max(window.messages, 1), 2),
    )


def window_s(measured: Measured) -> float:
    """Seconds between the samples of the server."""
    return (measured.after.at_ns - measured.before.at_ns) / 1e9


def server_of(measured: Measured, handled: int) -> Server:
    """What the server used for so many messages."""
    used_s = measured.after.cpu_s - measured.before.cpu_s
    elapsed_s = window_s(measured)
    windows = [part.window for part in measured.producers]
    windows += [part.window for part in measured.consumers]
    generators_ns = sum(window.cpu_ns for window in windows)
    others_s = measured.after.busy_s - measured.before.busy_s - used_s - generators_ns / 1e9
    return Server(
        cpu_share=round(used_s / elapsed_s, 3),
        cpu_us_per_message=round(used_s * 1e6 / max(handled, 1), 2),
        resident_mib=round(measured.resident_bytes / (1 << 20), 1),
        others_cpu_share=round(max(others_s, 0.0) / elapsed_s, 3),
    )


def fdatasyncs_per_1000(measured: Measured, messages: int) -> float | None:
    """The server's own count, if it was read."""
    if measured.before.fdatasyncs < 0:
        return None
    syncs = measured.after.fdatasyncs - measured.before.fdatasyncs
    return round(syncs * 1e3 / max(messages, 1), 2)


def _totals(result: LoadResult) -> list[ProducerTotal]:
    return [total for part in result.measured.producers for total in part.producers]


def _on_lane(sequences: list[int], total: ProducerTotal, lane: int, lanes: int) -> list[int]:
    """The positions on `lane` of some of a producer's messages."""
    first = first_sequence(total.number, lane, lanes)
    return [
        (sequence - first) // lanes
        for sequence in sequences
        if sequence >= first and (sequence - first) % lanes == 0
    ]


def _backlog(result: LoadResult) -> int:
    """How many deliveries there should have been in a run that only consumes."""
    return result.options.messages or result.backlog


def judge_deliveries(result: LoadResult) -> Verdict:
    """Loss, duplicates and order over everything the consumers received."""
    options = result.options
    parts: dict[tuple[int, int], list[Arrivals]] = {}
    seen: Seen
    for consumer in result.measured.consumers:
        for seen in consumer.seen:
            arrived = Arrivals(seen.intervals, seen.duplicated, seen.disordered, seen.misrouted)
            parts.setdefault((seen.queue, seen.producer), []).append(arrived)
    verdict = Verdict()
    for total in _totals(result):
        for queue in range(options.queues):
            lane = 0 if options.fanout else queue
            sent = sent_to_lane(total.sent, total.number, lane, options.lanes)
            found = parts.pop((queue, total.number), [])
            excused = _on_lane([*total.nacked, *total.unanswered], total, lane, options.lanes)
            verdict += judge(found, sent, excused)
    known = bool(result.measured.producers)
    for found in parts.values():  # of producers that are not of this run
        verdict += judge(found, 0 if known else None)
    if not known:
        missing = _backlog(result) - (verdict.received - verdict.duplicated)
        verdict += Verdict(lost=max(missing, 0))
    return verdict


def judge_depths(result: LoadResult) -> Verdict:
    """Loss by counting: what waits in each queue beside what was sent there."""
    options = result.options
    verdict = Verdict()
    for queue, depth in enumerate(result.depths):
        lane = 0 if options.fanout else queue
        stored = refused = unanswered = 0
        for total in _totals(result):
            stored += sent_to_lane(total.sent, total.number, lane, options.lanes)
            refused += len(_on_lane(total.nacked, total, lane, options.lanes))
            unanswered += len(_on_lane(total.unanswered, total, lane, options.lanes))
        missing = stored - refused - depth
        excused = min(max(missing, 0), unanswered)
        verdict += Verdict(
            received=depth,
            lost=max(missing, 0) - excused,
            duplicated=max(-missing, 0),
            excused=refused + excused,
        )
    return verdict


def _verification(result: LoadResult) -> Verification:
    verdict = judge_deliveries(result) if result.measured.consumers else judge_depths(result)
    totals = _totals(result)
    published = sum(total.sent for total in totals)
    unconfirmed = published - sum(total.answered for total in totals)
    nacked = sum(len(total.nacked) for total in totals)
    only_consumes = result.options.mode is Mode.CONSUME
    expected = published * result.options.copies - verdict.excused
    return Verification(
        published=published,
        unconfirmed=unconfirmed,
        nacked=nacked,
        expected=_backlog(result) if only_consumes else expected,
        received=verdict.received,
        lost=verdict.lost,
        duplicated=verdict.duplicated,
        disordered=verdict.disordered,
        misrouted=verdict.misrouted,
        redelivered=sum(part.redelivered for part in result.measured.consumers),
        foreign=sum(part.foreign for part in result.measured.consumers),
        ok=not (verdict.lost or verdict.disordered or verdict.misrouted or unconfirmed)
        and bool(published or not result.measured.producers),
    )


def _settings(options: LoadOptions) -> dict[str, str | int | float | bool]:
    """The options that shape the load; the URL and the processes measured are the caller's."""
    return {
        "mode": options.mode.value,
        "pattern": "fanout" if options.fanout else "queue",
        "size_bytes": options.size_bytes,
        "producers": options.producers,
        "consumers": options.consumers,
        "window": options.window,
        "prefetch": options.prefetch,
        "acks": options.acks.value,
        "rate": options.rate,
        "duration_s": 0.0 if options.by_messages else options.duration_s,
        "messages": options.messages,
        "warmup_s": options.lead_s,
        "queues": options.queues,
        "queue_type": options.queue_type,
        "durable": options.durable,
    }


def report_of(result: LoadResult) -> LoadReport:
    """All figures of one run."""
    measured = result.measured
    producing = [part.window for part in measured.producers]
    consuming = [part.window for part in measured.consumers]
    published = sum(window.messages for window in producing)
    consumed = sum(window.messages for window in consuming)
    handled = published * result.options.copies if producing else consumed
    generators = generators_of(measured)
    return LoadReport(
        version=REPORT_VERSION,
        broker=f"{result.identity.product} {result.identity.version}",
        settings=_settings(result.options),
        window_s=round(window_s(measured), 3),
        published_per_s=round(sum(map(per_s, producing)), 1),
        consumed_per_s=round(sum(map(per_s, consuming)), 1),
        confirm=merged_latency(producing),
        end_to_end=merged_latency(consuming),
        generators=generators,
        generator_saturated=any(g.cpu_share > GENERATOR_SHARE_MAX for g in generators),
        server=server_of(measured, handled) if result.options.pids else None,
        fdatasyncs_per_1000=fdatasyncs_per_1000(measured, published or consumed),
        verification=_verification(result),
    )


def rows_of(report: LoadReport) -> list[tuple[str, str]]:
    """The report for people: (figure, value)."""
    rows = {
        "broker": report.broker,
        "window": f"{report.window_s:.1f} s",
        "published and confirmed": f"{report.published_per_s:,.0f} msg/s",
        "consumed": f"{report.consumed_per_s:,.0f} msg/s",
        "confirm latency": latency_line(report.confirm),
        "end-to-end latency": latency_line(report.end_to_end),
    }
    rows |= cost_rows(report.generators, report.server, report.fdatasyncs_per_1000)
    rows |= _verification_rows(report.verification)
    return list(rows.items())


def cost_rows(
    generators: list[Generator], server: Server | None, fdatasyncs: float | None
) -> dict[str, str]:
    """What the run cost, for people."""
    rows = {
        f"generator {part.role}": (
            f"{part.cpu_share:.0%} of a core, {part.cpu_us_per_message:.2f} us/msg"
        )
        for part in generators
    }
    if server is not None:
        rows |= server_rows(server)
    if fdatasyncs is not None:
        rows["fdatasyncs"] = f"{fdatasyncs:.2f} per 1,000 messages"
    return rows


def server_rows(server: Server) -> dict[str, str]:
    """What the server used, for people."""
    return {
        "server": (
            f"{server.cpu_share:.1%} of a core, {server.cpu_us_per_message:.2f} us/msg, "
            f"{server.resident_mib:,.0f} MiB resident"
        ),
        "everything else": f"{server.others_cpu_share:.0%} of a core",
    }


def _verification_rows(check: Verification) -> dict[str, str]:
    rows = {
        "published in all": f"{check.published:,}, {check.unconfirmed:,} unanswered",
        "verified": (
            f"{check.received:,} of {check.expected:,} received, {check.lost:,} lost, "
            f"{check.duplicated:,} duplicated, {check.disordered:,} out of order"
        ),
    }
    if check.nacked or check.redelivered or check.foreign or check.misrouted:
        rows["also"] = (
            f"{check.nacked:,} refused, {check.redelivered:,} redelivered, "
            f"{check.foreign:,} foreign, {check.misrouted:,} misrouted"
        )
    return rows


def latency_line(latency: Latency) -> str:
    """The figures for people, in milliseconds."""
    if not latency.samples:
        return "-"
    return (
        f"p50 {latency.p50_us / 1e3:,.2f} ms, p99 {latency.p99_us / 1e3:,.2f} ms, "
        f"max {latency.max_us / 1e3:,.2f} ms"
    )
