"""`weir serve` as a process of its own, on free loopback ports, for tests of a whole node.

The process begins as a copy of one that has imported everything (`forking`), unless a test gives a
program of its own, sets variables for Python, or is about a start that fails.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pika

from gateway.config.loading import load
from tests.gateway import forking

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

START_SECONDS = 60
STOP_SECONDS = 30
"""What service managers give a process between SIGTERM and SIGKILL."""

PORTS = tuple(f"{'.'.join(path)}.port=0" for path in load(environ={}).settings.open_listeners())
"""Free ports for every listener that is open by default."""

GATEWAY = (sys.executable, "-m", "gateway")


NO_VARIABLES: Mapping[str, str] = {}


def environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WEIR_")}
    return kept | changes


def command(
    data: Path,
    *settings: str,
    role: str = "serve",
    config: Path | None = None,
    program: Sequence[str] = GATEWAY,
) -> list[str]:
    ports = PORTS if role != "store" else ("node.admin.port=0",)
    flags = [flag for setting in (*ports, *settings) for flag in ("--set", setting)]
    if config is not None:
        flags += ["--config", str(config)]
    return [*program, role, "--data", str(data), *flags]


@dataclass
class Answer:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Process:
    """A node that has said where it listens."""

    process: subprocess.Popen[str] | forking.Forked
    data: Path
    lines: queue.SimpleQueue[str | None]
    said: list[str] = field(default_factory=list)
    listeners: dict[str, int] = field(default_factory=dict)

    def wait_for(self, event: str) -> dict[str, Any]:
        """The next structured line of an event."""
        while True:
            line = self.lines.get(timeout=START_SECONDS)
            assert line is not None, f"ended without {event}:\n" + "".join(self.said)
            self.said.append(line)
            if line.startswith("{") and (found := json.loads(line))["event"] == event:
                return found

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def read(self) -> None:
        """What it has said by now goes to `said`."""
        while not self.lines.empty():
            self.said.append(self.lines.get() or "")

    def rest(self) -> str:
        """Everything it said, once it has ended."""
        while (line := self.lines.get(timeout=STOP_SECONDS)) is not None:
            self.said.append(line)
        return "".join(self.said)

    def logged(self) -> list[dict[str, Any]]:
        """The structured lines, once it has ended."""
        return [json.loads(line) for line in self.rest().splitlines() if line.startswith("{")]

    @property
    def protocols(self) -> set[str]:
        """Those that it serves."""
        return {name.partition(".")[0] for name in self.listeners}

    # --- Talking to it ----------------------------------------------------------------------

    def amqp(self) -> pika.BlockingConnection:
        port = self.listeners["amqp.tcp"]
        parameters = pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{port}/%2f?heartbeat=0")
        parameters.socket_timeout = 10
        return pika.BlockingConnection(parameters)

    @property
    def admin_url(self) -> str:
        return (self.data / "admin.url").read_text().strip()

    @property
    def token(self) -> str:
        return (self.data / "admin.token").read_text().strip()

    def http(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = "",
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """A request of the admin side; `token` None: without, empty: with the right one."""
        sent = {} if token is None else {"Authorization": f"Bearer {token or self.token}"}
        address = re.sub("^http://", "", self.admin_url)
        connection = http.client.HTTPConnection(address, timeout=20)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, sent | (headers or {}))
            response = connection.getresponse()
            return Answer(response.status, response.read())
        except http.client.RemoteDisconnected:
            self.read()
            state = f"{self.process.poll()}: " + "".join(self.said[-20:])
            raise AssertionError(f"no answer from a process that ended with {state}") from None
        finally:
            connection.close()

    def api(self, method: str, path: str, body: Any = None) -> Answer:
        return self.http(method, "/api/v1" + path, body)

    def serves(self) -> Process:
        """Once it has said where it listens."""
        found = self.wait_for("serving")["listeners"]
        self.listeners = {name: int(at.rpartition(":")[2]) for name, at in found.items()}
        return self


@contextlib.contextmanager
def launched(
    data: Path,
    *settings: str,
    role: str = "serve",
    config: Path | None = None,
    program: Sequence[str] = GATEWAY,
    variables: Mapping[str, str] = NO_VARIABLES,
    **more: str,
) -> Iterator[Process]:
    """A process of a role that may not serve yet; killed at the end if it still runs. `variables`
    and `more`: of its environment.
    """
    arguments = command(data, *settings, role=role, config=config, program=())
    process: subprocess.Popen[str] | forking.Forked
    own = {**variables, **more}
    to_python = any(name.startswith("PYTHON") for name in own)
    if program is GATEWAY and forking.IS_THERE and not to_python:
        process = forking.Forked(arguments, environment(**own))
    else:
        process = subprocess.Popen(
            [*program, *arguments],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=environment(**own),
        )
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.put(line)
        lines.put(None)

    reader = threading.Thread(target=read, name="weir-stderr", daemon=True)
    reader.start()
    node = Process(process, data, lines)
    try:
        yield node
    finally:
        if process.poll() is None:
            node.kill()
        reader.join(STOP_SECONDS)
        assert process.stderr is not None
        process.stderr.close()


@contextlib.contextmanager
def serving(
    data: Path, *settings: str, config: Path | None = None, **variables: str
) -> Iterator[Process]:
    """A node that serves; killed at the end if it still runs."""
    with launched(data, *settings, config=config, variables=variables) as node:
        yield node.serves()


def refused(
    data: Path, *settings: str, config: Path | None = None, **variables: str
) -> tuple[int, str]:
    """(exit code, stderr) of a node that does not come up."""
    ran = subprocess.run(
        command(data, *settings, config=config),
        capture_output=True,
        text=True,
        check=False,
        timeout=START_SECONDS,
        env=environment(**variables),
    )
    return ran.returncode, ran.stderr
