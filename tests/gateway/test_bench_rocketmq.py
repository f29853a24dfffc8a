"""`weir bench rocketmq` against a served node, and what it makes of bytes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from adapters.rocketmq.codec import answer_encoding as wire
from adapters.rocketmq.codec.plain_sends import Splitter
from adapters.rocketmq.codec.stubs import (
    parse_ack_message,
    parse_receive_message,
    parse_send_message,
)
from adapters.rocketmq.errors import Code, RocketmqError
from benchmarks.load.errors import BenchError
from benchmarks.load.measured_run import Measured, ServerSample
from benchmarks.load.rocketmq_load import LoadOptions, LoadResult, specs
from benchmarks.load.rocketmq_report import RocketmqReport, report_of, rows_of
from benchmarks.load.rocketmq_spec import SIZE_MIN
from benchmarks.load.rocketmq_wire import (
    STAMP,
    SendRequests,
    ack_request,
    parse_url,
    receive_request,
    status_of,
)
from benchmarks.load.talk import ConsumerResult, ProducerResult, ProducerTotal, Seen, Window
from benchmarks.load.verify import first_key
from tests.gateway.serving import Process, serving

ROOT = Path(__file__).parents[2]
URL = "rocketmq://weir:weir-secret@127.0.0.1:8081"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("node")) as node:
        created = node.api("POST", "/topics", {"name": "weir-bench", "queues": 4})
        assert created.status == 201
        yield node


def bench(node: Process, *arguments: str) -> subprocess.CompletedProcess[str]:
    port = node.listeners["rocketmq.grpc"]
    url = f"rocketmq://weir:weir-secret@127.0.0.1:{port}"
    return subprocess.run(
        [sys.executable, "-m", "gateway", "bench", "rocketmq", "--url", url, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=60,
    )


def report(ran: subprocess.CompletedProcess[str]) -> RocketmqReport:
    assert ran.returncode == 0, ran.stderr
    return msgspec.json.decode(ran.stdout, type=RocketmqReport)


def test_a_run_receives_what_it_published(served: Process) -> None:
    counts = f"--messages 600 --batch 4 --producers 3 --consumers 2 --pid {served.process.pid}"
    how = ("--producer-processes", "2", "--window", "4", "--size", "100", "-o", "json")
    ran = bench(served, *counts.split(), *how)
    found = report(ran)
    check = found.verification
    assert (check.published, check.received, check.lost, check.duplicated) == (600, 600, 0, 0)
    assert check.ok
    assert found.published_per_s > 0 < found.consumed_per_s
    assert found.requests_per_s == pytest.approx(found.published_per_s / 4, rel=0.01)
    assert found.send.samples == 150
    assert found.end_to_end.samples == 600
    assert found.server is not None
    assert len(found.generators) == 3


def test_an_earlier_runs_messages_are_told_apart(served: Process) -> None:
    left = report(bench(served, "--messages", "50", "--consumers", "0", "-o", "json"))
    assert (left.verification.published, left.verification.received) == (50, 0)
    # What consumers join with, they take first.
    after = report(bench(served, "--messages", "20", "-o", "json")).verification
    assert (after.received, after.foreign, after.lost) == (20, 50, 0)


def test_a_topic_that_cannot_be_is_told_in_the_servers_words(served: Process) -> None:
    ran = bench(served, "--topic", "no.where", "--messages", "1")
    assert ran.returncode == 1
    assert "holds other than" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_table_for_people(served: Process) -> None:
    ran = bench(served, "--duration", "0.5", "--warmup", "0.1")
    assert ran.returncode == 0, ran.stderr
    assert "published and stored" in ran.stdout
    assert " 0 lost" in ran.stdout


@pytest.mark.parametrize("url", ["amqp://h", "rocketmq://", "rocketmq://h:x", "h:8081"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(BenchError):
        parse_url(url)


def test_an_address() -> None:
    assert parse_url(URL).address == "127.0.0.1:8081"
    assert parse_url("rocketmq://[::1]").address == "[::1]:8081"


def test_what_is_sent_is_what_clients_send() -> None:
    data = SendRequests("t", 100, 3, run=9, producer=2).make(first_key(2), 55)
    sent = parse_send_message(data).messages
    assert [len(each.body) for each in sent] == [100] * 3
    assert [STAMP.unpack_from(each.body) for each in sent] == [
        (first_key(2) + number, 55, 9) for number in range(3)
    ]
    idents = {each.system_properties.message_id for each in sent}
    assert len(idents) == 3
    assert {len(ident) for ident in idents} == {34}
    assert Splitter().split(data) is not None
    smallest = SendRequests("t", SIZE_MIN, 1, run=9, producer=2).make(first_key(2), 55)
    assert len(parse_send_message(smallest).messages[0].body) == SIZE_MIN


def test_what_is_received_and_acked_is_what_clients_ask_for() -> None:
    asked = parse_receive_message(receive_request("t", "g", 7))
    assert (asked.message_queue.topic.name, asked.group.name, asked.batch_size) == ("t", "g", 7)
    assert asked.long_polling_timeout.seconds == 1
    acked = parse_ack_message(ack_request("t", "g", [("id", "handle")]))
    assert [(each.message_id, each.receipt_handle) for each in acked.entries] == [("id", "handle")]


def test_a_status() -> None:
    assert status_of(wire.OK + b"rest") == (Code.OK, "OK")
    text = "x" * 300
    assert status_of(wire.refusal(RocketmqError(Code.TOPIC_NOT_FOUND, text))) == (40402, text)
    assert status_of(b"") == (0, "")
    with pytest.raises(BenchError):
        status_of(b"\x0a\xff")


def result(sent: int, intervals: list[tuple[int, int]], *, answered: int | None = None):
    window = Window(messages=sent, elapsed_ns=10**9, cpu_ns=10**8, latency=[], latency_max_ns=0)
    total = ProducerTotal(0, sent, sent if answered is None else answered, [])
    seen = Seen(0, 0, intervals, duplicated=0, disordered=0, misrouted=0)
    received = sum(end - start for start, end in intervals)
    moment = ServerSample(0, 0.0, 0.0, -1)
    measured = Measured(
        producers=[ProducerResult(window, [total])],
        consumers=[ConsumerResult(window, received, 0, 0, [seen])],
        before=moment,
        after=moment,
        resident_bytes=0,
    )
    return LoadResult(LoadOptions(URL), measured)


def test_what_did_not_come_is_lost_and_what_was_not_answered_spoils_a_run() -> None:
    assert report_of(result(10, [(0, 10)])).verification.ok
    lost = report_of(result(10, [(0, 4), (6, 10)])).verification
    assert (lost.lost, lost.ok) == (2, False)
    assert not report_of(result(10, [(0, 10)], answered=9)).verification.ok
    assert dict(rows_of(report_of(result(10, [(0, 9)]))))["verified"].startswith(
        "9 received, 1 lost"
    )


def test_messages_are_divided_in_whole_requests() -> None:
    options = LoadOptions(URL, messages=10, batch=4, producers=2, consumers=0)
    receiving, sending = specs(options, 1)
    assert receiving == []
    assert [quota for spec in sending for quota in spec.quotas] == [8, 4]
