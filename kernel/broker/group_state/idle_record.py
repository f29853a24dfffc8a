"""The record of an idle queue, as it lies in memory (`packed`).

    u8 1 if its topic was counted, else 0 | msgpack [tail, groups, trimmed, young runs, counts]

It comes to some 50 bytes. The counts stand in it if the topic has no other queue.
"""

from __future__ import annotations

import msgspec

from ..index.run_page import YoungRun
from .topic_usage import NOTHING_COUNTED, Counted, TopicUsage, usage_of

IdleGroup = tuple[int, list[int], int, int]
"""(floor, marks, time of last use, expired)"""


class IdleQueue(msgspec.Struct, frozen=True, array_like=True):
    """An idle queue, as its record says."""

    tail: int
    groups: dict[str, IdleGroup]
    trimmed: int
    young: list[YoungRun]
    counted: Counted | None

    @property
    def usage(self) -> TopicUsage:
        """What was counted of the topic, if it has no other queue."""
        return NOTHING_COUNTED if self.counted is None else usage_of(self.counted)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(IdleQueue).decode


def write(packed: IdleQueue, *, is_counted: bool) -> bytes:
    """Encode an idle queue."""
    return bytes((is_counted,)) + _encode(packed)


def read(data: bytes) -> IdleQueue:
    """Decode what `write` encoded."""
    return _decode(memoryview(data)[1:])


def is_counted(data: bytes) -> bool:
    """Whether the record has the counts of its topic."""
    return bool(data[0])
