"""What gateways and leaders say to each other about push streams (docs/adr/0009 "Push streams").

    gateway -> store, all in the control lane, and so in order:
    ATTACH    streams, with what the gateway holds of them already
    STREAM_BATCH  what a turn of the gateway's loop brought: credit, acks, settlements,
              cancellations, pulls
    CLAIMED   every stream of a Raft group has been attached: nothing more is claimed
    LEFT      the gateway ends: it claims nothing any more

    store -> gateway, all in the bulk lane, and so in order:
    SERVES    the store leads these groups from now on: attach here
    GONE      it does not any more: its streams are no more
    ATTACHED  a stream is there; what of it is leased to the gateway no more
    DELIVER   messages, of any number of streams
    TAKEN     settlements up to this number are applied
    SETTLED   the answer to one settlement
    ENDED     a stream is over, or could not be attached, and why
    TOOK      a pull is over, and what it brought has been delivered

A gateway serves what lives in its memory to other gateways in the same way: it says what a store
says, of TRANSIENT_GROUP alone.

    payload: u32 bytes of the head | head: msgpack | of DELIVER: the slots, as they are stored

Streams and pools are numbered by the gateway's process; numbers are never used again. A pool is
made by the first stream that names it. Settlements are numbered by the gateway for each group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from ...api.client import Settlement
from ...api.message import HEADER_BYTES
from ...api.model import GroupFilter, Reason
from ...common.errors import KernelError, error_named
from ..leader_calls.call_numbers import STREAMS, U8, U16, U32, U64, Name
from ..leader_calls.call_wire import WireError, message_of, split

ATTACH, STREAM_BATCH, CLAIMED, LEFT = STREAMS[0:4]
SERVES, GONE, ATTACHED, DELIVER, TAKEN, SETTLED, ENDED, TOOK = STREAMS[8:16]

MESSAGES_MAX = 1_024
"""Messages of one pull: more are a matter of more pulls."""

Offsets = Annotated[list[U64], Meta(min_length=1)]
Messages = Annotated[int, Meta(ge=1, le=MESSAGES_MAX)]
I32 = Annotated[int, Meta(ge=-0x8000_0000, le=0x7FFF_FFFF)]

_T = TypeVar("_T")


class Attach(msgspec.Struct, frozen=True, array_like=True):
    """A stream, and `client.ConsumerSpec` of it."""

    stream: U64
    pool: U64
    """From which it takes its credit."""
    group: U16
    queue: U64
    name: Name
    """Of the consumer group."""
    subscriber: U64
    epoch: U32
    """Of the subscriber that consumes; a later one ends this stream. 0: no subscriber does."""
    origin: U8
    priority: I32
    exclusive: bool
    auto_ack: bool
    pull: bool
    is_over: bool
    """It was cancelled, and takes nothing more."""
    filter: GroupFilter | None
    held: list[U64]
    """What the gateway holds of it, or has settled and not heard that this is applied."""


class Settle(msgspec.Struct, frozen=True, array_like=True):
    """Carries one `Client.settle` to the leader of its stream."""

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


class StreamBatch(msgspec.Struct, frozen=True, array_like=True):
    """A STREAM_BATCH; carried out in this order."""

    credits: list[tuple[U64, I32]]
    """More credit of pools, or less."""
    blocks: list[Block]
    cancels: list[tuple[U64, list[U64]]]
    """Streams, and what the gateway goes on holding of them."""
    takes: list[tuple[U64, U64, Messages, U32]]
    """(stream, number, messages, ms to wait) of pulls; each is answered by a TOOK."""
    over: list[U64]
    """Pools that have no streams any more."""


class Claimed(msgspec.Struct, frozen=True, array_like=True):
    """The answer CLAIMED to what a gateway claims."""

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
        """The error that ended the stream."""
        return error_named(self.code, self.message)


class Took(msgspec.Struct, frozen=True, array_like=True):
    """A TOOK."""

    stream: U64
    number: U64
    ready: U64
    """Messages of the queue that are left (a hint)."""
    code: str = ""
    """Why nothing could be pulled; empty: it could."""
    message: str = ""

    @property
    def error(self) -> KernelError | None:
        """Why nothing could be pulled."""
        if not self.code:
            return None
        return error_named(self.code, self.message)


def encode(head: object) -> list[bytes]:
    """Encode a message without bodies."""
    return message_of(head)


attaches = msgspec.msgpack.Decoder(list[Attach])
turns = msgspec.msgpack.Decoder(StreamBatch)
left = msgspec.msgpack.Decoder(list[U16])
"""Nothing: an empty list."""
claims = msgspec.msgpack.Decoder(Claimed)
serves = msgspec.msgpack.Decoder(list[tuple[U16, U64]])
"""(group, term) of each."""
gone = msgspec.msgpack.Decoder(list[U16])
attached = msgspec.msgpack.Decoder(list[Attached])
taken = msgspec.msgpack.Decoder(tuple[U16, U64])
settled = msgspec.msgpack.Decoder(Settled)
ended = msgspec.msgpack.Decoder(Ended)
took = msgspec.msgpack.Decoder(Took)
_deliveries = msgspec.msgpack.Decoder(list[Delivery])


def decode(decoder: msgspec.msgpack.Decoder[_T], payload: bytes) -> _T:
    """A message without bodies. Raises WireError."""
    head, reader = split(payload, decoder)
    reader.end()
    return head


def decode_stream_batch(payload: bytes) -> StreamBatch:
    """Decode a STREAM_BATCH. Raises WireError."""
    turn = decode(turns, payload)
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
        if min(lengths) < HEADER_BYTES:
            raise WireError("a slot without a whole header")
        found.append((head, reader.take_each(lengths)))
    reader.end()
    return found
