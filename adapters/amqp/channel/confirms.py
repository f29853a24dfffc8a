"""What a publisher is told: numbers given to publishes, and the acks and nacks that answer them.

Rules (confirm mode, RabbitMQ's extension):

1. Publishes of a channel are numbered from 1, in the order they came, unroutable ones too.
2. Each number is answered once it is known how the publish ended: ack, or nack.
3. The number that an ack or nack *names* was never answered before. aiormq looks that number up
   among those it waits for and, not finding it, drops the frame whole, with all that a
   multiple=true should have spoken for: those publishers wait for ever.
4. So of what is new in a turn, one ack with multiple=true names the highest number that lies below
   the lowest open one and below the lowest one nacked in this turn; whatever is done above that
   (batches of different Raft groups may finish in any order) is acked one by one. Such a multiple
   may cover numbers that were answered before: every client allows for that.
5. Nacks of a turn go out before its acks, one by one.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container

    from adapters.amqp.channel.open_channel import Channel

ACK_FRAME: Final = struct.Struct(">BHIIQBB")
"""A whole basic.ack, or basic.nack: head, method key, delivery tag, bits, frame end."""
ACK_SIZE: Final = 13
ACK_KEY: Final = 60 << 16 | 80
NACK_KEY: Final = 60 << 16 | 120


class Confirms:
    """The confirm numbers of one channel."""

    __slots__ = ("_ahead", "_fresh", "_nacked", "acked", "floor", "nacked", "published")

    def __init__(self) -> None:
        self.published = 0
        """The last number given."""
        self.floor = 0
        """Every number up to this one is answered, or will be by the next `take`."""
        self._ahead: dict[int, int] = {}
        """First to last number of ranges above the floor that are done or have failed."""
        self._fresh: list[tuple[int, int]] = []
        """First and last number of ranges that are done since the last `take`."""
        self._nacked: list[int] = []
        self.acked = 0
        self.nacked = 0

    def done(self, first: int, last: int) -> None:
        """The publishes first..last are stored, or needed no storing."""
        self.acked += last - first + 1
        self._fresh.append((first, last))
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
        bound = self.floor
        frames: list[bytes] = []
        if self._nacked:
            frames.extend(_frame(channel, NACK_KEY, number) for number in self._nacked)
            bound = min(bound, min(self._nacked) - 1)
            self._nacked = []
        highest = count = 0
        singles: list[int] = []
        for first, last in self._fresh:
            if last > bound:
                singles.extend(range(max(first, bound + 1), last + 1))
                last = bound  # noqa: PLW2901 - the part of it that a multiple may name
            if last >= first:
                count += last - first + 1
                highest = max(highest, last)
        self._fresh = []
        if count:
            frames.append(_frame(channel, ACK_KEY, highest, multiple=count > 1))
        frames.extend(_frame(channel, ACK_KEY, number) for number in singles)
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
