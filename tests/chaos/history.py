"""What the clients of a run saw, one event a line of JSON.

Times are seconds of CLOCK_MONOTONIC, which all processes of a machine share. A message is known by
its ident `lane/key/number` alone, which is its body; numbers of a key count from 0.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Sent(msgspec.Struct, frozen=True, tag="sent"):
    """One attempt to publish a message, and what the client heard of it."""

    lane: str
    ident: str
    began: float
    ended: float
    outcome: Literal["ok", "refused", "unknown"]
    copies: int = 1
    """How often the library put it on the wire."""
    why: str = ""

    @property
    def at(self) -> float:
        return self.ended


class Got(msgspec.Struct, frozen=True, tag="got"):
    """A message came."""

    lane: str
    ident: str
    at: float
    marked: bool
    """As one that may have come before."""
    link: int
    held_until: float = 0
    """When its lease ends; 0: with its connection."""


class Acked(msgspec.Struct, frozen=True, tag="acked"):
    """The client acked what came last under an ident."""

    lane: str
    ident: str
    began: float
    at: float
    sure: bool
    """It was told that the ack is stored."""


class Down(msgspec.Struct, frozen=True, tag="down"):
    """A consumer's connection is gone, and with it what was on its way."""

    lane: str
    link: int
    at: float
    why: str = ""


class Fault(msgspec.Struct, frozen=True, tag="fault"):
    """What was done to the processes."""

    what: str
    began: float
    ended: float
    """When all was well again, seen from outside."""

    @property
    def at(self) -> float:
        return self.began


class Note(msgspec.Struct, frozen=True, tag="note"):
    """What a client says of itself; no check looks at it."""

    lane: str
    at: float
    text: str


Event = Sent | Got | Acked | Down | Fault | Note

_DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def spell(event: Event) -> bytes:
    """A line, with its end."""
    return msgspec.json.encode(event) + b"\n"


def read(line: bytes) -> Event:
    """Inverse of `spell`. msgspec.MsgspecError."""
    return _DECODER.decode(line)


def ident_of(lane: str, key: int, number: int) -> str:
    return f"{lane}/{key}/{number}"


def key_of(ident: str) -> tuple[str, int]:
    """(ordering key with its lane, number in it)."""
    key, _, number = ident.rpartition("/")
    return key, int(number)
