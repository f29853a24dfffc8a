"""`weir` as the first process of a container: the system drops signals that it does not handle."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.gateway.cluster import until
from tests.gateway.serving import START_SECONDS, STOP_SECONDS, environment, launched

if TYPE_CHECKING:
    from tests.gateway.serving import Process

CONTAINER = ("unshare", "--pid", "--fork", "--kill-child")
"""A process id namespace, as a container has."""


def can_be_made() -> bool:
    try:
        return (
            subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode == 0
        )
    except FileNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not can_be_made(), reason="no right to make a namespace here")


def first_process_of(outside: int) -> int:
    children = Path(f"/proc/{outside}/task/{outside}/children")
    until(lambda: children.read_text().split(), "a process inside")
    return int(children.read_text().split()[0])


def test_a_command_that_waits_ends_when_it_is_told_to(node: Process) -> None:
    follow = ("events", "--follow", "--data", str(node.data))
    with subprocess.Popen(
        [*CONTAINER, sys.executable, "-m", "gateway", *follow],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as command:
        try:
            assert command.stdout is not None
            assert command.stdout.readline().startswith("{")
            subprocess.run(["kill", "-TERM", str(first_process_of(command.pid))], check=True)
            assert command.wait(STOP_SECONDS) == 128 + signal.SIGTERM
        finally:
            command.kill()


def test_a_node_drains_as_the_first_process(tmp_path: Path) -> None:
    with launched(tmp_path / "data", program=(*CONTAINER, sys.executable, "-m", "gateway")) as node:
        node.wait_for("serving")
        subprocess.run(["kill", "-TERM", str(first_process_of(node.process.pid))], check=True)
        assert node.process.wait(START_SECONDS) == 0
        assert "stopped" in {each["event"] for each in node.logged()}
