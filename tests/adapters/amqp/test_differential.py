"""Weir beside RabbitMQ: the same scenarios (`peer.scenarios`), the same answers.

What RabbitMQ 3.10.8 does is kept in `tests/fixtures/rabbitmq-3.10.8.json`, so that Weir is held
against it on every machine. Where RabbitMQ is installed, the record itself is held against it; to
write it anew: `WEIR_RECORD=1 pytest tests/adapters/amqp/test_differential.py`.

Compared are values, orders and reply codes. The explanation behind a reply code is not: those of
RabbitMQ are partly Erlang terms.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import RabbitMQ
from tests.adapters.amqp.broker import Broker, broker_in_thread
from tests.adapters.amqp.peer.scenarios import SCENARIOS
from tests.adapters.amqp.peer.trial import Trial

pytestmark = pytest.mark.interop

RECORD = Path(__file__).parents[2] / "fixtures" / "rabbitmq-3.10.8.json"

KNOWN: dict[str, str] = {
    "exchange_type": "a channel error with 406, as in RabbitMQ 4",
    "queue_mode": "x-queue-mode means nothing, as in RabbitMQ 4: any value is taken",
}
"""Scenarios in which Weir means to differ, and how."""

ONLY_HERE = ("x-last-death-", "x-delivery-count")
"""Headers that RabbitMQ 4 adds, and 3.10 does not or to quorum queues only."""


def comparable(value: Any) -> Any:
    """A note without what is not compared."""
    if isinstance(value, dict):
        kept = {name: comparable(each) for name, each in value.items()}
        kept = {name: kept[name] for name in kept if not name.startswith(ONLY_HERE)}
        return {name: each for name, each in kept.items() if (name, each) != ("headers", {})}
    if not isinstance(value, list):
        return value
    if len(value) == 4 and value[1] in ("channel", "connection") and isinstance(value[3], str):
        return [*value[:3], value[3].partition(" - ")[0]]
    return [comparable(each) for each in value]


def notes_of(url: str, name: str) -> Any:
    """What a broker does in a scenario."""
    trial = Trial(url, name)
    try:
        SCENARIOS[name](trial)
    finally:
        trial.close()
    return json.loads(json.dumps(trial.notes))


@pytest.fixture(scope="module")
def weir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_in_thread(tmp_path_factory.mktemp("weir") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    server = RabbitMQ.find()
    if server is None:
        pytest.skip("RabbitMQ is not installed (Debian: rabbitmq-server); its record is compared")
    node = RabbitMQ(tmp_path_factory.mktemp("rabbitmq") / "node", server)
    try:
        node.start()
        yield node
    finally:
        node.close()


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORD.read_text())
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_record_is_what_rabbitmq_does(rabbitmq: RabbitMQ, name: str) -> None:
    notes = notes_of(rabbitmq.url, name)
    if os.environ.get("WEIR_RECORD"):
        kept = recorded() if RECORD.exists() else {}
        kept[name] = notes
        ordered = {each: kept[each] for each in SCENARIOS if each in kept}
        RECORD.write_text(json.dumps(ordered, indent=1) + "\n")
    assert notes == recorded()[name]


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in KNOWN])
def test_weir_does_what_rabbitmq_does(weir: Broker, name: str) -> None:
    assert comparable(notes_of(weir.url(), name)) == comparable(recorded()[name])


@pytest.mark.parametrize("name", KNOWN)
def test_where_weir_means_to_differ_it_does(weir: Broker, name: str) -> None:
    assert comparable(notes_of(weir.url(), name)) != comparable(recorded()[name])


def test_the_record_has_every_scenario_and_no_other() -> None:
    assert list(recorded()) == list(SCENARIOS)
