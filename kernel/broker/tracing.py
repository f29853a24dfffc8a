"""What becomes of messages of traced topics, noted by the leader as it applies the log.

A topic that is traced has a `TopicTrace` at its `TopicState.trace`, at the leader only and in
memory only; any other has None there, which is all that is asked of it for each batch. Events are
of ranges of offsets, so that a batch of acks is one event. They wait in a `TraceBuffer` for whoever
writes them down: where there is no room they are dropped and counted, and nothing waits for them.

Of a topic that is sampled, one message in SAMPLE_ONE_IN is traced: one of each block of so many
offsets of a queue, by the number of the block. Every event of a message comes to the same choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

import msgspec

from ..api import message as messages
from ..api.tracing import ConnectedUser, TraceMode
from ..common.ids import NUMBER_BITS, LogIndex, QueueId, RaftGroup, TopicId
from ..log.format import entry as entries
from ..log.format.entry import Opened
from .index.runs import RunIndex

SAMPLE_ONE_IN = 100

BUFFER_BYTES = 8 * 1024 * 1024
"""Of all topics, for a second or two: what 300,000 messages a second take that are all traced."""

TOPIC_BYTES = 2 * 1024 * 1024
"""Of one topic: another's burst leaves room for it."""

RANGES_MAX = 1_000
"""Of one event: a message of the stream holds some events at least."""

UID_BYTES = 16

HELD_BYTES = 56
"""What Python adds to the bytes of an event that waits."""

_MIX = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1

Range = tuple[int, int]
"""First offset, and how many."""


class Event(NamedTuple):
    """Something that has become of messages. A field may be added behind the last one, with a
    default: what was written before is read too.
    """

    what: int
    """See `What`."""
    time_ms: int
    """Log time; of what a client's process notes, its wall clock."""
    queue: int
    """Its number."""
    group: str
    """Consumer group; "": of none."""
    origin: int
    """Whose command it was; 0: nobody's."""
    reason: str
    """"": none."""
    until_ms: int
    """Log time; 0: not for a time."""
    ranges: list[Range]
    uids: bytes
    """Of STORED those of all messages, 16 bytes each, one after the other; of MOVED and CAME that
    of the message at the other place."""
    by: ConnectedUser | None = None
    """None: not known here."""


class What(IntEnum):
    """What has become of messages. Part of the format: never renumbered."""

    STORED = 1
    HANDED_OUT = 2
    """To a consumer that holds it until it settles it, or its connection ends."""
    LEASED = 3
    """For a time."""
    EXTENDED = 4
    ACKED = 5
    RELEASED = 6
    """Ready again, the attempt counted."""
    RETURNED = 7
    """Ready again, for it has reached nobody."""
    GIVEN_UP = 8
    """Left its group unacked: for a dead-letter target, if the group has one."""
    SKIPPED = 9
    """Not for this group, by a filter."""
    PURGED = 10
    TRIMMED = 11
    """Let go by retention."""
    PUBLISHED = 12
    """By a connection, as the next two: noted by the process that has it (`client_trace`)."""
    TAKEN = 13
    SETTLED = 14
    """It was asked for; what came of it the leader notes."""
    MOVED = 15
    """To another topic: a dead letter, or by a move."""
    CAME = 16
    """The same at the other end."""
    READ = 17
    """Shown to somebody who has not taken it."""


def picked(queue: int, block: int) -> int:
    """The offset that is traced of a queue's block of SAMPLE_ONE_IN offsets."""
    mixed = ((queue ^ (block * _MIX)) * _MIX) & _MASK
    return block * SAMPLE_ONE_IN + (mixed >> 33) % SAMPLE_ONE_IN


def sampled(queue: int, ranges: Iterable[Range]) -> list[Range]:
    """Those offsets of some ranges that are traced of a queue that is sampled: half a microsecond
    for each hundred offsets, so some 5 ms where a million are purged.
    """
    found: list[Range] = []
    for first, count in ranges:
        for block in range(first // SAMPLE_ONE_IN, (first + count - 1) // SAMPLE_ONE_IN + 1):
            offset = picked(queue, block)
            if first <= offset < first + count:
                found.append((offset, 1))
    return found


def wanted_of(mode: TraceMode, queue: int, ranges: Sequence[Range]) -> list[Range]:
    """Those offsets of some ranges that are traced of a queue."""
    if mode is TraceMode.ALL:
        return [each for each in ranges if each[1] > 0]
    return sampled(queue, ranges)


def ranges_of(offsets: Sequence[int]) -> list[Range]:
    """Offsets that rise mostly, as ranges."""
    found: list[Range] = []
    if not offsets:
        return found
    first = behind = offsets[0]
    for offset in offsets:
        if offset != behind:
            found.append((first, behind - first))
            first = offset
        behind = offset + 1
    found.append((first, behind - first))
    return found


class ReadEntry(Protocol):
    """Reads log entries."""

    def __call__(
        self, group: RaftGroup, index: LogIndex, has_read: Callable[[bytes | None], None], /
    ) -> None:
        """Have `has_read` called with an entry that something refers to, which may be at once; with
        None if it does not read, or is not wanted any more.
        """


class PushedTo(Protocol):
    """A consumer, as it is noted."""

    origin: int

    @property
    def by(self) -> ConnectedUser | None:
        """Who has it, if that is to be noted where it is given something."""


_encode_into = msgspec.msgpack.Encoder().encode_into


class TraceBuffer:
    """Events of one process that wait to be written, as they will be."""

    def __init__(self, total_bytes: int = BUFFER_BYTES, topic_bytes: int = TOPIC_BYTES) -> None:
        self._total_bytes = total_bytes
        self._topic_bytes = topic_bytes
        self._events: dict[TopicId, list[bytes]] = {}
        self._sizes: dict[TopicId, int] = {}
        self._encoded = bytearray()
        """The last event: what `encode` makes takes up to half as much again as it says."""
        self.bytes = 0
        """So many are held."""
        self.dropped = 0
        """Events that nobody will read: there was no room, or they could not be written."""

    def add(self, topic: TopicId, event: Event) -> None:
        """Keep an event, if there is room; one of very many ranges as several."""
        if len(event.ranges) > RANGES_MAX:
            for at in range(0, len(event.ranges), RANGES_MAX):
                self.add(topic, event._replace(ranges=event.ranges[at : at + RANGES_MAX]))
            return
        _encode_into(event, self._encoded)
        encoded = bytes(self._encoded)
        size = len(encoded) + HELD_BYTES
        of_topic = self._sizes.get(topic, 0) + size
        if of_topic > self._topic_bytes or self.bytes + size > self._total_bytes:
            self.dropped += 1
            return
        self._events.setdefault(topic, []).append(encoded)
        self._sizes[topic] = of_topic
        self.bytes += size

    def take(self) -> dict[TopicId, list[bytes]]:
        """All that waits, as msgpack, which is the caller's from now on."""
        taken, self._events = self._events, {}
        self._sizes, self.bytes = {}, 0
        return taken


class TopicTrace:
    """Notes what becomes of the messages of one topic, of the queues of one Raft group."""

    __slots__ = ("_buffer", "_read", "_topic", "mode")

    def __init__(
        self, topic: TopicId, mode: TraceMode, buffer: TraceBuffer, read: ReadEntry
    ) -> None:
        self._topic = topic
        self.mode = mode
        self._buffer = buffer
        self._read = read

    def stored(
        self,
        queue: QueueId,
        index: RunIndex,
        start: int,
        opened: Opened,
        time_ms: int,
        origin: int,
    ) -> None:
        """Messages have come to a queue, from `start` on, by the entry `opened`."""
        for first, count in wanted_of(self.mode, queue, [(start, index.tail - start)]):
            self._add(
                What.STORED,
                time_ms,
                queue,
                "",
                origin,
                [(first, count)],
                uids=b"".join(self._uids(index, first, first + count, opened)),
            )

    def committed(
        self,
        group: RaftGroup,
        queue: QueueId,
        offset: int,
        at: tuple[LogIndex, int],
        time_ms: int,
        origin: int,
    ) -> None:
        """A half message is a message of the queue from now on. Its uid stands in the entry that
        brought it (index, slot), long ago perhaps: all is noted once that was read.
        """

        def has_read(entry: bytes | None) -> None:
            slot = b"" if entry is None else entries.slot(entry, at[1])
            uid = messages.uid_at(slot, 0) if slot else b""
            self._add(What.STORED, time_ms, queue, "", origin, [(offset, 1)], uids=uid)

        if wanted_of(self.mode, queue, [(offset, 1)]):
            self._read(group, at[0], has_read)

    @staticmethod
    def _uids(index: RunIndex, start: int, end: int, opened: Opened) -> Iterable[bytes]:
        for _, slot, count, _ in index.stretches(start, end):
            for at in opened.bounds[slot : slot + count]:
                yield messages.uid_at(opened.body, at)

    def note(
        self,
        what: What,
        time_ms: int,
        queue: QueueId,
        group: str,
        origin: int,
        ranges: Sequence[Range],
        reason: str = "",
        until_ms: int = 0,
    ) -> None:
        """Something has become of messages for a group, by a command of `origin`."""
        wanted = wanted_of(self.mode, queue, ranges)
        if wanted:
            self._add(what, time_ms, queue, group, origin, wanted, reason, until_ms)

    def handed_out(
        self, consumer: PushedTo, time_ms: int, queue: QueueId, group: str, offsets: Sequence[int]
    ) -> None:
        """Messages are about to be given to a consumer that holds them; to whom, if it belongs to a
        connection of this process.
        """
        wanted = wanted_of(self.mode, queue, ranges_of(offsets))
        if wanted:
            self._add(What.HANDED_OUT, time_ms, queue, group, consumer.origin, wanted)
            by = consumer.by
            if by is not None:
                self._add(What.TAKEN, time_ms, queue, group, 0, wanted, by=by)

    def _add(
        self,
        what: What,
        time_ms: int,
        queue: QueueId,
        group: str,
        origin: int,
        ranges: list[Range],
        reason: str = "",
        until_ms: int = 0,
        uids: bytes = b"",
        by: ConnectedUser | None = None,
    ) -> None:
        number = queue & NUMBER_BITS
        event = Event(int(what), time_ms, number, group, origin, reason, until_ms, ranges, uids, by)
        self._buffer.add(self._topic, event)
