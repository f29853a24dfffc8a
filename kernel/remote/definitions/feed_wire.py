"""A feed of definitions as bytes: what a group's leader tells a gateway of topics, routers, routes,
records and reference lists.

    gateway                                  store
      SUBSCRIBE (feed, group)     ---->      answer: nothing, or NOT_LEADER
             <----  TOLD  BEGINS, page 1
             <----  TOLD  page 2, changes, page 3 ...
             <----  TOLD  WHOLE, the last page: the mirror is as the group was at `applied`
             <----  TOLD  changes ...
      TAKEN (feed, bytes)         ---->      so much more may be on its way
             <----  ENDED (feed)             this store does not lead any more
             <----  ACCEPTING (yes or no)    whether it has room for new messages

Pages and changes come in one order: a page holds things as they are when it is made, and whatever
changes later follows it. So whoever takes everything in that order has, at WHOLE, what the group
had then; before that, perhaps a mixture.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...api.model import QueueRef, Route
from ...common.ids import QueueId, RaftGroup, TopicId
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_numbers import U8, U16, U32, U64, Name
from ..leader_calls.call_wire import decode
from ..things import RouteGone, RouterGone, RouterIs, TopicIs

SUBSCRIBE = calls.DEFINITIONS[0]
TAKEN = calls.DEFINITIONS[1]
TOLD = calls.DEFINITIONS[2]
ENDED = calls.DEFINITIONS[3]
ACCEPTING = calls.DEFINITIONS[4]

BEGINS = 1
"""Flag of a TOLD: forget what this feed has told before."""

WHOLE = 2
"""Flag of a TOLD: with this, everything has been told once."""


class Subscribe(msgspec.Struct, frozen=True, array_like=True):
    """Head of SUBSCRIBE."""

    feed: U32
    """Chosen by the gateway; never used twice on a connection."""
    group: U16


class Taken(msgspec.Struct, frozen=True, array_like=True):
    """TAKEN: so many bytes of TOLD messages have been worked off."""

    feed: U32
    size: U32


class TopicGone(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A topic is gone."""

    tenant: Name
    name: Name
    id: TopicId


class RoutesAre(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Routes of a router that has been told of."""

    tenant: Name
    router: Name
    routes: list[Route]


class RecordIs(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A metadata record."""

    key: str
    version: U64
    value: bytes


class RecordGone(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A metadata record has been removed."""

    key: str


class IndexIs(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The reference list of a tree pattern in this group."""

    tenant: Name
    pattern: str
    queue: QueueId
    group: RaftGroup


class IndexGone(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """A reference list is gone."""

    tenant: Name
    pattern: str


class SubscriberIs(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """A subscriber of the topic tree was opened, closed or has ended. Told as a change only."""

    tenant: Name
    name: Name
    number: U64
    epoch: U64
    ended: bool


Item = (
    TopicIs
    | TopicGone
    | RouterIs
    | RouterGone
    | RoutesAre
    | RouteGone
    | RecordIs
    | RecordGone
    | IndexIs
    | IndexGone
    | SubscriberIs
)


class _Telling(msgspec.Struct, frozen=True, array_like=True):
    """TOLD, as it is made: of items that several feeds have in common."""

    feed: int
    flags: int
    applied: int
    items: Sequence[msgspec.Raw]


class Told(msgspec.Struct, frozen=True, array_like=True):
    """A TOLD as the gateway reads it: a page or changes of one feed."""

    feed: U32
    flags: U8
    applied: U64
    """Every change that the group had applied up to this index has been told; only with WHOLE, or
    after it."""
    items: list[Item]


_encode = msgspec.msgpack.Encoder().encode
_subscribe = msgspec.msgpack.Decoder(Subscribe)
_taken = msgspec.msgpack.Decoder(Taken)
_told = msgspec.msgpack.Decoder(Told)
_ended = msgspec.msgpack.Decoder(U32)
_accepting = msgspec.msgpack.Decoder(bool)


def encode_item(item: Item) -> msgspec.Raw:
    """One item, for any number of feeds."""
    return msgspec.Raw(_encode(item))


def encode_told(feed: int, flags: int, applied: int, items: Sequence[msgspec.Raw]) -> bytes:
    """A TOLD of items that are encoded already."""
    return _encode(_Telling(feed, flags, applied, items))


def encode(head: Subscribe | Taken | bool | int) -> list[bytes]:
    """SUBSCRIBE, TAKEN, ENDED, ACCEPTING."""
    return [_encode(head)]


def decode_subscribe(payload: bytes) -> Subscribe:
    """SUBSCRIBE. Raises WireError, as all of these."""
    return decode(_subscribe, payload)


def decode_taken(payload: bytes) -> Taken:
    return decode(_taken, payload)


def decode_told(payload: bytes) -> Told:
    return decode(_told, payload)


def decode_ended(payload: bytes) -> int:
    """ENDED: the feed."""
    return decode(_ended, payload)


def decode_accepting(payload: bytes) -> bool:
    """Whether the store has room for new messages."""
    return decode(_accepting, payload)


def ref_of(index: IndexIs) -> QueueRef:
    """The queue of a reference list."""
    return QueueRef(index.queue, index.group)
