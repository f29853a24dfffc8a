"""A file that people write, YAML or JSON, as the JSON that a server is sent.

YAML says more than JSON does, and some of it is not meant: `no` is a truth value and 2026-11-28 a
date, so names are taken as they are spelled. Aliases of aliases make a kilobyte stand for
gigabytes, so what a file stands for is counted before it is built. Of a name that stands twice in
one place the first would be lost unseen, in JSON as well: it is refused.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

DEPTH_MAX: Final = 64
"""Of what stands in one another; a document of definitions has ten. The reader of YAML counts none,
and ends the process somewhere behind ten thousand."""

MERGE: Final = "<<"

_READER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class DocumentError(Exception):
    """What a file says cannot be sent; the message says why."""


class _Loader(_READER):  # type: ignore[misc]  # C's, or Python's where there is none
    """YAML whose names are strings, and whose dates are too."""

    yaml_implicit_resolvers: Final = {
        first: [each for each in known if each[0] != "tag:yaml.org,2002:timestamp"]
        for first, known in _READER.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep) for key, value in node.value}


class _Open:
    """A mapping or a list that is being read."""

    def __init__(self, anchor: str | None, *, is_mapping: bool) -> None:
        self.anchor = anchor
        self.chars = 0
        """That it stands for, all aliases written out."""
        self.names: set[str] | None = set() if is_mapping else None
        self.is_name = is_mapping
        """Whether a name comes next."""


def encoded(text: str, most_bytes: int, *, is_json: bool) -> bytes:
    """What a text says, as JSON of at most `most_bytes`. Raises DocumentError."""
    try:
        if is_json:
            value = json.loads(text, object_pairs_hook=_once)
        else:
            _check_yaml(text, most_bytes)
            value = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe one
        written = json.dumps(
            value, allow_nan=False, ensure_ascii=False, separators=(",", ":")
        ).encode()
    except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise DocumentError(str(error)) from error
    if len(written) > most_bytes:
        raise DocumentError(_too_long(most_bytes))
    return written


def _too_long(most_bytes: int) -> str:
    return f"it has more than {most_bytes // 2**20} MiB: apply it in parts"


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise DocumentError(_twice(name))
        made[name] = value
    return made


def _twice(name: str) -> str:
    return f"{name!r} stands twice in one place"


def _check_yaml(text: str, most_chars: int) -> None:
    """Raise DocumentError for what would be too large or too deep once it is built, or has a name
    twice; YAMLError.
    """
    chars_of: dict[str, int] = {}
    top = _Open(None, is_mapping=False)
    within = [top]
    for event in yaml.parse(text, Loader=_READER):
        place = within[-1]
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            if place.is_name:
                raise DocumentError("a mapping or a list cannot be a name" + _where(event))
            if len(within) > DEPTH_MAX:
                raise DocumentError(f"more than {DEPTH_MAX} things stand in one another")
            within.append(_Open(event.anchor, is_mapping=isinstance(event, yaml.MappingStartEvent)))
            continue
        if isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            ended = within.pop()
            place, chars, anchor = within[-1], ended.chars, ended.anchor
        elif isinstance(event, yaml.ScalarEvent):
            chars, anchor = len(event.value), event.anchor
            _check_name(place, event)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in chars_of:
                raise DocumentError(f"*{event.anchor} stands for itself, or for nothing")
            chars, anchor = chars_of[event.anchor], None
        else:
            continue
        if anchor is not None:
            chars_of[anchor] = chars
        place.chars += chars + 1
        if place.names is not None:
            place.is_name = not place.is_name
        if place.chars > most_chars:
            raise DocumentError(_too_long(most_chars))


def _check_name(place: _Open, event: yaml.ScalarEvent) -> None:
    if place.names is None or not place.is_name or event.value == MERGE:
        return
    if event.value in place.names:
        raise DocumentError(_twice(event.value) + _where(event))
    place.names.add(event.value)


def _where(event: yaml.Event) -> str:
    return f", line {event.start_mark.line + 1}" if event.start_mark is not None else ""
