"""Brokers for tests with real clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from tests.adapters.amqp.broker import Broker, broker_in_thread, running_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker on the test's own event loop."""
    async with running_broker(tmp_path / "data") as running:
        yield running


@pytest.fixture
def threaded_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker on an event loop of its own, for clients that block."""
    with broker_in_thread(tmp_path / "data") as running:
        yield running


@pytest.fixture
def connect(threaded_broker: Broker) -> Iterator[Callable[[], BlockingConnection]]:
    """Connections of pika, which are closed in the end."""
    opened: list[BlockingConnection] = []

    def one(url: str | None = None) -> BlockingConnection:
        parameters = pika.URLParameters(url or threaded_broker.url())
        parameters.socket_timeout = 5
        connection = pika.BlockingConnection(parameters)
        opened.append(connection)
        return connection

    yield one
    for connection in opened:
        if connection.is_open:
            connection.close()


@pytest.fixture
def channel(connect: Callable[[], BlockingConnection]) -> BlockingChannel:
    return connect().channel()
