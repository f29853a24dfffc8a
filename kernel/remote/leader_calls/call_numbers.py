"""The calls between a gateway and a store: their numbers, and the heads of their messages."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ...api.client import LeaseVerb, Settlement
from ...api.model import Reason
from ...common.limits import BATCH_COMMANDS_MAX, NAME_BYTES_MAX, TREE_NAME_BYTES_MAX

PUBLISH = 1
PROPOSE = 3
CHANGE_LEASES = 4
PURGE = 5
FIGURES = 6
PEEK = 7
WHO_LEADS = 8
SPAN = 9
SINCE = 10
PROPOSE_ALL = 11
"""Methods a gateway calls. The first four and the last belong to a lane and are done once."""

STANDINGS = 16
"""Method that a store tells gateways: who leads what, as it knows."""

# Methods of sections (`sections`).
STREAMS = range(32, 48)
PULLS = range(48, 52)
DEFINITIONS = range(64, 72)
ADMINISTRATION = range(72, 73)
PEER_STORES = range(73, 80)
TREE = range(80, 96)
HALVES = range(96, 104)
TRANSACTIONS = range(104, 112)
MESH = range(112, 128)
CLUSTER = range(128, 144)
QUESTIONS = range(144, 148)
STORE_QUESTIONS = range(148, 150)
UNSETTLED_KEYS = range(150, 152)
PEER_READERS = range(152, 154)

ADDRESSES = 154
"""Method of any store: where each store of the cluster is. Answer: `StoreAddress` of each."""

U8 = Annotated[int, Meta(ge=0, le=0xFF)]
U16 = Annotated[int, Meta(ge=0, le=0xFFFF)]
U32 = Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
U64 = Annotated[int, Meta(ge=0)]
"""msgpack has no larger integers."""
TIME_MS_MAX = (1 << 63) - 1
TimeMs = Annotated[int, Meta(ge=0, le=TIME_MS_MAX)]
Name = Annotated[str, Meta(max_length=NAME_BYTES_MAX)]
TreeName = Annotated[str, Meta(max_length=TREE_NAME_BYTES_MAX)]


TRANSACT = TRANSACTIONS.start
PREPARE = HALVES.start
"""Calls of a lane too."""


class StoreAddress(msgspec.Struct, frozen=True, array_like=True):
    """Where a store is, as another one knows."""

    node: U32
    host: Name
    port: U16


class CallBatch(msgspec.Struct, frozen=True, array_like=True):
    """Head of a call that is done once, in the order of its lane (`lanes`)."""

    group: U16
    lane: U32
    identity: tuple[U64, U32, U64]


class Publish(CallBatch, frozen=True, array_like=True):
    """`Leader.publish`; bodies: the slots."""

    runs: list[tuple[U64, U32, U16, U16]]
    lengths: list[U32]
    origin: U8
    retained: list[tuple[Name, U32]]
    routed: list[tuple[Name, TreeName, U32, U32, U16]] = []


class Propose(CallBatch, frozen=True, array_like=True):
    """`Leader.propose`; body: the command."""

    kind: U8


class ProposeAll(CallBatch, frozen=True, array_like=True):
    """`Leader.propose_all`; bodies: the commands."""

    kinds: Annotated[list[tuple[U8, U32]], Meta(min_length=1, max_length=BATCH_COMMANDS_MAX)]
    """(type, bytes) of each."""


class ChangeLeases(CallBatch, frozen=True, array_like=True):
    """Asks for `Leader.change_leases`."""

    queue: U64
    name: Name
    changes: list[tuple[U64, U64, LeaseVerb, Reason, U64]]
    """(offset, lease, verb, reason, delay) of each."""
    origin: U8
    slot_bytes: list[U32] = []
    """Of each, or nothing if all are 0 (`client.LeaseChange`)."""


class Transact(CallBatch, frozen=True, array_like=True):
    """`Leader.transact`; body: the slots."""

    runs: list[tuple[U64, U32, U16, U16]]
    lengths: list[U32]
    origin: U8
    retained: list[tuple[Name, U32]]
    routed: list[tuple[Name, TreeName, U32, U32, U16]]
    settlements: list[tuple[U64, Settlement, Reason, list[U64]]]
    """(stream, how, reason, offsets) of each."""
    changes: list[tuple[U64, Name, list[tuple[U64, U64, LeaseVerb, Reason, U64]]]]
    """(queue, group, changes as in `ChangeLeases`) of each."""


class Prepare(CallBatch, frozen=True, array_like=True):
    """`Leader.prepare`; body: the slot."""

    queue: U64
    producers: Name


class Purge(CallBatch, frozen=True, array_like=True):
    """Asks for `Leader.purge`."""

    queue: U64
    name: Name
    in_flight: bool


class CallFigures(msgspec.Struct, frozen=True, array_like=True):
    """`Leader.figures`; answer: `TopicStatistics`."""

    group: U16
    queue: U64
    name: Name
    offset: U64 | None = None
    """A store that does not know of it answers without `TopicStatistics.message`."""


class Span(msgspec.Struct, frozen=True, array_like=True):
    """`Leader.span`; answer: both offsets."""

    group: U16
    queue: U64


class Since(msgspec.Struct, frozen=True, array_like=True):
    """`Leader.offset_since`; answer: the offset."""

    group: U16
    queue: U64
    time_ms: TimeMs


class Peek(msgspec.Struct, frozen=True, array_like=True):
    """`Leader.peek`; answer: a `Page`."""

    group: U16
    queue: U64
    offset: U64
    messages: U32


class Page(msgspec.Struct, frozen=True, array_like=True):
    """Some of the messages asked for; bodies: they."""

    found: list[tuple[U64, U32]]
    """(offset, bytes) of each."""
    ended: bool
    """There are no more."""


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """Who leads a group, as one store knows."""

    group: U16
    term: U64
    node: U32
    """0: not known."""
