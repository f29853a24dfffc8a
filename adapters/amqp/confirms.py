"""What a publisher is told: numbers given to publishes, and the acks and nacks that answer them.

Rules (confirm mode, RabbitMQ's extension):

1. Publishes of a channel are numbered from 1, in the order they came, unroutable ones too.
2. Each number is answered once it is known how the publish ended: ack, or nack.
3. Answers are coalesced. All numbers up to the *floor* are answered, so one ack with
   multiple=true speaks for every ack below it. Numbers that are done before lower ones (batches of
   different Raft groups may finish in any order) are acked one by one at once; a later
   multiple=true repeats them, which clients allow for.
4. Nacks of a turn go out before its acks: a client that learns of a nack takes the number off its
   list, and so is not misled by a multiple ack that covers it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container

    from adapters.amqp.channel import Channel

ACK_FRAME: Final = struct.Struct(">BHIIQBB")
"""A whole basic.ack, or basic.nack: head, method key, delivery tag, bits, frame end."""
ACK_SIZE: Final = 13
ACK_KEY: Final = 60 << 16 | 80
NACK_KEY: Final = 60 << 16 | 120


class Confirms:
    """The confirm numbers of one channel."""

    __slots__ = ("_ahead", "_nacked", "_singles", "_told", "acked", "floor", "nacked", "published")

    def __init__(self) -> None:
        self.published = 0
        """The last number given."""
        self.floor = 0
        """Every number up to this one is answered, or will be by the next `take`."""
        self._ahead: dict[int, int] = {}
        """First to last number of ranges above the floor that are done."""
        self._singles: list[int] = []
        self._nacked: list[int] = []
        self._told = 0
        self.acked = 0
        self.nacked = 0

    def done(self, first: int, last: int) -> None:
        """The publishes first..last are stored, or needed no storing."""
        self.acked += last - first + 1
        if first != self.floor + 1:
            self._singles.extend(range(first, last + 1))
        self._advance(first, last)

    def failed(self, number: int) -> None:
        """A publish is not stored."""
        self.nacked += 1
        self._nacked.append(number)
        self._advance(number, number)

    def _advance(self, first: int, last: int) -> None:
        if first != self.floor + 1:
            self._ahead[first] = last
            return
        ahead = self._ahead
        while ahead and (further := ahead.pop(last + 1, None)) is not None:
            last = further
        self.floor = last

    def take(self, channel: int) -> bytes:
        """The frames that tell the client what is new since the last call."""
        floor = self.floor
        frames: list[bytes] = []
        nacked = self._nacked
        if nacked:
            frames.extend(_frame(channel, NACK_KEY, number) for number in nacked)
        if self._singles:
            frames.extend(
                _frame(channel, ACK_KEY, number) for number in self._singles if number > floor
            )
            self._singles = []
        told = self._told
        if floor > told:
            self._told = floor
            # A multiple ack whose range holds nothing but nacks would say nothing.
            if not nacked or not _covers(nacked, told, floor):
                frames.append(_frame(channel, ACK_KEY, floor, multiple=floor - told > 1))
        if nacked:
            self._nacked = []
        return b"".join(frames)


class Segment:
    """Publishes of one channel that stand together in a batch and have consecutive numbers."""

    __slots__ = ("_confirms", "channel", "first", "last", "position")

    def __init__(self, channel: Channel, confirms: Confirms, position: int, number: int) -> None:
        self.channel = channel
        self._confirms = confirms
        self.position = position
        """Position of the first one in the batch."""
        self.first = number
        self.last = number

    def answered(self, failures: Container[int] | None) -> None:
        """The batch is stored, but for the positions in `failures`."""
        confirms = self._confirms
        if failures:
            offset = self.first - self.position
            for number in range(self.first, self.last + 1):
                if number - offset in failures:
                    confirms.failed(number)
                else:
                    confirms.done(number, number)
        else:
            confirms.done(self.first, self.last)
        self.channel.has_news()


def _frame(channel: int, key: int, number: int, *, multiple: bool = False) -> bytes:
    return ACK_FRAME.pack(1, channel, ACK_SIZE, key, number, multiple, 0xCE)


def _covers(numbers: list[int], low: int, high: int) -> bool:
    """Whether `numbers` holds every number above `low` and up to `high`."""
    return len({number for number in numbers if low < number <= high}) == high - low
