"""Where publishes go, by every type of exchange."""

from __future__ import annotations

from adapters.amqp.codec import spec
from adapters.amqp.codec.fields import Table
from adapters.amqp.errors import (
    INTERNAL_ERROR,
    NOT_FOUND,
)
from adapters.amqp.limits import (
    LOAD_ATTEMPTS_MAX,
)
from adapters.amqp.messages.stored import parse_native
from kernel.common.errors import NotLoaded
from tests.adapters.amqp.wire import Wire, block_of, close_of, stored_in


def _bodies(wire: Wire, name: str) -> list[bytes]:
    return [each.body for each in stored_in(wire, name)]


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
    from adapters.amqp.codec.fields import Field

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
    (stored,) = stored_in(wire)
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
