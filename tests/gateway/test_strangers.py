"""What strangers make a node hold, small: `benchmarks/hostile.py` does it with 10,000 of them."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.hostile import (
    ATTACKS,
    Horde,
    mqtt_connect,
    mqtt_packet,
    mqtt_string,
    probe_s,
)
from benchmarks.load.procfs import resident_bytes
from tests.gateway.serving import Process, serving

BUDGET_MIB = 32
SMALL = f"node.memory.unfinished_input_bytes={BUDGET_MIB << 20}"
RISE_MIB_MAX = 2 * BUDGET_MIB + 60
"""Twice the budget, the buffers of what is being read, and what the allocator keeps."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder: Path = tmp_path_factory.mktemp("strangers")
    with serving(folder, SMALL) as process:
        yield process


@contextmanager
def attacked(node: Process, name: str, connections: int) -> Iterator[Horde]:
    attack = ATTACKS[name]
    horde = Horde(node.listeners[attack.listener])
    try:
        horde.connect(connections, attack.payload)
        yield horde
    finally:
        horde.close()


def refused(node: Process, listener: str, reason: str) -> int:
    text = node.http("GET", "/metrics").body.decode()
    row = rf'weir_refused_total{{listener="{listener}",reason="{reason}"}} (\d+)'
    found = re.search(row, text)
    assert found is not None, text
    return int(found[1])


def held(node: Process) -> int:
    text = node.http("GET", "/metrics").body.decode()
    found = re.search(r"^weir_unfinished_input_bytes (\S+)", text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


@pytest.mark.parametrize(
    ("name", "connections"),
    [
        ("amqp: half a publish", 150),
        ("mqtt: half a PUBLISH", 200),
        ("mqtt: half a CONNECT", 400),
        ("mqtt: half a handshake", 600),
        ("sqs: half a body, known key", 60),
    ],
)
def test_what_strangers_begin_and_never_end_is_bounded(
    node: Process, name: str, connections: int
) -> None:
    listener = ATTACKS[name].listener
    before = refused(node, listener, "unfinished_input")
    resident = resident_bytes([node.process.pid])
    with attacked(node, name, connections):
        deadline_s = time.monotonic() + 20
        while (
            held(node) > BUDGET_MIB << 20 or refused(node, listener, "unfinished_input") == before
        ):
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        assert probe_s(listener, node.listeners[listener]) < 5
        rise = resident_bytes([node.process.pid]) - resident
    assert refused(node, listener, "unfinished_input") > before
    assert rise < RISE_MIB_MAX << 20


def test_a_client_that_was_let_in_and_is_silent_holds_nothing(node: Process) -> None:
    with socket.create_connection(("127.0.0.1", node.listeners["mqtt.tcp"]), timeout=10) as peer:
        peer.sendall(mqtt_connect(b"silent"))
        assert peer.recv(4) == b"\x20\x02\x00\x00"
        deadline_s = time.monotonic() + 20
        while held(node):
            assert time.monotonic() < deadline_s
            time.sleep(0.1)


def test_a_body_that_its_head_refuses_is_not_held(node: Process) -> None:
    name = "sqs: half a body, unknown key"
    with attacked(node, name, 60) as horde:
        deadline_s = time.monotonic() + 20
        answered: set[socket.socket] = set()
        while len(answered) < len(horde.peers):
            assert time.monotonic() < deadline_s
            for peer in horde.peers:
                try:
                    if peer.recv(4_096).startswith(b"HTTP/1.1 403 "):
                        answered.add(peer)
                except BlockingIOError:
                    continue
            time.sleep(0.05)
        assert held(node) < 1 << 20


def test_a_message_of_16_mib_passes_beside_strangers(node: Process) -> None:
    body = b"x" * (16 << 20)
    before = refused(node, "mqtt.tcp", "unfinished_input")
    with attacked(node, "mqtt: half a PUBLISH", 200):
        deadline_s = time.monotonic() + 20
        while refused(node, "mqtt.tcp", "unfinished_input") == before:
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        connection = node.amqp()
        channel = connection.channel()
        channel.queue_declare("large", durable=True)
        channel.confirm_delivery()
        for _ in range(3):
            channel.basic_publish("", "large", body)
            assert channel.basic_get("large", auto_ack=True)[2] == body
        connection.close()


def test_who_does_not_read_or_answer_is_bounded(tmp_path: Path) -> None:
    """Two hundred subscribers that read nothing, and a publisher that goes on."""
    small = f"node.memory.unread_output_bytes={BUDGET_MIB << 20}"
    with serving(tmp_path, small) as node:
        resident = resident_bytes([node.process.pid])
        with attacked(node, "mqtt: does not read", 200):
            publisher = socket.create_connection(
                ("127.0.0.1", node.listeners["mqtt.tcp"]), timeout=30
            )
            message = mqtt_packet(0x30, mqtt_string(b"flood/x") + b"x" * 200_000)
            publisher.sendall(mqtt_connect(b"flood"))
            most = 0
            deadline_s = time.monotonic() + 60
            while not refused(node, "mqtt.tcp", "unread_output"):
                assert time.monotonic() < deadline_s
                publisher.sendall(message)
                most = max(most, resident_bytes([node.process.pid]))
            publisher.close()
        assert most - resident < (2 * BUDGET_MIB + 160) << 20
