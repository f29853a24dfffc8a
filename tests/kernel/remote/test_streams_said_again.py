"""What a consumer of push streams says again to the next leader of its queue, or to the same one by
another connection, and what it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from kernel.api.client import Consumer, ConsumerSpec, Deliveries, Settlement
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    QueueRef,
    Reason,
    TopicInfo,
    TopicOptions,
)
from kernel.broker.tracing import TraceBuffer
from kernel.common.errors import Code, KernelError
from kernel.common.ids import QueueId, RaftGroup, TopicId
from kernel.remote.streams import stream_wire
from kernel.remote.streams.streams import Streams
from kernel.requests.client_trace import ClientTrace
from tests.kernel.remote.gateway import slot
from tests.kernel.remote.test_stream_limits import Ends

GROUP = RaftGroup(1)
ONE = slot(b"1")
ACK, RELEASE, RETURN = Settlement.ACK, Settlement.RELEASE, Settlement.RETURN


class Leaders:
    """A consumer of one queue, and the leaders that serve it one after the other."""

    def __init__(self) -> None:
        self._later: list[Callable[[], None]] = []
        self.streams = Streams(self._later.append, ClientTrace(TraceBuffer(), int))
        self.channel = Ends()
        self.got: list[int] = []
        self.answers: list[tuple[object, Mapping[int, KernelError] | None]] = []
        queues = (QueueRef(QueueId(1), GROUP),)
        topic = TopicInfo(DEFAULT_TENANT, "work", TopicId(1), 1, TopicOptions(), queues, {})
        self.consumer = self.streams.attach(ConsumerSpec(topic, DEFAULT_GROUP, None), self)
        (self.part,) = self.streams.parts()
        self.consumer.grant(100)

    # `ConsumerSink`, `SettleSink`

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        self.got += deliveries.offsets

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        raise AssertionError

    def settled(self, tag: object, failures: Mapping[int, KernelError] | None) -> None:
        self.answers.append((tag, failures))

    # What leaders say

    def turn(self) -> None:
        later, self._later[:] = list(self._later), []
        for action in later:
            action()

    def _tell(self, method: int, parts: list[bytes]) -> None:
        self.streams.told(self.channel, method, b"".join(parts))  # type: ignore[arg-type]

    def serves(self, *, term: int = 1) -> list[int]:
        """A leader serves the queue. What the consumer claims."""
        self.channel = Ends()
        self.streams._channels[self.channel] = None  # type: ignore[index]
        self._tell(stream_wire.SERVES, stream_wire.encode([(GROUP, term)]))
        self.turn()
        (attach,) = (parts for method, parts in self.channel.said if method == stream_wire.ATTACH)
        (head,) = stream_wire.decode(stream_wire.attaches, b"".join(attach))
        return head.held

    def attached(self, *refused: int) -> None:
        head = stream_wire.Attached(self.part.number, False, list(refused))
        self._tell(stream_wire.ATTACHED, stream_wire.encode([head]))
        self.turn()

    def delivers(self, offset: int) -> None:
        head = self.part.number, 0, [offset], None, [len(ONE)]
        self._tell(stream_wire.DELIVER, stream_wire.encode_deliver([head], [ONE]))

    def lost(self) -> None:
        self.streams.closed(self.channel)  # type: ignore[arg-type]
        self.turn()

    # What it hears

    def settle(self, how: Settlement, offset: int, *, tag: object = None) -> None:
        sink = self if tag is not None else None
        self.streams.settle(self.part, how, [offset], Reason.REJECTED, sink, tag)
        self.turn()

    @property
    def said(self) -> list[tuple[Settlement, list[int]]]:
        """Settlements that it has heard."""
        found: list[tuple[Settlement, list[int]]] = []
        for method, parts in self.channel.said:
            if method == stream_wire.STREAM_BATCH:
                for block in stream_wire.decode_stream_batch(b"".join(parts)).blocks:
                    found += [(ACK, offsets) for _, offsets in block.acks]
                    found += [(each.how, each.offsets) for each in block.settles]
        return found


@pytest.fixture
async def leaders() -> Leaders:
    """A leader serves the consumer, and has delivered offset 5."""
    made = Leaders()
    assert made.serves() == []
    made.attached()
    made.delivers(5)
    return made


async def test_a_release_is_said_again_as_long_as_it_is_not_known_to_be_carried_out(
    leaders: Leaders,
) -> None:
    leaders.settle(RELEASE, 5)
    assert leaders.said == [(RELEASE, [5])]
    leaders.lost()
    assert leaders.serves() == [5]
    leaders.attached()
    assert leaders.said == [(RELEASE, [5])]


async def test_a_release_is_not_said_again_of_the_delivery_that_came_of_it(
    leaders: Leaders,
) -> None:
    leaders.settle(RELEASE, 5, tag="a")
    leaders.delivers(5)
    leaders.lost()
    assert leaders.answers == [("a", None)]
    assert leaders.serves() == [5]
    leaders.attached()
    assert leaders.said == []


async def test_an_ack_of_what_has_come_again_since_has_failed(leaders: Leaders) -> None:
    leaders.settle(ACK, 5, tag="a")
    leaders.delivers(5)
    leaders.lost()
    ((tag, failures),) = leaders.answers
    assert tag == "a"
    assert failures is not None
    assert {at: each.code for at, each in failures.items()} == {5: Code.LEASE_LOST}
    assert leaders.serves() == [5]
    leaders.attached()
    assert leaders.said == []


async def test_of_two_settlements_of_one_message_the_last_is_said_again(leaders: Leaders) -> None:
    leaders.settle(RELEASE, 5)
    leaders.delivers(5)
    leaders.settle(ACK, 5)
    leaders.lost()
    assert leaders.serves() == [5]
    leaders.attached()
    assert leaders.said == [(ACK, [5])]


@pytest.mark.parametrize("how", [RELEASE, RETURN])
async def test_what_is_refused_was_given_back_before_and_is_not_given_back_again(
    leaders: Leaders, how: Settlement
) -> None:
    leaders.settle(how, 5, tag="a")
    leaders.lost()
    assert leaders.serves() == [5]
    leaders.attached(5)
    leaders.delivers(5)  # anew, before it would have heard
    leaders.turn()
    assert (leaders.said, leaders.answers) == ([], [("a", None)])


async def test_who_gives_back_what_is_leased_no_more_hears_so(leaders: Leaders) -> None:
    leaders.delivers(6)
    leaders.lost()
    leaders.streams.settle(leaders.part, RELEASE, [5, 6], Reason.REJECTED, leaders, "a")
    assert leaders.serves() == [5, 6]
    leaders.attached(5)
    assert leaders.said == [(RELEASE, [6])]
    settled = stream_wire.Settled(GROUP, 1, [])
    leaders._tell(stream_wire.SETTLED, stream_wire.encode(settled))
    ((tag, failures),) = leaders.answers
    assert tag == "a"
    assert failures is not None
    assert {at: each.code for at, each in failures.items()} == {5: Code.LEASE_LOST}


async def test_an_ack_that_is_refused_is_said_again(leaders: Leaders) -> None:
    leaders.settle(ACK, 5)
    leaders.lost()
    assert leaders.serves(term=2) == [5]
    leaders.attached(5)
    assert leaders.said == [(ACK, [5])]


async def test_a_return_that_nobody_waits_for_is_not_claimed(leaders: Leaders) -> None:
    leaders.settle(RETURN, 5)
    leaders.lost()
    assert leaders.serves() == []
    leaders.attached()
    assert leaders.said == []


async def test_a_return_that_was_said_to_nobody_yet_is_claimed(leaders: Leaders) -> None:
    leaders.lost()
    leaders.settle(RETURN, 5)
    assert leaders.serves() == [5]
    leaders.attached()
    assert leaders.said == [(RETURN, [5])]
