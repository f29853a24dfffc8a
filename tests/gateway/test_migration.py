"""What docs/operations/migration.md has its reader type: it works as it stands there."""

from __future__ import annotations

import io
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

import gateway.cli
from tests.gateway.serving import Process, serving
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (Path(__file__).parents[2] / "docs" / "operations" / "migration.md").read_text()
FIXTURE = Path(__file__).parents[1] / "fixtures" / "rabbitmq-3.10.8-definitions.json"
BLOCKS = re.findall(r"^```\w*\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [
    *(line for block in BLOCKS for line in block.splitlines() if line.startswith("weir ")),
    *re.findall(r"`(weir [a-z]+ .*?)`", PAGE),
]
"""In the order of the page: blocks, then tables."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("migration")
    (folder / "weir.yaml").write_text("tenants: {acme: {}}")
    with serving(folder / "data", config=folder / "weir.yaml") as process:
        yield process


def test_the_commands_of_the_page_are_carried_out(
    node: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_URL", node.admin_url)
    monkeypatch.setenv("WEIR_TOKEN", node.token)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "definitions.json").write_bytes(FIXTURE.read_bytes())
    assert len(COMMANDS) >= 10
    for line in COMMANDS:
        words = shlex.split(line, comments=True)[1:]
        if words[:2] == ["definitions", "apply"]:
            words.append("--yes")
        monkeypatch.setattr(sys, "stdin", io.StringIO("a long password\n"))
        with pytest.raises(SystemExit) as left:
            gateway.cli.main(words)
        assert left.value.code == 0, line
    found = node.api("GET", "/topics/orders/groups/billing").json
    assert found["options"]["attempts_max"] == 17


def test_queues_of_sqs_are_made_anew_with_their_attributes(
    node: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    (snippet,) = [each for each in BLOCKS if "boto3" in each]
    node.api("POST", "/users?tenant=acme", {"name": "old", "policies": ["full"]})
    key = node.api("POST", "/keys?tenant=acme", {"user": "old"}).json
    url = f"http://127.0.0.1:{node.listeners['sqs.http']}"
    old, new = sqs_client(url, key["key_id"], key["secret"]), sqs_client(url, "weir", "weir-secret")
    old.create_queue(QueueName="plain", Attributes={"VisibilityTimeout": "77"})
    fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    old.create_queue(QueueName="in-order.fifo", Attributes=fifo)

    def client(_service: str, **settings: Any) -> Any:
        return new if settings else old

    monkeypatch.setattr(boto3, "client", client)
    exec(snippet, {})
    found = new.get_queue_url(QueueName="plain")["QueueUrl"]
    asked = new.get_queue_attributes(QueueUrl=found, AttributeNames=["All"])["Attributes"]
    assert asked["VisibilityTimeout"] == "77"
    assert new.get_queue_url(QueueName="in-order.fifo")
