"""One node with every protocol, and a peer of each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

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
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("matrix")) as process:
        yield process


@pytest.fixture(scope="package")
def peers(
    node: Process, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[type[Peer], Peer]]:
    home = str(tmp_path_factory.mktemp("home"))
    made: dict[type[Peer], Peer] = {kind: kind(node, home) for kind in PEERS}
    yield made
    for peer in made.values():
        peer.close()


@pytest.fixture
def writer(request: pytest.FixtureRequest, peers: dict[type[Peer], Peer]) -> Peer:
    return peers[request.param]


@pytest.fixture
def reader(request: pytest.FixtureRequest, peers: dict[type[Peer], Peer]) -> Peer:
    return peers[request.param]


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
