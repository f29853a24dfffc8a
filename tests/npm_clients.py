"""npm's clients of our protocols, as tests run them: each where it is installed.

`make setup-npm` installs what tests/npm/package.json pins; a folder of NODE_PATH will do as well.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "npm"

LOOK_SECONDS_MAX = 30
RUN_SECONDS_MAX = 60


@cache
def why_not(package: str) -> str | None:
    """Why a package cannot be used here; None if it can."""
    if shutil.which("node") is None:
        return "node is not installed"
    looked = subprocess.run(
        ["node", "-e", f"require.resolve({json.dumps(package)})"],
        cwd=FOLDER,
        capture_output=True,
        timeout=LOOK_SECONDS_MAX,
        check=False,
    )
    return f"npm's {package} is not installed: make setup-npm" if looked.returncode else None


def run_with(package: str, program: str, *arguments: str, **environment: str) -> str:
    """What a JavaScript program prints that needs a package; the test is skipped without it."""
    reason = why_not(package)
    if reason is not None:
        pytest.skip(reason)
    done = subprocess.run(
        ["node", "-", *arguments],
        input=program,
        cwd=FOLDER,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
