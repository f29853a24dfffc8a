"""One node with every protocol, and a peer of each. WEIR_REMOTE=1 in the environment puts writers
before one gateway without a store, and readers before another.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from tests.gateway.cluster import gateways_of_one_store
from tests.gateway.serving import Process, serving
from tests.matrix.amqp_peer import AmqpPeer
from tests.matrix.contract import Peer
from tests.matrix.mqtt_peer import MqttPeer
from tests.matrix.rocketmq_peer import RocketmqPeer
from tests.matrix.sqs_peer import SqsPeer

PEERS: tuple[type[Peer], ...] = (SqsPeer, AmqpPeer, RocketmqPeer, MqttPeer)
"""A protocol joins the matrix here."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every pair `writer-reader`; the marker `can` leaves out writers that cannot say it."""
    if {"writer", "reader"} <= set(metafunc.fixturenames):
        marker = metafunc.definition.get_closest_marker("can")
        pairs = [
            pytest.param(writer, reader, id=f"{writer.name}-{reader.name}")
            for writer in PEERS
            for reader in PEERS
            if (marker is None or marker.args[0] in writer.can)
        ]
        metafunc.parametrize(("writer", "reader"), pairs, indirect=True)


@pytest.fixture(scope="package")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, Process]]:
    """Where writers and readers connect."""
    folder = tmp_path_factory.mktemp("matrix")
    if os.environ.get("WEIR_REMOTE"):
        with gateways_of_one_store(folder) as (first, second):
            yield first, second
    else:
        with serving(folder) as process:
            yield process, process


@pytest.fixture(scope="package")
def node(nodes: tuple[Process, Process]) -> Process:
    return nodes[0]


@pytest.fixture(scope="package")
def peers(
    nodes: tuple[Process, Process], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dict[type[Peer], Peer], dict[type[Peer], Peer]]]:
    """Writers and readers."""
    home = str(tmp_path_factory.mktemp("home"))
    first, second = nodes
    writers: dict[type[Peer], Peer] = {kind: kind(first, home) for kind in PEERS}
    readers = writers
    if second is not first:
        readers = {kind: kind(second, home) for kind in PEERS}
    yield writers, readers
    for peer in {*writers.values(), *readers.values()}:
        peer.close()


@pytest.fixture
def writer(
    request: pytest.FixtureRequest, peers: tuple[dict[type[Peer], Peer], dict[type[Peer], Peer]]
) -> Peer:
    return peers[0][request.param]


@pytest.fixture
def reader(
    request: pytest.FixtureRequest, peers: tuple[dict[type[Peer], Peer], dict[type[Peer], Peer]]
) -> Peer:
    return peers[1][request.param]


NUMBERS = itertools.count()


@pytest.fixture
def make_topic(node: Process) -> Callable[[str], str]:
    """Makes a topic that every protocol can name, with the group that all of them share."""

    def make(kind: str) -> str:
        name = f"matrix-{next(NUMBERS)}"
        assert node.api("POST", "/topics", {"name": name, "type": kind}).status == 201
        if kind != "work":
            group = {"name": "default", "start": "earliest"}
            assert node.api("POST", f"/topics/{name}/groups", group).status == 201
        return name

    return make


@pytest.fixture
def topic(make_topic: Callable[[str], str]) -> str:
    return make_topic("work")
