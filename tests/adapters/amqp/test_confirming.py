"""Returns, confirms, and what slows a publisher down."""

from __future__ import annotations

import pytest

from adapters.amqp.codec import spec
from adapters.amqp.codec.fields import Table
from adapters.amqp.limits import (
    PUBLISH_BYTES_PAUSE,
)
from kernel.common.errors import Code, KernelError
from tests.adapters.amqp.wire import FRAME_MAX, Content, Wire, block_of


def _confirming(**how: object) -> Wire:
    wire = Wire().open(**how)  # type: ignore[arg-type]
    wire.declare("q")
    assert wire.ask(1, spec.ConfirmSelect()) == spec.ConfirmSelectOk()
    return wire


@pytest.mark.parametrize("size", [5, 200_000], ids=["fast", "long"])
def test_an_unroutable_mandatory_message_is_returned_before_its_confirm(size: int) -> None:
    wire = _confirming()
    block = block_of(content_type=b"text/plain")
    wire.publish(1, "", "nowhere", bytes(size), block=block, mandatory=True)
    returned, content, ack = wire.take_methods()
    assert returned == spec.BasicReturn(312, "NO_ROUTE", "", "nowhere")
    assert content == Content(block, bytes(size))
    assert ack == spec.BasicAck(1)


def test_an_unroutable_message_that_is_not_mandatory_is_confirmed() -> None:
    wire = _confirming()
    wire.publish(1, "", "nowhere", b"x")
    assert wire.take_one() == spec.BasicAck(1)


def test_without_confirm_mode_nothing_is_said() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.publish(1, "", "q", b"x")
    wire.publish(1, "", "nowhere", b"x")
    assert wire.take_methods() == []


def test_confirms_of_one_read_are_one_frame() -> None:
    wire = _confirming()
    wire.feed(b"".join(Wire.publish_bytes(1, "", "q", b"x") for _ in range(100)))
    assert wire.take_one() == spec.BasicAck(100, multiple=True)


def test_no_confirm_comes_before_the_kernel_has_answered() -> None:
    wire = _confirming()
    wire.client.holds_publishes = True
    wire.feed(b"".join(Wire.publish_bytes(1, "", "q", b"x") for _ in range(3)))
    wire.connection.tick(wire.host.now_ms)
    wire.turn()
    assert wire.take_methods() == []
    wire.client.holds_publishes = False
    wire.turn()
    assert wire.take_one() == spec.BasicAck(3, multiple=True)


def test_batches_may_complete_in_any_order() -> None:
    wire = _confirming()
    wire.client.holds_publishes = True
    for _ in range(3):
        wire.feed(Wire.publish_bytes(1, "", "q", b"x") * 2)
    first, second, third = wire.client.submitted
    wire.client.complete(third)
    wire.turn()
    assert wire.take_methods() == [spec.BasicAck(5), spec.BasicAck(6)]
    wire.client.complete(first)
    wire.turn()
    assert wire.take_one() == spec.BasicAck(2, multiple=True)
    wire.client.complete(second)
    wire.turn()
    assert wire.take_one() == spec.BasicAck(4, multiple=True)


def test_unroutable_messages_between_others_keep_the_numbers_right() -> None:
    wire = _confirming()
    wire.client.holds_publishes = True
    wire.feed(
        Wire.publish_bytes(1, "", "q", b"1")
        + Wire.publish_bytes(1, "", "nowhere", b"2")
        + Wire.publish_bytes(1, "", "q", b"3")
    )
    assert wire.take_one() == spec.BasicAck(2)
    wire.client.holds_publishes = False
    wire.turn()
    assert wire.take_one() == spec.BasicAck(3, multiple=True)


def test_an_ack_does_not_name_a_number_that_was_answered() -> None:
    wire = _confirming()
    wire.client.holds_publishes = True
    wire.feed(b"".join(Wire.publish_bytes(1, "", "q", b"x") for _ in range(6)))
    wire.feed(b"".join(Wire.publish_bytes(1, "", "nowhere", b"x") for _ in range(4)))
    assert wire.take_methods() == [spec.BasicAck(number) for number in (7, 8, 9, 10)]
    wire.client.holds_publishes = False
    wire.turn()
    assert wire.take_one() == spec.BasicAck(6, multiple=True)


def test_channels_of_one_read_are_confirmed_apart() -> None:
    wire = _confirming(channels=3)
    wire.ask(2, spec.ConfirmSelect())
    wire.feed(b"".join(Wire.publish_bytes(n, "", "q", b"x") for n in (1, 2, 3, 1, 2, 2)))
    assert sorted(wire.take(), key=lambda each: each[0]) == [
        (1, spec.BasicAck(2, multiple=True)),
        (2, spec.BasicAck(3, multiple=True)),
    ]


def test_what_the_kernel_refuses_is_nacked_and_the_rest_acked() -> None:
    wire = _confirming()
    wire.declare("full")
    wire.client.failing["full"] = KernelError(Code.REJECTED, "topic full is full")
    keys = ("q", "full", "q", "full", "q")
    wire.feed(b"".join(Wire.publish_bytes(1, "", key, b"x") for key in keys))
    assert wire.take_methods() == [
        spec.BasicNack(2, multiple=False, requeue=False),
        spec.BasicNack(4, multiple=False, requeue=False),
        spec.BasicAck(1),
        spec.BasicAck(3),
        spec.BasicAck(5),
    ]
    assert wire.environment.counters.confirmed == 3
    assert wire.environment.counters.nacked == 2


def test_every_kernel_error_of_a_publish_is_a_nack() -> None:
    for code in Code:
        wire = _confirming()
        wire.client.failing["q"] = KernelError(code, "why")
        wire.publish(1, "", "q", b"x")
        assert wire.take_one() == spec.BasicNack(1, multiple=False, requeue=False)


def test_confirms_of_a_channel_that_has_closed_are_not_sent() -> None:
    wire = _confirming()
    wire.client.holds_publishes = True
    wire.publish(1, "", "q", b"x")
    assert wire.ask(1, spec.ChannelClose(200, "", 0, 0)) == spec.ChannelCloseOk()
    assert wire.ask(1, spec.ChannelOpen()) == spec.ChannelOpenOk()
    wire.client.holds_publishes = False
    wire.turn()
    assert wire.take_methods() == []


def test_confirm_select_again_changes_nothing() -> None:
    wire = _confirming()
    wire.publish(1, "", "q", b"x")
    wire.take()
    wire.ask(1, spec.ConfirmSelect())
    wire.send(1, spec.ConfirmSelect(nowait=True))
    wire.publish(1, "", "q", b"x")
    assert wire.take_one() == spec.BasicAck(2)


def test_reading_pauses_while_much_is_on_its_way_to_disk() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.client.holds_publishes = True
    size = 1024 * 1024
    sent = 0
    while not wire.host.holds:
        wire.publish(1, "", "q", bytes(size))
        sent += 1
    assert wire.host.holds == {"publishing"}
    assert sent == PUBLISH_BYTES_PAUSE // size
    while wire.host.holds:
        wire.client.complete(wire.client.submitted[0])
        sent -= 1
    assert sent * size <= PUBLISH_BYTES_PAUSE // 2


def test_a_full_disk_is_told_and_publishers_are_read_no_more() -> None:
    wire = Wire().open(channels=1)
    wire.declare("q")
    wire.publish(1, "", "q", b"x")
    wire.client.accepting = False
    wire.connection.block()
    wire.turn()
    assert wire.take_one() == spec.ConnectionBlocked("low on disk")
    assert wire.host.holds == {"blocked"}
    wire.connection.block()
    wire.turn()
    assert wire.take_methods() == []
    wire.client.accepting = True
    wire.connection.unblock()
    wire.turn()
    assert wire.take_one() == spec.ConnectionUnblocked()
    assert wire.host.holds == set()


def test_a_connection_that_only_consumes_is_read_while_blocked_until_it_publishes() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.client.accepting = False
    wire.connection.block()
    wire.turn()
    assert wire.take_one() == spec.ConnectionBlocked("low on disk")
    assert wire.host.holds == set()
    wire.publish(1, "", "q", b"x")
    assert wire.host.holds == {"blocked"}


def test_a_client_that_does_not_know_blocked_is_not_sent_it() -> None:
    wire = Wire().open(features=Table())
    wire.connection.block()
    wire.connection.unblock()
    wire.turn()
    assert wire.take_methods() == []


def test_frame_max_of_returns_is_kept() -> None:
    wire = _confirming(frame_max=4096)
    wire.publish(1, "", "nowhere", bytes(10_000), mandatory=True, frame_max=4096)
    wire.turn()
    largest = 0
    data = wire.raw
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 3 : at + 7], "big") + 8
        largest = max(largest, size)
        at += size
    assert largest == 4096
    assert FRAME_MAX > 4096
