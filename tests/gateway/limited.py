"""What tests of limits share: what a limit has done, and clients that only they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.serving import Process

TOO_MUCH = 0x97
SERVER_UNAVAILABLE = 3
"""Of MQTT 3.1.1."""


def limited(node: Process, limit: str, outcome: str) -> float:
    """What a limit has done, by the metric."""
    labels = f'weir_limited_total{{limit="{limit}",outcome="{outcome}",tenant="default"}} '
    lines = node.http("GET", "/metrics").body.decode().splitlines()
    return sum(float(each.removeprefix(labels)) for each in lines if each.startswith(labels))


def connect_311(name: str) -> bytes:
    fields = (name.encode(), b"guest", b"guest")
    body = b"\x00\x04MQTT\x04\xc2\x00\x3c" + b"".join(
        len(each).to_bytes(2, "big") + each for each in fields
    )
    return bytes([0x10, len(body)]) + body


def rocketmq(node: Process, home: Path, script: str) -> Any:
    """What a script for RocketMQ's own Python client prints, which is JSON."""
    ran = subprocess.run(
        [sys.executable, "-c", script, f"127.0.0.1:{node.listeners['rocketmq.grpc']}"],
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])
