"""The outcome of `weir bench sqs` as figures, with the rules of `report`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from benchmarks.load.report import (
    GENERATOR_SHARE_MAX,
    REPORT_VERSION,
    Generator,
    Latency,
    Server,
    latency_line,
    latency_of,
    server_rows,
)
from benchmarks.load.sqs_generator import STEPS, PollLoad
from benchmarks.load.sqs_plan import Mode

if TYPE_CHECKING:
    from benchmarks.load.sqs_generator import Load, Usage
    from benchmarks.load.sqs_load import SqsResult
    from benchmarks.load.sqs_plan import SqsOptions


class SqsVerification(msgspec.Struct, frozen=True):
    """Messages of the whole run: backlog, warm-up and drain included."""

    sent: int
    received: int
    lost: int
    duplicated: int
    foreign: int
    ok: bool


class SqsReport(msgspec.Struct, frozen=True):
    """Rates are messages a second; a message of `cycle` is sent, received and deleted."""

    version: int
    service: str
    settings: dict[str, str | int | float | bool]
    window_s: float
    messages_per_s: float
    send: Latency
    receive: Latency
    delete: Latency
    reconnects: int
    empty_polls: int
    generator: Generator
    generator_saturated: bool
    server: Server | None
    verification: SqsVerification | None


def _settings(options: SqsOptions) -> dict[str, str | int | float | bool]:
    shape: dict[str, str | int | float | bool] = {
        "mode": options.mode.value,
        "connections": options.connections,
        "size_bytes": options.size_bytes,
    }
    if options.mode is Mode.POLL:
        return shape | {"duration_s": options.duration_s}
    return shape | {
        "messages": options.messages,
        "warmup": options.warmup,
        "rate": options.rate,
        "backlog": options.backlog,
    }


def _server(options: SqsOptions, load: Load, opened: Usage, closed: Usage) -> Server | None:
    if not options.pids:
        return None
    elapsed_s = (closed.at_ns - opened.at_ns) / 1e9
    used_s = closed.server_cpu_s - opened.server_cpu_s
    own_s = (closed.own_cpu_ns - opened.own_cpu_ns) / 1e9
    others_s = closed.busy_s - opened.busy_s - used_s - own_s
    handled = 0 if options.mode is Mode.POLL else options.messages
    return Server(
        cpu_share=round(used_s / elapsed_s, 4),
        cpu_us_per_message=round(used_s * 1e6 / handled, 2) if handled else 0.0,
        resident_mib=round(load.resident_bytes / (1 << 20), 1),
        others_cpu_share=round(max(others_s, 0.0) / elapsed_s, 3),
    )


def report_of(result: SqsResult) -> SqsReport:
    """All figures of one run."""
    options, load = result.options, result.load
    opened, closed = load.opened, load.closed
    assert opened is not None, "the window was opened"
    assert closed is not None, "the window was closed"
    elapsed_s = (closed.at_ns - opened.at_ns) / 1e9
    handled = 0 if options.mode is Mode.POLL else options.messages
    own_us = (closed.own_cpu_ns - opened.own_cpu_ns) / 1e3
    generator = Generator(
        role=options.mode.value,
        messages_per_s=round(handled / elapsed_s, 1),
        cpu_share=round(own_us / 1e6 / elapsed_s, 3),
        cpu_us_per_message=round(own_us / handled, 2) if handled else 0.0,
    )
    verdict = result.verdict
    send, receive, delete = map(latency_of, load.latency)
    return SqsReport(
        version=REPORT_VERSION,
        service=load.server or "unnamed",
        settings=_settings(options),
        window_s=round(elapsed_s, 3),
        messages_per_s=generator.messages_per_s,
        send=send,
        receive=receive,
        delete=delete,
        reconnects=sum(connection.reconnects for connection in load.connections),
        empty_polls=load.empty if isinstance(load, PollLoad) else 0,
        generator=generator,
        generator_saturated=generator.cpu_share > GENERATOR_SHARE_MAX,
        server=_server(options, load, opened, closed),
        verification=SqsVerification(
            sent=result.sent + options.backlog,
            received=verdict.received,
            lost=verdict.lost,
            duplicated=verdict.duplicated,
            foreign=result.foreign,
            ok=not (verdict.lost or verdict.misrouted),
        )
        if result.is_verified
        else None,
    )


def rows_of(report: SqsReport) -> list[tuple[str, str]]:
    """The report for people: (figure, value)."""
    rows = {"service": report.service, "window": f"{report.window_s:.1f} s"}
    if report.settings["mode"] == Mode.POLL.value:
        rows["long polls"] = (
            f"{report.settings['connections']:,}, {report.empty_polls:,} ended empty"
        )
        rows["wake-up"] = latency_line(report.receive)
    else:
        rows["messages"] = f"{report.messages_per_s:,.0f} msg/s"
        for step, latency in zip(STEPS, (report.send, report.receive, report.delete), strict=True):
            if latency.samples:
                rows[f"{step} latency"] = latency_line(latency)
    if report.reconnects:
        rows["reconnects"] = f"{report.reconnects:,}, as the service closes connections"
    rows["generator"] = (
        f"{report.generator.cpu_share:.0%} of a core, "
        f"{report.generator.cpu_us_per_message:.2f} us/msg"
    )
    if report.server is not None:
        rows |= server_rows(report.server)
    check = report.verification
    rows["verified"] = (
        "no, as the queue was kept"
        if check is None
        else f"{check.received:,} of {check.sent:,} received, {check.lost:,} lost, "
        f"{check.duplicated:,} duplicated, {check.foreign:,} foreign"
    )
    return list(rows.items())
