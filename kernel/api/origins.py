"""Readers of native property blocks, registered by the adapters that write them.

The kernel treats `origin` as an opaque byte. Where it needs something that only the writer's own
protocol can spell (the key of a message on its way to a dead-letter router, the attributes that a
router matches, the typed view for another protocol), it asks the reader of that origin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

INTERNAL: Final = 255
"""Origin of what the server does by itself, such as moving dead letters: never billed. No adapter
may register it."""


class OriginReader(Protocol):
    """Reads native blocks of one origin. Must not raise for bytes its adapter has stored."""

    def routing_key(self, native: bytes) -> str:
        """The key the message was published with, in the kernel's spelling."""

    def topic_name(self, native: bytes) -> str:
        """The key as the name of a topic, for dead letters that go straight to the topic of
        their own key.
        """

    def attributes(self, native: bytes) -> Mapping[str, object]:
        """The writer's typed attributes."""


class Origins:
    """Origin byte to reader."""

    def __init__(self) -> None:
        self._readers: dict[int, OriginReader] = {}

    def register(self, origin: int, reader: OriginReader) -> None:
        """Make a reader known. Raises ValueError if the byte is another's already."""
        if self._readers.setdefault(origin, reader) is not reader:
            raise ValueError(f"origin {origin} is registered already")

    def routing_key(self, origin: int, native: bytes) -> str:
        """The message's own key; empty for an origin nobody registered."""
        reader = self._readers.get(origin)
        return reader.routing_key(native) if reader is not None else ""

    def topic_name(self, origin: int, native: bytes) -> str:
        """The message's own key as a topic's name; empty for an origin nobody registered."""
        reader = self._readers.get(origin)
        return reader.topic_name(native) if reader is not None else ""

    def attributes(self, origin: int, native: bytes) -> Mapping[str, object]:
        """The message's attributes; none for an origin nobody registered."""
        reader = self._readers.get(origin)
        return reader.attributes(native) if reader is not None else {}
