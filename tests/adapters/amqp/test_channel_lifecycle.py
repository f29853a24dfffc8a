"""Channels: opening, closing, soft errors, and methods that have no business there."""

from __future__ import annotations

import pytest

from adapters.amqp import lifecycle
from adapters.amqp.codec import spec
from adapters.amqp.codec.frames import CONTENT_START, encode_content
from adapters.amqp.codec.methods import encode_method
from adapters.amqp.errors import (
    CHANNEL_ERROR,
    COMMAND_INVALID,
    FRAME_ERROR,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    UNEXPECTED_FRAME,
)
from kernel.api.client import Settlement
from tests.adapters.amqp.wire import Content, Wire, close_of

FROM_CLIENTS = {
    *lifecycle.CHANNEL_STEPS,
    spec.ChannelOpen.key,
    spec.ChannelCloseOk.key,
}


def test_a_second_open_is_a_channel_error() -> None:
    wire = Wire().open()
    wire.send(1, spec.ChannelOpen())
    close = wire.take_one()
    assert isinstance(close, spec.ConnectionClose)
    assert (close.reply_code, close.failing_class, close.failing_method) == (CHANNEL_ERROR, 20, 10)


@pytest.mark.parametrize("method", [spec.QueueDeclare(0, "q"), spec.BasicAck(1)])
def test_a_channel_that_is_not_open_is_a_channel_error(method: object) -> None:
    wire = Wire().open()
    wire.send(2, method)  # type: ignore[arg-type]
    assert close_of(wire.take_one())[0] == CHANNEL_ERROR


def test_content_on_a_channel_that_is_not_open_is_a_channel_error() -> None:
    wire = Wire().open()
    wire.feed(b"".join(encode_content(2, b"\0\0", b"x", 4096)))
    assert close_of(wire.take_one())[0] == CHANNEL_ERROR


def test_more_channels_than_agreed_are_not_allowed() -> None:
    wire = Wire().open()
    wire.send(2047, spec.ChannelOpen())
    assert isinstance(wire.take_one(), spec.ChannelOpenOk)
    wire.send(2048, spec.ChannelOpen())
    assert close_of(wire.take_one())[0] == NOT_ALLOWED


def test_a_soft_error_closes_the_channel_and_names_the_culprit() -> None:
    wire = Wire().open()
    wire.send(1, spec.QueuePurge(0, "missing"))
    assert wire.take_one() == spec.ChannelClose(
        NOT_FOUND, "NOT_FOUND - no queue 'missing' in vhost '/'", 50, 30
    )


def test_everything_on_a_closing_channel_is_dropped_until_close_ok_and_the_number_is_free() -> None:
    wire = Wire().open(channels=2)
    wire.declare("q")
    wire.send(1, spec.QueuePurge(0, "missing"))
    wire.take()
    wire.publish(1, "", "q", b"lost")
    wire.send(1, spec.QueueDeclare(0, "never"), spec.BasicAck(1), spec.ChannelOpen())
    assert wire.take_methods() == []
    assert wire.client.submitted == []
    assert ("default", "never") not in wire.client.queues
    assert isinstance(wire.ask(2, spec.QueuePurge(0, "q")), spec.QueuePurgeOk)
    wire.send(1, spec.ChannelCloseOk(), spec.ChannelOpen())
    assert wire.take_one() == spec.ChannelOpenOk()
    wire.publish(1, "", "q", b"kept")
    assert len(wire.client.queues["default", "q"].slots) == 1


def test_closes_of_a_channel_that_cross_are_both_answered() -> None:
    wire = Wire().open()
    wire.send(1, spec.QueuePurge(0, "missing"))
    wire.take()
    wire.send(1, spec.ChannelClose(200, "", 0, 0))
    assert wire.take_one() == spec.ChannelCloseOk()
    wire.send(1, spec.ChannelCloseOk(), spec.ChannelOpen())
    assert wire.take_one() == spec.ChannelOpenOk()


def test_a_frame_behind_a_soft_error_in_the_same_read_is_still_read() -> None:
    wire = Wire().open(channels=2)
    wire.feed(
        encode_method(1, spec.BasicAck(5))
        + encode_method(2, spec.AccessRequest("/data", False, False, True, True, True))
    )
    close, answer = wire.take_methods()
    assert close_of(close)[0] == PRECONDITION_FAILED
    assert answer == spec.AccessRequestOk(1)


def test_closing_a_channel_gives_back_what_it_has_and_ends_its_consumers() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.publish(1, "", "q", b"a")
    wire.publish(1, "", "q", b"b")
    wire.send(1, spec.BasicConsume(0, "q", "t"))
    wire.take()
    queue = wire.client.queues["default", "q"]
    assert len(queue.held) == 2
    assert wire.ask(1, spec.ChannelClose(200, "", 0, 0)) == spec.ChannelCloseOk()
    assert queue.consumers == []
    assert queue.settled[-1][:2] == (Settlement.RELEASE, [0, 1])
    assert queue.ready == [0, 1]


def test_flow_may_be_switched_on_and_never_off() -> None:
    wire = Wire().open()
    assert wire.ask(1, spec.ChannelFlow(active=True)) == spec.ChannelFlowOk(active=True)
    assert close_of(wire.ask(1, spec.ChannelFlow(active=False)))[0] == NOT_IMPLEMENTED


def test_access_request_is_answered_with_ticket_1() -> None:
    wire = Wire().open()
    asked = spec.AccessRequest("/data", False, True, True, True, True)
    assert wire.ask(1, asked) == spec.AccessRequestOk(1)


@pytest.mark.parametrize(
    "kind",
    [kind for key, kind in spec.METHOD_TABLE.items() if key not in FROM_CLIENTS],
    ids=lambda kind: kind.wire_name,
)
def test_methods_that_no_client_may_send_on_a_channel_are_command_invalid(
    kind: type[object],
) -> None:
    wire = Wire().open()
    defaults = {"Table": spec.EMPTY_TABLE, "ShortStr": "", "LongStr": b""}
    layout = kind.layout  # type: ignore[attr-defined]
    wire.send(1, kind(*(defaults.get(domain, 0) for _, domain in layout)))  # type: ignore[arg-type]
    assert close_of(wire.take_one())[0] == COMMAND_INVALID


def test_an_unknown_method_is_command_invalid() -> None:
    wire = Wire().open()
    wire.feed(b"\x01\x00\x01\x00\x00\x00\x04\x00\x3c\x00\x63\xce")
    close = wire.take_one()
    assert isinstance(close, spec.ConnectionClose)
    assert (close.reply_code, close.failing_class, close.failing_method) == (
        COMMAND_INVALID,
        60,
        99,
    )


def _header(body_bytes: int, class_id: int = 60) -> bytes:
    return CONTENT_START.pack(2, 1, 14, class_id, 0, body_bytes) + b"\0\0\xce"


def _body(size: int) -> bytes:
    return b"\x03\x00\x01" + size.to_bytes(4, "big") + bytes(size) + b"\xce"


_PUBLISH = encode_method(1, spec.BasicPublish(0, "", "q"))


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (_header(1), UNEXPECTED_FRAME),
        (_body(1), UNEXPECTED_FRAME),
        (_PUBLISH + _body(1), UNEXPECTED_FRAME),
        (_PUBLISH + _header(5) + _header(5), UNEXPECTED_FRAME),
        (_PUBLISH + _PUBLISH, UNEXPECTED_FRAME),
        (_PUBLISH + _header(5) + encode_method(1, spec.BasicAck(1)), UNEXPECTED_FRAME),
        (_PUBLISH + _header(5) + _body(3) + _body(3), FRAME_ERROR),
        (_PUBLISH + _header(1, class_id=50), FRAME_ERROR),
        (_PUBLISH + b"\x02\x00\x01\x00\x00\x00\x02\x00\x3c\xce", FRAME_ERROR),
        (b"\x02\x00\x00\x00\x00\x00\x00\xce", UNEXPECTED_FRAME),
    ],
)
def test_content_out_of_order_closes_the_connection(frames: bytes, code: int) -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.feed(frames)
    close = wire.take_one()
    assert isinstance(close, spec.ConnectionClose)
    assert close.reply_code == code


def test_bytes_may_come_one_at_a_time() -> None:
    wire = Wire().open()
    data = (
        encode_method(1, spec.QueueDeclare(0, "q", durable=True))
        + encode_method(1, spec.ConfirmSelect())
        + Wire.publish_bytes(1, "", "q", b"body" * 10, block=b"\x10\x00\x02")
        + encode_method(1, spec.BasicGet(0, "q", no_ack=True))
    )
    for octet in data:
        wire.feed(bytes((octet,)))
    declared, selected, confirmed, got, content = wire.take_methods()
    assert declared == spec.QueueDeclareOk("q", 0, 0)
    assert selected == spec.ConfirmSelectOk()
    assert confirmed == spec.BasicAck(1)
    assert isinstance(got, spec.BasicGetOk)
    assert content == Content(b"\x10\x00\x02", b"body" * 10)


def test_what_comes_in_during_an_operation_is_held_and_reading_pauses_when_it_is_much() -> None:
    wire = Wire().open()
    wire.host.holds_operations = True
    wire.send(1, spec.QueueDeclare(0, "q", durable=True))
    for _ in range(5):
        wire.feed(Wire.publish_bytes(1, "", "q", bytes(60_000)))
    assert wire.host.holds == {"operation"}
    assert wire.client.submitted == []
    wire.host.holds_operations = False
    wire.turn()
    assert wire.host.holds == set()
    assert len(wire.client.queues["default", "q"].slots) == 5


def test_an_operation_that_waits_when_the_connection_goes_is_never_started() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.client.holds_publishes = True
    wire.feed(Wire.publish_bytes(1, "", "q", b"x") + encode_method(1, spec.BasicGet(0, "q")))
    assert wire.host.operations == []
    wire.connection.lost()
    wire.client.holds_publishes = False
    wire.turn()
    assert wire.host.operations == []
    assert wire.client.sessions[0].is_closed


def test_answers_come_in_the_order_of_the_questions() -> None:
    wire = Wire().open(channels=2)
    wire.feed(
        encode_method(1, spec.QueueDeclare(0, "a", durable=True))
        + encode_method(2, spec.BasicQos(0, 5, global_=False))
        + encode_method(1, spec.QueueDeclare(0, "b", durable=True))
        + encode_method(2, spec.ConfirmSelect())
    )
    assert [type(each) for each in wire.take_methods()] == [
        spec.QueueDeclareOk,
        spec.BasicQosOk,
        spec.QueueDeclareOk,
        spec.ConfirmSelectOk,
    ]
