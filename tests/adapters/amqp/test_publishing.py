"""Publishing: routing, returns, confirms, and the same result by the fast way and the long one."""

from __future__ import annotations

import itertools

import pytest

from adapters.amqp import properties, spec
from adapters.amqp.confirms import Confirms
from adapters.amqp.errors import (
    ACCESS_REFUSED,
    FRAME_ERROR,
    INTERNAL_ERROR,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    SYNTAX_ERROR,
)
from adapters.amqp.fields import Table
from adapters.amqp.handshake import AmqpSettings
from adapters.amqp.limits import (
    LOAD_ATTEMPTS_MAX,
    PROPERTY_BLOCKS_MAX,
    PUBLISH_BYTES_PAUSE,
    ROUTES_MAX,
)
from adapters.amqp.methods import encode_method
from adapters.amqp.stamps import HEADER, Stamps
from adapters.amqp.stored import AMQP_ORIGIN, parse_native
from adapters.amqp.topology import PUBLISH_ROUTER, PUBLISH_TOPIC
from adapters.base import Origin
from kernel import message
from kernel.errors import Code, KernelError, NotLoaded
from kernel.message import Ext, Flag
from tests.adapters.amqp.wire import FRAME_MAX, Content, Wire, close_of


def block_of(**values: bytes | Table) -> bytes:
    """A property block from raw property values by name."""
    fields: list[bytes | None] = [None] * properties.PROPERTY_COUNT
    for name, value in values.items():
        place = properties.NAMES.index(name)
        if isinstance(value, Table):
            fields[place] = properties.encode_headers(value)
        elif place in (properties.DELIVERY_MODE, properties.PRIORITY, properties.TIMESTAMP):
            fields[place] = value
        else:
            fields[place] = properties.short_field(value)
    return properties.join(fields)


def _stored(wire: Wire, name: str = "q", tenant: str = "default") -> list[message.Message]:
    return [message.decode(slot) for slot in wire.client.queues[tenant, name].slots]


# --- What is stored -------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [10**9, 1_000, 100, 7], ids=["whole", "large", "small", "tiny"])
def test_what_is_stored_does_not_depend_on_how_the_bytes_come(piece: int) -> None:
    wire = Wire().open(frame_max=4096)
    wire.declare("q")
    wire.send(1, spec.ConfirmSelect())
    wire.take()
    bodies = [b"", b"x", bytes(4088), bytes(range(256)) * 40, b"end"]
    block = block_of(
        content_type=b"text/plain", delivery_mode=b"\x02", priority=b"\x05", expiration=b"0"
    )
    data = b"".join(
        Wire.publish_bytes(1, "", "q", body, block=block, frame_max=4096) for body in bodies
    )
    for at in range(0, len(data), piece):
        wire.feed(data[at : at + piece])
    stored = _stored(wire)
    assert [each.body for each in stored] == bodies
    assert wire.connection.channels[1].confirms is not None
    assert wire.connection.channels[1].confirms.floor == 5
    for each in stored:
        assert each.origin == Origin.AMQP
        assert (each.priority, each.ttl_ms, each.flags) == (5, 1, Flag.PERSISTENT)
        assert each.published_ms == wire.host.wall_ms()
        assert each.ext == {}
        native = parse_native(each.native)
        assert native == ("", "q", block)
        assert AMQP_ORIGIN.routing_key(each.native) == "q"
    assert len({each.uid for each in stored}) == len(bodies)


def test_the_packed_header_is_the_kernels() -> None:
    assert HEADER.size == message.HEADER_BYTES
    stamp = Stamps().of(
        block_of(
            delivery_mode=b"\x02",
            priority=b"\x09",
            expiration=b"60000",
            headers=Table.of(
                {
                    "x-delay": 7,
                    "x-message-group-id": "group",
                    "weir.tag": "red",
                    "weir.keys": "a b",
                }
            ),
        ),
        b"guest",
    )
    packed = HEADER.pack(stamp.start, 11, 12, len(stamp.ext), 1, 2, 3, stamp.end)
    slot = packed + stamp.ext + bytes(23)
    decoded = message.decode(slot)
    assert decoded == message.Message(
        origin=Origin.AMQP,
        priority=9,
        flags=Flag.PERSISTENT,
        uid=bytes(7) + b"\x01" + bytes(7) + b"\x02",
        published_ms=3,
        ttl_ms=60_000,
        delay_ms=7,
        key_hash=message.key_hash(b"group"),
        tag_hash=message.tag_hash(b"red"),
        ext={Ext.ORDERING_KEY: b"group", Ext.TAG: b"red", Ext.KEYS: b"a b"},
        native=bytes(12),
        body=bytes(11),
    )
    assert message.encode(decoded) == slot


def test_stamps_and_targets_are_bounded() -> None:
    wire = Wire().open()
    wire.ask(1, spec.ExchangeDeclare(0, "e", "direct"))
    numbers = range(max(ROUTES_MAX, PROPERTY_BLOCKS_MAX) + 10)
    for first in range(0, len(numbers), 500):
        wire.feed(
            b"".join(
                Wire.publish_bytes(
                    1, "e", f"k{number}", b"", block=block_of(app_id=str(number).encode())
                )
                for number in numbers[first : first + 500]
            )
        )
    assert 0 < len(wire.environment.stamps.known) <= PROPERTY_BLOCKS_MAX
    assert wire.connection._publisher is not None
    assert 0 < len(wire.connection._publisher.targets.known) <= ROUTES_MAX
    assert wire.environment.counters.unroutable == len(numbers)


def test_a_long_block_is_not_remembered() -> None:
    stamps = Stamps()
    stamps.of(block_of(app_id=b"x" * 255, message_id=b"y" * 255), b"guest")
    assert stamps.known == {}


def test_one_read_makes_one_batch() -> None:
    wire = Wire().open(channels=2)
    wire.declare("q")
    wire.client.holds_publishes = True
    wire.feed(b"".join(Wire.publish_bytes(1 + n % 2, "", "q", b"x") for n in range(50)))
    assert [batch.count for batch in wire.client.submitted] == [50]


# --- Routing --------------------------------------------------------------------------------------


def _bodies(wire: Wire, name: str) -> list[bytes]:
    return [each.body for each in _stored(wire, name)]


def test_direct_fanout_topic_and_headers_exchanges_route() -> None:
    wire = Wire().open()
    for name in ("a", "b"):
        wire.declare(name)
    for kind in ("direct", "fanout", "topic", "headers"):
        wire.ask(1, spec.ExchangeDeclare(0, kind, kind, durable=True))
    wire.ask(1, spec.QueueBind(0, "a", "direct", "k.1"))
    wire.ask(1, spec.QueueBind(0, "b", "fanout", "ignored"))
    wire.ask(1, spec.QueueBind(0, "a", "fanout", ""))
    wire.ask(1, spec.QueueBind(0, "a", "topic", "*.orange.*"))
    wire.ask(1, spec.QueueBind(0, "b", "topic", "lazy.#"))
    headers = Table.of({"x-match": "all", "kind": "pdf", "n": 5})
    wire.ask(1, spec.QueueBind(0, "a", "headers", "", arguments=headers))
    wire.publish(1, "direct", "k.1", b"direct hit")
    wire.publish(1, "direct", "k/1", b"direct miss")
    wire.publish(1, "fanout", "whatever", b"all")
    for key in (
        "quick.orange.fox",
        "lazy.orange.fox",
        "lazy",
        "orange",
        "lazy.a.b.c",
        "x/orange.y",
    ):
        wire.publish(1, "topic", key, key.encode())
    for values in ({"kind": "pdf", "n": 5}, {"kind": "pdf"}, {"kind": "doc", "n": 5}):
        block = block_of(headers=Table.of(values))
        wire.publish(1, "headers", "", str(values).encode(), block=block)
    assert _bodies(wire, "a") == [
        b"direct hit",
        b"all",
        b"quick.orange.fox",
        b"lazy.orange.fox",
        b"{'kind': 'pdf', 'n': 5}",
    ]
    assert _bodies(wire, "b") == [b"all", b"lazy.orange.fox", b"lazy", b"lazy.a.b.c"]


def test_headers_match_whatever_the_integers_width_and_behind_other_exchanges() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.ask(1, spec.ExchangeDeclare(0, "front", "fanout"))
    wire.ask(1, spec.ExchangeDeclare(0, "back", "headers"))
    wire.ask(1, spec.ExchangeBind(0, "back", "front", ""))
    from adapters.amqp.fields import Field

    wanted = Table((("n", Field("I", 5)), ("x-match", Field("S", b"any")), ("v", Field("V", None))))
    wire.ask(1, spec.QueueBind(0, "q", "back", "", arguments=wanted))
    hit = block_of(headers=Table((("n", Field("B", 5)),)))
    present = block_of(headers=Table.of({"v": "anything"}))
    miss = block_of(headers=Table.of({"n": 6}))
    for block in (hit, present, miss, b"\0\0"):
        wire.publish(1, "front", "", block, block=block)
    assert _bodies(wire, "q") == [hit, present]
    # The long way, too: two body frames.
    big = bytes(200_000)
    wire.publish(1, "front", "", big, block=hit)
    wire.publish(1, "front", "", big, block=miss)
    assert _bodies(wire, "q") == [hit, present, big]


def test_an_alternate_exchange_gets_what_matched_nothing() -> None:
    wire = Wire().open()
    wire.declare("rest")
    arguments = Table.of({"alternate-exchange": "amq.fanout"})
    wire.ask(1, spec.ExchangeDeclare(0, "e", "direct", arguments=arguments))
    wire.ask(1, spec.QueueBind(0, "rest", "amq.fanout", ""))
    wire.publish(1, "e", "nobody", b"x", mandatory=True)
    assert wire.take_methods() == []
    assert _bodies(wire, "rest") == [b"x"]


def test_a_queue_bound_twice_gets_a_message_once() -> None:
    wire = Wire().open()
    wire.declare("q")
    for key in ("a.*", "*.b", "#"):
        wire.ask(1, spec.QueueBind(0, "q", "amq.topic", key))
    wire.publish(1, "amq.topic", "a.b", b"x")
    assert _bodies(wire, "q") == [b"x"]


def test_a_new_binding_counts_for_the_next_read() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.ask(1, spec.ExchangeDeclare(0, "e", "direct"))
    wire.publish(1, "e", "k", b"before")
    wire.ask(1, spec.QueueBind(0, "q", "e", "k"))
    wire.publish(1, "e", "k", b"after")
    wire.ask(1, spec.QueueDelete(0, "q"))
    wire.publish(1, "e", "k", b"gone", mandatory=True)
    assert isinstance(wire.take_methods()[0], spec.BasicReturn)
    assert wire.environment.counters.published == 1


def test_a_routing_key_that_is_not_utf8_is_stored_as_it_came() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.ask(1, spec.QueueBind(0, "q", "amq.fanout", ""))
    key = b"\xff.\x80".decode("utf-8", "surrogateescape")
    for exchange in ("amq.fanout", ""):
        wire.publish(1, exchange, key, b"x")
    (stored,) = _stored(wire)
    assert parse_native(stored.native).routing_key == key
    wire.publish(1, key, "", b"x")
    assert close_of(wire.take_one())[0] == NOT_FOUND


def test_predeclared_exchanges_take_publishes_before_anything_is_bound() -> None:
    wire = Wire().open()
    wire.send(1, spec.ConfirmSelect())
    wire.take()
    wire.publish(1, "amq.topic", "a.b", b"x", mandatory=True)
    returned, _, ack = wire.take_methods()
    assert isinstance(returned, spec.BasicReturn)
    assert ack == spec.BasicAck(1)


def test_names_that_are_not_loaded_are_loaded_and_the_publish_is_taken_again() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.ask(1, spec.ExchangeDeclare(0, "e", "direct"))
    wire.ask(1, spec.QueueBind(0, "q", "e", "k"))
    wire.connection._publisher.targets.forget()  # type: ignore[union-attr]
    wire.client.unloaded = {"q", "e"}
    wire.feed(
        Wire.publish_bytes(1, "", "q", b"one")
        + Wire.publish_bytes(1, "e", "k", b"two")
        + Wire.publish_bytes(1, "", "q", b"three")
    )
    assert _bodies(wire, "q") == [b"one", b"two", b"three"]
    assert wire.client.loads == [(("q",), ()), ((), ("e",))]


def test_names_that_never_load_end_the_connection() -> None:
    wire = Wire().open()
    wire.declare("q")

    def never(tenant: str, name: str) -> None:
        raise NotLoaded

    wire.client.topic = never  # type: ignore[method-assign,assignment]
    wire.publish(1, "", "q", b"x")
    assert close_of(wire.take_one())[0] == INTERNAL_ERROR
    assert len(wire.client.loads) == LOAD_ATTEMPTS_MAX


# --- Refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_long", [False, True], ids=["fast", "long"])
@pytest.mark.parametrize(
    ("exchange", "how", "code"),
    [
        ("missing", {}, NOT_FOUND),
        ("internal", {}, ACCESS_REFUSED),
        ("denied", {}, ACCESS_REFUSED),
        ("", {"immediate": True}, NOT_IMPLEMENTED),
        ("", {"block": block_of(expiration=b"soon")}, PRECONDITION_FAILED),
        ("", {"block": block_of(user_id=b"other")}, PRECONDITION_FAILED),
        ("", {"block": block_of(headers=Table.of({"CC": ["x"]}))}, NOT_IMPLEMENTED),
        ("", {"block": block_of(headers=Table.of({"BCC": ["x"]}))}, NOT_IMPLEMENTED),
        ("", {"block": block_of(headers=Table.of({"x-delay": "x"}))}, PRECONDITION_FAILED),
        ("", {"block": b"\x00\x01"}, SYNTAX_ERROR),
        ("", {"block": b"\x20\x00\x00\x00\x00\x03\x01aZ"}, SYNTAX_ERROR),
    ],
)
def test_a_publish_that_is_refused(
    exchange: str, how: dict[str, object], code: int, is_long: bool
) -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.ask(1, spec.ExchangeDeclare(0, "internal", "direct", internal=True))
    wire.ask(1, spec.ExchangeDeclare(0, "denied", "direct"))
    wire.logins.denied.add((PUBLISH_ROUTER, "denied"))
    wire.publish(1, exchange, "q", bytes(200_000 if is_long else 10), **how)
    close = wire.take_one()
    assert isinstance(close, spec.ChannelClose | spec.ConnectionClose)
    assert close.reply_code == code
    assert (close.failing_class, close.failing_method) == (60, 40)
    assert _stored(wire) == []


def test_the_default_exchange_asks_for_the_right_to_the_queue() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.publish(1, "", "q", b"allowed")
    wire.logins.denied.add((PUBLISH_TOPIC, "q"))
    wire.connection.tick(wire.host.now_ms)
    wire.publish(1, "", "q", b"withdrawn within a tick")
    assert close_of(wire.take_one())[0] == ACCESS_REFUSED
    assert _bodies(wire, "q") == [b"allowed"]


def test_the_own_login_as_user_id_is_fine() -> None:
    wire = Wire().open()
    wire.declare("q")
    for _ in range(2):
        wire.publish(1, "", "q", b"x", block=block_of(user_id=b"guest"))
    assert len(_stored(wire)) == 2


@pytest.mark.parametrize(
    "arguments", [b"", b"\x05ab", b"\x00\x05q", b"\x00\x01q", b"\x00\x01q\x00x"]
)
def test_cut_off_publish_arguments_are_frame_errors(arguments: bytes) -> None:
    wire = Wire().open()
    payload = b"\x00\x3c\x00\x28\x00\x00" + arguments
    frame = b"\x01\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce"
    wire.feed(frame + Wire.publish_bytes(1, "", "q", b"x"))
    close = wire.take_one()
    assert isinstance(close, spec.ConnectionClose)
    assert close.reply_code == FRAME_ERROR


def test_a_message_over_the_size_limit_is_precondition_failed() -> None:
    wire = Wire(settings=AmqpSettings(body_bytes_max=1_000)).open()
    wire.declare("q")
    wire.publish(1, "", "q", bytes(1_000))
    wire.publish(1, "", "q", bytes(1_001))
    code, text = close_of(wire.take_one())
    assert code == PRECONDITION_FAILED
    assert "message size 1001 is larger than configured max size 1000" in text
    assert len(_stored(wire)) == 1


def test_bodies_begun_on_many_channels_are_bounded() -> None:
    wire = Wire().open(channels=6)
    wire.declare("q")
    size = 15 * 1024 * 1024
    for number in range(1, 6):
        method = encode_method(number, spec.BasicPublish(0, "", "q"))
        head = b"\x02" + number.to_bytes(2, "big") + b"\x00\x00\x00\x0e\x00\x3c\x00\x00"
        wire.feed(method + head + size.to_bytes(8, "big") + b"\x00\x00\xce")
    close = wire.take_one()
    assert isinstance(close, spec.ChannelClose)
    assert close.reply_code == PRECONDITION_FAILED
    # What was begun on a closed channel counts no more.
    wire.send(1, spec.ChannelClose(200, "", 0, 0))
    wire.send(5, spec.ChannelCloseOk(), spec.ChannelOpen())
    wire.take()
    wire.feed(encode_method(5, spec.BasicPublish(0, "", "q")))
    wire.feed(
        b"\x02\x00\x05\x00\x00\x00\x0e\x00\x3c\x00\x00" + size.to_bytes(8, "big") + b"\x00\x00\xce"
    )
    assert wire.take_methods() == []


# --- Returns and confirms -------------------------------------------------------------------------


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
    assert wire.take_one() == spec.BasicAck(6, multiple=True)


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
        spec.BasicAck(5, multiple=True),
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


def test_numbers_are_answered_once_in_every_order_of_completion() -> None:
    for order in itertools.permutations(range(4)):
        confirms = Confirms()
        confirms.published = 8
        told: list[tuple[str, int, bool]] = []
        answered: set[int] = set()
        for place in order:
            first, last = place * 2 + 1, place * 2 + 2
            if place == 2:
                confirms.failed(first)
                confirms.done(last, last)
            else:
                confirms.done(first, last)
            frames = confirms.take(1)
            for at in range(0, len(frames), 21):
                number = int.from_bytes(frames[at + 11 : at + 19], "big")
                kind = "nack" if frames[at + 10] == 120 else "ack"
                told.append((kind, number, bool(frames[at + 19])))
                reach = range(1, number + 1) if frames[at + 19] else (number,)
                assert answered.isdisjoint({number}) or frames[at + 19]
                answered.update(reach)
                # An ack speaks only for what is done.
                done = {
                    n
                    for each in order[: order.index(place) + 1]
                    for n in (each * 2 + 1, each * 2 + 2)
                }
                assert set(reach) <= done
        assert answered == set(range(1, 9))
        assert confirms.floor == 8
        assert [each for each in told if each[0] == "nack"] == [("nack", 5, False)]


# --- Back-pressure --------------------------------------------------------------------------------


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
