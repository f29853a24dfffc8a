"""One address does not take all connections of a listener, in any protocol."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.hostile import (
    AMQP_LOGIN,
    HTTP2,
    PROBE_TIMEOUT_S,
    amqp_frame,
    mqtt_connect,
    probe_s,
)
from tests.gateway.serving import Process, serving

LIMIT = 6
STRANGERS = 20


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder: Path = tmp_path_factory.mktemp("one-address")
    limits = [
        f"{protocol}.limits.connections_max={LIMIT}"
        for protocol in ("amqp", "mqtt", "sqs", "rocketmq")
    ]
    with serving(folder, *limits) as process:
        yield process


def connected(host: str, port: int, say: bytes = b"") -> socket.socket:
    peer = socket.socket()
    peer.bind((host, 0))
    peer.settimeout(PROBE_TIMEOUT_S)
    peer.connect(("127.0.0.1", port))
    peer.sendall(say)
    return peer


def is_gone(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        while peer.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PROBE_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("listener", "say"),
    [
        ("amqp.tcp", b""),
        ("mqtt.tcp", b""),
        ("mqtt.websocket", b"GET /mqtt HTTP/1.1\r\n"),
        ("sqs.http", b"GET / HTTP/1.1\r\n"),
        ("rocketmq.grpc", HTTP2),
    ],
)
def test_others_get_in_while_one_address_opens_as_many_as_it_can(
    node: Process, listener: str, say: bytes
) -> None:
    port = node.listeners[listener]
    horde = [connected("127.0.1.1", port, say) for _ in range(STRANGERS)]
    try:
        until(lambda: sum(map(is_gone, horde)) == STRANGERS - LIMIT)
        for _ in range(3):
            assert probe_s(listener, port) < PROBE_TIMEOUT_S
        horde += [connected("127.0.1.1", port, say) for _ in range(STRANGERS)]
        assert probe_s(listener, port) < PROBE_TIMEOUT_S
    finally:
        for each in horde:
            each.close()


@pytest.mark.parametrize(
    ("listener", "login", "ask"),
    [
        ("amqp.tcp", AMQP_LOGIN, amqp_frame(1, 1, b"\x00\x14\x00\x14\x01")),  # channel.flow
        ("mqtt.tcp", None, b"\xc0\x00"),  # PINGREQ
    ],
)
def test_who_has_signed_in_goes_for_nobody(
    node: Process, listener: str, login: bytes | None, ask: bytes
) -> None:
    port = node.listeners[listener]
    until(lambda: open_connections(node, listener) == 0)
    with contextlib.ExitStack() as stack:
        known = []
        for number in range(LIMIT - 1):
            said = login or mqtt_connect(b"known-%d" % number)
            known.append(stack.enter_context(connected("127.0.1.1", port, said)))
        for each in known:
            signed_in(each, listener)
        horde = [stack.enter_context(connected("127.0.1.1", port)) for _ in range(STRANGERS)]
        until(lambda: sum(map(is_gone, horde)) == STRANGERS - 1)
        for each in known:
            each.sendall(ask)
            assert each.recv(65_536)


def signed_in(peer: socket.socket, listener: str) -> None:
    last = (
        b"\x00\x14\x00\x0b" if listener == "amqp.tcp" else b"\x20\x02"
    )  # channel.open-ok, CONNACK
    said = b""
    while last not in said:
        part = peer.recv(65_536)
        assert part
        said += part


def open_connections(node: Process, listener: str) -> int:
    text = node.http("GET", "/metrics").body.decode()
    row = rf'^weir_connections{{protocol="{listener.partition(".")[0]}"}} (\S+)'
    found = re.search(row, text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))
