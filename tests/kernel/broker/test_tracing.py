"""What is noted of traced topics, and what happens where there is no room for it."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import msgspec

from kernel.api import message as messages
from kernel.api.message import Flag, Message
from kernel.api.tracing import ConnectedUser, TraceMode
from kernel.broker.tracing import (
    RANGES_MAX,
    SAMPLE_ONE_IN,
    TOPIC_BYTES,
    Event,
    TopicTrace,
    TraceBuffer,
    What,
    ranges_of,
    sampled,
)
from kernel.common.ids import LogIndex, QueueId, RaftGroup, TopicId
from kernel.log.format import entry as entries

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE = QueueId(7 << 8)


def noted(mode: TraceMode, buffer: TraceBuffer, topic: int = 7) -> TopicTrace:
    def read(_group: RaftGroup, _index: LogIndex, has_read: Callable[[bytes | None], None]) -> None:
        has_read(None)

    return TopicTrace(TopicId(topic), mode, buffer, read)


def taken_of(buffer: TraceBuffer) -> list[Event]:
    """What waits, of one topic."""
    (events,) = buffer.take().values()
    return [msgspec.msgpack.decode(each, type=Event) for each in events]


def test_offsets_become_ranges_in_their_order() -> None:
    assert ranges_of([]) == []
    assert ranges_of([5]) == [(5, 1)]
    assert ranges_of([3, 4, 5, 9, 1, 2]) == [(3, 3), (9, 1), (1, 2)]


def test_one_message_of_each_block_is_sampled_however_it_comes() -> None:
    end = 50 * SAMPLE_ONE_IN
    whole = sampled(QUEUE, [(0, end)])
    assert len(whole) == 50
    assert [offset // SAMPLE_ONE_IN for offset, _ in whole] == list(range(50))
    one_by_one = [each for at in range(end) for each in sampled(QUEUE, [(at, 1)])]
    assert one_by_one == whole
    in_thirteens = [each for at in range(0, end, 13) for each in sampled(QUEUE, [(at, 13)])]
    assert [each for each in in_thirteens if each[0] < end] == whole
    # Not the same place of each block: publishers that repeat themselves are sampled evenly.
    assert len({offset % SAMPLE_ONE_IN for offset, _ in whole}) > 20


def test_of_a_sampled_message_every_event_is_kept_and_of_others_none() -> None:
    buffer = TraceBuffer()
    trace = noted(TraceMode.SAMPLE, buffer)
    ((offset, _),) = sampled(QUEUE, [(0, SAMPLE_ONE_IN)])
    for what in (What.HANDED_OUT, What.RELEASED, What.ACKED):
        for at in range(SAMPLE_ONE_IN):
            trace.note(what, 1, QUEUE, "g", 1, [(at, 1)])
    events = taken_of(buffer)
    assert [(each[0], each[7]) for each in events] == [
        (what, [(offset, 1)]) for what in (What.HANDED_OUT, What.RELEASED, What.ACKED)
    ]


def test_a_buffer_that_is_full_drops_counts_and_takes_again() -> None:
    buffer = TraceBuffer(total_bytes=3_000, topic_bytes=2_000)
    traces = [noted(TraceMode.ALL, buffer, topic) for topic in (1, 2)]
    for _ in range(100):
        traces[0].note(What.ACKED, 1, QUEUE, "g", 1, [(0, 1)])
    of_first = buffer.dropped
    assert 0 < of_first < 100
    assert buffer.bytes <= 2_000
    for _ in range(100):  # a burst of one topic leaves room for another's
        traces[1].note(What.ACKED, 1, QUEUE, "g", 1, [(0, 1)])
    assert of_first < buffer.dropped < of_first + 100
    assert buffer.bytes <= 3_000
    taken = buffer.take()
    assert sum(map(len, taken.values())) + buffer.dropped == 200
    assert buffer.bytes == 0
    before = buffer.dropped
    traces[0].note(What.ACKED, 1, QUEUE, "g", 1, [(0, 1)])
    assert buffer.dropped == before
    assert len(buffer.take()[TopicId(1)]) == 1


def test_the_buffer_counts_what_is_held_however_long_names_are() -> None:
    long = "ü" * 60_000
    events = [
        Event(int(What.TAKEN), 10**12, 0, group, 0, reason, 0, ranges, b"", by)
        for by, group, reason, ranges in (
            (ConnectedUser("t", "u", "p", "127.0.0.1:1", "p-1"), "g", "", [(5, 1)]),
            (ConnectedUser("t", "u", "p", "127.0.0.1:1", "p-1"), long, "", [(5, 1)]),
            (ConnectedUser("t", long, "p", "127.0.0.1:1", "p-1"), "", "", [(5, 1)]),
            (None, "", f"to topic {long}", [(5, 1)]),
            (None, "g", "", [(each * 3, 1) for each in range(RANGES_MAX)]),
        )
    ]
    for event in events:
        buffer = TraceBuffer()
        tracemalloc.start()
        try:
            while not buffer.dropped:
                buffer.add(TopicId(7), event)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert TOPIC_BYTES / 2 < held < TOPIC_BYTES * 1.2


def test_an_event_of_very_many_ranges_is_several() -> None:
    buffer = TraceBuffer()
    ranges = [(2 * each, 1) for each in range(2 * RANGES_MAX + 1)]
    noted(TraceMode.ALL, buffer).note(What.ACKED, 1, QUEUE, "g", 1, ranges)
    events = taken_of(buffer)
    assert [len(each[7]) for each in events] == [RANGES_MAX, RANGES_MAX, 1]


def test_ranges_of_nothing_are_no_event() -> None:
    buffer = TraceBuffer()
    noted(TraceMode.ALL, buffer).note(What.TRIMMED, 1, QUEUE, "", 1, [(5, 0), (7, -2)])
    assert not buffer.take()


def test_a_committed_half_message_is_noted_when_its_entry_was_read_or_does_not_read() -> None:
    buffer = TraceBuffer()
    waiting: list[Callable[[bytes | None], None]] = []
    trace = TopicTrace(TopicId(7), TraceMode.ALL, buffer, lambda *asked: waiting.append(asked[2]))
    uid = bytes(range(16))
    slot = messages.encode(Message(1, 0, Flag(0), uid, 1, 0, 0, 0, 0, {}, b"", b"half"))
    entry = entries.build(0, [], [len(slot)], [slot])
    for _ in range(2):
        trace.committed(RaftGroup(1), QUEUE, 5, (LogIndex(3), 0), 1, 9)
    assert not buffer.take()
    waiting[0](entry)
    waiting[1](None)
    events = taken_of(buffer)
    assert [(each.what, each.ranges, each.uids) for each in events] == [
        (What.STORED, [(5, 1)], uid),
        (What.STORED, [(5, 1)], b""),
    ]
    sampling = TopicTrace(TopicId(7), TraceMode.SAMPLE, buffer, lambda *_: 1 / 0)
    ((offset, _),) = sampled(QUEUE, [(0, SAMPLE_ONE_IN)])
    sampling.committed(RaftGroup(1), QUEUE, offset + 1, (LogIndex(3), 0), 1, 9)
