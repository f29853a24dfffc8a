"""What stores ask of each other beside commands and changes, each of the leader of one group.

DEFINED  what has changed a definition last?      answer: index
CLEAR    remove routes to something that is gone  answer: indexes at which look-ups show it
IDLE     how long has nobody used a topic?        answer: ms
MOVE     move some messages of a queue            answer: (moved, left, failure)
PARTS    what is there of topics of other homes?  answer: a page, by id; an empty one ends them
STORED   how much do its queues hold?             answer: (tenant, messages, bytes) of each
USED     what was stored of topics so far?        answer: (topic, bytes, next offset by queue)
WANTED   whom do its subscribers want on lists?   answer: those of the readers that was asked about

All but MOVE may be asked again: they do no harm twice.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ...common.limits import DATA_GROUPS_MAX, GROUP_NAME_BYTES_MAX
from ...definitions.topic_sizes import SIZES_MAX
from ...requests.peer_stores import WANTED_READERS_MAX
from ..leader_calls.call_numbers import PEER_READERS, PEER_STORES, U16, U32, U64, Name, TreeName

DEFINED, CLEAR, IDLE, MOVE, PARTS, STORED, USED = PEER_STORES
WANTED = PEER_READERS[0]

PAGE_NAMES = 1_000
"""A page of PARTS ends with the topic that makes it so many names of topics and consumer groups:
some 10 ms of a leader that has 100,000 topics."""


class Defined(msgspec.Struct, frozen=True, array_like=True):
    """A DEFINED asks which entry of a group has changed a definition last."""

    group: U16


class Clear(msgspec.Struct, frozen=True, array_like=True):
    """CLEAR; `peer_stores.Gone`."""

    group: U16
    tenant: Name
    kind: Literal["topic", "router"]
    name: Name
    home: U16
    index: U64


class Idle(msgspec.Struct, frozen=True, array_like=True):
    """An IDLE asks for how long nobody has used a topic."""

    group: U16
    topic: U64


class LeaderMove(msgspec.Struct, frozen=True, array_like=True):
    """MOVE; `peer_stores.MoveStep`."""

    group: U16
    tenant: Name
    queue: U64
    name: Annotated[str, Meta(max_length=GROUP_NAME_BYTES_MAX)]
    destination: Name | None
    count: U32
    back_to: tuple[Name, ...] | None = None


class Parts(msgspec.Struct, frozen=True, array_like=True):
    """PARTS; `peer_stores.TopicPart`."""

    group: U16
    homes: Annotated[list[U16], Meta(max_length=DATA_GROUPS_MAX)]
    after: U64
    """Only topics of higher ids."""


class StoredSums(msgspec.Struct, frozen=True, array_like=True):
    """A STORED asks what a group holds, by tenant."""

    group: U16


class UsedOf(msgspec.Struct, frozen=True, array_like=True):
    """A USED asks what a group has stored of topics so far."""

    group: U16
    topics: Annotated[list[U64], Meta(max_length=SIZES_MAX)]


Reader = tuple[Name, TreeName, TreeName]
Readers = Annotated[list[Reader], Meta(max_length=WANTED_READERS_MAX)]


class WantedOf(msgspec.Struct, frozen=True, array_like=True):
    """A WANTED asks which readers of lists the subscribers want that have their home in a group."""

    group: U16
    readers: Readers


Question = Defined | Clear | Idle | LeaderMove | Parts | StoredSums | UsedOf | WantedOf

questions: dict[int, msgspec.msgpack.Decoder[Question]] = {
    DEFINED: msgspec.msgpack.Decoder(Defined),
    CLEAR: msgspec.msgpack.Decoder(Clear),
    IDLE: msgspec.msgpack.Decoder(Idle),
    MOVE: msgspec.msgpack.Decoder(LeaderMove),
    PARTS: msgspec.msgpack.Decoder(Parts),
    STORED: msgspec.msgpack.Decoder(StoredSums),
    USED: msgspec.msgpack.Decoder(UsedOf),
    WANTED: msgspec.msgpack.Decoder(WantedOf),
}
cleared = msgspec.msgpack.Decoder(dict[U16, U64])
number = msgspec.msgpack.Decoder(U64)
parts = msgspec.msgpack.Decoder(list[tuple[U64, Name, Name, list[str]]])
stored = msgspec.msgpack.Decoder(list[tuple[Name, U64, U64]])
used = msgspec.msgpack.Decoder(list[tuple[U64, U64, dict[U32, U64]]])
wanted = msgspec.msgpack.Decoder(Readers)
moved = msgspec.msgpack.Decoder(tuple[U32, U64, str | None])
_encoder = msgspec.msgpack.Encoder()


def encode(message: object) -> list[bytes]:
    """A question or an answer."""
    return [_encoder.encode(message)]
