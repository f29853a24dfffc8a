"""Makes docs/reference/config.md out of protocols.yaml: `python -m gateway.docs_config`.

The comment above a key is its documentation; what is the same for every listener comes from the
schema. A key that neither of them describes is an error, so no setting can go undocumented. A
test holds the page to what this module would write.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

import yaml

from gateway.config.loading import load
from gateway.config.path import SECTIONS, Path, spell
from gateway.config.schema import Settings
from gateway.config.schema_types import Kind, description_of, entry_kind, fields_of, section_of
from gateway.config.source import compose, default_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gateway.config.schema import Limit, Protocol

PAGE = FilePath("docs", "reference", "config.md")

INTRODUCTION = """\
# Settings

<!-- Made from protocols.yaml by `make docs`. Change that file, not this page. -->

Every setting has a path. The same path is used in a file given with `--config` (as nested keys,
changed ones only), in a variable and in a flag; a flag beats a variable, a variable beats the
file, the file beats the default:

```
weir serve --config my.yaml
WEIR_AMQP__PORT=5673 weir serve
weir serve --set amqp.port=5673
```

Short forms: `amqp.port` and `amqp.host` are those of the protocol's first listener;
`amqp.limits.NAME` is that limit's value; `--data DIR` is `--set node.data=DIR`. An unknown key is
an error. `weir config show --origin` prints every value and where it came from, `weir config
check` checks without serving.
"""


@dataclass(frozen=True, slots=True)
class DocumentedEntry:
    """One key of protocols.yaml: its meaning, and its value in YAML if it is not a section."""

    path: Path
    meaning: str
    value: str | None


def render(text: str) -> str:
    """Return the page for the given text of protocols.yaml. ValueError for an undescribed key."""
    entries = {entry.path: entry for entry in _entries(text)}
    settings = load(environ={}).settings
    parts = [INTRODUCTION]
    for section in SECTIONS:
        if section != "protocols":
            parts += [f"## {section}", entries[section,].meaning, _table((section,), entries)]
    for name, protocol in settings.protocols.items():
        at = ("protocols", name)
        parts += [f"## {name}", entries[at].meaning, _table(at, entries)]
        parts += [f"### Limits of {name}", _limits(protocol)]
        parts += [f"### Operations of {name}", _operations(protocol)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def main() -> None:
    """Write the page, relative to the top of the source tree."""
    source = default_file().resolve()
    page = source.parent / PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render(source.read_text()))


def _entries(text: str) -> Iterator[DocumentedEntry]:
    root = compose(text, "protocols.yaml")
    lines = text.splitlines()
    if isinstance(root, yaml.MappingNode):
        yield from _below(root, (), Settings, lines)


def _below(
    node: yaml.MappingNode, at: Path, kind: Kind, lines: list[str]
) -> Iterator[DocumentedEntry]:
    section = section_of(kind)
    fields = fields_of(section)
    for key_node, value_node in node.value:
        path = (*at, key_node.value)
        below = entry_kind(section) if fields is None else fields[key_node.value]
        meaning = _comment_above(key_node, lines) or description_of(below)
        if isinstance(value_node, yaml.MappingNode):
            yield DocumentedEntry(path, meaning, None)
            yield from _below(value_node, path, below, lines)
        elif meaning or _is_limit(path):
            yield DocumentedEntry(path, meaning, _source_of(value_node, lines))
        else:
            line = key_node.start_mark.line + 1
            raise ValueError(f"protocols.yaml:{line}: {spell(path)} has no comment above it")


def _is_limit(path: Path) -> bool:
    """Tell whether the path is below a limit, which describes itself by its reason."""
    return path[:1] == ("protocols",) and path[2:3] in {("limits",), ("operations",)}


def _comment_above(key: yaml.Node, lines: list[str]) -> str:
    """Return the comment block that ends on the line above a key that begins its own line."""
    number = key.start_mark.line
    if lines[number][: key.start_mark.column].strip():
        return ""
    found: list[str] = []
    while number > 0 and lines[number - 1].lstrip().startswith("#"):
        number -= 1
        found.insert(0, lines[number].lstrip().removeprefix("#").strip())
    return " ".join(found)


def _source_of(node: yaml.Node, lines: list[str]) -> str:
    """Return a value as it stands in the file; one that spans lines, from its first."""
    start, end = node.start_mark, node.end_mark
    stop = end.column if end.line == start.line else None
    return lines[start.line][start.column : stop].rstrip()


def _table(at: Path, entries: Mapping[Path, DocumentedEntry]) -> str:
    rows = [
        f"| `{spell(path)}` | {_code(entry.value)} | {_cell(entry.meaning)} |"
        for path, entry in entries.items()
        if path[: len(at)] == at and path != at and not _is_limit(path)
    ]
    return "\n".join(["| setting | default | meaning |", "| --- | --- | --- |", *rows])


def _limits(protocol: Protocol) -> str:
    rows = [
        f"| `{name}` | {limit.value} {limit.unit} | {_range(limit)} | {_cell(limit.reason)} |"
        for name, limit in protocol.limits.items()
    ]
    head = ["| limit | default | possible | reason |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *rows]) if rows else "None yet."


def _operations(protocol: Protocol) -> str:
    rows = [
        f"| `{name}` | {operation.status} | {_cell(operation.error or operation.note or '')} "
        f"| `{operation.test}` |"
        for name, operation in protocol.operations.items()
    ]
    head = ["| operation | status | error or note | proved by |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *rows]) if rows else "None yet."


def _range(limit: Limit) -> str:
    return f"{limit.min} or more" if limit.max is None else f"{limit.min} to {limit.max}"


def _code(value: str | None) -> str:
    return "" if value is None else f"`{value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main()
