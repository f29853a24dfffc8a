"""rocketmq-python-client, in a process of its own (`rocketmq_program`): its threads never end."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

from tests.gateway.serving import Process
from tests.matrix.contract import Can, Got, Neutral

PROGRAM = Path(__file__).with_name("rocketmq_program.py")
PROPERTIES = ("content_type", "correlation_id", "reply_to")
"""User properties that other protocols have a field for."""


class RocketmqPeer:
    name = "rocketmq"
    # The client makes every message id itself, and sends no empty body.
    can = Can.BINARY | Can.ORDERING_KEY | Can.MESSAGE_ID | Can.DELAY
    values: ClassVar[dict[str, object]] = {"text": "grüße", "digits": "5"}

    def __init__(self, node: Process, home: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), f"127.0.0.1:{node.listeners['rocketmq.grpc']}"],
            env={**os.environ, "HOME": home},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        self._process.communicate()

    def _ask(self, **command: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer

    def write(self, topic: str, message: Neutral, *, delay_s: int = 0) -> str | None:
        properties = dict(message.attributes)
        for name in PROPERTIES:
            if (given := getattr(message, name)) is not None:
                properties[name] = given
        ident: str = self._ask(
            do="write",
            topic=topic,
            body=base64.b64encode(message.body).decode(),
            properties=properties,
            tag=message.tag,
            keys=sorted(message.keys),
            group=message.ordering_key,
            delay_s=delay_s,
        )["message_id"]
        return ident

    def read(self, topic: str, *, seconds: float = 10) -> Got:
        found = self._ask(do="read", topic=topic, seconds=seconds)
        properties = found["properties"]
        assert not found["corrupted"]
        return Got(
            body=base64.b64decode(found["body"]),
            tag=found["tag"],
            keys=frozenset(found["keys"]),
            ordering_key=found["group"],
            message_id=found["message_id"],
            uid=found["message_id"],
            attempt=found["attempt"],
            **{name: properties.pop(name, None) for name in PROPERTIES},
            attributes=properties,
        )

    def refuse(self, topic: str, *, seconds: float = 10) -> None:
        self._ask(do="refuse", topic=topic, seconds=seconds)

    def shows(self, value: object) -> object:
        if isinstance(value, str | Decimal):
            return str(value)
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        return json.dumps(value, separators=(",", ":"))
