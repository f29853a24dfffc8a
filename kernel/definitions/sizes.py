"""Sizes of topics: what may be published to one a second, and how many queues that takes.

A size is messages a second, bytes a second, or both; or the name of a class. One queue is meant to
have no more than QUEUE, a tenth of what a store can do: so queues are small enough to be spread
(ADR 30), and what one key brings has room in one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from ..common.errors import Code, KernelError
from ..common.ids import QUEUES_PER_TOPIC_MAX


@dataclass(frozen=True, slots=True)
class Size:
    """What may be published to a topic a second. 0: that figure bounds nothing."""

    messages: float = 0.0
    bytes: float = 0.0

    def part(self, messages: float, size: float) -> float:
        """What part of it is used by so many messages and bytes a second; 1: all."""
        found = messages / self.messages if self.messages else 0.0
        return max(found, size / self.bytes if self.bytes else 0.0)


QUEUE = Size(2_500, 10e6)
"""A store that leads takes some 25,000 messages of 1 KB a second from several protocols
(benchmarks/RESULTS.md), and 100 MB/s of larger ones."""

CLASSES = {
    "small": Size(500, 1e6),
    "medium": Size(5_000, 10e6),
    "large": Size(50_000, 100e6),
}

LARGEST = Size(QUEUE.messages * QUEUES_PER_TOPIC_MAX, QUEUE.bytes * QUEUES_PER_TOPIC_MAX)
"""More than so many queues no topic has."""


def size_of_class(name: str) -> Size:
    """KernelError INVALID_ARGUMENT: there is no such class."""
    try:
        return CLASSES[name]
    except KeyError:
        known = ", ".join(CLASSES)
        message = f"there is no size {name[:64]!r}: it is one of {known}, or figures"
        raise KernelError(Code.INVALID_ARGUMENT, message) from None


def queues_for(size: Size, queue: Size = QUEUE) -> int:
    """How many queues a size takes, if one may have `queue`. KernelError INVALID_ARGUMENT: more
    than a topic can have, nothing at all, or less.
    """
    if min(size.messages, size.bytes) < 0 or not size.messages + size.bytes > 0:
        raise KernelError(Code.INVALID_ARGUMENT, "a size is above 0 messages or bytes a second")
    needed = queue.part(size.messages, size.bytes)
    if not needed <= QUEUES_PER_TOPIC_MAX:
        message = (
            f"{size.messages:.0f} messages and {size.bytes:.0f} bytes a second are more than the "
            f"{LARGEST.messages:.0f} and {LARGEST.bytes:.0f} of a topic's {QUEUES_PER_TOPIC_MAX} "
            "queues: use several topics"
        )
        raise KernelError(Code.INVALID_ARGUMENT, message)
    return max(1, ceil(needed))
