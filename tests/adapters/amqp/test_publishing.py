"""What is stored of a publish, and what is refused: the same by the fast way and the long one."""

from __future__ import annotations

import pytest

from adapters.amqp.codec import spec
from adapters.amqp.codec.fields import Table
from adapters.amqp.codec.frames import ENVELOPE_BYTES
from adapters.amqp.codec.methods import encode_method
from adapters.amqp.errors import (
    ACCESS_REFUSED,
    CHANNEL_ERROR,
    FRAME_ERROR,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    SYNTAX_ERROR,
)
from adapters.amqp.handshake import AmqpSettings
from adapters.amqp.limits import (
    HEADS_MAX,
    PROPERTY_BLOCKS_MAX,
    ROUTES_MAX,
)
from adapters.amqp.messages.stamps import HEADER, Stamps
from adapters.amqp.messages.stored import AMQP_ORIGIN, parse_native
from adapters.amqp.origin import ORIGIN_BYTE
from adapters.amqp.topology.router_rights import PUBLISH_ROUTER
from adapters.tree_rights import PUBLISH_TOPIC
from kernel.api import message
from kernel.api.message import TTL_AT_ONCE, Ext, Flag
from tests.adapters.amqp.wire import Wire, block_of, close_of, stored_in


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
    stored = stored_in(wire)
    assert [each.body for each in stored] == bodies
    assert wire.connection.channels[1].confirms is not None
    assert wire.connection.channels[1].confirms.floor == 5
    for each in stored:
        assert each.origin == ORIGIN_BYTE
        assert (each.priority, each.flags) == (5, Flag.PERSISTENT)
        assert each.ttl_ms == TTL_AT_ONCE
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
        (b"guest",),
    )
    packed = HEADER.pack(stamp.start, 11, 12, len(stamp.ext), 1, 2, 3, stamp.end)
    slot = packed + stamp.ext + bytes(23)
    decoded = message.decode(slot)
    assert decoded == message.Message(
        origin=ORIGIN_BYTE,
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


def test_remembered_beginnings_are_bounded() -> None:
    wire = Wire().open()
    wire.declare("q")
    sizes = [1, 2, *range(1, HEADS_MAX + 3)]
    for first in range(0, len(sizes), 500):
        wire.feed(
            b"".join(
                Wire.publish_bytes(1, "", "q", bytes(size)) for size in sizes[first : first + 500]
            )
        )
    assert wire.connection._publisher is not None
    assert 0 < len(wire.connection._publisher.targets.heads) <= HEADS_MAX
    assert [len(each.body) for each in stored_in(wire)] == sizes


@pytest.mark.parametrize("piece", [10**9, 90, 17])
def test_publishes_to_many_queues_in_turn_reach_each_one_whole(piece: int) -> None:
    wire = Wire().open()
    names = ["a", "bb", "ccc"]
    for name in names:
        wire.declare(name)
    bodies = [b"%d" % number * (number % 5) for number in range(60)]
    data = b"".join(
        Wire.publish_bytes(1, "", names[at % 3], body) for at, body in enumerate(bodies)
    )
    for at in range(0, len(data), piece):
        wire.feed(data[at : at + piece])
    for lane, name in enumerate(names):
        assert [each.body for each in stored_in(wire, name)] == bodies[lane::3]


def test_a_remembered_beginning_means_nothing_on_a_channel_that_was_closed() -> None:
    wire = Wire().open()
    wire.declare("q")
    for _ in range(4):
        wire.publish(1, "", "q", b"x")
    wire.ask(1, spec.ChannelClose(200, "", 0, 0))
    wire.publish(1, "", "q", b"x")
    assert close_of(wire.take_one())[0] == CHANNEL_ERROR
    assert len(stored_in(wire)) == 4


def test_a_message_id_is_kept_for_readers_of_other_protocols() -> None:
    wire = Wire().open()
    wire.declare("q")
    for number in range(3):
        block = block_of(message_id=b"id-%d" % number, delivery_mode=b"\x02")
        wire.publish(1, "", "q", b"x", block=block)
    assert [each.ext for each in stored_in(wire)] == [
        {Ext.MESSAGE_ID: b"id-%d" % number} for number in range(3)
    ]
    assert wire.environment.stamps.known == {}


def test_a_long_block_is_not_remembered() -> None:
    stamps = Stamps()
    stamps.of(block_of(app_id=b"x" * 255, message_id=b"y" * 255), (b"guest",))
    assert stamps.known == {}


def test_one_read_makes_one_batch() -> None:
    wire = Wire().open(channels=2)
    wire.declare("q")
    wire.client.holds_publishes = True
    wire.feed(b"".join(Wire.publish_bytes(1 + n % 2, "", "q", b"x") for n in range(50)))
    assert [batch.count for batch in wire.client.submitted] == [50]


def _bodies(wire: Wire, name: str) -> list[bytes]:
    return [each.body for each in stored_in(wire, name)]


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
        ("", {"block": block_of(headers=Table.of({"CC": "x"}))}, PRECONDITION_FAILED),
        ("", {"block": block_of(headers=Table.of({"BCC": 7}))}, PRECONDITION_FAILED),
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
    assert stored_in(wire) == []


def test_the_default_exchange_asks_for_the_right_to_the_queue() -> None:
    wire = Wire().open()
    wire.declare("q")
    for _ in range(3):
        wire.publish(1, "", "q", b"allowed")
    wire.recheck()
    wire.publish(1, "", "q", b"allowed")
    wire.logins.denied.add((PUBLISH_TOPIC, "q"))
    wire.recheck()
    wire.publish(1, "", "q", b"allowed")
    assert close_of(wire.take_one())[0] == ACCESS_REFUSED
    assert len(stored_in(wire)) == 4, "a right is withdrawn within a tick"


def test_what_is_remembered_outlives_rechecks_while_rights_stay_the_same() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.publish(1, "", "q", b"1")
    wire.logins.denied.add((PUBLISH_TOPIC, "other"))
    wire.recheck()
    assert wire.connection._publisher is not None
    targets = wire.connection._publisher.targets
    assert not targets.known
    wire.publish(1, "", "q", b"2")
    wire.publish(1, "", "q", b"3")
    wire.recheck()
    assert (len(targets.known), len(targets.heads)) == (1, 1)


def test_a_right_to_an_exchange_that_is_withdrawn_is_missed() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.ask(1, spec.ExchangeDeclare(0, "e", "direct"))
    wire.ask(1, spec.QueueBind(0, "q", "e", "k"))
    for _ in range(3):
        wire.publish(1, "e", "k", b"x")
    wire.logins.denied.add((PUBLISH_ROUTER, "e"))
    wire.recheck()
    wire.publish(1, "e", "k", b"x")
    assert close_of(wire.take_one())[0] == ACCESS_REFUSED
    assert len(stored_in(wire)) == 3


def test_weir_topics_asks_for_the_right_to_the_queue_that_its_key_names() -> None:
    wire = Wire().open()
    wire.declare("a.b")
    wire.publish(1, "weir.topics", "a.b", b"allowed")
    assert _bodies(wire, "a.b") == [b"allowed"]
    wire.logins.denied.add((PUBLISH_TOPIC, "a.b"))
    wire.recheck()
    wire.publish(1, "weir.topics", "a.b", b"refused")
    assert close_of(wire.take_one())[0] == ACCESS_REFUSED
    assert _bodies(wire, "a.b") == [b"allowed"]


def test_the_own_login_as_user_id_is_fine() -> None:
    wire = Wire().open()
    wire.declare("q")
    for _ in range(2):
        wire.publish(1, "", "q", b"x", block=block_of(user_id=b"guest"))
    assert len(stored_in(wire)) == 2


@pytest.mark.parametrize("user_id", [b"alice", b"acme:alice"])
def test_a_user_of_a_tenant_is_called_as_it_signs_in_or_by_its_name(user_id: bytes) -> None:
    """AnyEvent::RabbitMQ of Perl sends the login with each message."""
    wire = Wire().open(login=b"\0acme:alice\0secret", virtual_host="acme")
    wire.declare("q")
    wire.publish(1, "", "q", b"x", block=block_of(user_id=user_id))
    assert wire.take_methods() == []
    wire.publish(1, "", "q", b"x", block=block_of(user_id=b"other:alice"))
    close = wire.take_one()
    assert isinstance(close, spec.ChannelClose)
    assert close.reply_text.endswith(
        "user_id property set to 'other:alice' but authenticated user was 'acme:alice'"
    )


@pytest.mark.parametrize("body_bytes", [4_096, 4_097, 10_000])
def test_bodies_cut_at_frame_max_without_the_envelope_are_whole(body_bytes: int) -> None:
    wire = Wire().open(frame_max=4_096)
    wire.declare("q")
    body = bytes(range(256)) * 40
    wire.publish(1, "", "q", body[:body_bytes], frame_max=4_096 + ENVELOPE_BYTES)
    assert [each.body for each in stored_in(wire)] == [body[:body_bytes]]


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
    assert len(stored_in(wire)) == 1


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
