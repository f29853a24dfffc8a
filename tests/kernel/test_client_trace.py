"""Who had a part in messages of traced topics, as the process notes it that has the connections."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec

from kernel.api.consuming import LeaseChange, LeaseVerb, Received, ReceiveSpec, Settlement
from kernel.api.model import Reason
from kernel.api.tracing import ConnectedUser, TraceMode
from kernel.broker.tracing import SAMPLE_ONE_IN, Event, TopicTrace, TraceBuffer, What, sampled
from kernel.common.errors import Code, KernelError
from kernel.common.ids import MEMORY_FIRST, QueueId, RaftGroup, TopicId, topic_of
from kernel.requests.client_trace import ClientTrace
from kernel.requests.pull import encode_token

if TYPE_CHECKING:
    from kernel.requests.publish import ProducerBatch

QUEUE, OTHER = QueueId(7 << 8), QueueId(9 << 8)
TOPIC = topic_of(QUEUE)
ANN = ConnectedUser("t", "ann", "one", "127.0.0.1:1", "one-1")
BOB = ConnectedUser("t", "bob", "two", "127.0.0.1:2", "two-2")


def traced(mode: TraceMode = TraceMode.ALL) -> ClientTrace:
    trace = ClientTrace(TraceBuffer(), lambda: 5)
    trace.modes = {TOPIC: mode}
    return trace


def noted(trace: ClientTrace) -> list[Event]:
    taken = trace.buffer.take()
    assert taken.keys() <= {TOPIC}
    return [msgspec.msgpack.decode(each, type=Event) for each in taken.get(TOPIC, [])]


def told(trace: ClientTrace) -> list[tuple[int, ConnectedUser | None, list[tuple[int, int]]]]:
    return [(each.what, each.by, each.ranges) for each in noted(trace)]


def batch(
    runs: list[list[int]],
    placed: list[object],
    *,
    by: ConnectedUser | None = None,
    speakers: list[tuple[int, ConnectedUser | None]] | None = None,
    group: int = 1,
) -> ProducerBatch:
    count = max(run[1] + run[2] for run in runs)
    part = SimpleNamespace(group=RaftGroup(group), runs=runs, positions=list(range(count)))
    found: Any = SimpleNamespace(by=by, speakers=speakers, count=count, results=[(part, placed)])
    return cast("ProducerBatch", found)


def consumer(by: ConnectedUser | None, queue: QueueId = QUEUE) -> Any:
    spec = SimpleNamespace(group="g", session=SimpleNamespace(by=by))
    return SimpleNamespace(spec=spec, queue=queue)


def test_a_batch_is_noted_where_it_lies_for_its_session() -> None:
    trace = traced()
    trace.published(batch([[QUEUE, 0, 3, 0], [OTHER, 3, 2, 0]], [10, 20], by=ANN))
    assert told(trace) == [(What.PUBLISHED, ANN, [(10, 3)])]
    trace.published(batch([[QUEUE, 0, 3, 0]], [-1], by=ANN))
    trace.published(batch([[QUEUE, 0, 3, 0]], [10]))
    trace.published(batch([[QUEUE, 0, 3, 0]], [10], by=ANN, group=MEMORY_FIRST))
    assert told(trace) == []


def test_of_a_batch_that_connections_share_each_is_noted_for_its_own() -> None:
    trace = traced()
    speakers = [(1, ANN), (3, BOB), (4, None)]
    trace.published(batch([[QUEUE, 0, 6, 0]], [10], speakers=speakers))
    assert told(trace) == [
        (What.PUBLISHED, ANN, [(11, 2)]),
        (What.PUBLISHED, BOB, [(13, 1)]),
    ]
    # Of two runs of one batch, the second with positions behind the first's.
    runs = [[QUEUE, 0, 2, 0], [QUEUE, 2, 4, 0]]
    trace.published(batch(runs, [10, 30], speakers=speakers))
    assert told(trace) == [
        (What.PUBLISHED, ANN, [(11, 1)]),
        (What.PUBLISHED, ANN, [(30, 1)]),
        (What.PUBLISHED, BOB, [(31, 1)]),
    ]


def test_duplicates_were_published_by_nobody_and_what_was_refused_is_not_there() -> None:
    trace = traced()
    where = [(10, b""), (4, b"original"), (11, b"")]  # the fourth was refused
    trace.published(batch([[QUEUE, 0, 4, 0]], [where], by=ANN))
    assert told(trace) == [(What.PUBLISHED, ANN, [(10, 2)])]


def test_what_a_consumer_takes_and_settles_is_noted() -> None:
    trace = traced()
    trace.took(consumer(ANN), [3, 4, 9])
    trace.took(consumer(None), [3])
    trace.took(consumer(ANN, OTHER), [3])
    trace.settled(consumer(ANN), Settlement.RELEASE, [3], Reason.REJECTED)
    trace.settled(consumer(ANN), Settlement.DEAD_LETTER, [4], Reason.REJECTED)
    trace.acknowledged([(consumer(ANN), [9]), (consumer(BOB), [10])])
    events = noted(trace)
    assert [(each.what, each.reason, each.by, each.ranges) for each in events] == [
        (What.TAKEN, "", ANN, [(3, 2), (9, 1)]),
        (What.SETTLED, "release", ANN, [(3, 1)]),
        (What.SETTLED, "rejected", ANN, [(4, 1)]),
        (What.SETTLED, "ack", ANN, [(9, 1)]),
        (What.SETTLED, "ack", BOB, [(10, 1)]),
    ]
    assert {(each.group, each.time_ms) for each in events} == {("g", 5)}


def test_pulls_and_changes_of_leases_are_noted_if_they_came_to_something() -> None:
    trace = traced()
    topic: Any = SimpleNamespace(id=TOPIC)
    got: Any = SimpleNamespace(queue=QUEUE, offsets=[5, 6])
    trace.received(ReceiveSpec(topic, "g", by=BOB), Received(got, None, (), 0))
    trace.received(ReceiveSpec(topic, "g", by=BOB), Received(None, None, (), 0))
    session: Any = SimpleNamespace(by=ANN)
    trace.received(ReceiveSpec(topic, "g", session=session), Received(got, None, (), 0))
    tokens = [encode_token(QUEUE, offset, 1) for offset in (5, 6, 7)]
    changes = [
        *(LeaseChange(each, LeaseVerb.ACK_IN_TIME, by=BOB) for each in tokens),
        LeaseChange(tokens[0], LeaseVerb.EXTEND, 1_000, by=BOB),
        LeaseChange(tokens[0], LeaseVerb.RETURN),
        LeaseChange(b"no token", LeaseVerb.ACK, by=BOB),
    ]
    lost = KernelError(Code.LEASE_LOST, "lost")
    trace.changed("g", changes, [None, None, lost, None, None, lost])
    events = noted(trace)
    assert [(each.what, each.reason, each.by, each.ranges) for each in events] == [
        (What.TAKEN, "", BOB, [(5, 2)]),
        (What.TAKEN, "", ANN, [(5, 2)]),
        (What.SETTLED, "ack", BOB, [(5, 2)]),
        (What.SETTLED, "extend", BOB, [(5, 1)]),
    ]


def test_leaders_and_connections_choose_the_same_messages_of_a_sample() -> None:
    trace, end = traced(TraceMode.SAMPLE), 20 * SAMPLE_ONE_IN
    for start in range(0, end, 37):
        trace.took(consumer(ANN), list(range(start, min(start + 37, end))))
    by_leader = TraceBuffer()
    leader = TopicTrace(TopicId(TOPIC), TraceMode.SAMPLE, by_leader, lambda *_: None)
    leader.note(What.ACKED, 1, QUEUE, "g", 1, [(0, end)])
    (encoded,) = by_leader.take()[TOPIC]
    acked = msgspec.msgpack.decode(encoded, type=Event)
    assert [each for event in noted(trace) for each in event.ranges] == acked.ranges
    assert acked.ranges == sampled(QUEUE, [(0, end)])


def test_who_is_named_takes_room_in_the_buffer_and_what_has_none_is_counted() -> None:
    trace = ClientTrace(TraceBuffer(total_bytes=1_000), lambda: 5)
    trace.modes = {TOPIC: TraceMode.ALL}
    for offset in range(20):
        trace.took(consumer(ANN), [offset])
    assert trace.buffer.dropped == 20 - len(noted(trace))
    assert 5 < trace.buffer.dropped < 15
