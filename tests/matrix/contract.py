"""A message without a protocol, and what a peer of the matrix is."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Flag, auto
from typing import ClassVar, Protocol

from tests.gateway.serving import Process


class Can(Flag):
    """What a client of a protocol can say when it writes."""

    BINARY = auto()
    """A body that is no text, as it is or by the protocol's own convention."""
    EMPTY = auto()
    """A body of no bytes."""
    ORDERING_KEY = auto()
    """An ordering key on a topic that every protocol can name."""
    MESSAGE_ID = auto()
    """An id of the writer's own."""
    NO_MESSAGE_ID = auto()
    """None of the writer's own: then it is the kernel's uid."""
    DELAY = auto()
    """A time before which nobody gets the message."""


@dataclass(frozen=True)
class Neutral:
    """A message as the contract's rows have it. What is None or empty was not said."""

    body: bytes = b"hello"
    attributes: dict[str, object] = field(default_factory=dict)
    tag: str | None = None
    keys: frozenset[str] = frozenset()
    ordering_key: str | None = None
    message_id: str | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None


@dataclass(frozen=True)
class Got(Neutral):
    """A message as it was read."""

    uid: str | None = None
    """The kernel's, where the protocol tells it."""
    attempt: int = 1


class Peer(Protocol):
    """A client of one protocol, for one node."""

    name: str
    can: Can
    values: ClassVar[dict[str, object]]
    """Attributes of every type that a writer has."""

    def __init__(self, node: Process, home: str) -> None:
        """`home`: a directory for files that clients leave."""

    def close(self) -> None:
        """Let go of everything."""

    def write(self, topic: str, message: Neutral, *, delay_s: int = 0) -> str | None:
        """Write a message to a topic that exists; its id, where the client is told one."""

    def read(self, topic: str, *, seconds: float = 10) -> Got:
        """The next message of group `default`, acked. AssertionError if none comes in time."""

    def refuse(self, topic: str, *, seconds: float = 10) -> None:
        """Take the next message and give it back as not consumed."""

    def shows(self, value: object) -> object:
        """What a reader sees of an attribute's value: the contract's words, not the adapter's."""
