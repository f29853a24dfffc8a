"""The AWS SDK for JavaScript, unmodified, against a whole service."""

from __future__ import annotations

import json

from tests import npm_clients
from tests.adapters.in_process import KEY_ID, SECRET
from tests.adapters.sqs.service import Service


def test_the_sdk_for_javascript(service: Service) -> None:
    program = (npm_clients.FOLDER / "sqs.cjs").read_text()
    said = npm_clients.run_with("@aws-sdk/client-sqs", program, service.url, KEY_ID, SECRET)
    assert json.loads(said) == {
        "sameId": True,
        "bodies": ["one", "two", "three"],
        "bytes": [0, 255],
        "text": "grüße",
        "group": "g",
        "batch": 2,
        "deleted": 3,
        "empty": None,
        "missing": {"isClass": True, "code": "AWS.SimpleQueueService.NonExistentQueue"},
        "tags": {"made": "by node"},
    }


def test_a_consumer_of_npm_that_gives_a_message_back_at_once(service: Service) -> None:
    """It sets the visibility timeout of what it could not handle to 0."""
    program = (npm_clients.FOLDER / "sqs_consumer.cjs").read_text()
    said = npm_clients.run_with(
        "sqs-consumer", program, service.url, KEY_ID, SECRET, "consumed.fifo"
    )
    told = json.loads(said)
    assert told["errors"] == 1
    assert told["handled"][-1] == "a1:2"
    assert sorted(told["handled"]) == ["a1:2", "a2:1", "a3:1", "b1:1", "b2:1"]
    assert told["left"] == ["0", "0"]
