"""Reading the schema's types: what is a section, which keys it has, what a value must look like.

A *section* has keys below it (a struct, or a map from names to something); anything else is a
*value*. All knowledge of `typing` and of msgspec's messages is in this module.
"""

from __future__ import annotations

from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gateway.config.path import Path

Kind = Any
"""A type as it stands in an annotation: a class, `list[str]`, `dict[str, Limit]`, a union."""


def section_of(kind: Kind) -> Kind | None:
    """Return `kind` if it is a struct class or a `dict[str, X]`, else None."""
    is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    return kind if is_struct or _outer(kind) is dict else None


def fields_of(section: Kind) -> Mapping[str, Kind] | None:
    """Return a struct's keys with their types; None for a map, whose keys are names."""
    return None if _outer(section) is dict else _hints(section)


def entry_kind(section: Kind) -> Kind:
    """Return the type of every entry of a map."""
    return get_args(section)[1]


def description_of(kind: Kind) -> str:
    """Return what the schema says about a setting, or nothing."""
    notes = getattr(kind, "__metadata__", ())
    return next((note.description for note in notes if note.description), "")


def convert(value: object, kind: Kind, *, is_text: bool) -> object:
    """Return the value as `kind`. ValueError, saying what was expected, if it does not fit.

    Text is read by the type of the setting: `5672` is a port for a port and a name for a name.
    """
    if is_text and isinstance(value, str):
        value = _read(value, kind)
    try:
        converted: object = msgspec.convert(value, kind, strict=not is_text)
    except msgspec.ValidationError as error:
        raise ValueError(str(error).replace("`", "").replace("Expected", "expected", 1)) from None
    return converted


def missing_keys(kind: Kind, node: object, at: Path = ()) -> Iterator[Path]:
    """Yield the path of every required key that the tree `node`, shaped as `kind`, lacks."""
    section = section_of(kind)
    if section is None or not isinstance(node, dict):
        return
    fields = fields_of(section)
    if fields is None:
        for name, entry in node.items():
            yield from missing_keys(entry_kind(section), entry, (*at, name))
        return
    required = {field.name for field in msgspec.structs.fields(section) if field.required}
    for name, field_kind in fields.items():
        if name in node:
            yield from missing_keys(field_kind, node[name], (*at, name))
        elif name in required:
            yield (*at, name)


def _read(text: str, kind: Kind) -> object:
    if NoneType in _arms(kind) and text in {"", "null"}:
        return None
    if any(_outer(arm) is list for arm in _arms(kind)):
        if not text.startswith("["):
            return [part.strip() for part in text.split(",")] if text else []
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError:
            raise ValueError("expected a list such as [a, b]") from None
    return text


@cache
def _hints(section: type) -> Mapping[str, Kind]:
    return get_type_hints(section, include_extras=True)


def _arms(kind: Kind) -> tuple[Kind, ...]:
    if _outer(kind) is Annotated:
        kind = get_args(kind)[0]
    return get_args(kind) if _outer(kind) in {Union, UnionType} else (kind,)


def _outer(kind: Kind) -> object:
    """Return `dict` for `dict[str, X]` and the like; as an object, to be compared by identity."""
    return get_origin(kind)
