"""Transactions and half messages on their way to a leader, as bytes (`wire`, `calls`).

TRANSACT  done once, in its lane   msgpack of `calls.Transact` | slots
PREPARE   done once, in its lane   msgpack of `calls.Prepare` | slot

A consumer of the gateway goes by the number of its stream (`streams.wire`); 0: it is gone, so that
what it held is lost, unless the transaction has been carried out before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import msgspec

from ...api.atomic import (
    TRANSACTION_MESSAGES_MAX,
    TRANSACTION_PARTS_MAX,
    TRANSACTION_SETTLEMENTS_MAX,
)
from ...api.message import HEADER_BYTES
from ...common.ids import Offset, QueueId, RaftGroup
from ...common.limits import GROUP_NAME_BYTES_MAX
from ...requests.leader import Identity, LeaseChanging, Together
from ...requests.publish_part import Part
from .call_numbers import Prepare, Transact
from .call_wire import WireError, message_of, messages_of, split

_transact = msgspec.msgpack.Decoder(Transact)
_prepare = msgspec.msgpack.Decoder(Prepare)


class StreamConsumer(Protocol):
    """A consumer of a queue whose leader is far away, and knows it by its stream."""

    number: int
    """Of the stream."""
    is_attached: bool
    """The leader has taken it in."""
    is_gone: bool
    """Forgotten: what it held is lost."""


Changes = list[tuple[QueueId, str, Sequence[LeaseChanging]]]


def encode_transact(
    at: tuple[RaftGroup, int], identity: Identity, what: Together, origin: int
) -> list[bytes]:
    """A TRANSACT; `at`: group and lane. Its consumers are `StreamConsumer`s."""
    settlements: list[object] = []
    for each in what.settlements:
        stream = cast("StreamConsumer", each.consumer)
        number = 0 if stream.is_gone else stream.number
        settlements.append((number, each.how, each.reason, each.offsets))
    changes = [
        (
            queue,
            group,
            [(each.offset, each.lease, each.verb, each.reason, each.delay_ms) for each in some],
        )
        for queue, group, some in what.changes
    ]
    part = what.part
    messages = (part.runs, part.lengths, origin, part.retained, part.routed)
    return message_of((*at, identity, *messages, settlements, changes), *part.buffers)


def decode_transact(payload: bytes) -> tuple[Transact, Changes, Part]:
    """A TRANSACT, its changes of leases, and its messages. Raises WireError."""
    head, reader = split(payload, _transact)
    part = messages_of(head, reader)
    if not all(offsets for *_, offsets in head.settlements):
        raise WireError("a settlement of nothing")
    _check_limits(head)
    changes: Changes = []
    for queue, group, some in head.changes:
        if not some or any(delay_ms >= 1 << 62 for *_, delay_ms in some):
            raise WireError("no changes of leases, or a delay beyond all times")
        packed = [LeaseChanging(Offset(offset), *others) for offset, *others in some]  # type: ignore[arg-type]
        changes.append((QueueId(queue), group, packed))
    return head, changes, part


def _check_limits(head: Transact) -> None:
    """What `kernel.transactions.transactor` keeps: more would not fit into one entry."""
    settled = sum(len(offsets) for *_, offsets in head.settlements)
    settled += sum(len(some) for *_, some in head.changes)
    if (
        len(head.lengths) > TRANSACTION_MESSAGES_MAX
        or settled > TRANSACTION_SETTLEMENTS_MAX
        or len(head.settlements) + len(head.changes) > TRANSACTION_PARTS_MAX
    ):
        raise WireError("a transaction beyond its limits")


def encode_prepare(
    at: tuple[RaftGroup, int],
    identity: Identity,
    producers: str,
    queue: QueueId,
    parts: Sequence[bytes],
) -> list[bytes]:
    """A PREPARE."""
    return message_of(Prepare(*at, identity, queue, producers), *parts)


def decode_prepare(payload: bytes) -> tuple[Prepare, bytes]:
    """A PREPARE and its slot. Raises WireError."""
    head, reader = split(payload, _prepare)
    slot = reader.rest()
    if len(slot) < HEADER_BYTES:
        raise WireError("a slot without a whole header")
    if not 1 <= len(head.producers.encode()) <= GROUP_NAME_BYTES_MAX:
        raise WireError("no name of a producer group")
    return head, slot
