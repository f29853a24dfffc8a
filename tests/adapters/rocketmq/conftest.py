"""One broker for the tests of a module that need nothing special of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adapters.rocketmq.support import Broker, Wire, broker_in_thread


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_in_thread(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def wire(broker: Broker) -> Iterator[Wire]:
    calls = Wire(broker.address)
    yield calls
    calls.close()
