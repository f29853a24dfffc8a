"""Where the generated code comes from: without side effects, and only once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.rocketmq.codec.stubs import parse_send_message, service_methods
from adapters.rocketmq.errors import Code, RocketmqError
from adapters.rocketmq.services.messaging_service import REFUSED
from gateway.config.loading import load


def run(program: str, home: Path) -> str:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "HOME": str(home), "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_adapter_imports_no_client_and_leaves_no_file(tmp_path: Path) -> None:
    program = (
        "import sys; import adapters.rocketmq.server; "
        "print([n for n in ('rocketmq', 'rocketmq.v5', 'opentelemetry') if n in sys.modules])"
    )
    assert run(program, tmp_path) == "[]"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "order",
    [
        "import rocketmq; import adapters.rocketmq.codec.stubs",
        "import adapters.rocketmq.codec.stubs; import rocketmq",
    ],
)
def test_the_client_may_be_imported_before_and_after(order: str, tmp_path: Path) -> None:
    program = (
        f"{order}\n"
        "from rocketmq import Producer\n"
        "from rocketmq.grpc_protocol import SendMessageRequest\n"
        "from adapters.rocketmq.codec.stubs import parse_send_message\n"
        "print(isinstance(parse_send_message(b''), SendMessageRequest))"
    )
    assert run(program, tmp_path) == "True"


def test_bytes_that_are_no_request() -> None:
    with pytest.raises(RocketmqError) as caught:
        parse_send_message(b"\xff\xff\xff")
    assert caught.value.code is Code.BAD_REQUEST
    assert "SendMessageRequest" in caught.value.message


def test_every_call_of_the_service_is_served_or_refused() -> None:
    served = {
        *("QueryRoute", "QueryAssignment", "Heartbeat", "SendMessage", "ReceiveMessage"),
        *("AckMessage", "ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue"),
        *("NotifyClientTermination", "Telemetry", "EndTransaction", "RecallMessage"),
        *("PullMessage", "QueryOffset", "GetOffset", "UpdateOffset"),
    }
    assert served | set(REFUSED) == service_methods()
    assert not served & set(REFUSED)
    listed = load(environ={}).settings.protocols["rocketmq"].operations
    assert {name for name in REFUSED if listed[name].status == "refused"} == set(REFUSED)
    assert {name for name in served if listed[name].status != "refused"} == served
