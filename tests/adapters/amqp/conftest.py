"""Brokers for tests with real clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

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
