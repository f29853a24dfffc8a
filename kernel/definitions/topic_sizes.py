"""Topics that have a size: metadata records of group 0, which every process has.

    sizes/TENANT/NAME      (the record's key; each part percent-encoded)
    MessagePack of TopicSize

A record is of the one topic that had that name when it was written: the next one of the same name
has no size, and the leader of its home removes the record (`topic_records`). One that cannot
be read, of a later version perhaps, is as good as none.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from math import ceil

import msgspec

from ..api.model import TopicInfo
from ..common.errors import UNDECODABLE, Code, KernelError
from ..quotas.limits import LimitSet, SizeLimit
from . import topic_records
from .sizes import QUEUE, Size, queues_for

PREFIX = "sizes/"

SIZES_MAX = 1_000
"""Topics with a size: each is asked about once a second."""

key_of = partial(topic_records.key_of, PREFIX)
name_of_key = partial(topic_records.name_of_key, PREFIX)


class Above(StrEnum):
    """What becomes of publishers above the largest size of a topic."""

    SERVE = "serve"
    """They are served, as far as the stores are able to: a size bounds nothing."""
    WAIT = "wait"
    """They are delayed, as above a limit of the topic (`kernel.quotas`)."""
    FAIL = "fail"
    """They are refused at once, where their protocol has a word for no."""


class TopicSize(msgspec.Struct, frozen=True, array_like=True):
    """Between which two sizes a topic is; with the same one twice it is fixed. Both have the same
    figures; 0 bounds nothing. An older build reads past the last field.
    """

    topic: int
    """Id of the topic."""
    messages_min: float
    bytes_min: float
    messages_max: float
    bytes_max: float
    by_key: bool = False
    """See `changes.ResizeTopic`, as the next."""
    spread: bool = False
    above: Above = Above.SERVE

    @property
    def is_fixed(self) -> bool:
        """Whether it never grows or shrinks by itself."""
        return self.least == self.most

    @property
    def bound(self) -> SizeLimit | None:
        """What publishers may have together; None: anything."""
        if self.above is Above.SERVE:
            return None
        messages, size = (ceil(each) or None for each in (self.messages_max, self.bytes_max))
        limits = LimitSet(published_messages=messages, published_bytes=size)
        return SizeLimit(self.topic, limits, self.above is Above.FAIL)

    @property
    def least(self) -> Size:
        """The smallest size."""
        return Size(self.messages_min, self.bytes_min)

    @property
    def most(self) -> Size:
        """The largest one."""
        return Size(self.messages_max, self.bytes_max)

    def check(self) -> None:
        """Raise KernelError INVALID_ARGUMENT for sizes that no topic can be between."""
        queues_for(self.most)
        queues_for(self.least)
        pairs = (
            (self.messages_min, self.messages_max),
            (self.bytes_min, self.bytes_max),
        )
        if any(least > most or bool(least) != bool(most) for least, most in pairs):
            message = "a size from one to another has the same figures in both, rising"
            raise KernelError(Code.INVALID_ARGUMENT, message)

    def clamp(self, queues: int) -> int:
        """How many queues a topic has by this size that has so many."""
        return min(max(queues, queues_for(self.least)), queues_for(self.most))

    def of(self, queues: int) -> Size:
        """What may be published to so many queues, within the bounds."""
        return Size(
            min(max(self.messages_min, queues * QUEUE.messages), self.messages_max),
            min(max(self.bytes_min, queues * QUEUE.bytes), self.bytes_max),
        )


_decoder = msgspec.msgpack.Decoder(TopicSize)


def encode(size: TopicSize) -> bytes:
    """A record's value."""
    return msgspec.msgpack.encode(size)


def decode(value: bytes) -> TopicSize | None:
    """Inverse of `encode`; None for what cannot be read, or bounds nothing."""
    try:
        size = _decoder.decode(value)
        size.check()
    except (*UNDECODABLE, KernelError):
        return None
    return size


def size_of(topic: TopicInfo, record: tuple[int, bytes] | None) -> TopicSize | None:
    """The size of a topic, by the record of its name."""
    size = decode(record[1]) if record is not None else None
    return size if size is not None and size.topic == topic.id else None
