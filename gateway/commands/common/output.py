"""How every command speaks: data to stdout, talk to stderr, one set of forms and exit codes.

    0 ok    1 failed    2 usage    3 unhealthy    4 not found

A command makes its answer twice: as plain data (what `-o json` and `-o yaml` print, with stable
keys, for programs) and as a table (`-o table`, and its first column for `-o name`, for people).
What makes or changes a topic or group says so in one line (`-o summary`) unless asked for more.

Names and texts are chosen by clients. What is no printable character stands there as JSON escapes
it, so that nobody's name moves the cursor, paints over other lines or turns them around; but for
`-o name` and `-o yaml`, which say exactly what things are called.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class ExitCode(IntEnum):
    """What the process tells its caller; the same for every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNHEALTHY = 3
    NOT_FOUND = 4


class Format(StrEnum):
    """The forms of an answer."""

    SUMMARY = "summary"
    """One line of what was done; where nothing was done, the table."""
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class CommandError(Exception):
    """A command that cannot do its work: says why, what to do next, and with which exit code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Table:
    """Rows for people. The first column names the thing the row is about."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def put(data: object, table: Table, form: Format) -> None:
    """Write an answer to stdout in the form asked for."""
    text = _rendered(data, table, form)
    if text:
        sys.stdout.write(text + "\n")


def put_line(text: str) -> None:
    """Write one line to stdout: what was done."""
    sys.stdout.write(printable(text) + "\n")


def say(message: str) -> None:
    """Write news about the work to stderr, where it never mixes with data."""
    sys.stderr.write(printable(message) + "\n")


def printable(text: str) -> str:
    """A text of lines whose other characters are printable; JSON stays the JSON that it was."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text
    )


def _rendered(data: object, table: Table, form: Format) -> str:
    match form:
        case Format.JSON:
            import msgspec

            return printable(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
        case Format.YAML:
            import msgspec
            import yaml

            plain = msgspec.to_builtins(data)
            dumped: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
            return dumped.rstrip("\n")
        case Format.NAME:
            return "\n".join(row[0] for row in table.rows)
        case Format.TABLE | Format.SUMMARY:
            return "\n".join(_lines(table))


def _lines(table: Table) -> list[str]:
    rows = [[printable(cell).replace("\n", "\\n") for cell in row] for row in table.rows]
    every = [[column.upper() for column in table.columns], *rows]
    widths = [max(len(row[i]) for row in every) for i in range(len(table.columns))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in every
    ]
