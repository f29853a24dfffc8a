"""The processes of a run: started, killed, paused, and asked over their admin API."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.gateway.serving import environment

SECRET = "sixteen bytes or more"
START_SECONDS = 90
"""Five interpreters start at once on two cores that have other work."""

STOP_SECONDS = 40


class ChaosError(Exception):
    """The processes, not the promises, are in trouble; the text says which."""


class Unavailable(ChaosError):
    """An answer that asks to be tried again."""


class Denied(ChaosError):
    """An answer that says no: 4xx."""


def until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait for a condition. ChaosError."""
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            raise ChaosError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.05)


class Server:
    """One process of Weir, and its data directory."""

    def __init__(self, name: str, command: str, folder: Path, settings: dict[str, object]) -> None:
        self.name = name
        self.data = folder / name
        self.log = folder / f"{name}.log"
        self.broken_disk = folder / f"{name}.eio"
        """While this file is there, fdatasync fails."""
        flags = [flag for path, value in settings.items() for flag in ("--set", f"{path}={value}")]
        self.flags = ["--data", str(self.data), *flags]
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._said = 0
        """Bytes of the log of processes before this one."""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def begin(self) -> None:
        """Start it; `wait` until it serves."""
        self._said = self.log.stat().st_size if self.log.exists() else 0
        wrapper = ["-m", "tests.chaos.failing_disk", str(self.broken_disk)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *wrapper, self._command, *self.flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(WEIR_CLUSTER_SECRET=SECRET),
            )

    def wait(self) -> None:
        """Until it answers. ChaosError if it ends, with what it said."""

        def serves() -> bool:
            if not self.runs:
                raise ChaosError(f"{self.name} has ended:\n{self.tail()}")
            with self.log.open("rb") as log:
                log.seek(self._said)
                return b'"event": "serving"' in log.read()

        until(serves, START_SECONDS, f"{self.name} serves")

    def tail(self) -> str:
        """What it said last."""
        return "".join(self.log.read_text(errors="replace").splitlines(keepends=True)[-30:])

    def kill(self) -> None:
        """SIGKILL, if it runs; also ends one that is paused."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_SECONDS)

    def terminate(self) -> None:
        """SIGTERM, and wait. ChaosError if it does not end in order."""
        assert self._process is not None
        self._process.terminate()
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise ChaosError(f"{self.name} does not stop:\n{self.tail()}") from None
        if code:
            raise ChaosError(f"{self.name} stopped with exit code {code}:\n{self.tail()}")

    def wait_for_end(self, seconds: float) -> int:
        """The exit code of a process that ends by itself. ChaosError."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise ChaosError(f"{self.name} did not end by itself:\n{self.tail()}") from None

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @property
    def is_new(self) -> bool:
        """It was never started."""
        return self._process is None

    def figure(self, name: str) -> float:
        """A metric without labels. ChaosError."""
        status, content = self._answer("GET", "/metrics", None, 10)
        for line in content.decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise ChaosError(f"{self.name}: {status}, no {name}")

    def api(self, method: str, path: str, body: Any = None, *, seconds: float = 10) -> Any:
        """An answer of the admin API. ChaosError if there is none, or not a good one."""
        status, content = self._answer(method, "/api/v1" + path, body, seconds)
        if status == 503:
            raise Unavailable(f"{self.name}: {method} {path}: {content!r}")
        if status >= 300:
            kind = Denied if status < 500 else ChaosError
            raise kind(f"{self.name}: {method} {path}: {status} {content!r}")
        return json.loads(content) if content else None

    def _answer(self, method: str, path: str, body: Any, seconds: float) -> tuple[int, bytes]:
        """Status and content. ChaosError if there is none."""
        try:
            address = re.sub("^http://", "", (self.data / "admin.url").read_text().strip())
            token = (self.data / "admin.token").read_text().strip()
            connection = http.client.HTTPConnection(address, timeout=seconds)
            try:
                sent = None if body is None else json.dumps(body)
                headers = {"Authorization": f"Bearer {token}"}
                connection.request(method, path, sent, headers)
                response = connection.getresponse()
                return response.status, response.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise ChaosError(f"{self.name}: {method} {path}: {error!r}") from None


class NetworkProcess:
    """The proxy in front of the stores."""

    def __init__(self, folder: Path, fronts: dict[str, tuple[int, int]]) -> None:
        with (folder / "proxy.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.proxy", json.dumps(fronts)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(),
                text=True,
            )
        self._heard()

    def _heard(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise ChaosError("the proxy has ended: see proxy.log")

    def _tell(self, **command: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        self._heard()

    def know(self, pids: dict[str, int]) -> None:
        """Which processes there are."""
        self._tell(pids=pids)

    def cut(self, *directions: tuple[str, str]) -> None:
        """What the first says does not reach the second; no others."""
        self._tell(cut=list(directions))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(STOP_SECONDS)
        for end in (self._process.stdin, self._process.stdout):
            assert end is not None
            end.close()
