"""The notes of a session, kept in its subscriber's record: exchanges under way, and some
subscriptions.

    key                     value
    "i" packet id:u16       sequence:u64                       a QoS 2 PUBLISH that we receive
    "o" packet id:u16       state:u8 queue:u64 offset:u64      a delivery that we send
                              [uid:2 u64]                      (uid: if other filters match it too)
    "q" filter              options                            a subscription without storage
    "t" filter              options                            a membership in a topic's group

All numbers are big-endian; `options` as `subscription.Options.encoded` has them.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Uid: TypeAlias = tuple[int, int]
"""What a message is known by wherever it lies."""

Change: TypeAlias = tuple[bytes, bytes | None]
"""A note and what becomes of it; None removes it."""

_SEQUENCE: Final = Struct(">Q")
_DELIVERY: Final = Struct(">BQQ")
_UID: Final = Struct(">QQ")
_RECEIVED: Final = b"i"
_SENT: Final = b"o"
LIVE_SUBSCRIPTION: Final = b"q"
TOPIC_MEMBERSHIP: Final = b"t"


class DeliveryProgress(IntEnum):
    """How far a delivery has come."""

    AT_LEAST_ONCE = 1
    """QoS 1, not acknowledged when the connection ended."""
    EXACTLY_ONCE = 2
    """QoS 2, sent or about to be."""
    RELEASED = 3
    """QoS 2, and PUBREC came: PUBREL is sent again, PUBLISH never."""


class Delivery(NamedTuple):
    """A delivery of an earlier connection."""

    packet_id: int
    progress: DeliveryProgress
    queue: int
    offset: int
    uid: Uid | None = None
    """Of a message that may come by other queues too."""


def received(packet_id: int, sequence: int) -> Change:
    """A QoS 2 PUBLISH has come and is stored under a number."""
    return _RECEIVED + packet_id.to_bytes(2, "big"), _SEQUENCE.pack(sequence)


def released(packet_id: int) -> Change:
    """A QoS 2 PUBLISH has been released: forget its number."""
    return _RECEIVED + packet_id.to_bytes(2, "big"), None


def delivery(
    packet_id: int, progress: DeliveryProgress, queue: int, offset: int, uid: Uid | None = None
) -> Change:
    """A delivery has an identifier."""
    value = _DELIVERY.pack(progress, queue, offset)
    if uid is not None:
        value += _UID.pack(*uid)
    return _SENT + packet_id.to_bytes(2, "big"), value


def delivered(packet_id: int) -> Change:
    """A delivery has been acknowledged: forget its identifier."""
    return _SENT + packet_id.to_bytes(2, "big"), None


def received_of(notes: Mapping[bytes, bytes]) -> dict[int, int]:
    """The QoS 2 PUBLISHes that have come: packet identifier to number."""
    return {
        int.from_bytes(key[1:], "big"): _SEQUENCE.unpack(value)[0]
        for key, value in notes.items()
        if key.startswith(_RECEIVED)
    }


def deliveries_of(notes: Mapping[bytes, bytes]) -> list[Delivery]:
    """What an earlier connection had in flight."""
    found: list[Delivery] = []
    for key, value in notes.items():
        if key.startswith(_SENT):
            progress, queue, offset = _DELIVERY.unpack_from(value)
            uid = _UID.unpack_from(value, _DELIVERY.size) if len(value) > _DELIVERY.size else None
            packet_id = int.from_bytes(key[1:], "big")
            found.append(Delivery(packet_id, DeliveryProgress(progress), queue, offset, uid))
    return found


def subscriptions_of(notes: Mapping[bytes, bytes], kind: bytes) -> dict[str, bytes]:
    """Filter to options, of the subscriptions kept as notes of one kind."""
    return {key[1:].decode(): value for key, value in notes.items() if key.startswith(kind)}
