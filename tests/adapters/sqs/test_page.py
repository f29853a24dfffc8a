"""docs/sqs.md: its programs run as they stand there, but for the port; its list is the real one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.sqs.codec.shapes import ACTIONS
from gateway.config.loading import load
from tests import npm_clients
from tests.adapters.sqs.service import Service

PAGE = (Path(__file__).parents[3] / "docs" / "sqs.md").read_text()


def program(language: str, service: Service, containing: str = "") -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    (text,) = [block for block in blocks if containing in block]
    return text.replace("127.0.0.1:9324", f"127.0.0.1:{service.port}")


def run(command: list[str], text: str, **options) -> str:
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=60, check=False, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_python_program_runs(service: Service) -> None:
    assert run([sys.executable, "-"], program("python", service)) == "one ristretto\n"


def test_the_javascript_program_runs(service: Service) -> None:
    said = npm_clients.run_with("@aws-sdk/client-sqs", program("js", service))
    assert said == "one sencha\n"


def test_the_shell_commands_run(service: Service) -> None:
    if shutil.which("aws") is None:
        pytest.skip("the AWS command line is not installed")
    variables = {**os.environ, "AWS_PAGER": "", "AWS_DEFAULT_OUTPUT": "json"}
    said = run(["sh", "-e"], program("sh", service, "weir_sqs="), env=variables)
    assert "one apple" in said


def _excused(name: str) -> str:
    """The words by which the page says what is not whole of a partial action."""
    return {
        "SetQueueAttributes": "KmsMasterKeyId",
        "ReceiveMessage": "ReceiveRequestAttemptId",
    }.get(name, name)


def test_the_page_tells_what_is_not_whole() -> None:
    operations = load(environ={}).settings.protocols["sqs"].operations
    assert f"All {len(ACTIONS)} actions are served" in PAGE
    assert not [name for name in ACTIONS if operations[name].status == "refused"]
    for name in ACTIONS:
        assert operations[name].status == "full" or _excused(name) in PAGE
