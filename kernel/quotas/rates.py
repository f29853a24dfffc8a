"""What is limited, and whose use counts together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

EACH: Final = "*"
"""In place of a name: each one that has no limits of its own."""


class Scope(Enum):
    """Whose use counts together."""

    TENANT = "tenant"
    USER = "user"
    TOPIC = "topic"
    LISTENER = "listener"


class Kind(Enum):
    """What is counted."""

    PUBLISHED_MESSAGES = "published_messages"
    PUBLISHED_BYTES = "published_bytes"
    DELIVERED_MESSAGES = "delivered_messages"
    DELIVERED_BYTES = "delivered_bytes"
    REQUESTS = "requests"
    CONNECTIONS = "connections"
    MESSAGE_BYTES = "message_bytes"
    TOPICS = "topics"
    GROUPS = "groups"


PUBLISHED: Final = (Kind.PUBLISHED_MESSAGES, Kind.PUBLISHED_BYTES)
DELIVERED: Final = (Kind.DELIVERED_MESSAGES, Kind.DELIVERED_BYTES)

PER_SECOND: Final = (*PUBLISHED, *DELIVERED, Kind.REQUESTS)
"""Limits of a rate; the others are of a number."""

_OF_CLIENTS: Final = (*PER_SECOND, Kind.CONNECTIONS, Kind.MESSAGE_BYTES)

KINDS: Final = {
    Scope.TENANT: tuple(Kind),
    Scope.USER: _OF_CLIENTS,
    Scope.TOPIC: (*PUBLISHED, *DELIVERED),
    Scope.LISTENER: _OF_CLIENTS,
}
"""What can be limited of whom. Topics belong to no user; a topic has a largest message among its
own settings."""

LIMIT_MAX: Final = 10**12
"""More than any machine does: above it a slip of the pen."""


class Whose(NamedTuple):
    """One that limits are of. A listener is of no tenant."""

    scope: Scope
    tenant: str
    name: str


@dataclass(frozen=True, slots=True)
class Rates:
    """Limits, each per second but for the last four; None: there is none."""

    published_messages: int | None = None
    published_bytes: int | None = None
    requests: int | None = None
    delivered_messages: int | None = None
    delivered_bytes: int | None = None
    connections: int | None = None
    message_bytes: int | None = None
    topics: int | None = None
    groups: int | None = None

    def of(self, kind: Kind) -> int | None:
        """The limit of one kind."""
        value: int | None = getattr(self, kind.value)
        return value

    def named(self) -> dict[str, int]:
        """Those that there are, by name."""
        return {kind.value: limit for kind in Kind if (limit := self.of(kind)) is not None}
