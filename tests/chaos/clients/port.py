"""What a protocol's module gives to `program`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

ANSWER_SECONDS = 5.0
"""A client takes a publish, an ack or a connection without an answer for failed after so long."""

POLL_SECONDS = 1.0


class Refused(Exception):
    """The broker said that it did not store the message."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that came."""

    ident: str
    marked: bool
    at: float
    handle: Any
    held_until: float = 0


class Publisher(Protocol):
    """One connection that publishes."""

    copies: int
    """How often the last message was put on the wire."""

    def __init__(self, ports: dict[str, int], topic: str, lane: str) -> None:
        """Connect; whatever the library raises."""

    def send(self, ident: str, key: str) -> None:
        """Publish, and return when it is answered with ok. Refused; any other exception: nobody
        knows, and the connection is of no use any more.
        """

    def close(self) -> None:
        """Let go of it."""


class Consumer(Protocol):
    """One connection that consumes."""

    def __init__(self, ports: dict[str, int], topic: str, lane: str) -> None:
        """As `Publisher`."""

    def take(self) -> list[Taken]:
        """What has come, within POLL_SECONDS. Any exception: the connection is gone."""

    def ack(self, taken: list[Taken]) -> bool:
        """Whether the client was told that it is stored."""

    def close(self) -> None:
        """Let go of it."""
