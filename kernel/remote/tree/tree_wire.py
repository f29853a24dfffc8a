"""What gateways and stores say to each other about the topic tree, beside commands (ADR 9, ADR 10).

gateway -> store
OWNER     told when a connection opens: the number of this process, whose subscribers are open
CLAIM     asked of a new leader: which of these open subscribers are lost?
RETAINED  asked: a page of the retained messages under a pattern
RETAINS   asked: under which of these patterns is something retained?
NAMES     asked: durable subscribers of the group by name
READERS   asked: the readers of lists that a subscriber's subscriptions are; None: there is none
UNACKED   asked: how many messages of the group each of these readers has not acked
WAIT      asked: tell when these lists have something; answer: those that have already
FORGET    told: nobody waits for these lists any more

store -> gateway
LOST      told: another connection has opened a subscriber
FILLED    told: a list that was waited for has got a message; said once
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ...api.tree import SubscriberFacts
from ...common.limits import GROUP_NAME_BYTES_MAX, SUBSCRIBERS_LISTED_MAX
from ..leader_calls.call_numbers import TREE, U16, U32, U64, Name, TreeName

OWNER, CLAIM, RETAINED, WAIT, FORGET, LOST, FILLED, RETAINS = TREE[0:8]
NAMES, READERS, UNACKED = TREE[8:11]

LISTING_SINCE = 4
"""Stores of this version of the protocol, and of later ones, answer the last three."""

CLAIM_MAX = 4_096
"""Subscribers in one CLAIM: some 60 KB."""

WAIT_MAX = 1_024
"""Lists in one WAIT or FORGET: some 100 KB, unless their patterns are very long."""

PAGE_MESSAGES = 256
PAGE_BYTES = 4 * 1024 * 1024
"""Of one answer to RETAINED, about; the last message may be larger than this."""

Positive = Annotated[int, Meta(ge=1)]
Group = Annotated[str, Meta(max_length=GROUP_NAME_BYTES_MAX)]
Key = tuple[Name, TreeName, Group]
"""(tenant, pattern, consumer group): a reader of the lists of a pattern."""


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """A CLAIM; answer: the numbers that are lost."""

    group: U16
    owner: Positive
    held: Annotated[list[tuple[U64, U64]], Meta(max_length=CLAIM_MAX)]
    """(number, epoch) of each."""


class Retained(msgspec.Struct, frozen=True, array_like=True):
    """A RETAINED; answer: a `RetainedPage`."""

    group: U16
    tenant: Name
    pattern: TreeName
    after: TreeName
    """Names behind this one in byte order."""
    messages_max: U32
    """There may be so many in all."""


class RetainedPage(msgspec.Struct, frozen=True, array_like=True):
    """Some of the retained messages asked for."""

    found: list[tuple[str, U64, bytes]]
    """(name, age in ms, slot), by name."""
    after: str
    """Where the next page begins; empty: there are no more."""


class Retains(msgspec.Struct, frozen=True, array_like=True):
    """A RETAINS; answer: the places in `patterns` of those under which something may be."""

    group: U16
    tenant: Name
    patterns: Annotated[list[TreeName], Meta(max_length=WAIT_MAX)]


class Names(msgspec.Struct, frozen=True, array_like=True):
    """A NAMES; answer: a list of `SubscriberFacts`."""

    group: U16
    tenant: Name
    begins: Name
    after: Name
    limit: Annotated[int, Meta(ge=1, le=SUBSCRIBERS_LISTED_MAX)]


class Readers(msgspec.Struct, frozen=True, array_like=True):
    """A READERS; answer: a list of `Key`, or None."""

    group: U16
    tenant: Name
    name: Name


class Unacked(msgspec.Struct, frozen=True, array_like=True):
    """An UNACKED; answer: a number for each key."""

    group: U16
    keys: Annotated[list[Key], Meta(max_length=WAIT_MAX)]


class Wait(msgspec.Struct, frozen=True, array_like=True):
    """A WAIT or a FORGET. Answer of WAIT: (place in `keys`, queue) of those that have something."""

    group: U16
    keys: Annotated[list[Key], Meta(max_length=WAIT_MAX)]


class Filled(msgspec.Struct, frozen=True, array_like=True):
    """A FILLED."""

    group: U16
    key: Key
    queue: U64


class Lost(msgspec.Struct, frozen=True, array_like=True):
    """A LOST."""

    number: U64
    epoch: U64


owners = msgspec.msgpack.Decoder(Positive)
claims = msgspec.msgpack.Decoder(Claim)
numbers = msgspec.msgpack.Decoder(list[U64])
questions = msgspec.msgpack.Decoder(Retained)
retaining = msgspec.msgpack.Decoder(Retains)
pages = msgspec.msgpack.Decoder(RetainedPage)
waits = msgspec.msgpack.Decoder(Wait)
names = msgspec.msgpack.Decoder(Names)
reading = msgspec.msgpack.Decoder(Readers)
unacked = msgspec.msgpack.Decoder(Unacked)
facts = msgspec.msgpack.Decoder(list[SubscriberFacts])
readers = msgspec.msgpack.Decoder(list[Key] | None)
places = msgspec.msgpack.Decoder(list[tuple[U32, U64]])
fillings = msgspec.msgpack.Decoder(Filled)
losses = msgspec.msgpack.Decoder(Lost)
_encoder = msgspec.msgpack.Encoder()


def encode(message: object) -> list[bytes]:
    """A message."""
    return [_encoder.encode(message)]
