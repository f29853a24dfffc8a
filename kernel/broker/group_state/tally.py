"""A tally: what one counter of the metering holds."""

from __future__ import annotations

Three = tuple[int, int, int]
"""Messages, bytes, 4 KiB units."""


class Tally:
    """A counter. Most messages are one 4 KiB unit each, so that only what is more is added up."""

    __slots__ = ("messages", "more_units", "size")

    def __init__(self, messages: int = 0, size: int = 0, units: int | None = None) -> None:
        """`units`: None for as many as there are messages."""
        self.messages = messages
        self.size = size
        self.more_units = 0 if units is None else units - messages

    @property
    def three(self) -> Three:
        """Messages, bytes, units."""
        return self.messages, self.size, self.messages + self.more_units
