"""What becomes of messages of traced topics, noted by the leader as it applies the log.

A topic that is traced has a `TopicTrace` at its `TopicState.trace`, at the leader only and in
memory only; any other has None there, which is all that is asked of it for each batch. Events are
of ranges of offsets, so that a batch of acks is one event. They wait in a `TraceBuffer` for whoever
writes them down: where there is no room they are dropped and counted, and nothing waits for them.

Of a topic that is sampled, one message in SAMPLE_ONE_IN is traced: one of each block of so many
offsets of a queue, by the number of the block. Every event of a message comes to the same choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

from ..api import message as messages
from ..api.tracing import TraceMode
from ..common.ids import NUMBER_BITS, QueueId, TopicId
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

_EVENT_BYTES = 64
_RANGE_BYTES = 18
_MIX = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1

Range = tuple[int, int]
"""First offset, and how many."""

Event = tuple[int, int, int, str, int, str, int, list[Range], bytes]
"""What (`What`), log time (ms), number of the queue, consumer group ("": none), origin, reason
("": none), until when (log time in ms; 0: not for a time), ranges; of STORED the uids one after
the other (16 bytes each; none: not known, it was a half message)."""


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


class TraceBuffer:
    """Events of one process that wait to be written."""

    def __init__(self, total_bytes: int = BUFFER_BYTES, topic_bytes: int = TOPIC_BYTES) -> None:
        self._total_bytes = total_bytes
        self._topic_bytes = topic_bytes
        self._events: dict[TopicId, list[Event]] = {}
        self._sizes: dict[TopicId, int] = {}
        self.bytes = 0
        """About so many are waiting."""
        self.dropped = 0
        """Events that nobody will read: there was no room, or they could not be written."""

    def add(self, topic: TopicId, event: Event) -> None:
        """Keep an event, if there is room."""
        size = _EVENT_BYTES + _RANGE_BYTES * len(event[7]) + len(event[8])
        of_topic = self._sizes.get(topic, 0) + size
        if of_topic > self._topic_bytes or self.bytes + size > self._total_bytes:
            self.dropped += 1
            return
        self._events.setdefault(topic, []).append(event)
        self._sizes[topic] = of_topic
        self.bytes += size

    def take(self) -> dict[TopicId, list[Event]]:
        """All that waits, which is the caller's from now on."""
        taken, self._events = self._events, {}
        self._sizes, self.bytes = {}, 0
        return taken


class TopicTrace:
    """Notes what becomes of the messages of one topic, of the queues of one Raft group."""

    __slots__ = ("_buffer", "_topic", "mode")

    def __init__(self, topic: TopicId, mode: TraceMode, buffer: TraceBuffer) -> None:
        self._topic = topic
        self.mode = mode
        self._buffer = buffer

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
        for first, count in self._wanted(queue, [(start, index.tail - start)]):
            self._add(
                What.STORED,
                time_ms,
                queue,
                "",
                origin,
                [(first, count)],
                uids=b"".join(self._uids(index, first, first + count, opened)),
            )

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
        wanted = self._wanted(queue, ranges)
        if wanted:
            self._add(what, time_ms, queue, group, origin, wanted, reason, until_ms)

    def _wanted(self, queue: QueueId, ranges: Sequence[Range]) -> list[Range]:
        ranges = [each for each in ranges if each[1] > 0]
        return ranges if self.mode is TraceMode.ALL else sampled(queue, ranges)

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
    ) -> None:
        number = queue & NUMBER_BITS
        for at in range(0, len(ranges), RANGES_MAX):
            some = ranges[at : at + RANGES_MAX]
            event = (int(what), time_ms, number, group, origin, reason, until_ms, some, uids)
            self._buffer.add(self._topic, event)
