"""What gateways and leaders say to each other about push streams (docs/adr/0009 "Push streams").

    gateway -> store, all in the control lane, and so in order:
    ATTACH    streams, with what the gateway holds of them already
    TURN      what a turn of the gateway's loop brought: credit, acks, settlements, cancellations
    CLAIMED   every stream of a Raft group has been attached: nothing more is claimed

    store -> gateway, all in the bulk lane, and so in order:
    SERVES    the store leads these groups from now on: attach here
    GONE      it does not any more: its streams are no more
    ATTACHED  a stream is there; what of it is leased to the gateway no more
    DELIVER   messages, of any number of streams
    TAKEN     settlements up to this number are applied
    SETTLED   the answer to one settlement
    ENDED     a stream is over, or could not be attached, and why

    payload: u32 bytes of the head | head: msgpack | of DELIVER: the slots, as they are stored

Streams are numbered by the gateway's process; numbers are never used again. Settlements are
numbered by the gateway for each group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from ..client import Settlement
from ..errors import Code, KernelError
from ..model import GroupFilter, Reason
from .calls import STREAMS, U8, U16, U32, U64, Name
from .wire import WireError, message_of, split

ATTACH, TURN, CLAIMED = STREAMS[0:3]
SERVES, GONE, ATTACHED, DELIVER, TAKEN, SETTLED, ENDED = STREAMS[8:15]

Offsets = Annotated[list[U64], Meta(min_length=1)]
I32 = Annotated[int, Meta(ge=-0x8000_0000, le=0x7FFF_FFFF)]

_CODES = {code.wire: code for code in Code}
_T = TypeVar("_T")


class Attach(msgspec.Struct, frozen=True, array_like=True):
    """A stream, and `client.ConsumerSpec` of it."""

    stream: U64
    group: U16
    queue: U64
    name: Name
    """Of the consumer group."""
    session: U64
    epoch: U32
    origin: U8
    credit: U32
    priority: I32
    exclusive: bool
    auto_ack: bool
    pull: bool
    is_over: bool
    """It was cancelled, and takes nothing more."""
    lease_ms: U64 | None
    filter: GroupFilter | None
    held: list[U64]
    """What the gateway holds of it, or has settled and not heard that this is applied."""


class Settle(msgspec.Struct, frozen=True, array_like=True):
    """`Client.settle`."""

    number: U64
    stream: U64
    how: Settlement
    reason: Reason
    offsets: Offsets
    is_answered: bool
    is_repeat: bool
    """It may have been carried out before."""


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Settlements of one Raft group."""

    group: U16
    number: U64
    acks: list[tuple[U64, Offsets]]
    """Of streams."""
    settles: list[Settle]


class Turn(msgspec.Struct, frozen=True, array_like=True):
    """A TURN; carried out in this order."""

    credits: list[tuple[U64, I32]]
    blocks: list[Block]
    cancels: list[tuple[U64, list[U64]]]
    """Streams, and what the gateway goes on holding of them."""


class Claimed(msgspec.Struct, frozen=True, array_like=True):
    """A CLAIMED."""

    group: U16
    term: U64


Delivery = tuple[U64, U64, list[U64], list[U32] | None, list[U32]]
"""(stream, lease, offsets, attempts, lengths of the slots)."""


class Attached(msgspec.Struct, frozen=True, array_like=True):
    """An ATTACHED."""

    stream: U64
    is_new: bool
    """The leader did not know it: what is claimed has been counted as failed once."""
    refused: list[U64]
    """Of what the gateway claimed."""


class Settled(msgspec.Struct, frozen=True, array_like=True):
    """A SETTLED."""

    group: U16
    number: U64
    failed: list[U64]


class Ended(msgspec.Struct, frozen=True, array_like=True):
    """An ENDED."""

    stream: U64
    code: str
    message: str

    @property
    def error(self) -> KernelError:
        """Why."""
        return KernelError(_CODES.get(self.code, Code.UNAVAILABLE), self.message)


def encode(head: object) -> list[bytes]:
    """A message without bodies."""
    return message_of(head)


attaches = msgspec.msgpack.Decoder(list[Attach])
turns = msgspec.msgpack.Decoder(Turn)
claims = msgspec.msgpack.Decoder(Claimed)
serves = msgspec.msgpack.Decoder(list[tuple[U16, U64]])
"""(group, term) of each."""
gone = msgspec.msgpack.Decoder(list[U16])
attached = msgspec.msgpack.Decoder(list[Attached])
taken = msgspec.msgpack.Decoder(tuple[U16, U64])
settled = msgspec.msgpack.Decoder(Settled)
ended = msgspec.msgpack.Decoder(Ended)
_deliveries = msgspec.msgpack.Decoder(list[Delivery])


def decode(payload: bytes, decoder: msgspec.msgpack.Decoder[_T]) -> _T:
    """A message without bodies. Raises WireError."""
    head, reader = split(payload, decoder)
    reader.end()
    return head


def decode_turn(payload: bytes) -> Turn:
    """A TURN. Raises WireError."""
    turn = decode(payload, turns)
    for block in turn.blocks:
        if any(each.how is Settlement.SKIP for each in block.settles):
            raise WireError("a gateway filters nothing out")
    return turn


def encode_deliver(heads: Sequence[object], slots: Sequence[bytes]) -> list[bytes]:
    """A DELIVER (hot)."""
    return message_of(heads, *slots)


def decode_deliver(payload: bytes) -> list[tuple[Delivery, list[bytes]]]:
    """A DELIVER: what comes for each stream, and its slots (hot). Raises WireError."""
    heads, reader = split(payload, _deliveries)
    found: list[tuple[Delivery, list[bytes]]] = []
    for head in heads:
        _, _, offsets, attempts, lengths = head
        count = len(lengths)
        if not count or len(offsets) != count:
            raise WireError(f"{len(offsets)} offsets and {count} messages")
        if attempts is not None and len(attempts) != count:
            raise WireError(f"{len(attempts)} attempts and {count} messages")
        found.append((head, reader.take_each(lengths)))
    reader.end()
    return found
