"""What gateways and stores tell each other about half messages, as bytes.

PREPARE  a call of a lane    see `wire`
WATCH    gateway tells       msgpack of ([(tenant, producers) come], [those gone])
CHECK    store tells         msgpack of `Check` | slot
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from ...api.transactions import HalfCheck
from ...common.limits import GROUP_NAME_BYTES_MAX
from ...requests.half_watches import Key
from ..leader_calls.call_numbers import HALVES, U32, U64, Name
from ..leader_calls.call_wire import decode, message_of, split

WATCH = HALVES.start + 1
CHECK = HALVES.start + 2

_encode = msgspec.msgpack.Encoder().encode
_Producers = Annotated[str, Meta(min_length=1, max_length=GROUP_NAME_BYTES_MAX)]
_Keys = list[tuple[Name, _Producers]]


class Check(msgspec.Struct, frozen=True, array_like=True):
    """`transactions.HalfCheck`, but for its slot."""

    tenant: Name
    topic: Name
    token: bytes
    prepared_ms: U64
    checks: U32
    producers: _Producers


_watch = msgspec.msgpack.Decoder(tuple[_Keys, _Keys])
_check = msgspec.msgpack.Decoder(Check)


def encode_watch(come: Sequence[Key], gone: Sequence[Key]) -> list[bytes]:
    """A WATCH."""
    return [_encode((come, gone))]


def decode_watch(payload: bytes) -> tuple[list[Key], list[Key]]:
    """A WATCH. Raises WireError."""
    return decode(_watch, payload)


def encode_check(check: HalfCheck) -> list[bytes]:
    """A CHECK."""
    head = Check(
        check.tenant,
        check.topic,
        check.token,
        check.prepared_ms,
        check.checks,
        check.producers,
    )
    return message_of(head, check.slot)


def decode_check(payload: bytes) -> HalfCheck:
    """A CHECK. Raises WireError."""
    head, reader = split(payload, _check)
    return HalfCheck(
        head.tenant,
        head.topic,
        head.token,
        reader.rest(),
        head.prepared_ms,
        head.checks,
        head.producers,
    )
