"""A message whose frames are coming in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adapters.amqp.channel.targets import Target
    from adapters.amqp.messages.stamps import Stamp
    from kernel.api.client import Destinations


class Assembly:
    """A message that is being received on a channel."""

    __slots__ = ("arguments", "block", "body_bytes", "parts", "received", "stamp", "target", "to")

    def __init__(self, target: Target, arguments: bytes) -> None:
        self.target = target
        self.arguments = arguments
        self.to: Destinations | None = None
        self.stamp: Stamp | None = None
        self.block = b""
        self.body_bytes = 0
        self.received = 0
        self.parts: list[bytes] = []
