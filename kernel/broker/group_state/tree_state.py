"""Subscribers of the topic tree, as the state of their Raft group keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from ...common.ids import TopicId
from ..log_commands.tree_commands import WillRecord

NO_NOTES: dict[bytes, bytes] = {}
"""Shared by all that have none; never changed."""


@dataclass(slots=True)
class SubscriberState:
    """A named client with what outlives its connections. Times are log times."""

    number: int
    tenant: str
    name: str
    epoch: int = 0
    connected: bool = False
    expiry_ms: int | None = 0
    """How long it outlives its connection; None: for ever."""
    will: WillRecord | None = None
    will_at_ms: int | None = None
    """When its will is published; set while it has no connection."""
    ends_at_ms: int | None = None
    """When it ends; set while it has no connection."""
    subscriptions: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """The adapter's options by (share, pattern)."""
    notes: dict[bytes, bytes] = field(default_factory=lambda: NO_NOTES)
    owner: int = 0
    """Process whose connection it is (`tree_commands.OpenSubscriber`)."""
    user: str = ""
    """Whose it is, whoever connects; empty: nobody's yet."""

    def note(self, changes: tuple[tuple[bytes, bytes | None], ...]) -> None:
        """Set or (None) remove notes."""
        if changes and self.notes is NO_NOTES:
            self.notes = {}
        for key, value in changes:
            if value is None:
                self.notes.pop(key, None)
            else:
                self.notes[key] = value

    def due_ms(self) -> int | None:
        """When something is to happen to it; None: nothing."""
        dues = [each for each in (self.will_at_ms, self.ends_at_ms) if each is not None]
        return min(dues, default=None)


class WillItem(msgspec.Struct, frozen=True):
    """A will that is due, kept until it has reached its destinations."""

    number: int
    tenant: str
    will: WillRecord


class IndexChanged(msgspec.Struct, frozen=True):
    """The reference list of a pattern has been made in this group, or is gone."""

    tenant: str
    pattern: str
    topic: TopicId
    removed: bool


class SubscriberChanged(msgspec.Struct, frozen=True):
    """A subscriber was opened, closed or has ended: look at its state."""

    subscriber: SubscriberState
    ended: bool = False
    lost: tuple[int, int] | None = None
    """(owner, epoch) of the connection that it is not with any more, though nobody closed it."""


class WillsGrew(msgspec.Struct, frozen=True):
    """There is a will to send."""


TreeEvent = IndexChanged | SubscriberChanged | WillsGrew
