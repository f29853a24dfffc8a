"""Filters of consumers and pulls as they travel: what they are made of, compiled where they act."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta

from ..api.filters import (
    ATTRIBUTES_MAX,
    TAGS_MAX,
    AttributesFilter,
    MessageFilter,
    SqlFilter,
    TagFilter,
    sql_filter,
)
from ..api.model import AttributesMatch
from ..common.errors import UNDECODABLE, Code, KernelError

COMPILED_MAX = 1_024
"""Expressions that a process keeps compiled: a pull comes with its filter each time."""


class Tags(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Carries a `filters.TagFilter`."""

    tags: Annotated[tuple[bytes, ...], Meta(max_length=TAGS_MAX)]


class Attributes(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """`filters.AttributesFilter`; values in msgpack."""

    wanted: Annotated[tuple[tuple[str, bytes], ...], Meta(max_length=ATTRIBUTES_MAX)]
    combine: AttributesMatch


class Sql(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Carries a `filters.SqlFilter`."""

    expression: str


Filter = Tags | Attributes | Sql


def pack_filter(wanted: MessageFilter | None) -> Filter | None:
    """A filter to be sent. Raises KernelError INVALID_ARGUMENT for one that only this process
    knows.
    """
    if wanted is None:
        return None
    if isinstance(wanted, TagFilter):
        return Tags(tuple(sorted(wanted.tags)))
    if isinstance(wanted, SqlFilter):
        return Sql(wanted.expression)
    if isinstance(wanted, AttributesFilter):
        pairs = tuple((name, msgspec.msgpack.encode(value)) for name, value in wanted.wanted)
        return Attributes(pairs, wanted.combine)
    raise KernelError(Code.INVALID_ARGUMENT, f"no filter of a store: {type(wanted).__name__}")


def unpack_filter(packed: Filter | None) -> MessageFilter | None:
    """A filter that has come. Raises KernelError INVALID_ARGUMENT."""
    return None if packed is None else _compiled(packed)


@lru_cache(maxsize=COMPILED_MAX)
def _compiled(packed: Filter) -> MessageFilter:
    if isinstance(packed, Tags):
        return TagFilter(frozenset(packed.tags))
    if isinstance(packed, Sql):
        return sql_filter(packed.expression)
    try:
        pairs = tuple((name, msgspec.msgpack.decode(value)) for name, value in packed.wanted)
    except UNDECODABLE:
        raise KernelError(Code.INVALID_ARGUMENT, "values of a filter are not msgpack") from None
    return AttributesFilter(pairs, packed.combine)
