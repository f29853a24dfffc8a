"""A node with RabbitMQ's management API, and requests to that."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.gateway.serving import Answer, Process, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class Shown(Answer):
    """An answer with its headers."""

    headers: dict[str, str]


@contextlib.contextmanager
def managed(folder: Path, settings: str) -> Iterator[Process]:
    """`settings`: further lines of YAML."""
    config = folder / "weir.yaml"
    config.write_text(f"{settings}\nnode: {{management: {{enabled: true, port: 0}}}}")
    with serving(folder / "data", config=config) as process:
        find_management(process)
        yield process


def find_management(process: Process) -> None:
    """Learn where it listens."""
    line = next(each for each in process.said if '"management API"' in each)
    process.listeners["management"] = int(json.loads(line)["url"].rpartition(":")[2])


def ask(
    node: Process,
    method: str,
    path: str,
    body: Any = None,
    login: str = "guest:guest",
    host: str = "127.0.0.1",
    **headers: str,
) -> Shown:
    connection = http.client.HTTPConnection("127.0.0.1", node.listeners["management"], timeout=20)
    shown = "Basic " + base64.b64encode(login.encode()).decode()
    data = None if body is None else json.dumps(body)
    try:
        sent = {"Authorization": shown, "Host": host, **headers}
        connection.request(method, "/api" + path, data, sent)
        response = connection.getresponse()
        told = {name.lower(): value for name, value in response.getheaders()}
        return Shown(response.status, response.read(), told)
    finally:
        connection.close()
