"""Consuming: consumers of every kind, deliveries, get, cancel both ways."""

from __future__ import annotations

import itertools

import pytest

from adapters.amqp.codec import spec
from adapters.amqp.codec.fields import EMPTY_TABLE, Table
from adapters.amqp.codec.methods import encode_method
from adapters.amqp.errors import (
    ACCESS_REFUSED,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
)
from adapters.amqp.limits import (
    CONSUMERS_PER_CHANNEL_MAX,
)
from kernel.api.client import DeleteTopic, PutTopic, Settlement
from kernel.api.model import DEFAULT_GROUP, Reason, TopicKind, TopicOptions
from kernel.common.errors import Code, KernelError
from metering.counters import Meter, measure_slots
from metering.window import RowKey
from tests.adapters.amqp.consuming import consuming, deliveries, fill, queue
from tests.adapters.amqp.fake_kernel import Columns, FakeClient
from tests.adapters.amqp.wire import Content, Wire, close_of


def test_consume_ok_comes_first_then_what_waits_in_order() -> None:
    wire = consuming(3)
    consumed, *rest = wire.take_methods()
    assert consumed == spec.BasicConsumeOk("t")
    assert rest[0::2] == [
        spec.BasicDeliver("t", tag, redelivered=False, exchange="", routing_key="q")
        for tag in (1, 2, 3)
    ]
    assert rest[1::2] == [Content(b"\x10\x00\x02", bytes((n,))) for n in range(3)]


@pytest.mark.parametrize("sizes", [[1], [9], [5, 5], [5, 6], [7] * 20, [5000, 1, 1, 9000, 9000]])
def test_what_is_delivered_at_once_is_counted_and_kept_until_acked(sizes: list[int]) -> None:
    wire = consuming()
    wire.take()
    wire.declare("source")
    for size in sizes:
        fill(wire, 1, "source", size)
    slots = queue(wire, "source").slots
    (consumer,) = queue(wire).consumers
    channel = wire.connection.channels[1]
    counter = Meter(0).counter(RowKey(topic="q"))
    channel.links["t"].counter = counter
    assert consumer.sink is not None
    offsets = list(range(100, 100 + len(slots)))
    ident = queue(wire).info.queues[0].id
    for _ in range(2):  # the first one of a link is never like the one before
        consumer.sink.deliver(consumer, Columns(ident, offsets, slots, None))
    bytes_each, units = measure_slots(slots)
    assert (counter.messages, counter.size_bytes) == (2 * len(slots), 2 * bytes_each)
    assert counter.units_4k == 2 * units
    held = {tag: (consumer, offset) for tag, offset in enumerate(offsets * 2, 1)}
    assert channel.unacked == held


def test_exchange_and_key_are_those_of_the_publish() -> None:
    wire = consuming()
    wire.send(1, spec.QueueBind(0, "q", "amq.topic", "#"))
    wire.take()
    key = b"a.\xff.b".decode("utf-8", "surrogateescape")
    wire.publish(1, "amq.topic", key, b"x")
    (deliver,) = deliveries(wire)
    assert (deliver.exchange, deliver.routing_key) == ("amq.topic", key)


def test_a_generated_tag_and_nowait() -> None:
    wire = Wire().open()
    wire.declare("q")
    answer = wire.ask(1, spec.BasicConsume(0, "q", ""))
    assert isinstance(answer, spec.BasicConsumeOk)
    assert answer.consumer_tag.startswith("amq.ctag-")
    wire.send(1, spec.BasicConsume(0, "q", "quiet", nowait=True))
    assert wire.take_methods() == []
    assert len(queue(wire).consumers) == 2


def test_bodies_over_the_frame_size_are_split() -> None:
    wire = Wire().open(frame_max=4096)
    wire.declare("q")
    wire.ask(1, spec.BasicConsume(0, "q", "t"))
    for size in (0, 4087, 4088, 4089, 20_000):
        wire.publish(1, "", "q", bytes(size), frame_max=4096)
        _, content = wire.take_methods()
        assert content == Content(b"\0\0", bytes(size))


@pytest.mark.parametrize("at_once", [True, False])
def test_each_message_is_sent_as_it_was_published_whatever_came_before(at_once: bool) -> None:
    wire = Wire().open(frame_max=4096)
    wire.declare("q")
    wire.ask(1, spec.QueueBind(0, "q", "amq.topic", "#"))
    if not at_once:
        wire.send(1, spec.BasicConsume(0, "q", "t", nowait=True))
    plain, other = b"\x10\x00\x02", b"\x10\x00\x01"
    kinds = [
        ("", "q", plain, 10),
        ("", "q", other, 10),
        ("", "q", plain, 11),
        ("amq.topic", "q", plain, 11),
        ("amq.topic", "k", plain, 11),
        ("", "q", plain, 0),
        ("", "q", plain, 5_000),
    ]
    wanted = [kinds[one] for pair in itertools.permutations(range(len(kinds)), 2) for one in pair]
    got: list[object] = []
    for number, (exchange, key, block, size) in enumerate(wanted):
        body = number.to_bytes(2, "big") * size
        wire.publish(1, exchange, key, body, block=block, frame_max=4096)
        got += wire.take_methods() if not at_once else []
    if at_once:
        wire.send(1, spec.BasicConsume(0, "q", "t", nowait=True))
        wire.turn()
        got += wire.take_methods()
    assert got == [
        each
        for number, (exchange, key, block, size) in enumerate(wanted)
        for each in (
            spec.BasicDeliver("t", number + 1, False, exchange, key),
            Content(block, number.to_bytes(2, "big") * size),
        )
    ]


@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_a_redelivery_is_marked_and_from_a_quorum_queue_counted(kind: str) -> None:
    wire = Wire().open()
    wire.declare("q", durable=True, arguments=Table.of({"x-queue-type": kind}))
    wire.publish(1, "", "q", b"x")
    wire.send(1, spec.BasicConsume(0, "q", "t"))
    wire.take()
    for count in (1, 2):
        wire.send(1, spec.BasicNack(count, requeue=True))
        deliver, content = wire.take_methods()
        assert deliver == spec.BasicDeliver("t", count + 1, True, "", "q")
        assert isinstance(content, Content)
        assert content.headers == ({"x-delivery-count": count} if kind == "quorum" else {})


def test_delivery_tags_count_per_channel_for_consume_and_get() -> None:
    wire = Wire().open(channels=2)
    for name in ("a", "b"):
        wire.declare(name)
        fill(wire, 2, name)
    wire.send(1, spec.BasicGet(0, "a"))
    wire.send(1, spec.BasicConsume(0, "b", "t"))
    wire.send(1, spec.BasicGet(0, "a"))
    tags = [
        each.delivery_tag
        for each in wire.take_methods()
        if isinstance(each, spec.BasicDeliver | spec.BasicGetOk)
    ]
    assert tags == [1, 2, 3, 4]


def test_get_answers_one_message_and_how_many_are_left() -> None:
    wire = Wire().open()
    wire.declare("q")
    fill(wire, 2)
    wire.send(1, spec.BasicGet(0, "q"))
    got, content = wire.take_methods()
    assert got == spec.BasicGetOk(1, False, "", "q", 1)
    assert content == Content(b"\x10\x00\x02", b"\x00")
    wire.send(1, spec.BasicGet(0, "q", no_ack=True))
    assert wire.take_methods()[0] == spec.BasicGetOk(2, False, "", "q", 0)
    assert wire.ask(1, spec.BasicGet(0, "q")) == spec.BasicGetEmpty()
    assert list(wire.connection.channels[1].unacked) == [1]
    assert queue(wire).settled == [(Settlement.ACK, [1], Reason.REJECTED)]
    wire.send(1, spec.BasicNack(1, requeue=True))
    wire.send(1, spec.BasicGet(0, "q"))
    got, content = wire.take_methods()
    assert got == spec.BasicGetOk(3, True, "", "q", 0)
    wire.send(1, spec.BasicAck(3))
    assert queue(wire).held == {}


def test_unacknowledged_gets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.amqp.channel.channel_methods.UNACKED_PER_CHANNEL_MAX", 2)
    wire = Wire().open()
    wire.declare("q")
    fill(wire, 3)
    for _ in range(2):
        wire.send(1, spec.BasicGet(0, "q"))
    wire.take()
    assert close_of(wire.ask(1, spec.BasicGet(0, "q")))[0] == PRECONDITION_FAILED


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


def test_cancel_ends_a_consumer_and_leaves_what_it_has() -> None:
    wire = consuming(2)
    wire.take()
    assert wire.ask(1, spec.BasicCancel("t")) == spec.BasicCancelOk("t")
    assert queue(wire).consumers == []
    fill(wire, 1)
    assert wire.take_methods() == []
    wire.send(1, spec.BasicAck(2, multiple=True))
    assert queue(wire).settled == [(Settlement.ACK, [0, 1], Reason.REJECTED)]
    assert wire.ask(1, spec.BasicCancel("unknown")) == spec.BasicCancelOk("unknown")
    wire.send(1, spec.BasicCancel("unknown", nowait=True))
    assert wire.take_methods() == []


def test_a_cancelled_tag_can_be_used_again() -> None:
    wire = consuming()
    wire.take()
    wire.ask(1, spec.BasicCancel("t"))
    assert wire.ask(1, spec.BasicConsume(0, "q", "t")) == spec.BasicConsumeOk("t")


def test_deleting_a_queue_tells_its_consumers() -> None:
    wire = consuming(1)
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
    wire = consuming(3)
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
    wire = consuming()
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
    wire = consuming(no_ack=True, exclusive=True, arguments=Table.of({"x-priority": -7}))
    wanted = queue(wire).consumers[0].spec
    assert (wanted.priority, wanted.auto_ack, wanted.exclusive) == (-7, True, True)
    assert wanted.group == DEFAULT_GROUP
    assert wanted.session is wire.client.sessions[0]


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"arguments": Table.of({"x-priority": "high"})}, PRECONDITION_FAILED),
        ({"arguments": Table.of({"x-priority": 2**40})}, PRECONDITION_FAILED),
        ({"arguments": Table.of({"x-consumer-timeout": 0})}, PRECONDITION_FAILED),
        ({"arguments": Table.of({"x-consumer-timeout": "soon"})}, PRECONDITION_FAILED),
    ],
)
def test_what_a_consumer_cannot_have_is_refused(how: dict[str, object], code: int) -> None:
    wire = Wire().open()
    wire.declare("q")
    method = spec.BasicConsume(0, "q", "", **how)  # type: ignore[arg-type]
    assert close_of(wire.ask(1, method))[0] == code
    assert queue(wire).consumers == []


def test_a_stream_gets_the_default_group_when_amqp_first_reads_it() -> None:
    wire = Wire().open()
    wire.client._put_topic(
        PutTopic("default", "log", TopicOptions(kind=TopicKind.STREAM, queues=1), {})
    )
    offset = spec.BasicConsume(0, "log", "", arguments=Table.of({"x-stream-offset": "first"}))
    assert close_of(wire.ask(1, offset))[0] == NOT_IMPLEMENTED
    wire = Wire(wire.client).open()
    assert isinstance(wire.ask(1, spec.BasicConsume(0, "log", "")), spec.BasicConsumeOk)
    assert DEFAULT_GROUP in queue(wire, "log").info.groups


def test_a_delivery_behind_a_cancel_is_given_back_uncounted() -> None:
    wire = consuming()
    wire.take()
    consumer = queue(wire).consumers[0]
    wire.ask(1, spec.BasicCancel("t"))
    fill(wire, 1)
    columns = queue(wire).take(consumer, 1)
    assert columns is not None
    assert consumer.sink is not None
    consumer.sink.deliver(consumer, columns)
    wire.turn()
    assert wire.take_methods() == []
    assert queue(wire).settled == [(Settlement.RETURN, [0], Reason.REJECTED)]


def test_the_end_of_a_queue_elsewhere_is_noticed() -> None:
    client = FakeClient()
    wire = Wire(client).open()
    wire.declare("q")
    wire.ask(1, spec.BasicConsume(0, "q", "t"))
    with pytest.raises(StopIteration):
        client.administer(DeleteTopic("default", "q")).send(None)
    wire.turn()
    assert wire.take_one() == spec.BasicCancel("t", nowait=True)
