"""SQS services as child processes of a comparison: Weir, npm's fauxqs, PyPI's moto.

A peer is used if it is found: fauxqs on the PATH or in a folder of NODE_PATH (`npm install
fauxqs`), moto's server beside this Python or on the PATH (`pip install 'moto[server]'`). Both keep
all in memory and look at no signature.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from benchmarks.peers import Installed, OneProcess, Weir


class SqsBroker(OneProcess):
    """A service that answers HTTP."""

    protocol = "sqs"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _answers(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=1.0)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()
        return True


class SqsWeir(SqsBroker, Weir):
    """`weir serve` with SQS alone; signatures are verified, as by default."""


class Fauxqs(SqsBroker, Installed):
    """In memory, unverified; one Node process."""

    product = name = "fauxqs"

    @classmethod
    def find(cls) -> Path | None:
        """The program that npm installed."""
        if shutil.which("node") is None:
            return None
        folders = [folder for folder in os.environ.get("NODE_PATH", "").split(os.pathsep) if folder]
        path = os.pathsep.join([os.environ.get("PATH", ""), *(f"{each}/.bin" for each in folders)])
        found = shutil.which("fauxqs", path=path)
        return Path(found).resolve() if found else None

    def _command(self) -> tuple[list[str], dict[str, str]]:
        settings = {
            "FAUXQS_PORT": str(self.port),
            "FAUXQS_HOST": "127.0.0.1",
            "FAUXQS_LOGGER": "false",
        }
        return ["node", str(self._server)], {**os.environ, **settings}

    def settings(self) -> str:
        return "its defaults, no log of requests, in memory"

    def version(self) -> str:
        for folder in self._server.parents:
            manifest = folder / "package.json"
            if manifest.exists():
                return f"fauxqs {json.loads(manifest.read_text())['version']}"
        return "fauxqs of an unknown version"


class Moto(SqsBroker, Installed):
    """In memory, unverified; Flask's development server, a thread a connection."""

    product = name = "moto"

    @classmethod
    def find(cls) -> Path | None:
        """`moto_server`, of this Python's environment or another."""
        beside = str(Path(sys.executable).parent)
        found = shutil.which("moto_server", path=os.pathsep.join([beside, os.environ["PATH"]]))
        return Path(found) if found else None

    def _command(self) -> tuple[list[str], dict[str, str]]:
        return [str(self._server), "-H", "127.0.0.1", "-p", str(self.port)], dict(os.environ)

    def settings(self) -> str:
        return "`moto_server` with its defaults, in memory"

    def version(self) -> str:
        python = self._server.parent / "python"
        text = "import importlib.metadata as m; print(m.version('moto'))"
        command = [str(python), "-c", text]
        done = subprocess.run(command, capture_output=True, check=False, text=True)
        return f"moto {done.stdout.strip() or 'of an unknown version'}"
