"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue."""

from __future__ import annotations

import time

import pytest

from adapters.rocketmq.errors import Code
from adapters.rocketmq.settings import ACK_ENTRIES_MAX
from tests.adapters.rocketmq.support import Broker, Wire, message, resource, service_pb2


@pytest.fixture
def topic(broker: Broker, wire: Wire, request: pytest.FixtureRequest) -> str:
    """A stream with a group `g` that waits for its first message."""
    name = f"s{abs(hash(request.node.name))}"
    broker.topic(name, queues=1)
    wire.receive(name, "g")
    return name


def forward(wire: Wire, topic: str, group: str, handle: str):
    request = service_pb2.ForwardMessageToDeadLetterQueueRequest(
        topic=resource(topic),
        group=resource(group),
        receipt_handle=handle,
        delivery_attempt=1,
        max_delivery_attempts=16,
    )
    return wire.call("ForwardMessageToDeadLetterQueue", request)


def one(wire: Wire, topic: str) -> str:
    """The handle of a message just sent and received."""
    wire.send(message(topic))
    (handle,) = wire.receive(topic, "g", wait_s=2).handles
    return handle


def test_an_ack_is_final(broker: Broker, wire: Wire, topic: str) -> None:
    handle = one(wire, topic)
    answer = wire.ack(topic, "g", handle)
    assert answer.status.code == Code.OK
    (entry,) = answer.entries
    assert (entry.status.code, entry.receipt_handle) == (Code.OK, handle)
    assert wire.ack(topic, "g", handle).status.code == Code.INVALID_RECEIPT_HANDLE
    figures = broker.statistics(topic, "g")
    assert (figures.ready, figures.leased) == (0, 0)


def test_a_late_ack_is_refused_and_the_message_comes_again(
    broker: Broker, wire: Wire, topic: str
) -> None:
    wire.send(message(topic))
    (late,) = wire.receive(topic, "g", wait_s=2, invisible_s=1).handles
    while broker.statistics(topic, "g").leased:
        time.sleep(0.05)
    assert wire.ack(topic, "g", late).status.code == Code.INVALID_RECEIPT_HANDLE
    (again,) = wire.receive(topic, "g", wait_s=2).handles
    assert wire.ack(topic, "g", again).status.code == Code.OK


def test_entries_have_results_of_their_own(wire: Wire, topic: str) -> None:
    handle = one(wire, topic)
    answer = wire.ack(topic, "g", "rubbish", handle)
    assert answer.status.code == Code.MULTIPLE_RESULTS
    assert [entry.status.code for entry in answer.entries] == [
        Code.INVALID_RECEIPT_HANDLE,
        Code.OK,
    ]


def test_a_batch_of_acks(broker: Broker, wire: Wire, topic: str) -> None:
    wire.send(*[message(topic)] * 32)
    got = wire.receive(topic, "g", wait_s=2)
    assert wire.ack(topic, "g", *got.handles).status.code == Code.OK
    assert broker.statistics(topic, "g").leased == 32 - len(got.handles)


def test_a_handle_is_good_for_its_group_and_topic_alone(
    broker: Broker, wire: Wire, topic: str
) -> None:
    handle = one(wire, topic)
    wire.receive(topic, "h")
    assert wire.ack(topic, "h", handle).status.code == Code.INVALID_RECEIPT_HANDLE
    broker.topic("elsewhere")
    wire.receive("elsewhere", "g")
    assert wire.ack("elsewhere", "g", handle).status.code == Code.INVALID_RECEIPT_HANDLE
    assert wire.ack(topic, "g", handle).status.code == Code.OK


def test_acks_of_what_is_not_there(wire: Wire, topic: str) -> None:
    assert wire.ack(topic, "strangers", "x").status.code == Code.CONSUMER_GROUP_NOT_FOUND
    assert wire.ack("nowhere", "g", "x").status.code == Code.TOPIC_NOT_FOUND
    assert wire.ack(topic, "g").status.code == Code.BAD_REQUEST
    too_many = ["x"] * (ACK_ENTRIES_MAX + 1)
    assert wire.ack(topic, "g", *too_many).status.code == Code.BAD_REQUEST


def test_a_longer_invisible_time_keeps_the_message_and_its_handle(wire: Wire, topic: str) -> None:
    wire.send(message(topic))
    (handle,) = wire.receive(topic, "g", wait_s=2, invisible_s=1).handles
    changed = wire.change(topic, "g", handle, 30)
    assert changed.status.code == Code.OK
    assert changed.receipt_handle
    assert wire.receive(topic, "g", wait_s=1.5).code == Code.MESSAGE_NOT_FOUND
    assert wire.ack(topic, "g", changed.receipt_handle).status.code == Code.OK


def test_no_invisible_time_gives_the_message_back_at_once(wire: Wire, topic: str) -> None:
    handle = one(wire, topic)
    assert wire.change(topic, "g", handle, 0).status.code == Code.OK
    assert wire.receive(topic, "g", wait_s=2).attempts == [2]
    assert wire.ack(topic, "g", handle).status.code == Code.INVALID_RECEIPT_HANDLE


def test_a_suspended_message_was_not_attempted(wire: Wire, topic: str) -> None:
    handle = one(wire, topic)
    assert wire.change(topic, "g", handle, 0, suspend=True).status.code == Code.OK
    assert wire.receive(topic, "g", wait_s=2).attempts == [1]


def test_invisible_times_that_are_not_allowed(wire: Wire, topic: str) -> None:
    handle = one(wire, topic)
    for seconds in (-1, 43_201):
        refused = wire.change(topic, "g", handle, seconds)
        assert refused.status.code == Code.ILLEGAL_INVISIBLE_TIME
        assert "must be from 0 to 43200000 ms" in refused.status.message
    assert wire.change(topic, "g", "rubbish", 10).status.code == Code.INVALID_RECEIPT_HANDLE


def test_a_message_given_up_is_a_dead_letter(broker: Broker, wire: Wire, topic: str) -> None:
    handle = one(wire, topic)
    assert forward(wire, topic, "g", handle).status.code == Code.OK
    assert forward(wire, topic, "g", handle).status.code == Code.INVALID_RECEIPT_HANDLE
    (dead,) = wire.receive("%DLQ%g", "undertaker", wait_s=3).messages
    assert dead.system_properties.dead_letter_queue.topic == topic
    assert wire.receive(topic, "g", wait_s=0).code == Code.MESSAGE_NOT_FOUND


def test_a_group_without_a_place_for_dead_letters_is_given_one(broker: Broker, wire: Wire) -> None:
    from kernel.api.model import GroupOptions

    broker.topic("no-dlq", groups={"plain": GroupOptions()})
    wire.send(message("no-dlq", b"hopeless"))
    (handle,) = wire.receive("no-dlq", "plain", wait_s=2).handles
    assert forward(wire, "no-dlq", "plain", handle).status.code == Code.OK
    assert wire.receive("%DLQ%plain", "undertaker", wait_s=3).bodies == [b"hopeless"]
