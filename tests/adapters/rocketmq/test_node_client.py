"""Apache's client for Node.js, unmodified, plain and over TLS on the same port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from adapters.rocketmq.server import GrpcListener
from adapters.rocketmq.settings import RocketmqSettings
from auth.private_files.certificates import open_loopback_certificate, read_pem_pair
from kernel.api.model import HalfOptions
from tests import npm_clients
from tests.adapters.in_process import KEY_ID, SECRET
from tests.adapters.rocketmq.support import Broker, broker_in_thread

pytestmark = pytest.mark.interop

SETTINGS = RocketmqSettings(attempts_max=2, invisible_ms_min=1_000)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """One port, which speaks plain gRPC and TLS; each topic that the program wants."""
    pair = read_pem_pair(open_loopback_certificate(tmp_path / "tls", datetime.now(UTC)))
    listeners = [GrpcListener("grpc", "127.0.0.1", 0, pair, plain_too=True)]
    with broker_in_thread(tmp_path / "data", SETTINGS, listeners) as running:
        for name in ("plain", "tags", "push"):
            running.topic(name, queues=4)
        running.topic("fifo", "fifo", queues=4)
        running.topic("push-fifo", "fifo")
        running.topic("delay", "delay", queues=2)
        checked = HalfOptions(check_after_ms=500, check_interval_ms=1_000)
        running.topic("transaction", "transaction", queues=2, half=checked)
        yield running


@pytest.mark.parametrize("way", ["plain", "tls"])
def test_the_client_for_node(broker: Broker, tmp_path: Path, way: str) -> None:
    program = (npm_clients.FOLDER / "rocketmq.cjs").read_text()
    roots = str(tmp_path / "tls" / "loopback.crt")
    said = npm_clients.run_with(
        "rocketmq-client-nodejs",
        program,
        broker.address,
        way,
        KEY_ID,
        SECRET,
        GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=roots,
    )
    found = json.loads(said)
    assert found.pop("nowhere").endswith(
        "no topic nowhere; "
        "run: weir topic create nowhere --type normal|fifo|delay|transaction|priority"
    )
    assert found == {
        "plain": [True, "grüße", "blue", ["k1"], {"color": "blau"}, 1],
        "tags": ["red", "red"],
        "fifo": [["a1", "a2", "a3"], ["b1", "b2"]],
        "delay": [["late"], True],
        "transaction": ["committed", "unsure"],
        "push": [["!y", 1], ["!y", 2], ["x", 1], ["z", 1]],
        "pushFifo": [["1", 1], ["2", 1], ["3", 1]],
    }
    for topic in ("push", "push-fifo"):
        assert broker.statistics(topic, f"{topic}-push").leased == 0
