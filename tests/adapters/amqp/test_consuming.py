"""Consuming: deliveries, credit, acks of every kind, get, cancel both ways."""

from __future__ import annotations

import pytest

from adapters.amqp import spec
from adapters.amqp.errors import (
    ACCESS_REFUSED,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
)
from adapters.amqp.fields import EMPTY_TABLE, Table
from adapters.amqp.limits import (
    CONSUMERS_PER_CHANNEL_MAX,
    DELIVERY_BYTES_WINDOW,
    PREFETCH_UNLIMITED,
)
from adapters.amqp.methods import encode_method
from kernel.client import DeleteTopic, PutTopic, Settlement
from kernel.errors import Code, KernelError
from kernel.model import DEFAULT_GROUP, Reason, TopicKind, TopicOptions
from tests.adapters.amqp.fake_kernel import FakeClient, FakeQueue
from tests.adapters.amqp.wire import Content, Wire, close_of


def _queue(wire: Wire, name: str = "q") -> FakeQueue:
    return wire.client.queues["default", name]


def _fill(wire: Wire, count: int, name: str = "q", size: int = 1) -> None:
    for number in range(count):
        wire.publish(1, "", name, bytes((number % 256,)) * size, block=b"\x10\x00\x02")


def _deliveries(wire: Wire) -> list[spec.BasicDeliver]:
    return [each for each in wire.take_methods() if isinstance(each, spec.BasicDeliver)]


def _consuming(count: int = 0, *, qos: int = 0, channels: int = 1, **how: object) -> Wire:
    wire = Wire().open(channels=channels)
    wire.declare("q")
    _fill(wire, count)
    if qos:
        wire.ask(1, spec.BasicQos(0, qos, global_=False))
    wire.send(1, spec.BasicConsume(0, "q", "t", **how))  # type: ignore[arg-type]
    return wire


# --- Deliveries -----------------------------------------------------------------------------------


def test_consume_ok_comes_first_then_what_waits_in_order() -> None:
    wire = _consuming(3)
    consumed, *rest = wire.take_methods()
    assert consumed == spec.BasicConsumeOk("t")
    assert rest[0::2] == [
        spec.BasicDeliver("t", tag, redelivered=False, exchange="", routing_key="q")
        for tag in (1, 2, 3)
    ]
    assert rest[1::2] == [Content(b"\x10\x00\x02", bytes((n,))) for n in range(3)]


def test_exchange_and_key_are_those_of_the_publish() -> None:
    wire = _consuming()
    wire.send(1, spec.QueueBind(0, "q", "amq.topic", "#"))
    wire.take()
    key = b"a.\xff.b".decode("utf-8", "surrogateescape")
    wire.publish(1, "amq.topic", key, b"x")
    (deliver,) = _deliveries(wire)
    assert (deliver.exchange, deliver.routing_key) == ("amq.topic", key)


def test_a_generated_tag_and_nowait() -> None:
    wire = Wire().open()
    wire.declare("q")
    answer = wire.ask(1, spec.BasicConsume(0, "q", ""))
    assert isinstance(answer, spec.BasicConsumeOk)
    assert answer.consumer_tag.startswith("amq.ctag-")
    wire.send(1, spec.BasicConsume(0, "q", "quiet", nowait=True))
    assert wire.take_methods() == []
    assert len(_queue(wire).consumers) == 2


def test_bodies_over_the_frame_size_are_split() -> None:
    wire = Wire().open(frame_max=4096)
    wire.declare("q")
    wire.ask(1, spec.BasicConsume(0, "q", "t"))
    for size in (0, 4087, 4088, 4089, 20_000):
        wire.publish(1, "", "q", bytes(size), frame_max=4096)
        _, content = wire.take_methods()
        assert content == Content(b"\0\0", bytes(size))


def test_a_redelivery_is_marked_and_counted() -> None:
    wire = _consuming(1)
    wire.take()
    for count in (1, 2):
        wire.send(1, spec.BasicNack(count, requeue=True))
        deliver, content = wire.take_methods()
        assert deliver == spec.BasicDeliver("t", count + 1, True, "", "q")
        assert isinstance(content, Content)
        assert content.headers == {"x-delivery-count": count}


def test_delivery_tags_count_per_channel_for_consume_and_get() -> None:
    wire = Wire().open(channels=2)
    for name in ("a", "b"):
        wire.declare(name)
        _fill(wire, 2, name)
    wire.send(1, spec.BasicGet(0, "a"))
    wire.send(1, spec.BasicConsume(0, "b", "t"))
    wire.send(1, spec.BasicGet(0, "a"))
    tags = [
        each.delivery_tag
        for each in wire.take_methods()
        if isinstance(each, spec.BasicDeliver | spec.BasicGetOk)
    ]
    assert tags == [1, 2, 3, 4]


# --- Credit ---------------------------------------------------------------------------------------


def test_prefetch_bounds_what_is_unacknowledged() -> None:
    wire = _consuming(10, qos=3)
    assert len(_deliveries(wire)) == 3
    wire.send(1, spec.BasicAck(1))
    assert [each.delivery_tag for each in _deliveries(wire)] == [4]
    wire.send(1, spec.BasicAck(4, multiple=True))
    assert [each.delivery_tag for each in _deliveries(wire)] == [5, 6, 7]
    assert len(wire.connection.channels[1].unacked) == 3


def test_prefetch_is_that_of_the_moment_a_consumer_is_made() -> None:
    wire = _consuming(10, qos=3)
    wire.take()
    assert wire.ask(1, spec.BasicQos(0, 1, global_=False)) == spec.BasicQosOk()
    wire.send(1, spec.BasicAck(3, multiple=True))
    assert len(_deliveries(wire)) == 3


def test_prefetch_zero_is_two_thousand() -> None:
    wire = _consuming(PREFETCH_UNLIMITED + 50)
    assert len(_deliveries(wire)) == PREFETCH_UNLIMITED


def test_without_acks_everything_comes_without_deep_recursion() -> None:
    wire = _consuming(3 * PREFETCH_UNLIMITED, no_ack=True)
    assert len(_deliveries(wire)) == 3 * PREFETCH_UNLIMITED
    assert wire.connection.channels[1].unacked == {}
    assert _queue(wire).held == {}


def test_global_prefetch_is_shared_by_the_consumers_of_a_channel() -> None:
    wire = Wire().open()
    for name in ("a", "b", "empty"):
        wire.declare(name)
    assert wire.ask(1, spec.BasicQos(0, 4, global_=True)) == spec.BasicQosOk()
    for name in ("empty", "a", "b"):
        wire.ask(1, spec.BasicConsume(0, name, name))
    _fill(wire, 6, "a")
    first = _deliveries(wire)
    assert [each.consumer_tag for each in first] == ["a"] * 4
    _fill(wire, 3, "b")
    assert _deliveries(wire) == []
    wire.send(1, spec.BasicAck(4, multiple=True))
    second = _deliveries(wire)
    assert len(second) == 4
    assert {each.consumer_tag for each in second} == {"a", "b"}
    wire.send(1, spec.BasicAck(0, multiple=True))
    assert len(_deliveries(wire)) == 1
    # What could not be placed was given back without counting an attempt.
    for name in ("a", "b"):
        assert set(_queue(wire, name).attempts.values()) == {1}


def test_a_burst_beyond_the_shared_limit_is_given_back_in_order() -> None:
    wire = Wire().open()
    for name in ("a", "b"):
        wire.declare(name)
        _fill(wire, 5, name)
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
    _fill(wire, 5)
    wire.ask(1, spec.BasicQos(0, 2, global_=True))
    wire.send(1, spec.BasicConsume(0, "q", "t"))
    assert len(_deliveries(wire)) == 2
    wire.send(1, spec.BasicQos(0, 0, global_=True))
    assert len(_deliveries(wire)) == 3


def test_a_peer_that_does_not_read_gets_no_credit() -> None:
    wire = _consuming(1)
    wire.take()
    wire.connection.writing_paused(is_paused=True)
    wire.turn()
    assert _queue(wire).consumers[0].credit == 0
    _fill(wire, 5)
    assert _deliveries(wire) == []
    wire.connection.writing_paused(is_paused=False)
    wire.turn()
    assert len(_deliveries(wire)) == 5


def test_credit_for_large_messages_is_bounded_by_their_bytes() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.ask(1, spec.BasicConsume(0, "q", "t", no_ack=True))
    size = 512 * 1024
    wire.publish(1, "", "q", bytes(size))
    wire.take()
    assert _queue(wire).consumers[0].credit == DELIVERY_BYTES_WINDOW // size - 1
    wire.publish(1, "", "q", b"x")
    assert _queue(wire).consumers[0].credit == PREFETCH_UNLIMITED


def test_prefetch_size_is_not_implemented() -> None:
    wire = Wire().open()
    assert close_of(wire.ask(1, spec.BasicQos(1, 0, global_=False)))[0] == NOT_IMPLEMENTED


# --- Settling -------------------------------------------------------------------------------------


def test_acks_of_one_read_are_one_settlement() -> None:
    wire = _consuming(5)
    wire.take()
    wire.feed(b"".join(encode_method(1, spec.BasicAck(tag)) for tag in (1, 2, 3)))
    assert _queue(wire).settled == [(Settlement.ACK, [0, 1, 2], Reason.REJECTED)]
    wire.feed(
        encode_method(1, spec.BasicAck(4)) + encode_method(1, spec.BasicAck(0, multiple=True))
    )
    assert _queue(wire).settled[1:] == [(Settlement.ACK, [3, 4], Reason.REJECTED)]
    assert wire.environment.counters.acked == 5


def test_reject_and_nack_requeue_or_dead_letter() -> None:
    wire = _consuming(6, qos=6)
    wire.take()
    wire.send(1, spec.BasicReject(1, requeue=False))
    wire.send(1, spec.BasicNack(3, multiple=True, requeue=False))
    wire.send(1, spec.BasicNack(4, requeue=False))
    wire.send(1, spec.BasicReject(5, requeue=True))
    assert _queue(wire).settled == [
        (Settlement.DEAD_LETTER, [0], Reason.REJECTED),
        (Settlement.DEAD_LETTER, [1, 2], Reason.REJECTED),
        (Settlement.DEAD_LETTER, [3], Reason.REJECTED),
        (Settlement.RELEASE, [4], Reason.REJECTED),
    ]
    (again,) = _deliveries(wire)
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
    wire = _consuming(2)
    wire.take()
    wire.send(1, method)  # type: ignore[arg-type]
    code, text = close_of(wire.take_one())
    assert code == PRECONDITION_FAILED
    assert text.startswith("PRECONDITION_FAILED - unknown delivery tag ")


def test_a_second_ack_is_precondition_failed_and_the_first_one_holds() -> None:
    wire = _consuming(2)
    wire.take()
    wire.feed(encode_method(1, spec.BasicAck(1)) * 2)
    assert close_of(wire.take_one())[0] == PRECONDITION_FAILED
    assert (Settlement.ACK, [0], Reason.REJECTED) in _queue(wire).settled
    assert (Settlement.RELEASE, [1], Reason.REJECTED) in _queue(wire).settled


def test_ack_of_everything_with_nothing_unacknowledged_is_fine() -> None:
    wire = Wire().open()
    wire.send(1, spec.BasicAck(0, multiple=True), spec.BasicNack(0, multiple=True))
    assert wire.take_methods() == []


def test_a_tag_of_another_channel_is_unknown() -> None:
    wire = _consuming(1, channels=2)
    wire.take()
    wire.send(2, spec.BasicAck(1))
    assert close_of(wire.take_one())[0] == PRECONDITION_FAILED
    wire.send(1, spec.BasicAck(1))
    assert wire.take_methods() == []


def test_recover_gives_everything_back() -> None:
    wire = _consuming(3, qos=3)
    wire.take()
    wire.send(1, spec.BasicRecover(requeue=True))
    recovered, *rest = wire.take_methods()
    assert recovered == spec.BasicRecoverOk()
    assert [each.delivery_tag for each in rest if isinstance(each, spec.BasicDeliver)] == [4, 5, 6]
    wire.send(1, spec.BasicRecoverAsync(requeue=True))
    assert len(_deliveries(wire)) == 3
    assert close_of(wire.ask(1, spec.BasicRecover(requeue=False)))[0] == NOT_IMPLEMENTED


def test_a_lost_connection_gives_everything_back() -> None:
    wire = _consuming(3)
    wire.take()
    assert len(_queue(wire).held) == 3
    wire.connection.lost()
    assert _queue(wire).held == {}
    assert _queue(wire).ready == [0, 1, 2]
    assert _queue(wire).consumers == []


def test_acks_that_came_with_the_last_read_count() -> None:
    wire = _consuming(2)
    wire.take()
    wire.feed(
        encode_method(1, spec.BasicAck(1)) + encode_method(0, spec.ConnectionClose(200, "", 0, 0))
    )
    assert _queue(wire).settled == [(Settlement.ACK, [0], Reason.REJECTED)]
    assert _queue(wire).ready == [1]


# --- Get ------------------------------------------------------------------------------------------


def test_get_answers_one_message_and_how_many_are_left() -> None:
    wire = Wire().open()
    wire.declare("q")
    _fill(wire, 2)
    wire.send(1, spec.BasicGet(0, "q"))
    got, content = wire.take_methods()
    assert got == spec.BasicGetOk(1, False, "", "q", 1)
    assert content == Content(b"\x10\x00\x02", b"\x00")
    wire.send(1, spec.BasicGet(0, "q", no_ack=True))
    assert wire.take_methods()[0] == spec.BasicGetOk(2, False, "", "q", 0)
    assert wire.ask(1, spec.BasicGet(0, "q")) == spec.BasicGetEmpty()
    assert list(wire.connection.channels[1].unacked) == [1]
    assert _queue(wire).settled == [(Settlement.ACK, [1], Reason.REJECTED)]
    wire.send(1, spec.BasicNack(1, requeue=True))
    wire.send(1, spec.BasicGet(0, "q"))
    got, content = wire.take_methods()
    assert got == spec.BasicGetOk(3, True, "", "q", 0)
    wire.send(1, spec.BasicAck(3))
    assert _queue(wire).held == {}


def test_get_waits_for_what_was_published_and_given_back_before_it() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.client.holds_publishes = True
    wire.feed(Wire.publish_bytes(1, "", "q", b"x") + encode_method(1, spec.BasicGet(0, "q")))
    assert wire.take_methods() == []
    wire.client.holds_publishes = False
    wire.turn()
    assert isinstance(wire.take_methods()[0], spec.BasicGetOk)
    wire.client.holds_settlements = True
    wire.feed(encode_method(1, spec.BasicNack(1)) + encode_method(1, spec.BasicGet(0, "q")))
    assert wire.take_methods() == []
    wire.client.holds_settlements = False
    wire.turn()
    assert isinstance(wire.take_methods()[0], spec.BasicGetOk)


def test_get_and_consume_of_a_missing_queue_are_not_found() -> None:
    for method in (spec.BasicGet(0, "missing"), spec.BasicConsume(0, "missing", "")):
        wire = Wire().open()
        assert close_of(wire.ask(1, method)) == (
            NOT_FOUND,
            "NOT_FOUND - no queue 'missing' in vhost '/'",
        )


# --- Consumers ------------------------------------------------------------------------------------


def test_cancel_ends_a_consumer_and_leaves_what_it_has() -> None:
    wire = _consuming(2)
    wire.take()
    assert wire.ask(1, spec.BasicCancel("t")) == spec.BasicCancelOk("t")
    assert _queue(wire).consumers == []
    _fill(wire, 1)
    assert wire.take_methods() == []
    wire.send(1, spec.BasicAck(2, multiple=True))
    assert _queue(wire).settled == [(Settlement.ACK, [0, 1], Reason.REJECTED)]
    assert wire.ask(1, spec.BasicCancel("unknown")) == spec.BasicCancelOk("unknown")
    wire.send(1, spec.BasicCancel("unknown", nowait=True))
    assert wire.take_methods() == []


def test_a_cancelled_tag_can_be_used_again() -> None:
    wire = _consuming()
    wire.take()
    wire.ask(1, spec.BasicCancel("t"))
    assert wire.ask(1, spec.BasicConsume(0, "q", "t")) == spec.BasicConsumeOk("t")


def test_deleting_a_queue_tells_its_consumers() -> None:
    wire = _consuming(1)
    wire.take()
    wire.send(1, spec.QueueDelete(0, "q"))
    # In RabbitMQ's order, which kombu's SimpleQueue depends on.
    assert wire.take_methods() == [spec.QueueDeleteOk(0), spec.BasicCancel("t", nowait=True)]
    # An answer to our cancel, and acks of what is gone, are fine.
    wire.send(1, spec.BasicCancelOk("t"), spec.BasicAck(1))
    assert wire.take_methods() == []
    assert wire.connection.channels[1].links == {}


def test_a_client_that_does_not_know_cancel_is_not_sent_it() -> None:
    wire = Wire().open(features=EMPTY_TABLE)
    wire.declare("q")
    wire.ask(1, spec.BasicConsume(0, "q", "t"))
    wire.send(1, spec.QueueDelete(0, "q"))
    assert wire.take_methods() == [spec.QueueDeleteOk(0)]


def test_settling_what_is_gone_with_its_queue_is_fine() -> None:
    wire = _consuming(3)
    wire.take()
    original = wire.client.settle

    def gone(*arguments: object, **named: object) -> None:
        raise KernelError(Code.NOT_FOUND, "topic q was deleted")

    wire.client.settle = gone  # type: ignore[method-assign,assignment]
    wire.send(1, spec.BasicAck(1), spec.BasicReject(2, requeue=False), spec.BasicNack(3))
    assert wire.take_methods() == []
    wire.client.settle = original  # type: ignore[method-assign]
    assert isinstance(wire.ask(1, spec.BasicGet(0, "q")), spec.BasicGetEmpty)


def test_a_tag_in_use_is_not_allowed() -> None:
    wire = _consuming()
    wire.take()
    close = wire.ask(1, spec.BasicConsume(0, "q", "t"))
    assert isinstance(close, spec.ConnectionClose)
    assert close.reply_code == NOT_ALLOWED
    assert "attempt to reuse consumer tag 't'" in close.reply_text


def test_consumers_of_a_channel_are_bounded() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.send(
        1, *(spec.BasicConsume(0, "q", "", nowait=True) for _ in range(CONSUMERS_PER_CHANNEL_MAX))
    )
    assert close_of(wire.ask(1, spec.BasicConsume(0, "q", "")))[0] == PRECONDITION_FAILED


def test_an_exclusive_consumer_keeps_others_out() -> None:
    client = FakeClient()
    first, second = Wire(client).open(), Wire(client).open()
    first.declare("q")
    first.ask(1, spec.BasicConsume(0, "q", "t", exclusive=True))
    assert close_of(second.ask(1, spec.BasicConsume(0, "q", ""))) == (
        ACCESS_REFUSED,
        "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use",
    )


def test_priority_and_the_rest_reach_the_kernel() -> None:
    wire = _consuming(no_ack=True, exclusive=True, arguments=Table.of({"x-priority": -7}))
    wanted = _queue(wire).consumers[0].spec
    assert (wanted.priority, wanted.auto_ack, wanted.exclusive) == (-7, True, True)
    assert wanted.group == DEFAULT_GROUP
    assert wanted.session is wire.client.sessions[0]


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"no_local": True}, NOT_IMPLEMENTED),
        ({"arguments": Table.of({"x-priority": "high"})}, PRECONDITION_FAILED),
        ({"arguments": Table.of({"x-priority": 2**40})}, PRECONDITION_FAILED),
        ({"arguments": Table.of({"x-consumer-timeout": 5})}, PRECONDITION_FAILED),
    ],
)
def test_what_a_consumer_cannot_have_is_refused(how: dict[str, object], code: int) -> None:
    wire = Wire().open()
    wire.declare("q")
    method = spec.BasicConsume(0, "q", "", **how)  # type: ignore[arg-type]
    assert close_of(wire.ask(1, method))[0] == code
    assert _queue(wire).consumers == []


def test_a_stream_gets_the_default_group_when_amqp_first_reads_it() -> None:
    wire = Wire().open()
    wire.client._put_topic(
        PutTopic("default", "log", TopicOptions(kind=TopicKind.STREAM, queues=1), {})
    )
    offset = spec.BasicConsume(0, "log", "", arguments=Table.of({"x-stream-offset": "first"}))
    assert close_of(wire.ask(1, offset))[0] == NOT_IMPLEMENTED
    wire = Wire(wire.client).open()
    assert isinstance(wire.ask(1, spec.BasicConsume(0, "log", "")), spec.BasicConsumeOk)
    assert DEFAULT_GROUP in _queue(wire, "log").info.groups


def test_a_delivery_behind_a_cancel_is_given_back_uncounted() -> None:
    wire = _consuming()
    wire.take()
    consumer = _queue(wire).consumers[0]
    wire.ask(1, spec.BasicCancel("t"))
    _fill(wire, 1)
    columns = _queue(wire).take(consumer, 1)
    assert columns is not None
    assert consumer.sink is not None
    consumer.sink.deliver(consumer, columns)
    wire.turn()
    assert wire.take_methods() == []
    assert _queue(wire).settled == [(Settlement.RETURN, [0], Reason.REJECTED)]


def test_the_end_of_a_queue_elsewhere_is_noticed() -> None:
    client = FakeClient()
    wire = Wire(client).open()
    wire.declare("q")
    wire.ask(1, spec.BasicConsume(0, "q", "t"))
    with pytest.raises(StopIteration):
        client.administer(DeleteTopic("default", "q")).send(None)
    wire.turn()
    assert wire.take_one() == spec.BasicCancel("t", nowait=True)
