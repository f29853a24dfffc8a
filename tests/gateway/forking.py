"""Processes of `weir serve` that begin as copies of one that has imported what it needs.

Importing takes a second of CPU, which hundreds of tests would wait for one by one. `Forked` has its
own pid, environment, directory, limit of open files, stderr and exit code, and signals do what they
do to any process; `python -m tests.gateway.forking` imports and forks, and ends with the process
that has started it. What an interpreter makes of `weir` from its first line on is for tests that
start one: tests/chaos, `serving.refused`, whoever gives a program of their own or variables
for Python, and every command.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]

MODULES = (
    *("gateway.app", "gateway.serving.node", "gateway.serving.store_node"),
    *("gateway.serving.gateway_node", "gateway.commands.processes.serve"),
    *("gateway.commands.processes.store", "gateway.commands.processes.gateway"),
    *("adapters.amqp.server", "adapters.mqtt.server", "adapters.sqs.server"),
    *("adapters.rocketmq.server", "pydantic.type_adapter", "uvloop", "caio"),
)

IS_THERE = hasattr(os, "pidfd_open")
"""Linux."""

ENDS_S = 10
CODE_BYTES_MAX = 32


class Forked:
    """As much of `subprocess.Popen` as tests use."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """`arguments` of `weir`; stderr is a pipe, as text."""
        mine, theirs = socket.socketpair()
        read, write = os.pipe()
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "directory": str(Path.cwd()),
            "open_files": resource.getrlimit(resource.RLIMIT_NOFILE),
        }
        mine.sendall(json.dumps(request).encode() + b"\n")
        socket.send_fds(_server(), [b"f"], [theirs.fileno(), write])
        theirs.close()
        os.close(write)
        self.stderr = os.fdopen(read, encoding="utf-8", errors="replace")
        self.returncode: int | None = None
        self._told = mine
        self.pid = int(mine.makefile("rb", buffering=0).readline())

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("weir", timeout)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._told.settimeout(timeout)
            try:
                told = self._told.recv(CODE_BYTES_MAX)
            except (BlockingIOError, TimeoutError):
                return None
            self._told.close()
            self.returncode = int(told)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@functools.cache
def _server() -> socket.socket:
    """The way to the process that forks. It ends when this one does."""
    mine, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.gateway.forking", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
    )
    theirs.close()

    def end() -> None:
        mine.close()
        process.wait(ENDS_S)

    atexit.register(end)
    return mine


# --- The process that forks ---------------------------------------------------------------


def _forked(control: socket.socket) -> dict[str, Any] | None:
    """Fork as asked. In each new process: what it is to run; None at the end, in the old one."""
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.data is not None:
                pid, tell = key.data
                _, status = os.waitpid(pid, 0)
                selector.unregister(key.fd)
                os.close(key.fd)
                _say(tell, os.waitstatus_to_exitcode(status))
                tell.close()
                continue
            _, files, _, _ = socket.recv_fds(control, 1, 2)
            if not files:
                return None
            tell, stderr = socket.socket(fileno=files[0]), files[1]
            with tell.makefile("rb") as file:
                asked: dict[str, Any] = json.loads(file.readline())
            pid = os.fork()
            if not pid:
                os.dup2(stderr, sys.stderr.fileno())
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                _close_all(selector)
                tell.close()
                os.close(stderr)
                return asked
            os.close(stderr)
            _say(tell, pid)
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, tell))


def _close_all(selector: selectors.BaseSelector) -> None:
    """What a new process has of the one that forked it."""
    for key in list(selector.get_map().values()):
        if key.data is None:
            key.fileobj.close()
        else:
            os.close(key.fd)
            key.data[1].close()
    selector.close()


def _say(tell: socket.socket, number: int) -> None:
    try:
        tell.sendall(f"{number}\n".encode())
    except OSError:  # whoever asked has ended
        return


def main() -> NoReturn:
    from gateway.config.loading import adapters_of

    for name in MODULES:
        importlib.import_module(name)
    for declared in adapters_of(None).values():
        declared.reader()
    gc.collect()
    gc.freeze()
    asked = _forked(socket.socket(fileno=int(sys.argv[1])))
    if asked is None:
        sys.exit()
    os.chdir(asked["directory"])
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(asked["open_files"]))
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = [str(ROOT / "gateway" / "__main__.py"), *asked["arguments"]]
    from gateway.cli import main as weir

    weir()


if __name__ == "__main__":
    main()
