"""Where a setting stands, and what is wrong with it.

A path is the tuple of keys from the top of protocols.yaml. People write and read the short form:
`amqp.listeners.tcp.port` stands for `protocols.amqp.listeners.tcp.port`, since a protocol's name
is never the name of a section, and `amqp.limits.frame_max` for that limit's `value`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Path = tuple[str, ...]

DEFAULT = "default"
"""The origin of every value that nobody changed."""

SECTIONS = ("node", "tenants", "limits", "names", "protocols")
"""The top-level keys; any other first key of a path is taken for a protocol's name."""


def spell(path: Path) -> str:
    """Return the short form of a path, as an operator would type it after `--set`."""
    match path:
        case ("protocols", protocol, "limits", limit, "value"):
            path = (protocol, "limits", limit)
        case ("protocols", _, *_):
            path = path[1:]
    return ".".join(path)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the settings: where, what, and which file, variable or flag said it."""

    where: str
    what: str
    origin: str

    def __str__(self) -> str:
        # What stands at its default was said by nobody.
        said = f" ({self.origin})" if self.origin not in {"", DEFAULT} else ""
        return f"{self.where}: {self.what}{said}" if self.where else self.what


class ConfigError(Exception):
    """The settings cannot be used. Holds every problem found, not only the first one."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
