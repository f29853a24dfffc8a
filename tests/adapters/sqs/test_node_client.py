"""The AWS SDK for JavaScript, unmodified, against a whole service.

It runs where node is and the package can be found: `npm install --no-package-lock --prefix
tests/adapters/sqs/node`, or NODE_PATH.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.adapters.in_process import KEY_ID, SECRET
from tests.adapters.sqs.service import Service

FOLDER = Path(__file__).parent / "node"


def why_no_sdk() -> str | None:
    node = shutil.which("node")
    if node is None:
        return "node is not installed"
    found = subprocess.run(
        [node, "-e", "require.resolve('@aws-sdk/client-sqs')"],
        cwd=FOLDER,
        capture_output=True,
        timeout=30,
        check=False,
    )
    if found.returncode:
        return "@aws-sdk/client-sqs is not installed (the module says how)"
    return None


def test_the_sdk_for_javascript(service: Service) -> None:
    why_not = why_no_sdk()
    if why_not is not None:
        pytest.skip(why_not)
    ran = subprocess.run(
        ["node", "smoke.cjs", service.url, KEY_ID, SECRET],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "sameId": True,
        "bodies": ["one", "two", "three"],
        "bytes": [0, 255],
        "text": "grüße",
        "group": "g",
        "batch": 2,
        "deleted": 3,
        "empty": None,
        "missing": {"isClass": True, "code": "AWS.SimpleQueueService.NonExistentQueue"},
        "tags": {"made": "by node"},
    }
