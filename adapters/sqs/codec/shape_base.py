"""The elements of the shape table, and how the codecs read it.

Query flattens lists and maps (SQS API 2012-11-05), JSON does not:

    list    AttributeName.1=All                    <QueueUrl>…</QueueUrl>
    map     Attribute.1.Name=DelaySeconds          <Attribute><Name>…</Name>
            Attribute.1.Value=5                        <Value>…</Value></Attribute>
    object  SendMessageBatchRequestEntry.1.Id=a    <BatchResultErrorEntry><Id>…</Id>…
"""

from __future__ import annotations

import functools
import types
import typing
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Union

import msgspec

_CAPITALS = {"md5": "MD5", "aws": "AWS"}


def wire_name(name: str) -> str:
    """JSON key of a field: `md5_of_message_body` is `MD5OfMessageBody`."""
    return "".join(_CAPITALS.get(word, word.capitalize()) for word in name.split("_"))


@dataclass(frozen=True, slots=True)
class Wire:
    """What a field's type does not say. `query` None: the same name as in JSON."""

    query: str | None = None
    required: bool = False
    key: str = "Name"
    """Query's name for the keys of a map."""


class Shape(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename=wire_name):
    """Base of the table. `gc=False`: shapes are trees of plain values, they form no cycles."""


class ShapeKind(Enum):
    """Type of a field, or of the elements of a list or map."""

    STRING = str
    INTEGER = int
    BOOLEAN = bool
    BLOB = bytes
    LIST = list
    MAP = dict
    SHAPE = Shape


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a shape. `item` and `item_shape`: elements of a list, values of a map."""

    attribute: str
    json_name: str
    query_name: str
    required: bool
    kind: ShapeKind
    key_name: str
    item: ShapeKind | None
    item_shape: type[Shape] | None


def _kind_of(annotation: object) -> tuple[ShapeKind, type[Shape] | None]:
    if isinstance(annotation, type) and issubclass(annotation, Shape):
        return ShapeKind.SHAPE, annotation
    return ShapeKind(annotation), None


def _field(info: msgspec.structs.FieldInfo, annotation: object) -> Field:
    wire = Wire()
    if typing.get_origin(annotation) is Annotated:
        annotation, wire = typing.get_args(annotation)
    if typing.get_origin(annotation) in {Union, types.UnionType}:
        annotation = typing.get_args(annotation)[0]
    item, item_shape = None, None
    if (container := typing.get_origin(annotation)) is not None:
        item, item_shape = _kind_of(typing.get_args(annotation)[-1])
        annotation = container
    return Field(
        attribute=info.name,
        json_name=info.encode_name,
        query_name=wire.query or info.encode_name,
        required=wire.required,
        kind=_kind_of(annotation)[0],
        key_name=wire.key,
        item=item,
        item_shape=item_shape,
    )


@functools.cache
def fields_of(shape: type[Shape]) -> tuple[Field, ...]:
    """Fields of a shape, in the order of the table."""
    hints = typing.get_type_hints(shape, include_extras=True)
    return tuple(_field(info, hints[info.name]) for info in msgspec.structs.fields(shape))
