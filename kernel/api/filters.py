"""Filters on what a consumer or a whole group takes. A message that does not match counts as
consumed by the group (`client.Settlement.SKIP`).

Attributes are those of the writer's own protocol (`origins`); a writer without a native block has
left them in `Ext.ATTRIBUTES`. `TAGS` and `KEYS` name the message's tag and keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from ..common.errors import UNDECODABLE, Code, KernelError
from . import message as messages
from .message import Ext, tag_hash
from .model import AttributesMatch, FilterKind, GroupFilter
from .origins import Origins
from .sql import Lookup, Predicate, compile_sql

TAGS_MAX = 256
"""Tags of one expression."""

ATTRIBUTES_MAX = 64
"""Attributes that one filter asks for."""


class MessageFilter(Protocol):
    """Tells the messages that are taken."""

    def matches(self, tag_value: int, slot: bytes, origins: Origins) -> bool:
        """Whether a message is taken: its tag's hash (0: it has none) and its stored bytes."""


@dataclass(frozen=True, slots=True)
class TagFilter:
    """Messages whose tag is one of `tags`. Decided by hash first, by the bytes themselves after,
    since two tags may share a hash.
    """

    tags: frozenset[bytes]
    hashes: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hashes", frozenset(map(tag_hash, self.tags)))

    def matches(self, tag_value: int, slot: bytes, origins: Origins) -> bool:
        """See `MessageFilter`."""
        if tag_value not in self.hashes:
            return False
        return messages.decode(slot).ext.get(Ext.TAG, b"") in self.tags


@dataclass(frozen=True, slots=True)
class AttributesFilter:
    """Messages whose attributes have all, or any, of the values asked for."""

    wanted: tuple[tuple[str, object], ...]
    """(name, value); None: present with any value."""
    combine: AttributesMatch

    def matches(self, tag_value: int, slot: bytes, origins: Origins) -> bool:
        """See `MessageFilter`."""
        look = lookup_of(slot, origins)
        found = (
            value is not None and (asked is None or _same(value, asked))
            for value, asked in ((look(name), asked) for name, asked in self.wanted)
        )
        return all(found) if self.combine is AttributesMatch.ALL_OF else any(found)


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Messages for which an expression (`kernel.api.sql`) is true. Made by `sql_filter`."""

    expression: str
    predicate: Predicate

    def matches(self, tag_value: int, slot: bytes, origins: Origins) -> bool:
        """See `MessageFilter`."""
        return self.predicate(lookup_of(slot, origins)) is True


def sql_filter(expression: str) -> SqlFilter:
    """The filter of an SQL92 expression. Raises KernelError INVALID_ARGUMENT."""
    return SqlFilter(expression, compile_sql(expression))


def tag_filter(expression: str) -> TagFilter | None:
    """The filter of `a || b`; None for `*` and for nothing: every message. Raises KernelError
    INVALID_ARGUMENT.
    """
    text = expression.strip()
    if text in {"", "*"}:
        return None
    tags = [tag.strip() for tag in text.split("||")]
    if not all(tags) or any("|" in tag for tag in tags) or len(tags) > TAGS_MAX:
        raise KernelError(
            Code.INVALID_ARGUMENT, f"a tag filter is '*' or at most {TAGS_MAX} tags parted by ||"
        )
    return None if "*" in tags else TagFilter(frozenset(tag.encode() for tag in tags))


def compile_filter(wanted: GroupFilter | None) -> MessageFilter | None:
    """What a group's setting means; None: every message. Raises KernelError INVALID_ARGUMENT."""
    if wanted is None:
        return None
    if wanted.kind is FilterKind.TAGS:
        return tag_filter(wanted.expression)
    if wanted.kind is FilterKind.SQL:
        return sql_filter(wanted.expression)
    if not 1 <= len(wanted.attributes) <= ATTRIBUTES_MAX:
        raise KernelError(
            Code.INVALID_ARGUMENT, f"an attributes filter asks for 1 to {ATTRIBUTES_MAX} attributes"
        )
    try:
        values = tuple((name, msgspec.msgpack.decode(value)) for name, value in wanted.attributes)
    except UNDECODABLE:
        raise KernelError(
            Code.INVALID_ARGUMENT, "an attributes filter has values in msgpack"
        ) from None
    return AttributesFilter(values, wanted.combine)


def setting_of(wanted: MessageFilter | None) -> GroupFilter | None:
    """What `compile_filter` makes such a filter of. Raises KernelError INVALID_ARGUMENT for one
    that is not of this module.
    """
    if wanted is None:
        return None
    if isinstance(wanted, TagFilter):
        tags = " || ".join(sorted(tag.decode() for tag in wanted.tags))
        return GroupFilter(kind=FilterKind.TAGS, expression=tags)
    if isinstance(wanted, SqlFilter):
        return GroupFilter(kind=FilterKind.SQL, expression=wanted.expression)
    if isinstance(wanted, AttributesFilter):
        values = tuple((name, msgspec.msgpack.encode(value)) for name, value in wanted.wanted)
        return GroupFilter(kind=FilterKind.ATTRIBUTES, attributes=values, combine=wanted.combine)
    raise KernelError(Code.INVALID_ARGUMENT, "a filter that cannot be told to another process")


def lookup_of(slot: bytes, origins: Origins) -> Lookup:
    """The attributes of a stored message, by name; read when the first one is asked for."""
    message = messages.decode(slot)
    known: list[Mapping[str, object]] = []

    def look(name: str) -> object:
        if name in _EXT_NAMES:
            value = message.ext.get(_EXT_NAMES[name])
            return None if value is None else value.decode(errors="replace")
        if not known:
            block = message.ext.get(Ext.ATTRIBUTES)
            if block is None:
                known.append(origins.attributes(message.origin, message.native))
            else:
                known.append(msgspec.msgpack.decode(block, type=dict[str, object]))
        return known[0].get(name)

    return look


_EXT_NAMES = {"TAGS": Ext.TAG, "KEYS": Ext.KEYS}


def _same(value: object, asked: object) -> bool:
    """Equal, and of one kind: 1 is not TRUE."""
    return value == asked and isinstance(value, bool) == isinstance(asked, bool)
