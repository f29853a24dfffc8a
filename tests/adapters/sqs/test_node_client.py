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
