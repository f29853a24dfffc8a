"""Values as people type and read them: durations, `none`, name=value pairs, confirmations."""

from __future__ import annotations

import re
import sys
import threading
from typing import TYPE_CHECKING

from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put, put_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NONE = "none"
"""Takes a limit away."""

CREATED, CHANGED, RESIZED = "created", "changed", "resized"
"""How a summary begins."""

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")


def milliseconds(text: str) -> int:
    """A duration such as 500ms, 30s, 5m, 72h or 7d. Raises CommandError (usage)."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        message = f"{text!r} is not a duration such as 500ms, 30s, 5m, 72h or 7d"
        raise CommandError(message, ExitCode.USAGE)
    return int(match[1]) * _UNITS_MS[match[2]]


def milliseconds_or_none(text: str) -> int | None:
    """A duration, or None for `none`."""
    return None if text == NONE else milliseconds(text)


def number_or_none(text: str) -> int | None:
    """A whole number, or None for `none`. Raises CommandError (usage)."""
    if text == NONE:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise CommandError(f"{text!r} is neither a whole number nor {NONE}", ExitCode.USAGE)
    return int(text)


def pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """name=value pairs, a later one wins. Raises CommandError (usage)."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise CommandError(f"{option} {text!r} is not NAME=VALUE", ExitCode.USAGE)
        found[name] = value
    return found


def duration_text(value_ms: int | None) -> str:
    """Milliseconds for people: the largest unit that keeps two digits; `-` for None."""
    if value_ms is None:
        return "-"
    for unit in ("d", "h", "m", "s"):
        if value_ms >= 2 * _UNITS_MS[unit] or (value_ms and value_ms % _UNITS_MS[unit] == 0):
            shown = value_ms / _UNITS_MS[unit]
            return (
                f"{shown:.0f}{unit}" if shown >= 10 or shown.is_integer() else f"{shown:.1f}{unit}"
            )
    return f"{value_ms}ms"


def pause(seconds: float) -> None:
    """Wait before looking again at what is asked of a server; Ctrl-C ends it."""
    threading.Event().wait(seconds)


def confirm(what: str, name: str, *, yes: bool) -> None:
    """Go on only with --yes, or if the name is typed once more. Raises CommandError (usage)."""
    if yes:
        return
    if sys.stdin.isatty():
        sys.stderr.write(f"{what}. Type {name} to go on: ")
        sys.stderr.flush()
        if sys.stdin.readline().rstrip("\n") == name:
            return
        raise CommandError("nothing was done: that is not its name")
    message = f"{what}: this cannot be undone"
    raise CommandError(message, ExitCode.USAGE, "add --yes to go on")


def put_one(
    data: object,
    name: str,
    rows: Iterable[tuple[str, object]],
    form: Format,
    summary: str = "",
) -> None:
    """Write one thing: as a table of its fields; as `name`, just its name; as a summary, the line
    that says what was done to it.
    """
    if form is Format.SUMMARY and summary:
        put_line(summary)
        return
    if form is Format.NAME:
        put(data, Table(("name",), [(name,)]), form)
        return
    put(data, Table(("field", "value"), [(key, text(value)) for key, value in rows]), form)


def text(value: object) -> str:
    """A value of an answer in a cell of a table."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(str, value)) or "-"
        case "":
            return "-"
    return str(value)
