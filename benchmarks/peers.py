"""Brokers as child processes of a comparison: each on loopback, on ports of its own, in a folder
of its own on the real disk, ended by its pid.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks.load.amqp_client import SetupConnection
from benchmarks.load.amqp_wire import parse_url
from benchmarks.load.errors import BenchError

READY_TIMEOUT_S = 90.0  # an Erlang node with a million messages to recover
STOP_TIMEOUT_S = 60.0
LOG_TAIL_BYTES = 2000
RABBITMQ_CONFIG = """\
listeners.tcp.default = 127.0.0.1:{port}
log.console = false
log.file.level = warning
"""
PROTOCOLS = ("amqp", "sqs", "mqtt", "rocketmq")


class BrokerFailed(Exception):
    """A broker did not start or did not live; the text says why."""


def free_port() -> int:
    """A TCP port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Ours(NamedTuple):
    """The build of Weir that is measured."""

    command: Path
    settings: list[str]


class Broker(ABC):
    """One broker with one data folder, behind one port of loopback; start, stop and start again
    keep the data.
    """

    product: str
    """As on the command line."""
    name: str
    """As on the page of results."""
    protocol = "amqp"
    metrics_url = ""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.port = free_port()

    @classmethod
    @abstractmethod
    def found(cls, folder: Path, ours: Ours) -> Self | None:
        """One with its data in `folder`, not started; None: it is not on this machine."""

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    @property
    @abstractmethod
    def pids(self) -> list[int]:
        """Its processes, without their children; while it runs."""

    @abstractmethod
    def settings(self) -> str:
        """What differs from the broker's defaults, for the page of results."""

    @abstractmethod
    def version(self) -> str:
        """The product and its version."""

    @abstractmethod
    def start(self) -> None:
        """Start it and wait until a client gets in. Raises BrokerFailed."""

    @abstractmethod
    def stop(self) -> None:
        """End it as an operator would; kill what does not go."""

    def close(self) -> None:
        """Stop it and remove its data."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class OneProcess(Broker):
    """A broker of one process, and of its children."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is running"
        return self._process.pid

    @property
    def pids(self) -> list[int]:
        return [self.pid]

    @abstractmethod
    def _command(self) -> tuple[list[str], dict[str, str]]:
        """The command line and its environment."""

    def start(self) -> None:
        command, environment = self._command()
        with (self.folder / "output.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.folder,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                reason = f"{self.name} does not serve {self.protocol.upper()}:\n{self._log_tail()}"
                self.stop()
                raise BrokerFailed(reason)
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0):
                pass
            SetupConnection(parse_url(self.url)).close()
        except (OSError, BenchError):
            return False
        return True

    def _log_tail(self) -> str:
        data = (self.folder / "output.log").read_bytes()
        return data[-LOG_TAIL_BYTES:].decode(errors="replace")

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Installed(OneProcess):
    """A broker of somebody else's."""

    def __init__(self, folder: Path, server: Path) -> None:
        super().__init__(folder)
        self._server = server

    @classmethod
    @abstractmethod
    def find(cls) -> Path | None:
        """Its program, if it is on this machine."""

    @classmethod
    def found(cls, folder: Path, _ours: Ours) -> Self | None:
        server = cls.find()
        return cls(folder, server) if server is not None else None


class Weir(OneProcess):
    """`weir serve` with one protocol, and RocketMQ, which costs nothing while nobody uses it."""

    product = "weir"
    name = "Weir"

    def __init__(self, folder: Path, command: Path, extra: list[str]) -> None:
        super().__init__(folder)
        self._weir = command
        self.rocketmq_port = free_port()
        self._set = [f"{self.protocol}.port={self.port}", f"rocketmq.port={self.rocketmq_port}"]
        self._set += [
            f"{other}.enabled=false"
            for other in PROTOCOLS
            if other not in (self.protocol, "rocketmq")
        ]
        self._set += extra
        admin = free_port()
        metrics = ["node.admin.enabled=true", f"node.admin.port={admin}"]
        if self._accepts(metrics):
            self._set += metrics
            self.metrics_url = f"http://127.0.0.1:{admin}/metrics"

    @classmethod
    def found(cls, folder: Path, ours: Ours) -> Self | None:
        return (
            cls(folder, ours.command.absolute(), ours.settings) if ours.command.exists() else None
        )

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.folder / "data"

    def run(self, *arguments: str) -> None:
        """Run a `weir` command on this broker. Raises BrokerFailed."""
        command = [str(self._weir), *arguments, "--data", str(self.data)]
        done = subprocess.run(command, capture_output=True, check=False, text=True)
        if done.returncode:
            raise BrokerFailed(f"{' '.join(arguments)}: {done.stderr.strip()}")

    def _assignments(self, settings: list[str]) -> list[str]:
        return [word for setting in settings for word in ("--set", setting)]

    def _accepts(self, settings: list[str]) -> bool:
        """Whether this build of Weir can be told `settings`."""
        command = [str(self._weir), "config", "check", *self._assignments(settings)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _command(self) -> tuple[list[str], dict[str, str]]:
        command = [str(self._weir), "serve", "--data", str(self.data)]
        command += self._assignments(self._set)
        return command, dict(os.environ)

    def settings(self) -> str:
        chosen = [setting for setting in self._set if ".port=" not in setting]
        return "`weir serve` with " + ", ".join(f"`{setting}`" for setting in chosen)

    def version(self) -> str:
        command = [str(self._weir), "--version"]
        return subprocess.run(command, capture_output=True, check=False, text=True).stdout.strip()


class Erlang:
    """What Erlang's nodes have in common to reach each other: the port mapper, and a cookie."""

    def __init__(self) -> None:
        self.cookie = secrets.token_hex(16)
        self.port = free_port()
        self._mapper: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the port mapper in the foreground (else the first node leaves one behind)."""
        if self._mapper is not None:
            return
        epmd = shutil.which("epmd")
        if epmd is None:
            raise BrokerFailed("RabbitMQ needs Erlang's epmd on the PATH")
        self._mapper = subprocess.Popen(
            [epmd, "-address", "127.0.0.1", "-port", str(self.port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def close(self) -> None:
        """End it; its nodes have ended."""
        if self._mapper is not None:
            self._mapper.terminate()
            self._mapper.wait()
            self._mapper = None


class RabbitMQ(Installed):
    """A node of its own, as root or not: Debian's wrapper, which wants its user, is passed by."""

    product = "rabbitmq"
    name = "RabbitMQ"

    def __init__(self, folder: Path, server: Path, erlang: Erlang | None = None) -> None:
        """`erlang`: of the nodes that it is to find, if it is not to be alone."""
        super().__init__(folder, server)
        self._own = erlang is None
        self._erlang = erlang or Erlang()
        self._distribution_port = free_port()
        self.node = f"weirbench{self.port}@localhost"
        home = folder / "home"
        home.mkdir()
        cookie = home / ".erlang.cookie"
        cookie.write_text(self._erlang.cookie)
        cookie.chmod(0o400)
        self._config = folder / "rabbitmq.conf"
        self._config.write_text(RABBITMQ_CONFIG.format(port=self.port))
        (folder / "enabled_plugins").write_text("[].\n")

    def join(self, nodes: Sequence[str]) -> None:
        """Before the first start: become one of these."""
        peers = "".join(
            f"cluster_formation.classic_config.nodes.{number} = {node}\n"
            for number, node in enumerate(nodes, 1)
        )
        with self._config.open("a") as file:
            file.write(f"cluster_formation.peer_discovery_backend = classic_config\n{peers}")

    def ask(self, *words: str) -> str:
        """What `rabbitmqctl` says. Raises BrokerFailed."""
        command = [str(self._server.with_name("rabbitmqctl")), "-n", self.node, *words]
        done = subprocess.run(
            command, capture_output=True, check=False, text=True, env=self._environment()
        )
        if done.returncode:
            raise BrokerFailed(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    @classmethod
    def find(cls) -> Path | None:
        """The server script of an installed RabbitMQ, beside whatever the PATH leads to."""
        found = shutil.which("rabbitmq-server")
        if found is None:
            return None
        server = Path(found).resolve().parent / "rabbitmq-server"
        return server if server.exists() else None

    def start(self) -> None:
        """Start the port mapper, then the node."""
        self._erlang.start()
        super().start()

    def close(self) -> None:
        super().close()
        if self._own:
            self._erlang.close()

    def _command(self) -> tuple[list[str], dict[str, str]]:
        return [str(self._server)], self._environment()

    def _environment(self) -> dict[str, str]:
        folder = self.folder
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._erlang.port),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "no-such-file"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def settings(self) -> str:
        return "its defaults, no plugins, logging to a file at level warning"

    def version(self) -> str:
        setup = SetupConnection(parse_url(self.url))
        setup.close()
        return f"{setup.identity.product} {setup.identity.version}"
