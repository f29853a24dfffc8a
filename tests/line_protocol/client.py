"""A client of the line protocol, for tests."""

from __future__ import annotations

import json
import socket
from typing import Self

SECONDS = 20


class LineClient:
    def __init__(self, port: int, login: str = "guest", password: str = "guest") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), SECONDS)
        self._file = self._socket.makefile(encoding="utf-8", newline="\n")
        self.messages: list[tuple[int, str]] = []
        """(number, text) of what came while something else was awaited."""
        self.signed_in = self.ask(f"LOGIN {login} {password}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, line: str) -> str:
        """The answer to a line."""
        self._socket.sendall(f"{line}\n".encode())
        return self.line()

    def line(self) -> str:
        """The next line that is no message; empty when the server has closed."""
        while (line := self._file.readline().rstrip("\n")).startswith("MSG "):
            self._keep(line)
        return line

    def _keep(self, line: str) -> None:
        _, number, _, text = line.split(" ", 3)
        self.messages.append((int(number), json.loads(text)))

    def publish(self, topic: str, text: str) -> str:
        return self.ask(f"PUB {topic} {json.dumps(text)}")

    def message(self) -> tuple[int, str]:
        """The next message."""
        if not self.messages:
            line = self._file.readline().rstrip("\n")
            assert line.startswith("MSG "), line
            self._keep(line)
        return self.messages.pop(0)
