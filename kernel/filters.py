"""Filters on what a consumer group takes. A message that does not match counts as consumed."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import message as messages
from .message import Ext, tag_hash


@dataclass(frozen=True, slots=True)
class TagFilter:
    """Messages whose tag is one of `tags`. Decided by hash first, by the bytes themselves after,
    since two tags may share a hash.
    """

    tags: frozenset[bytes]
    hashes: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hashes", frozenset(map(tag_hash, self.tags)))

    def matches(self, tag_value: int, slot: bytes) -> bool:
        """Whether a message is taken: its tag's hash (0: it has none) and its stored bytes."""
        if tag_value not in self.hashes:
            return False
        return messages.decode(slot).ext.get(Ext.TAG, b"") in self.tags
