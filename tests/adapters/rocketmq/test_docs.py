"""The five minutes of docs/rocketmq.md, as they are written there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.serving import serving

pytestmark = pytest.mark.interop

PAGE = Path(__file__).parents[3] / "docs" / "rocketmq.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def run(command: list[str], home: Path) -> str:
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "HOME": str(home)},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_first_five_minutes(tmp_path: Path) -> None:
    (program,) = blocks("python")
    with serving(tmp_path / "data") as node:
        address = f"127.0.0.1:{node.listeners['rocketmq.grpc']}"
        assert "127.0.0.1:8081" in program
        # The client's threads never end, so neither would the program.
        ending = "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n"
        text = program.replace("127.0.0.1:8081", address) + ending
        said = run([sys.executable, "-c", text], tmp_path)
    assert "received: one espresso {'table': '7'} 1" in said
    assert re.search(r"stored: [0-9A-F]{34}", said)
