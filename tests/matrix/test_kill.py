"""kill -9 under the load of all four protocols at once, five times over: nothing that a client was
told is stored may be missing afterwards.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gateway.serving import Process, serving
from tests.matrix.amqp_peer import AmqpPeer
from tests.matrix.contract import Neutral, Peer
from tests.matrix.mqtt_peer import MqttPeer
from tests.matrix.rocketmq_peer import RocketmqPeer
from tests.matrix.sqs_peer import SqsPeer

pytestmark = pytest.mark.interop

PEERS: tuple[type[Peer], ...] = (SqsPeer, AmqpPeer, RocketmqPeer, MqttPeer)
ROUNDS = 5
ROUND_SECONDS = 1.0


def write_until_it_fails(peer: Peer, topic: str, told: list[bytes], mark: str) -> None:
    """Messages one after the other; those that the client was told are stored, into `told`."""
    number = 0
    while True:
        body = f"{mark}-{number}".encode()
        try:
            peer.write(topic, Neutral(body=body))
        except Exception:  # noqa: BLE001 - whatever a client says of a broker that was killed
            return
        told.append(body)
        number += 1


def in_background(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def load_and_kill(node: Process, home: Path, told: dict[str, list[bytes]], mark: str) -> None:
    peers = [kind(node, str(home)) for kind in PEERS]
    for peer in peers:  # each is connected, and its first message is stored
        peer.write(f"kill-{peer.name}", Neutral(body=f"{mark}-first".encode()))
        told[peer.name].append(f"{mark}-first".encode())
    threads = [
        in_background(
            lambda peer=peer: write_until_it_fails(
                peer, f"kill-{peer.name}", told[peer.name], mark
            )
        )
        for peer in peers
    ]
    time.sleep(ROUND_SECONDS)
    node.kill()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    for peer in peers:
        with contextlib.suppress(Exception):
            peer.close()


def everything_in(node: Process, topic: str) -> list[bytes]:
    """Take all that waits in a topic, over AMQP."""
    connection = node.amqp()
    channel = connection.channel()
    found: list[bytes] = []
    while True:
        method, _, body = channel.basic_get(topic, auto_ack=True)
        if method is None:
            connection.close()
            return found
        found.append(body)


@pytest.mark.timeout(180)
def test_kill_minus_nine_under_load_of_all_protocols_loses_nothing_acknowledged(
    tmp_path: Path,
) -> None:
    told: dict[str, list[bytes]] = {kind.name: [] for kind in PEERS}
    for number in range(ROUNDS):
        with serving(tmp_path / "data") as node:
            if not number:
                for name in told:
                    asked = {"name": f"kill-{name}", "type": "work"}
                    assert node.api("POST", "/topics", asked).status == 201
            load_and_kill(node, tmp_path, told, f"round{number}")
    with serving(tmp_path / "data") as node:
        for name, bodies in told.items():
            found = everything_in(node, f"kill-{name}")
            assert len(bodies) > ROUNDS, name
            missing = set(bodies) - set(found)
            assert not missing, f"{name} lost {sorted(missing)[:5]} of {len(bodies)}"
            in_order = [body for body in found if body in set(bodies)]
            assert list(dict.fromkeys(in_order)) == bodies, f"{name} is out of order"
