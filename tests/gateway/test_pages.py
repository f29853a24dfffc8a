"""The programs on the pages that a newcomer copies run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.serving import Process, environment, serving

ROOT = Path(__file__).parents[2]
DEFAULT_PORTS = {
    "5672": "amqp.tcp",
    "9324": "sqs.http",
    "1883": "mqtt.tcp",
    "8081": "rocketmq.grpc",
}
HERE_DOCUMENT = re.compile(r"<<'PY'\n(.*?)\nPY\n", re.DOTALL)
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
SETTINGS = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
COMMANDS = re.compile(r"```sh\n(.*?)```", re.DOTALL)
PRINTS = re.compile(r"It prints:\n\n```\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """With the settings of the page on tenants, which no other page minds."""
    folder = tmp_path_factory.mktemp("pages")
    config = folder / "weir.yaml"
    config.write_text(programs("docs/tenants.md", SETTINGS)[0])
    with serving(folder / "data", config=config) as process:
        yield process


def programs(page: str, pattern: re.Pattern[str]) -> list[str]:
    found = pattern.findall((ROOT / page).read_text())
    assert found
    return found


def run(node: Process, program: str, *arguments: str, folder: Path | None = None) -> str:
    for port, listener in DEFAULT_PORTS.items():
        program = re.sub(rf"\b{port}\b", str(node.listeners[listener]), program)
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def weir(node: Process, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "gateway", *words, "--data", str(node.data)],
        check=True,
        capture_output=True,
        timeout=60,
        env=environment(),
    )


def test_the_first_messages_of_the_readme_arrive(node: Process) -> None:
    weir(node, "topic", "create", "receipts")
    weir(node, "group", "create", "receipts", "accounts", "--start", "earliest")
    said = [run(node, program) for program in programs("README.md", HERE_DOCUMENT)]
    assert said == [
        "received: one espresso\n",
        "received: one ristretto\n",
        "received: kitchen/oven 220 degrees\n",
        "received: 4.20 paid\n",
    ]


def test_the_first_message_of_the_amqp_page_arrives(node: Process) -> None:
    assert run(node, programs("docs/amqp.md", BLOCK)[0]) == "received: one espresso\n"


def test_the_page_on_tenants_does_what_it_says(node: Process, tmp_path: Path) -> None:
    page = "docs/tenants.md"
    shim = tmp_path / "weir"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gateway "$@"\n')
    shim.chmod(0o755)
    known = environment(PYTHONPATH=str(ROOT), WEIR_NODE__DATA=str(node.data))
    known["PATH"] = f"{tmp_path}:{known['PATH']}"
    first, *administrators = programs(page, COMMANDS)

    def shell(commands: str) -> str:
        ran = subprocess.run(
            ["sh", "-e", "-c", commands],
            cwd=tmp_path,
            env=known,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return ran.stdout

    shell(first)
    said = run(node, programs(page, BLOCK)[0], folder=tmp_path).splitlines(keepends=True)
    # RocketMQ's client also says when it hears of its settings.
    kept = [line for line in said if re.match(r"acme:|globex:|\d+/", line)]
    assert "".join(kept) == programs(page, PRINTS)[0]
    made = shell("".join(administrators).replace("http://127.0.0.1:15673", node.admin_url))
    assert "orders" in made
    users = node.api("GET", "/users?tenant=acme").json["users"]
    assert [each["name"] for each in users] == ["alice", "ann", "eve"]


def test_each_protocol_reads_what_another_wrote(node: Process) -> None:
    weir(node, "queue", "create", "kitchen")
    said = run(node, (ROOT / "examples" / "four_protocols.py").read_text()).splitlines()
    # RocketMQ's client also says when it hears of its settings.
    assert [line for line in said if " received: " in line] == [
        "AMQP received: from SQS",
        "SQS received: from AMQP",
        "RocketMQ received: from RocketMQ",
        "MQTT received: from MQTT",
    ]


def test_a_journal_is_read_by_what_the_page_on_formats_says(node: Process) -> None:
    for queue in ("journal-1", "journal-2"):
        weir(node, "queue", "create", queue)
        weir(node, "message", "send", queue, f"one for {queue}")
    program = (ROOT / "examples" / "read_journal.py").read_text()
    lines = run(node, program, str(node.data)).splitlines()
    for queue in ("journal-1", "journal-2"):
        (found,) = [line for line in lines if line.endswith(f"b'one for {queue}'")]
        assert re.fullmatch(r"\d{8}\.seg group [1-4] index \d+ term 1: .*", found)
