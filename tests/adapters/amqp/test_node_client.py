"""npm's amqplib, unmodified, against a whole broker."""

from __future__ import annotations

import json
from pathlib import Path

from tests import npm_clients
from tests.adapters.amqp.broker import broker_in_thread


def test_amqplib_of_npm(tmp_path: Path) -> None:
    program = (npm_clients.FOLDER / "amqp.cjs").read_text()
    with broker_in_thread(tmp_path / "data") as broker:
        said = npm_clients.run_with("amqplib", program, broker.url())

    headers = {"number": 7, "text": "grüße", "nested": {"list": [1, True, None]}}
    assert json.loads(said) == {
        "got": [
            {"text": "one", "redelivered": False},
            {"text": "one", "redelivered": True, "headers": headers},
            {"text": "two", "redelivered": False, "id": "m2"},
        ],
        "left": 0,
        "refused": 404,
    }


def test_amqplib_of_npm_hears_that_it_is_closed_while_it_writes(tmp_path: Path) -> None:
    program = (npm_clients.FOLDER / "amqp_close.cjs").read_text()
    with broker_in_thread(tmp_path / "data") as broker:
        said = npm_clients.run_with("amqplib", program, broker.url())
    assert json.loads(said) == {"closed": 20}
