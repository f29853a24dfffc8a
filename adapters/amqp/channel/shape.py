"""How messages that were published alike are delivered: what they have in common."""

from __future__ import annotations

from typing import Final

NO_HEAD: Final = b"\0"
"""What no slot begins with: its first octet is the version of its format, from 1."""


class ChannelShape:
    """What the messages of a queue that were published alike, which they mostly were, have in
    common: how they are told, and how they are sent to one link.
    """

    __slots__ = ("before", "between", "body_at", "head", "native", "native_at")

    def __init__(
        self,
        head: bytes,
        native: bytes,
        native_at: int,
        body_at: int,
        before: bytes,
        between: bytes,
    ) -> None:
        self.head = head
        """The first octets of their slots, lengths included."""
        self.native = native
        """Their native block, at `native_at`."""
        self.native_at = native_at
        self.body_at = body_at
        self.before = before
        """What stands before the delivery tag."""
        self.between = between
        """What stands between delivery tag and body."""


SHAPELESS: Final = ChannelShape(NO_HEAD, b"", 0, 0, b"", b"")
