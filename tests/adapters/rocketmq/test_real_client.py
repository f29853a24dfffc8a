"""rocketmq-python-client, unmodified, against the adapter over a real store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from adapters.rocketmq.server import GrpcListener
from adapters.rocketmq.settings import RocketmqSettings
from auth.private_files.certificates import open_loopback_certificate, read_pem_pair
from kernel.api.model import HalfOptions
from tests.adapters.rocketmq.support import Broker, Wire, broker_in_thread
from tests.free_ports import free_ports

pytestmark = pytest.mark.interop

SETTINGS = RocketmqSettings(attempts_max=2, invisible_ms_min=1_000)
"""Groups begin at the first message, so that a test may send before it consumes; two attempts, so
that dead letters come soon."""

PROGRAM = Path(__file__).with_name("client_scenarios.py")


def start(scenario: str, address: str, home: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), scenario, address],
        env={**os.environ, "HOME": str(home), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(scenario: str, address: str, home: Path, **environment: str):
    """What a scenario returned."""
    with start(scenario, address, home, **environment) as process:
        return ended(process)


def ended(process: subprocess.Popen[str], said: str | None = None):
    """What a scenario returned, which is told something first."""
    try:
        out, err = process.communicate(said, timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_in_thread(tmp_path_factory.mktemp("data"), SETTINGS) as running:
        for name in ("empty", "simple", "big", "many", "push", "tags", "sql"):
            running.topic(name, queues=8)
        running.topic("fifo", "fifo", queues=4)
        running.topic("priority", "priority")
        running.topic("push-fifo", "fifo", queues=1)
        running.topic("delay", "delay", queues=2)
        running.topic("recall", "delay", queues=2)
        running.topic("transaction", "transaction", queues=2)
        yield running


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12"])
def test_a_client_may_live_in_any_time_zone(broker: Broker, tmp_path: Path, zone: str) -> None:
    # It signs its local time as if it were UTC: 14 hours ahead, and 12 behind.
    found = run("simple", broker.address, tmp_path, TZ=zone)
    assert found["id"] == found["sent_id"]


def test_a_message_comes_back_as_it_was_sent(broker: Broker, tmp_path: Path) -> None:
    found = run("simple", broker.address, tmp_path)
    assert found["id"] == found["sent_id"]
    assert len(found["id"]) == 34
    assert found["body"] == "grüße\0"
    assert (found["tag"], found["keys"]) == ("blue", ["k1"])
    assert found["properties"] == {"color": "blau"}
    assert (found["attempt"], found["corrupted"], found["born_host"]) == (1, False, True)
    assert found["nothing"] == []
    assert 2.5 < found["waited_s"] < 5, "the poll spans all 8 queues, for the time asked"


def test_a_poll_without_a_time_ends_before_its_deadline(broker: Broker, tmp_path: Path) -> None:
    found = run("no_wait", broker.address, tmp_path)
    assert found["got"] in ([], None)
    assert found["waited_s"] < 3


def test_message_groups_keep_their_order(broker: Broker, tmp_path: Path) -> None:
    assert run("fifo", broker.address, tmp_path) == {"g0": ["0", "2", "4"], "g1": ["1", "3", "5"]}


def test_a_delayed_message_comes_when_it_is_due(broker: Broker, tmp_path: Path) -> None:
    found = run("delay", broker.address, tmp_path)
    assert 0 <= found["late_s"] < 1
    assert found["stamp"] == found["due"] * 1000


def test_invisible_times_are_changed_and_attempts_counted(tmp_path: Path) -> None:
    settings = RocketmqSettings(invisible_ms_min=1_000)
    with broker_in_thread(tmp_path / "data", settings) as patient:
        patient.topic("redelivery", queues=8)
        found = run("redelivery", patient.address, tmp_path)
    assert found == {"attempts": [1, 2, 3], "stale": "BadRequestException"}


def test_refusals_reach_the_application(broker: Broker, tmp_path: Path) -> None:
    found = run("errors", broker.address, tmp_path)
    # The client keeps the reason of a missing route to itself, and to its log.
    assert found["unknown"] == ["Exception", "failed to fetch topic:nowhere route."]
    assert found["secret"] == ["Exception", "failed to fetch topic:simple route."]
    assert found["type"][0] == "IllegalArgumentException"
    log = (tmp_path / "logs" / "rocketmq_python" / "rocketmq_client.log").read_text()
    assert "run: weir topic create nowhere --type normal|fifo|delay|transaction" in log
    assert "the signature does not fit the secret of access key 'weir'" in log


def test_the_largest_body_goes_there_and_back(broker: Broker, tmp_path: Path) -> None:
    assert run("big", broker.address, tmp_path) == {"same": True, "corrupted": False}


def test_a_transaction_is_committed_or_rolled_back(broker: Broker, tmp_path: Path) -> None:
    found = run("transaction", broker.address, tmp_path)
    assert found == {"different": True, "early": [], "got": ["committed"]}


def test_another_producer_is_asked_when_the_one_that_sent_was_killed(
    broker: Broker, tmp_path: Path
) -> None:
    broker.topic(
        "checked", "transaction", half=HalfOptions(check_after_ms=500, check_interval_ms=1_000)
    )
    with start("transaction_left", broker.address, tmp_path) as left:
        assert left.stdout is not None
        assert left.stdout.readline() == "half\n"
        left.kill()
    found = run("transaction_checked", broker.address, tmp_path)
    assert found == {"client": True, "asked": ["bad", "good"], "got": ["good"], "more": []}


def test_many_sends_at_once_are_all_stored(broker: Broker, tmp_path: Path) -> None:
    found = run("many", broker.address, tmp_path)
    assert found == {"sent": 200, "received": 200, "same": True}


def test_a_push_consumer_gets_a_failed_message_again(broker: Broker, tmp_path: Path) -> None:
    found = run("push", broker.address, tmp_path)
    assert found["seen"] == [["!c", 1], ["!c", 2], ["a", 1], ["b", 1], ["d", 1]]
    assert broker.statistics("push", "push-group").leased == 0


def test_a_push_consumer_in_order_gives_a_message_up(broker: Broker, tmp_path: Path) -> None:
    found = run("push_fifo", broker.address, tmp_path)
    assert [body for body, _ in found["seen"]] == ["a", "!b", "!b", "c"]
    wire = Wire(broker.address)
    try:
        dead = wire.receive("%DLQ%push-fifo-group", "anyone", wait_s=3)
    finally:
        wire.close()
    assert dead.bodies == [b"!b"]
    assert dead.messages[0].system_properties.dead_letter_queue.topic == "push-fifo"


def test_tags_are_filtered(broker: Broker, tmp_path: Path) -> None:
    assert run("tags", broker.address, tmp_path) == ["Aa", "c"]
    assert broker.statistics("tags", "tags-group").ready == 0


def test_sql_expressions_are_filtered_by(broker: Broker, tmp_path: Path) -> None:
    assert run("sql", broker.address, tmp_path) == ["both", "price"]
    assert broker.statistics("sql", "sql-group").ready == 0


def test_higher_priorities_come_first(broker: Broker, tmp_path: Path) -> None:
    assert run("priority", broker.address, tmp_path) == ["9", "4", "0"]


def test_a_delayed_message_is_recalled(broker: Broker, tmp_path: Path) -> None:
    assert run("recalled", broker.address, tmp_path) == {"recalled": True, "received": ["kept"]}


def test_a_client_goes_on_after_a_restart(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    listeners = [GrpcListener("grpc", "127.0.0.1", port)]
    with broker_in_thread(tmp_path / "data", SETTINGS, listeners) as first:
        first.topic("restart", queues=2)
        process = start("across_restart", first.address, tmp_path)
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "half"
        first.run(first.adapter.drain)
    with broker_in_thread(tmp_path / "data", SETTINGS, listeners), process:
        found = ended(process, "\n")
    assert found == {"first": ["before"], "second": ["after"]}


def test_a_client_over_tls(tmp_path: Path) -> None:
    files = open_loopback_certificate(tmp_path / "tls", datetime.now(UTC))
    listeners = [
        GrpcListener("grpc", "127.0.0.1", 0),
        GrpcListener("grpcs", "127.0.0.1", 0, read_pem_pair(files)),
    ]
    with broker_in_thread(tmp_path / "data", SETTINGS, listeners) as both:
        both.topic("simple", queues=2)
        address = f"127.0.0.1:{both.adapter.addresses()['grpcs'][1]}"
        roots = str(tmp_path / "tls" / "loopback.crt")
        found = run("tls", address, tmp_path, GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=roots)
    assert found == ["secret"]
