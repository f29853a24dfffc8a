"""What processes say to each other about what lives in their memory: transient topics, routers and
routes, live routes of the topic tree.

    gateway                                    store, or another gateway
      ANNOUNCE (flags, items)          ---->   answer: those whose name another process has
             <----  FRAME (link, number, heard, head, slots)
      DONE (link, number, failure)     ---->
             <----  ADMINISTER (change)        answer: as `administration_wire` has it
             <----  FIGURES (queue, group)     answer: `TopicStatistics`
             <----  QUESTION (kind, bytes)     answer: bytes (`questions`)

    gateway                                    store
      RESERVE, NAME (clients')         ---->   answer: nothing; the epochs of the names
      RELEASE, LEFT                    ---->
             <----  MEET (process, address)    gateways that this store hears
             <----  TAKEN (tenant, name, epoch)  answer: nothing, once the client is told

A FRAME carries messages: `u64 link | u64 number | u64 heard | u32 bytes of the head | head |
slots`. The numbers of a link count its frames from 1; those up to `heard` have been answered, and
the sender knows it. A connection that breaks does not end a link: what is unanswered is sent again
by the next one, and the receiver knows by its number what it has.

Whatever comes is checked here; what is wrong is a WireError.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from ...api.message import HEADER_BYTES
from ...api.model import Route, TopicInfo
from ...common.errors import KernelError, error_named
from ...common.ids import TopicId
from ...common.limits import NAME_BYTES_MAX
from ...routing import tree_table
from ...routing.tree_table import is_bad_name
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_numbers import U8, U16, U32, U64, Name, TreeName
from ..leader_calls.call_wire import WireError, decode
from ..things import RouteGone, RouterGone, RouterIs, TopicIs

ANNOUNCE = calls.MESH[0]
FRAME = calls.MESH[1]
DONE = calls.MESH[2]
ADMINISTER = calls.MESH[3]
FIGURES = calls.MESH[4]
RESERVE = calls.MESH[5]
RELEASE = calls.MESH[6]
NAME = calls.MESH[7]
LEFT = calls.MESH[8]
MEET = calls.MESH[9]
TAKEN = calls.MESH[10]
QUESTION = calls.QUESTIONS[0]

CONSUMERS_OF_1 = calls.MESH[11:16]
"""By these a gateway of version 1 of the protocol consumes from the memory of another; numbers of
nothing else."""

STREAMS_SINCE = 2
"""Gateways of this version of the protocol, and of later ones, consume from each other's memory by
push streams; with an earlier one they do not."""

QUESTIONS_SINCE = 3
"""Gateways of this version of the protocol, and of later ones, answer each other's questions."""

BEGINS = 1
"""Flag of an ANNOUNCE: everything is told from here on, once more."""

WHOLE = 2
"""Flag of an ANNOUNCE: with this, everything has been told; what was not is gone."""

PAGE_ITEMS = 1_024
PAGE_BYTES = 256 * 1024
"""An ANNOUNCE has about so much at most: a millisecond of each end."""

NAMES_MAX = 1_024
"""Names of one NAME."""

User = Annotated[str, Meta(max_length=NAME_BYTES_MAX)]
"""Whose a client is; empty: nobody's in particular."""


class TopicGone(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A topic is gone."""

    tenant: Name
    name: Name


class RouteIs(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A route that lives here, from a router that lives anywhere."""

    tenant: Name
    router: Name
    route: Route


class WatchIs(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """There are live routes of a pattern."""

    tenant: Name
    pattern: TreeName


class WatchGone(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """There are none any more."""

    tenant: Name
    pattern: TreeName


Item = TopicIs | TopicGone | RouterIs | RouterGone | RouteIs | RouteGone | WatchIs | WatchGone


class Announce(msgspec.Struct, frozen=True, array_like=True):
    """An ANNOUNCE says what the sender has in its memory, or has no longer."""

    flags: U8
    items: list[Item]


class Messages(msgspec.Struct, frozen=True, array_like=True):
    """Head of a FRAME."""

    runs: list[tuple[U64, U32, U16, U16]]
    """Over slots, of queues of the receiver's transient group (`leader.Leader.publish`)."""
    live: list[tuple[Name, TreeName, U32, U32]]
    """(tenant, name, first slot, slots) for live routes."""
    lengths: list[U32]
    origin: U8


class Done(msgspec.Struct, frozen=True, array_like=True):
    """DONE. `code`: of the failure; empty: there is none."""

    link: U64
    number: U64
    code: str
    message: str


class ProcessFigures(msgspec.Struct, frozen=True, array_like=True):
    """A FIGURES asks how a group of a transient topic is doing."""

    queue: U64
    name: Name


class Named(msgspec.Struct, frozen=True, array_like=True):
    """RESERVE, RELEASE: a name of a "topic" or a "router"; `group`: its home."""

    group: U16
    kind: str
    tenant: Name
    name: Name


class ProcessClients(msgspec.Struct, frozen=True, array_like=True):
    """NAME: clients whose connection the gateway has, with the epoch of each; 0: just opened, and
    to be held if `holds`. Answer: the epochs; 0: another connection has it.
    """

    group: U16
    holds: bool
    clients: Annotated[list[tuple[Name, Name, U64]], Meta(max_length=NAMES_MAX)]
    users: Annotated[list[User], Meta(max_length=NAMES_MAX)] = []
    """Whose each is; older gateways do not say."""
    drops: bool = False
    """Whosever they are, they go, and nobody holds them. Answer: 1 for each that somebody has held,
    else 0."""


class Client(msgspec.Struct, frozen=True, array_like=True):
    """LEFT, TAKEN: (tenant, name) of a client that had this epoch, or an earlier one."""

    group: U16
    tenant: Name
    name: Name
    epoch: U64


Conflicts = list[tuple[str, str, str]]
"""Answer of ANNOUNCE: ("topic" or "router", tenant, name) of what another process has, too."""

announcements = msgspec.msgpack.Decoder(Announce)
conflicts: msgspec.msgpack.Decoder[Conflicts] = msgspec.msgpack.Decoder(Conflicts)
dones = msgspec.msgpack.Decoder(Done)
figures = msgspec.msgpack.Decoder(ProcessFigures)
names = msgspec.msgpack.Decoder(Named)
several = msgspec.msgpack.Decoder(ProcessClients)
epochs = msgspec.msgpack.Decoder(list[U64])
clients = msgspec.msgpack.Decoder(Client)
meetings = msgspec.msgpack.Decoder(dict[str, str])

_encode = msgspec.msgpack.Encoder().encode
_frame = struct.Struct("<QQQI")
_messages = msgspec.msgpack.Decoder(Messages)


def encode(message: object) -> list[bytes]:
    """Any message but a FRAME."""
    return [_encode(message)]


def encode_item(item: Item) -> msgspec.Raw:
    """One item, for any number of hearers."""
    return msgspec.Raw(_encode(item))


def encode_messages(
    runs: Sequence[Sequence[int]],
    live: Sequence[tuple[str, str, int, int]],
    lengths: Sequence[int],
    origin: int,
) -> bytes:
    """Head of a FRAME (hot)."""
    return _encode((runs, live, lengths, origin))


def encode_frame(
    link: int, number: int, heard: int, head: bytes, slots: Sequence[bytes]
) -> list[bytes]:
    """A FRAME (hot)."""
    return [_frame.pack(link, number, heard, len(head)) + head, *slots]


def decode_frame(payload: bytes) -> tuple[int, int, int, Messages, int]:
    """(link, number, heard, head, where the slots begin) of a FRAME (hot). Raises WireError."""
    if len(payload) < _frame.size:
        raise WireError("no head")
    link, number, heard, size = _frame.unpack_from(payload)
    at = _frame.size + size
    head = decode(_messages, payload[_frame.size : at])
    slots = len(head.lengths)
    if at + sum(head.lengths) != len(payload):
        raise WireError("slots are cut off, or bytes belong to none")
    if head.lengths and min(head.lengths) < HEADER_BYTES:
        raise WireError("a slot without a whole header")
    for _, slot, count, _ in head.runs:
        if not count or slot + count > slots:
            raise WireError(f"a run of {count} slots from {slot} on, of {slots}")
    for _, name, slot, count in head.live:
        if not count or slot + count > slots or is_bad_name(name):
            raise WireError(f"{count} messages from {slot} on for the name {name[:80]!r}")
    return link, number, heard, head, at


def encode_done(link: int, number: int, error: KernelError | None) -> list[bytes]:
    """A DONE."""
    code, message = (error.code.wire, error.message) if error is not None else ("", "")
    return [_encode(Done(link, number, code, message))]


def failure_of(done: Done) -> KernelError | None:
    """What a DONE tells."""
    if not done.code:
        return None
    return error_named(done.code, done.message)


def check_pattern(pattern: str) -> None:
    """Raises WireError if it is no pattern of the topic tree."""
    try:
        tree_table.check_pattern(pattern)
    except KernelError as error:
        raise WireError(error.message) from None


def checked(topic: TopicInfo) -> TopicInfo:
    """A topic of an announcement. Raises WireError if it is none that lives in memory."""
    number = len(topic.queues)
    ids = [each.id for each in topic.queues]
    if topic.options.durable or not number or any(each >> 8 != topic.id for each in ids):
        raise WireError("a topic that does not live in memory")
    if topic.id >= 1 << 48:
        raise WireError(f"no id of a topic: {TopicId(topic.id)}")
    return topic
