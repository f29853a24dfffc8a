"""A gateway from which an adapter is taken out, folder and entry, serves all the others."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from gateway.config.source import default_file
from tests.gateway import serving

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT = """
import pathlib, sys
file, adapter = sys.argv[1:3]
del sys.argv[1:3]
sys.modules[adapter] = None  # to import it, or what is below it, is an error
from gateway.config import source
source.default_file = lambda: pathlib.Path(file)
from gateway.cli import main
main()
"""

SHIPPED = yaml.safe_load(default_file().read_text())
ADAPTERS = sorted(SHIPPED["protocols"])


def program_without(name: str, folder: Path) -> tuple[str, ...]:
    """Weir whose shipped file has no entry for a protocol, and whose tree not its adapter."""
    left = {key: each for key, each in SHIPPED["protocols"].items() if key != name}
    file = folder / "protocols.yaml"
    file.write_text(yaml.safe_dump(SHIPPED | {"protocols": left}, sort_keys=False))
    return (sys.executable, "-c", WITHOUT, str(file), f"adapters.{name}")


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_gateway_serves_without_one_of_its_adapters(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = tuple(each for each in serving.PORTS if not each.startswith(f"protocols.{name}."))
    assert len(ports) < len(serving.PORTS)
    monkeypatch.setattr(serving, "PORTS", ports)
    program = program_without(name, tmp_path)
    with serving.launched(tmp_path / "data", program=program) as node:
        node.serves()
        assert node.protocols - {"admin"} == set(ADAPTERS) - {name}
        assert node.api("POST", "/topics", {"name": "work", "type": "work"}).status == 201
        stream = node.api("POST", "/topics", {"name": "stream"}).json
        assert (stream["type"], len(stream["queues"])) == ("normal", 8)
        group = node.api("POST", "/topics/stream/groups", {"name": "readers"}).json
        assert group["options"]["start"] == "earliest"
        assert node.api("GET", "/topics").status == 200
        assert node.http("GET", "/metrics").status == 200
        assert node.terminate() == 0


def test_types_and_defaults_are_those_of_the_adapters_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = tuple(each for each in serving.PORTS if not each.startswith("protocols.rocketmq."))
    monkeypatch.setattr(serving, "PORTS", ports)
    program = program_without("rocketmq", tmp_path)
    with serving.launched(tmp_path / "data", program=program) as node:
        node.serves()
        refused = node.api("POST", "/topics", {"name": "ordered", "type": "fifo"})
        assert refused.status == 400
        message = refused.json["error"]["message"]
        assert message == "there is no type 'fifo' of topics here; there are normal, work"
        assert node.api("POST", "/topics", {"name": "plain"}).json["declared_by"] == []
        options = node.api("POST", "/topics/plain/groups", {"name": "g"}).json["options"]
        assert (options["attempts_max"], options["dead_letter"]) == (None, None)
        assert node.api("GET", "/topics/dlq.g").status == 404
