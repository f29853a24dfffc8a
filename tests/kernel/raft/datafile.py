"""etcd's public test data, and its line form: etcd/README.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent / "etcd"


def data_files(kind: str) -> list[Path]:
    """The files of a kind: "quorum", "confchange", "interaction"."""
    return sorted((_FOLDER / kind).glob("*.txt"))


@dataclass(frozen=True, slots=True)
class Case:
    """One command of a file and what it should print."""

    line: int
    command: str
    arguments: tuple[tuple[str, tuple[str, ...]], ...]
    """(key, values) in order; no values for a bare word."""
    lines: tuple[str, ...]
    """Input between the command and the separator."""
    expected: tuple[str, ...]

    def value(self, key: str, default: str = "") -> str:
        for name, values in self.arguments:
            if name == key:
                return values[0] if values else ""
        return default

    def values(self, key: str) -> tuple[str, ...]:
        for name, values in self.arguments:
            if name == key:
                return values
        return ()

    def has(self, key: str) -> bool:
        return any(name == key for name, _ in self.arguments)

    @property
    def words(self) -> list[str]:
        """The bare arguments."""
        return [name for name, values in self.arguments if not values]


_ARGUMENT = re.compile(r"([^\s=]+)(?:=(\([^)]*\)|\S*))?")


def _arguments(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: list[tuple[str, tuple[str, ...]]] = []
    for match in _ARGUMENT.finditer(text):
        key, value = match.groups()
        if value is None:
            found.append((key, ()))
        elif value.startswith("("):
            found.append((key, tuple(each.strip() for each in value[1:-1].split(","))))
        else:
            found.append((key, (value,)))
    return tuple(found)


def read_cases(path: Path) -> Iterator[Case]:
    lines = path.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        if not lines[at].strip() or lines[at].startswith("#"):
            at += 1
            continue
        number = at + 1
        command, _, rest = lines[at].partition(" ")
        at += 1
        given: list[str] = []
        while lines[at] != "----":
            given.append(lines[at])
            at += 1
        at += 1
        expected: list[str] = []
        if at < len(lines) and lines[at] == "----":
            at += 1
            while lines[at : at + 2] != ["----", "----"]:
                expected.append(lines[at])
                at += 1
            at += 2
        else:
            while at < len(lines) and lines[at].strip():
                expected.append(lines[at])
                at += 1
        yield Case(number, command, _arguments(rest), tuple(given), tuple(expected))
