"""What a server says at start: every line can be copied and works on this machine."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.loading import load
from gateway.serving.greeting import greeting
from tests.gateway.serving import environment, serving

if TYPE_CHECKING:
    from pathlib import Path


def tries(said: str) -> list[str]:
    return [line.removeprefix("  try: ") for line in said.splitlines() if line.startswith("  try:")]


def test_every_command_it_proposes_works(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        commands = tries("".join(node.said))
        assert len(commands) == 4, "one for each protocol"
        for command in commands:
            shorter = command.replace("--duration 5", "--duration 0.5")
            ran = subprocess.run(
                shorter.replace("--messages 5000", "--messages 100 --warmup 0"),
                shell=True,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
                env=environment(),
            )
            assert ran.returncode == 0, f"{command}\n{ran.stderr}"


def test_what_is_switched_off_is_not_proposed(tmp_path: Path) -> None:
    off = ("amqp.enabled=false", "protocols.mqtt.listeners.tcp.enabled=false")
    with serving(tmp_path, *off) as node:
        said = "".join(node.said)
    assert len(tries(said)) == 2
    assert "sqs" in tries(said)[0]
    assert "rocketmq" in tries(said)[1]
    assert "guest/guest" in said, "MQTT is served by TLS"


def test_without_the_development_logins_nothing_is_proposed(tmp_path: Path) -> None:
    reachable = (
        "node.insecure.plain_text=true",
        "amqp.host=0.0.0.0",
        "sqs.enabled=false",
        "rocketmq.enabled=false",
    )
    password = {"WEIR_ADMIN_PASSWORD": "a long password"}
    with serving(tmp_path, *reachable, **password) as node:
        said = "".join(node.said)
    assert "try:" not in said
    assert "guest" not in said


class Served:
    def __init__(self, name: str, listener: str) -> None:
        self.name = name
        self._listener = listener

    def addresses(self) -> dict[str, tuple[str, int]]:
        return {self._listener: ("127.0.0.1", 7)}


@pytest.mark.parametrize("installed", [True, False])
def test_a_program_that_is_not_installed_is_not_proposed(installed: bool) -> None:
    served: list[Any] = [Served("mqtt", "tcp"), Served("sqs", "http")]

    def find(program: str) -> str | None:
        return f"/usr/bin/{program}" if installed else None

    said = tries(greeting(load().settings, served, ["here"], None, find))
    programs = ["mosquitto_pub" in said[0], " aws " in said[1]]
    assert programs == [installed, installed]
