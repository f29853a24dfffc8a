"""The programs on the pages that a newcomer copies run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.serving import Process, serving

ROOT = Path(__file__).parents[2]
DEFAULT_PORTS = {"5672": "amqp.tcp", "9324": "sqs.http", "1883": "mqtt.tcp"}
HERE_DOCUMENT = re.compile(r"<<'PY'\n(.*?)\nPY\n", re.DOTALL)
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("pages")) as process:
        yield process


def programs(page: str, pattern: re.Pattern[str]) -> list[str]:
    found = pattern.findall((ROOT / page).read_text())
    assert found
    return found


def run(node: Process, program: str) -> str:
    for port, listener in DEFAULT_PORTS.items():
        program = re.sub(rf"\b{port}\b", str(node.listeners[listener]), program)
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_first_messages_of_the_readme_arrive(node: Process) -> None:
    said = [run(node, program) for program in programs("README.md", HERE_DOCUMENT)]
    assert said == [
        "received: one espresso\n",
        "received: one ristretto\n",
        "received: kitchen/oven 220 degrees\n",
    ]


def test_the_first_message_of_the_amqp_page_arrives(node: Process) -> None:
    assert run(node, programs("docs/amqp.md", BLOCK)[0]) == "received: one espresso\n"
