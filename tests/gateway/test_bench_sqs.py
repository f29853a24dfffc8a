"""`weir bench sqs`: what it sends, what it measures, what it finds wrong."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from benchmarks.load.errors import BenchError
from benchmarks.load.sqs_load import run_load
from benchmarks.load.sqs_plan import Mode, SqsOptions
from benchmarks.load.sqs_report import SqsReport, report_of, rows_of
from benchmarks.load.sqs_wire import AnswerReader, Endpoint, Signer, parse_endpoint
from tests.adapters.in_process import KEY_ID, SECRET
from tests.adapters.sqs.service import running_service
from tests.gateway.bench_sqs_service import FakeService, Faults

ROOT = Path(__file__).parents[2]


async def load(url: str, **options: object) -> SqsReport:
    settings: dict[str, object] = {
        "messages": 300,
        "warmup": 20,
        "size_bytes": 64,
        "connections": 4,
        "key_id": KEY_ID,
        "secret": SECRET,
    }
    return report_of(await run_load(SqsOptions(url, **(settings | options))))  # type: ignore[arg-type]


# --- bytes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "endpoint", "authority"),
    [
        ("http://h:9324", Endpoint("h", 9324, is_tls=False), "h:9324"),
        ("http://h/", Endpoint("h", 80, is_tls=False), "h"),
        ("https://sqs.eu.example.org", Endpoint("sqs.eu.example.org", 443, is_tls=True), None),
        ("http://[::1]:80", Endpoint("::1", 80, is_tls=False), "[::1]"),
    ],
)
def test_an_endpoint_is_a_url(url: str, endpoint: Endpoint, authority: str | None) -> None:
    assert parse_endpoint(url) == endpoint
    assert endpoint.authority == (authority or endpoint.host)


@pytest.mark.parametrize("url", ["", "h:1", "ftp://h", "http://", "http://h:x", "http://[::1"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(BenchError, match="URL"):
        parse_endpoint(url)


def test_a_request_is_signed_as_botocore_signs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2026, 11, 21, 6, 7, 8, tzinfo=UTC)
    signer = Signer(parse_endpoint("http://h:1"), "key", "secret/+", "eu-central-1", now)
    head, _, body = signer.request("SendMessage", {"MessageBody": "grüße"}).partition(b"\r\n\r\n")
    assert json.loads(body) == {"MessageBody": "grüße"}
    lines = dict(line.split(": ", 1) for line in head.decode().splitlines()[1:])
    assert lines["Content-Length"] == str(len(body))
    signed = {"Content-Type": lines["Content-Type"], "X-Amz-Target": "AmazonSQS.SendMessage"}
    request = AWSRequest("POST", "http://h:1/", data=body, headers=signed)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: now.replace(tzinfo=None))
    SigV4Auth(Credentials("key", "secret/+"), "sqs", "eu-central-1").add_auth(request)
    assert lines["X-Amz-Date"] == request.headers["X-Amz-Date"]
    assert lines["Authorization"] == request.headers["Authorization"]


def test_an_answer_may_come_in_any_pieces() -> None:
    data = b"HTTP/1.1 200 OK\r\nServer: s\r\nContent-Length: 2\r\n\r\n{}"
    reader = AnswerReader()
    answers = [reader.feed(data[at : at + 1]) for at in range(len(data))]
    assert answers[:-1] == [None] * (len(data) - 1)
    assert answers[-1] is not None
    assert (answers[-1].status, answers[-1].body, answers[-1].server) == (200, b"{}", "s")
    with pytest.raises(BenchError, match="HTTP"):
        reader.feed(b"\x16\x03\x01")


# --- against Weir ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        (Mode.SEND, {}),
        (Mode.SEND, {"rate": 2000.0}),
        (Mode.CYCLE, {"messages": 100}),
        (Mode.CYCLE, {"messages": 50, "backlog": 205, "warmup": 0}),
    ],
)
async def test_weir_loses_and_repeats_nothing(tmp_path: Path, mode: Mode, options) -> None:
    async with running_service(tmp_path) as service:
        report = await load(service.url, mode=mode, pids=[os.getpid()], **options)
        assert not service.store.client.topics("default"), "the queue is gone"
    sent = options.get("messages", 300) + options.get("warmup", 20) + options.get("backlog", 0)
    check = report.verification
    assert check is not None
    assert (check.sent, check.received, check.lost, check.duplicated) == (sent, sent, 0, 0)
    assert check.ok
    assert report.send.samples == options.get("messages", 300)
    assert 0 < report.send.p50_us <= report.send.p99_us <= report.send.max_us
    assert (report.receive.samples > 0) == (report.delete.samples > 0) == (mode is Mode.CYCLE)
    assert report.messages_per_s > 0
    assert report.server is not None
    assert "verified" in dict(rows_of(report))


async def test_the_fixed_schedule_is_kept(tmp_path: Path) -> None:
    async with FakeService() as service:
        report = await load(service.url, rate=500.0, messages=100, warmup=10)
    assert 100 < report.messages_per_s < 600  # a busy machine falls behind, and never runs ahead


async def test_long_polls_wait_and_one_is_woken(tmp_path: Path) -> None:
    async with running_service(tmp_path) as service:
        report = await load(
            service.url, mode=Mode.POLL, connections=20, duration_s=0.3, pids=[os.getpid()]
        )
    check = report.verification
    assert check is not None
    assert (check.sent, check.received, check.duplicated, check.ok) == (1, 1, 0, True)
    assert report.empty_polls == 0
    assert report.receive.samples == 1
    assert report.receive.max_us < 5e6


# --- against a service that does wrong ---------------------------------------------------------


async def test_a_lost_message_is_found() -> None:
    async with FakeService(Faults(lose={7, 100})) as service:
        report = await load(service.url)
    check = report.verification
    assert check is not None
    assert (check.sent, check.received, check.lost, check.ok) == (320, 318, 2, False)


async def test_a_repeated_and_a_foreign_message_are_found() -> None:
    async with FakeService(Faults(repeat={5}, foreign=True)) as service:
        report = await load(service.url)
    check = report.verification
    assert check is not None
    assert (check.received, check.lost, check.duplicated, check.foreign) == (321, 0, 1, 1)


async def test_a_refusal_ends_the_run_with_the_words_of_the_service() -> None:
    async with FakeService(Faults(refuse=50)) as service:
        with pytest.raises(BenchError, match=r"send was answered with 500: .*no room"):
            await load(service.url)
        assert not service.queues


async def test_a_connection_lost_before_its_answer_ends_the_run() -> None:
    async with FakeService(Faults(hang_up=50)) as service:
        with pytest.raises(BenchError, match="lost before its answer"):
            await load(service.url)


@pytest.mark.parametrize("mode", [Mode.SEND, Mode.CYCLE])
async def test_a_service_that_closes_after_each_answer_is_measured_too(mode: Mode) -> None:
    async with FakeService(Faults(one_answer_a_connection=True)) as service:
        report = await load(service.url, mode=mode, messages=40, warmup=0)
    assert report.verification is not None
    assert report.verification.ok
    assert report.reconnects >= 36


async def test_answers_in_chunks_are_read() -> None:
    async with FakeService(Faults(is_chunked=True)) as service:
        report = await load(service.url, messages=40)
    assert report.verification is not None
    assert report.verification.ok
    assert report.service == "unnamed"


async def test_a_queue_that_is_kept_is_not_drained() -> None:
    async with FakeService() as service:
        report = await load(service.url, keep=True, messages=40)
        assert [len(queue) for queue in service.queues.values()] == [60]
    assert report.verification is None


async def test_nobody_there_is_told() -> None:
    with pytest.raises(BenchError, match=r"cannot connect to 127\.0\.0\.1:1"):
        await load("http://127.0.0.1:1")


# --- the command -------------------------------------------------------------------------------


async def bench(*arguments: str) -> tuple[int, str, str]:
    """`weir bench sqs`: exit code, stdout, stderr."""
    command = ("-m", "gateway", "bench", "sqs", "--messages", "50", "--warmup", "5", *arguments)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_the_command_prints_a_table_or_json_and_fails_on_loss() -> None:
    async with FakeService(Faults(lose={60})) as service:
        code, out, err = await bench("--url", service.url)
        assert code == 0, err
        assert "55 of 55 received, 0 lost" in out
        code, out, err = await bench("--url", service.url, "-o", "json")
    assert code == 1
    assert "not verified: 1 lost of 55" in err
    assert json.loads(out)["verification"]["lost"] == 1
