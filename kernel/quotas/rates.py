"""What is limited, and whose use counts together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

EACH = "*"
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
    REQUESTS = "requests"


class Whose(NamedTuple):
    """One that limits are of. A listener is of no tenant."""

    scope: Scope
    tenant: str
    name: str


@dataclass(frozen=True, slots=True)
class Rates:
    """Limits, each per second; None: there is none."""

    published_messages: int | None = None
    published_bytes: int | None = None
    requests: int | None = None

    def of(self, kind: Kind) -> int | None:
        """The limit of one kind."""
        value: int | None = getattr(self, kind.value)
        return value
