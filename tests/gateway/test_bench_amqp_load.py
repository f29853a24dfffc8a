"""`weir bench amqp` end to end, against a tiny broker that can do wrong."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks.load.amqp_deliveries import AckMode
from benchmarks.load.amqp_load import run_load
from benchmarks.load.amqp_plan import LoadOptions, Mode
from benchmarks.load.errors import BenchError
from benchmarks.load.report import LoadReport, report_of, rows_of
from tests.gateway.bench_broker import FakeBroker, Faults

ROOT = Path(__file__).parents[2]


async def load(url: str, **options: object) -> LoadReport:
    settings: dict[str, object] = {"messages": 3000, "size_bytes": 64, "drain_timeout_s": 1.0}
    return report_of(await run_load(LoadOptions(url, **(settings | options))))  # type: ignore[arg-type]


async def bench(url: str, *arguments: str) -> tuple[int, str, str]:
    """The command itself, as `weir bench amqp`: exit code, stdout, stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *f"-m gateway bench amqp --url {url}".split(),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_a_run_receives_what_it_published_and_leaves_nothing_behind() -> None:
    async with FakeBroker() as broker:
        report = await load(broker.url)
        assert not broker.queues
        assert broker.acks == 3000
    check = report.verification
    assert (check.published, check.expected, check.received) == (3000, 3000, 3000)
    assert (check.lost, check.duplicated, check.disordered, check.unconfirmed) == (0, 0, 0, 0)
    assert check.ok
    assert report.published_per_s > 0
    assert report.consumed_per_s > 0
    assert report.confirm.samples == report.end_to_end.samples == 3000
    assert 0 < report.confirm.p50_us <= report.confirm.p99_us <= report.confirm.max_us
    assert [generator.role for generator in report.generators] == ["producer 1", "consumer 1"]


async def test_many_producers_consumers_queues_and_processes_are_accounted_for() -> None:
    async with FakeBroker() as broker:
        report = await load(
            broker.url,
            producers=3,
            consumers=4,
            queues=7,
            producer_processes=2,
            consumer_processes=2,
            acks=AckMode.MULTIPLE,
        )
    assert report.verification.received == 3000
    assert report.verification.ok
    assert len(report.generators) == 4


async def test_consumers_may_share_a_queue() -> None:
    async with FakeBroker() as broker:
        report = await load(broker.url, consumers=3, prefetch=10)
    assert (report.verification.received, report.verification.ok) == (3000, True)


async def test_a_timed_run_measures_between_its_warm_up_and_its_stop() -> None:
    async with FakeBroker() as broker:
        report = await load(broker.url, messages=0, duration_s=0.5, warmup_s=0.3)
    assert 0.2 < report.window_s < 1.0  # a busy machine begins late
    assert report.verification.ok
    assert report.confirm.samples < report.verification.published


async def test_an_open_loop_keeps_its_schedule() -> None:
    async with FakeBroker() as broker:
        report = await load(broker.url, messages=0, rate=500.0, duration_s=1.0, warmup_s=0.2)
    assert report.verification.ok
    # On a busy machine the last may be missing, or the end comes late and the schedule goes on.
    assert 540 <= report.verification.published <= 660
    assert 400 < report.published_per_s < 600


async def test_a_fanout_is_verified_by_its_consumers_or_by_counting() -> None:
    async with FakeBroker() as broker:
        consumed = await load(broker.url, fanout=True, queues=5, consumers=2, messages=300)
        counted = await load(broker.url, fanout=True, queues=5, consumers=0, messages=300)
    for report in (consumed, counted):
        assert (report.verification.expected, report.verification.received) == (1500, 1500)
        assert report.verification.ok


async def test_a_backlog_is_consumed_by_a_later_run() -> None:
    async with FakeBroker() as broker:
        await load(broker.url, mode=Mode.PRODUCE, keep=True, producers=2, queues=3)
        report = await load(broker.url, mode=Mode.CONSUME, messages=0, queues=3, consumers=2)
    check = report.verification
    assert (check.expected, check.received, check.lost) == (3000, 3000, 0)
    assert check.ok
    assert report.consumed_per_s > 0


async def test_a_backlog_that_is_smaller_than_told_is_loss() -> None:
    async with FakeBroker(Faults(lose={5})) as broker:
        await load(broker.url, mode=Mode.PRODUCE, keep=True)
        check = (await load(broker.url, mode=Mode.CONSUME)).verification
    assert (check.expected, check.received, check.lost) == (3000, 2999, 1)
    assert not check.ok


async def test_faults_are_found_and_counted() -> None:
    faults = Faults(lose={10, 2999}, repeat={20, 30, 31}, swap={100, 200})
    async with FakeBroker(faults) as broker:
        check = (await load(broker.url)).verification
    assert (check.lost, check.duplicated, check.disordered) == (2, 3, 2)
    assert not check.ok


async def test_loss_is_found_by_counting_when_nobody_consumes() -> None:
    async with FakeBroker(Faults(lose={5})) as broker:
        counted = await load(broker.url, mode=Mode.PRODUCE, keep=True)
        assert (counted.verification.lost, counted.verification.ok) == (1, False)


async def test_a_refused_message_is_not_a_lost_one() -> None:
    async with FakeBroker(Faults(refuse={0, 7, 8, 500})) as broker:
        check = (await load(broker.url)).verification
    assert (check.nacked, check.expected, check.received) == (4, 2996, 2996)
    assert check.ok


@pytest.mark.parametrize("mode", [Mode.BOTH, Mode.PRODUCE])
async def test_a_message_without_an_answer_is_unanswered_and_never_lost(mode: Mode) -> None:
    """Whether it was stored nobody knows, and what was stored of it is received all the same."""
    faults = Faults(lose={7, 2998, 2999}, silent_from=2990)
    async with FakeBroker(faults) as broker:
        report = await load(broker.url, mode=mode, queues=1)
    check = report.verification
    assert (check.published, check.unconfirmed, check.lost) == (
        3000,
        10,
        1 if mode is Mode.BOTH else 0,
    )
    assert (check.expected, check.received) == (2998 if mode is Mode.BOTH else 2997, 2997)
    assert not check.ok
    assert dict(rows_of(report))["published in all"] == "3,000, 10 unanswered"


async def test_the_command_says_that_answers_are_missing() -> None:
    async with FakeBroker(Faults(silent_from=20)) as broker:
        code, _, err = await bench(broker.url, "--messages", "30", "--drain-timeout", "1")
    assert code == 1
    assert "0 lost, 0 out of order, 0 misrouted, 10 unanswered" in err


async def test_a_broker_that_closes_ends_the_run_with_its_reason() -> None:
    async with FakeBroker(Faults(close_after=100)) as broker:
        with pytest.raises(BenchError, match="406 PRECONDITION_FAILED - enough"):
            await load(broker.url)
        assert not broker.queues


async def test_nobody_listening_is_said_plainly() -> None:
    with pytest.raises(BenchError, match=r"cannot connect to 127\.0\.0\.1:1"):
        await load("amqp://127.0.0.1:1/")


async def test_a_process_to_measure_must_exist() -> None:
    async with FakeBroker() as broker:
        with pytest.raises(BenchError, match="--pid: process 4194305 does not exist"):
            await load(broker.url, pids=[4194305])


async def test_server_cpu_and_memory_are_measured_of_a_process() -> None:
    async with FakeBroker() as broker:
        report = await load(broker.url, pids=[os.getpid()], messages=20_000)
    assert report.server is not None
    assert report.server.cpu_us_per_message > 0
    assert report.server.resident_mib > 10
    assert report.server.others_cpu_share >= 0


async def test_the_command_prints_a_table_or_json_and_exits_by_the_verdict() -> None:
    async with FakeBroker() as broker:
        code, out, _ = await bench(broker.url, "--messages", "500", "--size", "32")
        assert code == 0
        assert "500 of 500 received, 0 lost" in out
    async with FakeBroker(Faults(lose={3})) as broker:
        arguments = ("--messages", "500", "--drain-timeout", "1", "-o", "json")
        code, out, err = await bench(broker.url, *arguments)
    report = msgspec.json.decode(out, type=LoadReport)
    assert code == 1
    assert (report.version, report.verification.lost) == (1, 1)
    assert "not verified: 1 lost" in err


async def test_the_command_tells_usage_from_failure() -> None:
    code, out, err = await bench("amqps://127.0.0.1/")
    assert (code, out) == (1, "")
    assert "not an amqp:// URL" in err
    code, _, _ = await bench("amqp://127.0.0.1:1/", "--size", "3")
    assert code == 2
