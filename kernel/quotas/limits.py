"""What is limited, and of whom."""

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
    SIZE = "size"
    """Of a topic: what its size lets publishers have. It is no scope of limits that are set."""


class LimitKind(Enum):
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
    STORED_MESSAGES = "stored_messages"
    STORED_BYTES = "stored_bytes"


PUBLISHED: Final = (LimitKind.PUBLISHED_MESSAGES, LimitKind.PUBLISHED_BYTES)
DELIVERED: Final = (LimitKind.DELIVERED_MESSAGES, LimitKind.DELIVERED_BYTES)

PER_SECOND: Final = (*PUBLISHED, *DELIVERED, LimitKind.REQUESTS)
"""Limits of a rate; the others are of a number."""

STORED: Final = (LimitKind.STORED_MESSAGES, LimitKind.STORED_BYTES)
"""Of what the queues hold: decided at the stores (`kernel.store.leading.stored_room`)."""

_OF_CLIENTS: Final = (*PER_SECOND, LimitKind.CONNECTIONS, LimitKind.MESSAGE_BYTES)

KINDS: Final = {
    Scope.TENANT: tuple(LimitKind),
    Scope.USER: _OF_CLIENTS,
    Scope.TOPIC: (*PUBLISHED, *DELIVERED, *STORED),
    Scope.LISTENER: _OF_CLIENTS,
}
"""What can be limited of whom, by who sets limits. Topics belong to no user; a topic has a largest
message among its own settings."""


def settable(word: str) -> Scope:
    """The scope of that name, of those that limits may be set of. Raises ValueError."""
    scope = Scope(word)
    if scope not in KINDS:
        raise ValueError(word)
    return scope


LIMIT_MAX: Final = 10**12
"""More than any machine does: above it a slip of the pen."""


class Entity(NamedTuple):
    """One that limits are of. A listener is of no tenant."""

    scope: Scope
    tenant: str
    name: str


@dataclass(frozen=True, slots=True)
class LimitSet:
    """Limits, each per second but for those after the deliveries; None: there is none."""

    published_messages: int | None = None
    published_bytes: int | None = None
    requests: int | None = None
    delivered_messages: int | None = None
    delivered_bytes: int | None = None
    connections: int | None = None
    message_bytes: int | None = None
    topics: int | None = None
    groups: int | None = None
    stored_messages: int | None = None
    stored_bytes: int | None = None

    def of(self, kind: LimitKind) -> int | None:
        """The limit of one kind."""
        value: int | None = getattr(self, kind.value)
        return value

    def named(self) -> dict[str, int]:
        """Those that there are, by name."""
        return {kind.value: limit for kind in LimitKind if (limit := self.of(kind)) is not None}


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """What is limited by the size of a topic."""

    topic: int
    """Its id: another one of the same name has another size."""
    limits: LimitSet
    fails: bool
    """Whether what is above it is refused at once; else it waits, as above any limit."""
