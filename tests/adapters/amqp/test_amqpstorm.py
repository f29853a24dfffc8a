"""amqpstorm, unmodified, against a whole broker. It cuts bodies at `frame_max` without counting the
frame's envelope.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import amqpstorm
import pytest

from tests.adapters.amqp.broker import broker_in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S_MAX = 30

LARGE = bytes(range(256)) * (10 * 2**20 // 256)


@contextlib.contextmanager
def connected(port: int, login: str, password: str, host: str) -> Iterator[amqpstorm.Connection]:
    connection = amqpstorm.Connection("127.0.0.1", login, password, port=port, virtual_host=host)
    try:
        yield connection
    finally:
        connection.close()


@pytest.mark.interop
@pytest.mark.parametrize(
    "login", [("guest", "guest", "/"), ("acme:alice", "secret", "acme")], ids=["default", "acme"]
)
def test_amqpstorm_publishes_with_confirms_large_bodies_too(
    tmp_path: Path, login: tuple[str, str, str]
) -> None:
    with broker_in_thread(tmp_path) as broker, connected(broker.port, *login) as connection:
        channel = connection.channel()
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue.declare("dead", durable=True)
        channel.queue.declare("q", durable=True, arguments=dead)
        channel.confirm_deliveries()
        for body in (b"one", LARGE, b"three"):
            assert amqpstorm.Message.create(channel, body).publish("q") is True
        with pytest.raises(amqpstorm.AMQPMessageError, match="NO_ROUTE"):
            amqpstorm.Message.create(channel, "x").publish("nobody", mandatory=True)
        taken = [channel.basic.get("q", auto_decode=False) for _ in range(3)]
        assert [each.body for each in taken if each is not None] == [b"one", LARGE, b"three"]
        for each in taken:
            assert each is not None
            each.reject(requeue=False)
        ends = time.monotonic() + WAIT_S_MAX
        while channel.queue.declare("dead", passive=True)["message_count"] < 3:
            assert time.monotonic() < ends
        with pytest.raises(amqpstorm.AMQPChannelError, match="NOT_FOUND - no queue 'none'"):
            channel.queue.declare("none", passive=True)


@pytest.mark.interop
def test_amqpstorm_hears_why_its_login_was_refused(tmp_path: Path) -> None:
    with (
        broker_in_thread(tmp_path) as broker,
        pytest.raises(amqpstorm.AMQPConnectionError, match="ACCESS_REFUSED - Login was refused"),
        connected(broker.port, "guest", "wrong", "/"),
    ):
        pass
