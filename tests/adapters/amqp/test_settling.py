"""Credit, and acks of every kind."""

from __future__ import annotations

import pytest

from adapters.amqp.codec import spec
from adapters.amqp.codec.methods import encode_method
from adapters.amqp.errors import (
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
)
from adapters.amqp.limits import (
    DELIVERY_BYTES_WINDOW,
    PREFETCH_UNLIMITED,
)
from kernel.api.client import Settlement
from kernel.api.model import Reason
from tests.adapters.amqp.consuming import consuming, deliveries, fill, queue
from tests.adapters.amqp.wire import Content, Wire, close_of


def test_prefetch_bounds_what_is_unacknowledged() -> None:
    wire = consuming(10, qos=3)
    assert len(deliveries(wire)) == 3
    wire.send(1, spec.BasicAck(1))
    assert [each.delivery_tag for each in deliveries(wire)] == [4]
    wire.send(1, spec.BasicAck(4, multiple=True))
    assert [each.delivery_tag for each in deliveries(wire)] == [5, 6, 7]
    assert len(wire.connection.channels[1].unacked) == 3


def test_prefetch_is_that_of_the_moment_a_consumer_is_made() -> None:
    wire = consuming(10, qos=3)
    wire.take()
    assert wire.ask(1, spec.BasicQos(0, 1, global_=False)) == spec.BasicQosOk()
    wire.send(1, spec.BasicAck(3, multiple=True))
    assert len(deliveries(wire)) == 3


def test_prefetch_zero_is_two_thousand() -> None:
    wire = consuming(PREFETCH_UNLIMITED + 50)
    assert len(deliveries(wire)) == PREFETCH_UNLIMITED


def test_without_acks_everything_comes_without_deep_recursion() -> None:
    wire = consuming(3 * PREFETCH_UNLIMITED, no_ack=True)
    assert len(deliveries(wire)) == 3 * PREFETCH_UNLIMITED
    assert wire.connection.channels[1].unacked == {}
    assert queue(wire).held == {}


def test_global_prefetch_is_shared_by_the_consumers_of_a_channel() -> None:
    wire = Wire().open()
    for name in ("a", "b", "empty"):
        wire.declare(name)
    assert wire.ask(1, spec.BasicQos(0, 4, global_=True)) == spec.BasicQosOk()
    for name in ("empty", "a", "b"):
        wire.ask(1, spec.BasicConsume(0, name, name))
    fill(wire, 6, "a")
    first = deliveries(wire)
    assert [each.consumer_tag for each in first] == ["a"] * 4
    fill(wire, 3, "b")
    assert deliveries(wire) == []
    wire.send(1, spec.BasicAck(4, multiple=True))
    second = deliveries(wire)
    assert len(second) == 4
    assert {each.consumer_tag for each in second} == {"a", "b"}
    wire.send(1, spec.BasicAck(0, multiple=True))
    assert len(deliveries(wire)) == 1
    # What could not be placed was given back without counting an attempt.
    for name in ("a", "b"):
        assert set(queue(wire, name).attempts.values()) == {1}


def test_a_burst_beyond_the_shared_limit_is_given_back_in_order() -> None:
    wire = Wire().open()
    for name in ("a", "b"):
        wire.declare(name)
        fill(wire, 5, name)
    wire.ask(1, spec.BasicQos(0, 3, global_=True))
    wire.feed(
        encode_method(1, spec.BasicConsume(0, "a", "a"))
        + encode_method(1, spec.BasicConsume(0, "b", "b"))
    )
    received: list[tuple[str, int]] = []
    for _ in range(20):
        found = wire.take_methods()
        bodies = [each.body[0] for each in found if isinstance(each, Content)]
        tags = [each for each in found if isinstance(each, spec.BasicDeliver)]
        assert len(tags) <= 3
        assert len(wire.connection.channels[1].unacked) <= 3
        received += [(each.consumer_tag, body) for each, body in zip(tags, bodies, strict=True)]
        if not tags:
            break
        wire.send(1, spec.BasicAck(tags[-1].delivery_tag, multiple=True))
    assert [body for tag, body in received if tag == "a"] == list(range(5))
    assert [body for tag, body in received if tag == "b"] == list(range(5))


def test_global_prefetch_can_be_lifted() -> None:
    wire = Wire().open()
    wire.declare("q")
    fill(wire, 5)
    wire.ask(1, spec.BasicQos(0, 2, global_=True))
    wire.send(1, spec.BasicConsume(0, "q", "t"))
    assert len(deliveries(wire)) == 2
    wire.send(1, spec.BasicQos(0, 0, global_=True))
    assert len(deliveries(wire)) == 3


def test_a_peer_that_does_not_read_gets_no_credit() -> None:
    wire = consuming(1)
    wire.take()
    wire.connection.writing_paused(is_paused=True)
    wire.turn()
    assert queue(wire).consumers[0].credit == 0
    fill(wire, 5)
    assert deliveries(wire) == []
    wire.connection.writing_paused(is_paused=False)
    wire.turn()
    assert len(deliveries(wire)) == 5


def test_credit_for_large_messages_is_bounded_by_their_bytes() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.ask(1, spec.BasicConsume(0, "q", "t", no_ack=True))
    size = 512 * 1024
    wire.publish(1, "", "q", bytes(size))
    wire.take()
    assert queue(wire).consumers[0].credit == DELIVERY_BYTES_WINDOW // size - 1
    wire.publish(1, "", "q", b"x")
    assert queue(wire).consumers[0].credit == PREFETCH_UNLIMITED


def test_prefetch_size_is_not_implemented() -> None:
    wire = Wire().open()
    assert close_of(wire.ask(1, spec.BasicQos(1, 0, global_=False)))[0] == NOT_IMPLEMENTED


def test_acks_of_one_read_are_one_settlement() -> None:
    wire = consuming(5)
    wire.take()
    wire.feed(b"".join(encode_method(1, spec.BasicAck(tag)) for tag in (1, 2, 3)))
    assert queue(wire).settled == [(Settlement.ACK, [0, 1, 2], Reason.REJECTED)]
    wire.feed(
        encode_method(1, spec.BasicAck(4)) + encode_method(1, spec.BasicAck(0, multiple=True))
    )
    assert queue(wire).settled[1:] == [(Settlement.ACK, [3, 4], Reason.REJECTED)]
    assert wire.environment.counters.acked == 5


def test_reject_and_nack_requeue_or_dead_letter() -> None:
    wire = consuming(6, qos=6)
    wire.take()
    wire.send(1, spec.BasicReject(1, requeue=False))
    wire.send(1, spec.BasicNack(3, multiple=True, requeue=False))
    wire.send(1, spec.BasicNack(4, requeue=False))
    wire.send(1, spec.BasicReject(5, requeue=True))
    assert queue(wire).settled == [
        (Settlement.DEAD_LETTER, [0], Reason.REJECTED),
        (Settlement.DEAD_LETTER, [1, 2], Reason.REJECTED),
        (Settlement.DEAD_LETTER, [3], Reason.REJECTED),
        (Settlement.RELEASE, [4], Reason.REJECTED),
    ]
    (again,) = deliveries(wire)
    assert again.redelivered


@pytest.mark.parametrize(
    "method",
    [
        spec.BasicAck(7),
        spec.BasicAck(7, multiple=True),
        spec.BasicAck(0),
        spec.BasicNack(7),
        spec.BasicNack(7, multiple=True),
        spec.BasicReject(7),
        spec.BasicReject(0),
    ],
)
def test_an_unknown_delivery_tag_is_precondition_failed(method: object) -> None:
    wire = consuming(2)
    wire.take()
    wire.send(1, method)  # type: ignore[arg-type]
    code, text = close_of(wire.take_one())
    assert code == PRECONDITION_FAILED
    assert text.startswith("PRECONDITION_FAILED - unknown delivery tag ")


def test_a_second_ack_is_precondition_failed_and_the_first_one_holds() -> None:
    wire = consuming(2)
    wire.take()
    wire.feed(encode_method(1, spec.BasicAck(1)) * 2)
    assert close_of(wire.take_one())[0] == PRECONDITION_FAILED
    assert (Settlement.ACK, [0], Reason.REJECTED) in queue(wire).settled
    assert (Settlement.RELEASE, [1], Reason.REJECTED) in queue(wire).settled


def test_ack_of_everything_with_nothing_unacknowledged_is_fine() -> None:
    wire = Wire().open()
    wire.send(1, spec.BasicAck(0, multiple=True), spec.BasicNack(0, multiple=True))
    assert wire.take_methods() == []


def test_a_tag_of_another_channel_is_unknown() -> None:
    wire = consuming(1, channels=2)
    wire.take()
    wire.send(2, spec.BasicAck(1))
    assert close_of(wire.take_one())[0] == PRECONDITION_FAILED
    wire.send(1, spec.BasicAck(1))
    assert wire.take_methods() == []


def test_recover_gives_everything_back() -> None:
    wire = consuming(3, qos=3)
    wire.take()
    wire.send(1, spec.BasicRecover(requeue=True))
    recovered, *rest = wire.take_methods()
    assert recovered == spec.BasicRecoverOk()
    assert [each.delivery_tag for each in rest if isinstance(each, spec.BasicDeliver)] == [4, 5, 6]
    wire.send(1, spec.BasicRecoverAsync(requeue=True))
    assert len(deliveries(wire)) == 3
    assert close_of(wire.ask(1, spec.BasicRecover(requeue=False)))[0] == NOT_IMPLEMENTED


def test_a_lost_connection_gives_everything_back() -> None:
    wire = consuming(3)
    wire.take()
    assert len(queue(wire).held) == 3
    wire.connection.lost()
    assert queue(wire).held == {}
    assert queue(wire).ready == [0, 1, 2]
    assert queue(wire).consumers == []


def test_acks_that_came_with_the_last_read_count() -> None:
    wire = consuming(2)
    wire.take()
    wire.feed(
        encode_method(1, spec.BasicAck(1)) + encode_method(0, spec.ConnectionClose(200, "", 0, 0))
    )
    assert queue(wire).settled == [(Settlement.ACK, [0], Reason.REJECTED)]
    assert queue(wire).ready == [1]
