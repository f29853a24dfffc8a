"""The places settings come from: the shipped file, an overlay, the environment, flags.

Each source is read into a flat list of changes, in order. Which keys exist and what they may hold
is not this module's business (gateway/config/merge.py), so a change carries the value as it came:
typed from YAML, plain text from a variable or a flag.

The YAML reader here is stricter than YAML: a key given twice is an error (PyYAML keeps the last
one in silence), keys are text, and a document is bounded in size, depth and number of values.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

import yaml

from gateway.config.path import DEFAULT, ConfigError, Path, Problem, spell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

FILE_SIZE_BYTES_MAX = 1 << 20
"""The shipped file has some 20 KB; a megabyte is the wrong file, not a configuration."""

DEPTH_MAX = 16
"""Twice the depth of the schema; ends a document whose anchors refer to themselves."""

CHANGES_MAX = 5_000
"""Ten times the shipped file; ends a document whose anchors multiply."""

VARIABLE_PREFIX = "WEIR_"
VARIABLE_SEPARATOR = "__"


# libyaml where PyYAML was built with it (every wheel is): a tenth of the time at each start.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Change:
    """One value for one path.

    An `is_text` value still has to be read as the type of its setting. `may_add` tells whether
    the source may add a name to an open map: files may, variables and flags may not.
    """

    path: Path
    value: object
    origin: str
    is_text: bool = False
    may_add: bool = False


def default_file() -> FilePath:
    """Return the shipped protocols.yaml, which is package data (in the source tree, by a link)."""
    return FilePath(__file__).parent.parent / "protocols.yaml"


def read_default() -> list[Change]:
    """Return the shipped settings as changes to nothing."""
    return [
        Change(path, value, DEFAULT, may_add=True)
        for path, value, _line in _values(default_file(), "the shipped file")
    ]


def read_file(file: FilePath) -> list[Change]:
    """Return an overlay's changes. ConfigError if it cannot be read or is not strict YAML."""
    return [
        Change(path, value, f"{file}:{line}", may_add=True)
        for path, value, line in _values(file, "--config")
    ]


def read_environment(environ: Mapping[str, str]) -> list[Change]:
    """Return the changes of all variables `WEIR_SECTION__KEY`.

    A name without a double underscore (WEIR_ADMIN_PASSWORD) is not a setting and is left alone.
    """
    changes = []
    for name in sorted(environ):
        if name.startswith(VARIABLE_PREFIX) and VARIABLE_SEPARATOR in name:
            keys = name.removeprefix(VARIABLE_PREFIX).lower().split(VARIABLE_SEPARATOR)
            changes.append(Change(tuple(keys), environ[name], name, is_text=True))
    return changes


def read_assignments(assignments: Iterable[str]) -> list[Change]:
    """Return the changes of `--set path=value` flags, in their order (a later one wins)."""
    changes = []
    problems = []
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        name = name.strip()
        if equals and name:
            changes.append(Change(tuple(name.split(".")), value, f"--set {name}", is_text=True))
        else:
            problems.append(Problem("--set", f"{assignment!r} is not path=value", "--set"))
    if problems:
        raise ConfigError(problems)
    return changes


def compose(text: str, name: str) -> yaml.Node | None:
    """Parse YAML to its node tree, which knows line numbers; None for an empty document.

    ConfigError, naming `name`, for anything that is not YAML.
    """
    try:
        return yaml.compose(text, Loader=_LOADER)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError([Problem(name, f"is not YAML: {_one_line(error)}", name)]) from error


def _one_line(error: Exception) -> str:
    """What PyYAML says, without the name that it has for a text that came from no file."""
    return " ".join(str(error).replace(' in "<unicode string>"', "").split())


def _values(file: FilePath, origin: str) -> list[tuple[Path, object, int]]:
    root = compose(_read_text(file, origin), str(file))
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        what = "does not hold settings (keys and values)"
        raise ConfigError([Problem(str(file), what, origin)])
    return list(_Flattener(file).walk(root))


def _read_text(file: FilePath, origin: str) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(FILE_SIZE_BYTES_MAX + 1)
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise ConfigError([Problem(str(file), what, origin)]) from error
    if len(content) > FILE_SIZE_BYTES_MAX:
        what = f"is longer than {FILE_SIZE_BYTES_MAX} bytes"
        raise ConfigError([Problem(str(file), what, origin)])
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        what = f"is not UTF-8 text (byte {error.start})"
        raise ConfigError([Problem(str(file), what, origin)]) from error


class _Flattener:
    """Walks a composed document and yields (path, value, line) for each value in it."""

    def __init__(self, file: FilePath) -> None:
        self._file = file
        self._constructor = yaml.SafeLoader("")
        self._found = 0

    def walk(self, root: yaml.MappingNode) -> Iterator[tuple[Path, object, int]]:
        """Yield every scalar, list and empty mapping; another mapping yields what is in it."""
        yield from self._mapping(root, ())

    def _mapping(self, node: yaml.MappingNode, at: Path) -> Iterator[tuple[Path, object, int]]:
        if len(at) >= DEPTH_MAX:
            raise self._error(node, f"{spell(at)} is nested deeper than {DEPTH_MAX} levels")
        seen: set[str] = set()
        for key_node, value_node in node.value:
            key = self._key(key_node, at)
            if key in seen:
                raise self._error(key_node, f"{spell((*at, key))} is given twice")
            seen.add(key)
            if isinstance(value_node, yaml.MappingNode) and value_node.value:
                yield from self._mapping(value_node, (*at, key))
                continue
            self._found += 1
            if self._found > CHANGES_MAX:
                raise self._error(value_node, f"there are more than {CHANGES_MAX} values")
            line = key_node.start_mark.line + 1
            yield (*at, key), self._construct(value_node), line

    def _key(self, node: yaml.Node, at: Path) -> str:
        if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:str":
            return str(node.value)
        text = node.value if isinstance(node, yaml.ScalarNode) else "a list or mapping"
        where = spell(at) or "the file"
        raise self._error(node, f"in {where}, the key {text} is not text: quote it")

    def _construct(self, node: yaml.Node) -> object:
        try:
            value: object = self._constructor.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise self._error(node, f"a value cannot be read: {_one_line(error)}") from error
        return value

    def _error(self, node: yaml.Node, what: str) -> ConfigError:
        place = f"{self._file}:{node.start_mark.line + 1}"
        return ConfigError([Problem("", f"{place}: {what}", place)])
