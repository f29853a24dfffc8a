"""Who guesses passwords waits, and nobody else does: with real clients."""

from __future__ import annotations

import itertools
import queue
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as paho
import pika
import pika.exceptions
import pytest

from auth.password_checks.guessing import DELAY_MS_FIRST, FREE

if TYPE_CHECKING:
    from tests.gateway.serving import Process

WAIT_S = 30
NUMBERS = itertools.count(1)
FLOOD = 200
SLACK = 4
"""A check takes longer while other tests run beside."""


@pytest.fixture
def user(node: Process) -> str:
    name = f"guessed-{next(NUMBERS)}"
    asked = {"name": name, "password": "right", "policies": ["full"]}
    assert node.api("POST", "/users", asked).status == 201
    return name


def amqp_login(node: Process, name: str, password: str) -> float:
    """How long it took to be let in, or to be refused, which raises."""
    began = time.monotonic()
    parameters = pika.ConnectionParameters(
        "127.0.0.1",
        node.listeners["amqp.tcp"],
        credentials=pika.PlainCredentials(name, password),
        blocked_connection_timeout=WAIT_S,
    )
    pika.BlockingConnection(parameters).close()
    return time.monotonic() - began


def mqtt_connect(node: Process, name: str, password: str, source: str) -> socket.socket:
    """A socket that has sent CONNECT."""
    port = node.listeners["mqtt.tcp"]
    opened = socket.create_connection(("127.0.0.1", port), WAIT_S, source_address=(source, 0))
    body = struct.pack(">H4sBBH", 4, b"MQTT", 4, 0xC2, 60)
    for text in (f"c{next(NUMBERS)}", name, password):
        body += struct.pack(">H", len(text)) + text.encode()
    assert len(body) < 128
    opened.sendall(bytes((0x10, len(body))) + body)
    return opened


def mqtt_login(node: Process, name: str, password: str, source: str) -> int:
    """The code of the CONNACK to paho."""
    codes: queue.SimpleQueue[Any] = queue.SimpleQueue()
    version = paho.CallbackAPIVersion.VERSION2
    client = paho.Client(version, f"c{next(NUMBERS)}", reconnect_on_failure=False)
    client.username_pw_set(name, password)
    client.on_connect = lambda _c, _u, _f, code, _p: codes.put(code.value)
    client.connect("127.0.0.1", node.listeners["mqtt.tcp"], bind_address=source)
    client.loop_start()
    found: int = codes.get(timeout=WAIT_S)
    client.disconnect()
    client.loop_stop()
    return found


def test_guesses_take_longer_and_longer_and_a_remembered_password_does_not(
    node: Process, user: str
) -> None:
    amqp_login(node, user, "right")
    began = []
    for number in range(FREE + 3):
        began.append(time.monotonic())
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            amqp_login(node, user, f"wrong {number}")
    ended = time.monotonic()
    # A delay runs from one attempt to the next: what the client itself takes is part of it.
    delays_s = [(DELAY_MS_FIRST << number) / 1000 for number in range(3)]
    assert ended - began[FREE - 1] >= sum(delays_s) - 0.01, began
    with ThreadPoolExecutor(1) as pool:
        guess = pool.submit(pytest.raises, pika.exceptions.AMQPError, amqp_login, node, user, "x")
        time.sleep(0.2)
        assert amqp_login(node, user, "right") < delays_s[-1]
        assert not guess.done()
    figures = node.http("GET", "/metrics").body.decode()
    assert 'weir_logins_total{outcome="wrong"}' in figures
    assert "weir_logins_delayed_total 0.0" not in figures


def test_a_flood_of_logins_delays_nobody_at_another_address(node: Process, user: str) -> None:
    flood = [
        mqtt_connect(node, f"nobody-{number}", "wrong", "127.0.0.1") for number in range(FLOOD)
    ]
    stop = threading.Event()

    def go_on() -> None:
        while not stop.is_set():
            mqtt_connect(node, f"nobody-{next(NUMBERS)}", "wrong", "127.0.0.1").close()
            time.sleep(0.005)

    more = threading.Thread(target=go_on)
    more.start()
    try:
        began = time.monotonic()
        assert mqtt_login(node, user, "right", "127.0.0.2") == 0
        assert time.monotonic() - began < SLACK
    finally:
        stop.set()
        more.join()
        for each in flood:
            each.close()
