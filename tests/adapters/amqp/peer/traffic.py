"""Scenarios of publishing and consuming."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pika
from pika import spec
from pika.adapters.blocking_connection import BlockingChannel

from .helpers import fill, held
from .trial import Trial

# --- Publishing -----------------------------------------------------------------------------------


def mandatory(t: Trial) -> None:
    """What is routed nowhere comes back before its confirm; without `mandatory` it is confirmed."""
    channel = t.channel()
    channel.confirm_delivery()
    none = t.name("none")
    t.attempt("default", lambda: channel.basic_publish("", none, b"back", mandatory=True))
    t.attempt("direct", lambda: channel.basic_publish("amq.direct", none, b"back", mandatory=True))
    t.attempt("silent", lambda: channel.basic_publish("", none, b"gone"))
    queue = t.queue(channel)
    t.attempt("routed", lambda: channel.basic_publish("", queue, b"here", mandatory=True))
    t.note(t.take(channel, queue))


def _publish(
    channel: BlockingChannel,
    exchange: str,
    key: str,
    properties: pika.BasicProperties | None = None,
    *,
    immediate: bool = False,
) -> None:
    """Publish without a confirm; then ask for something, so that a refusal is heard."""
    method = spec.Basic.Publish(exchange=exchange, routing_key=key, immediate=immediate)
    channel._impl._send_method(method, (properties or pika.BasicProperties(), b"x"))
    channel.basic_qos(prefetch_count=1)


def refused_publishes(t: Trial) -> None:
    """To what is not there, with what is not possible, as somebody else."""
    channel = t.channel()
    queue = t.queue(channel)
    internal = t.exchange(channel, "internal", "fanout", internal=True)
    properties = pika.BasicProperties
    t.attempt("no exchange", lambda: _publish(t.channel(), t.name("none"), "k"))
    t.attempt("internal", lambda: _publish(t.channel(), internal, "k"))
    t.attempt("immediate", lambda: _publish(t.channel(), "", queue, immediate=True))
    for expiration in ("soon", "-1", "1.5", ""):
        t.attempt(
            f"expiration {expiration!r}",
            lambda e=expiration: _publish(t.channel(), "", queue, properties(expiration=e)),
        )
    t.attempt("user", lambda: _publish(t.channel(), "", queue, properties(user_id="other")))
    t.attempt("own user", lambda: _publish(t.channel(), "", queue, properties(user_id="guest")))
    t.note(t.take(channel, queue), t.take(channel, queue, wait=False))


def confirms(t: Trial) -> None:
    """A confirm for each publish, numbered from 1, also for what goes nowhere."""
    connection = t.connect()
    channel = connection.channel()
    heard: list[int] = []
    queue = t.queue(channel)
    channel._impl.confirm_delivery(lambda frame: heard.append(frame.method.delivery_tag))
    t.deliveries(connection)
    heard.clear()
    for key in (queue, t.name("none"), queue):
        method = spec.Basic.Publish(exchange="", routing_key=key)
        channel._impl._send_method(method, (pika.BasicProperties(), b"x"))
    ends = time.monotonic() + 5
    while (not heard or max(heard) < 3) and time.monotonic() < ends:
        t.deliveries(connection, 0.05)
    t.note("last", max(heard))
    t.note(t.take_all(channel, queue, 2))


def properties_come_back(t: Trial) -> None:
    """Every property and type of header, an empty body, and the mark of redelivery."""
    channel = t.channel()
    queue = t.queue(channel)
    everything = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"text": "t", "number": 7, "large": 2**40, "yes": True, "none": None, "list": [1]},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        type="kind",
        user_id="guest",
        app_id="app",
        cluster_id="cluster",
    )
    channel.basic_publish("", queue, b"", everything)
    (tag,) = held(channel, queue, 1)
    channel.basic_reject(tag, requeue=True)
    t.note(t.take(channel, queue))


# --- Consuming ------------------------------------------------------------------------------------


def get(t: Trial) -> None:
    """How many are left, and an empty queue."""
    channel = t.channel()
    queue = t.queue(channel)
    t.note(channel.basic_get(queue)[0] is None)
    fill(channel, queue, "1", "2", "3")
    for _ in range(3):
        method, _, body = channel.basic_get(queue)
        assert method is not None
        t.note(method.message_count, method.delivery_tag, body)
    t.attempt("missing", lambda: t.channel().basic_get(t.name("none")))


def nack_and_reject(t: Trial) -> None:
    """Given back, messages take their old place and are marked; several at once."""
    channel = t.channel()
    queue = t.queue(channel)
    fill(channel, queue, "1", "2", "3", "4", "5")
    tags = held(channel, queue, 4)
    channel.basic_nack(tags[1], multiple=True, requeue=True)
    channel.basic_reject(tags[2], requeue=False)
    channel.basic_reject(tags[3], requeue=True)
    for _ in range(4):
        t.note(t.take(channel, queue)[2:4])
    t.note(t.take(channel, queue, wait=False))


def recover(t: Trial) -> None:
    """Everything unsettled comes again, marked; without requeue it is not implemented."""
    channel = t.channel()
    queue = t.queue(channel)
    fill(channel, queue, "1", "2")
    held(channel, queue, 2)
    t.attempt("requeue", lambda: channel.basic_recover(requeue=True))
    t.note([t.take(channel, queue)[2:4] for _ in range(2)])
    t.attempt("same consumer", lambda: t.channel().basic_recover(requeue=False))


def unknown_tags(t: Trial) -> None:
    """A tag that was never given, settled twice, or on a consumer without acks."""
    for name, act in {
        "ack": lambda c: c.basic_ack(7),
        "nack": lambda c: c.basic_nack(7),
        "reject": lambda c: c.basic_reject(7),
        "ack up to": lambda c: c.basic_ack(7, multiple=True),
        "ack all of nothing": lambda c: c.basic_ack(0, multiple=True),
        "ack zero": lambda c: c.basic_ack(0),
    }.items():
        channel = t.channel()

        def act_and_ask(act: Any = act, channel: BlockingChannel = channel) -> Any:
            act(channel)
            return channel.basic_qos(prefetch_count=1)

        t.attempt(name, act_and_ask)
    channel = t.channel()
    queue = t.queue(channel)
    fill(channel, queue, "1", "2")
    (tag,) = held(channel, queue, 1)
    channel.basic_ack(tag)

    def again() -> Any:
        channel.basic_ack(tag)
        return channel.basic_qos(prefetch_count=1)

    t.attempt("twice", again)
    without = t.channel()
    method, _, _ = without.basic_get(queue, auto_ack=True)
    assert method is not None

    def needless() -> Any:
        without.basic_ack(method.delivery_tag)
        return without.basic_qos(prefetch_count=1)

    t.attempt("no ack was wanted", needless)


def prefetch(t: Trial) -> None:
    """Per consumer and per channel; of a size it is not implemented."""
    connection = t.connect()
    channel = connection.channel()
    queue = t.queue(channel)
    fill(channel, queue, *map(str, range(10)))
    got: list[tuple[int, int]] = []

    def heard(number: int) -> Callable[..., None]:
        return lambda _c, method, _p, _b: got.append((number, method.delivery_tag))

    channel.basic_qos(prefetch_count=2)
    first = channel.basic_consume(queue, heard(1))
    channel.basic_consume(queue, heard(2))
    t.deliveries(connection)
    t.note(sorted(number for number, _ in got))
    channel.basic_ack(max(tag for number, tag in got if number == 1))
    t.deliveries(connection)
    t.note(sorted(number for number, _ in got))
    channel.basic_cancel(first)
    t.deliveries(connection)
    t.note(len(got))
    t.attempt("size", lambda: t.channel().basic_qos(prefetch_size=1))


def shared_prefetch(t: Trial) -> None:
    """`global` bounds what the consumers of a channel have together."""
    connection = t.connect()
    channel = connection.channel()
    queue = t.queue(channel)
    fill(channel, queue, *map(str, range(10)))
    got: list[int] = []
    channel.basic_qos(prefetch_count=3, global_qos=True)
    for _ in range(2):
        channel.basic_consume(queue, lambda _c, method, _p, _b: got.append(method.delivery_tag))
    t.deliveries(connection)
    t.note(sorted(got))
    channel.basic_ack(2, multiple=True)
    t.deliveries(connection)
    t.note(sorted(got))


def consumer_tags(t: Trial) -> None:
    """Chosen, generated, used twice, cancelled twice; a queue that is not there."""
    channel = t.channel()
    queue = t.queue(channel)
    t.note(channel.basic_consume(queue, lambda *_: None, consumer_tag="mine"))
    answer = spec.Basic.ConsumeOk

    def consume(tag: str) -> Any:
        return channel._impl._rpc(spec.Basic.Consume(queue=queue, consumer_tag=tag), None, [answer])

    consume("mine")
    t.attempt("in use", lambda: channel.basic_qos(prefetch_count=1))
    other = t.channel()
    tag = other.basic_consume(queue, lambda *_: None)
    other.basic_cancel(tag)
    cancelled = spec.Basic.CancelOk
    heard: list[str] = []
    other._impl._rpc(
        spec.Basic.Cancel(consumer_tag="unknown"),
        lambda frame: heard.append(frame.method.consumer_tag),
        [cancelled],
    )
    other.basic_qos(prefetch_count=1)
    t.note("cancel unknown", heard)
    none = t.name("none")
    t.attempt("missing", lambda: t.channel().basic_consume(none, lambda *_: None))


def exclusive_consumer(t: Trial) -> None:
    """It keeps others out, and is kept out by others."""
    channel = t.channel()
    queue = t.queue(channel)
    channel.basic_consume(queue, lambda *_: None, exclusive=True)
    t.attempt("another", lambda: t.channel().basic_consume(queue, lambda *_: None))
    second = t.queue(channel, "second")
    channel.basic_consume(second, lambda *_: None)
    t.attempt("late", lambda: t.channel().basic_consume(second, lambda *_: None, exclusive=True))


def deleted_under_a_consumer(t: Trial) -> None:
    """Its consumers are told; what they hold may be settled without harm."""
    connection = t.connect()
    channel = connection.channel()
    queue = t.queue(channel)
    fill(channel, queue, "1")
    told: list[str] = []
    channel.add_on_cancel_callback(lambda frame: told.append(frame.method.consumer_tag))
    got: list[int] = []
    channel.basic_consume(
        queue, lambda _c, method, _p, _b: got.append(method.delivery_tag), consumer_tag="mine"
    )
    t.deliveries(connection)
    t.channel().queue_delete(queue)
    t.deliveries(connection)
    t.note(told, got)
    channel.basic_ack(got[0])
    t.attempt("alive", lambda: channel.basic_qos(prefetch_count=1))


def closing_gives_back(t: Trial) -> None:
    """A channel that closes gives back in the old order, marked; a cancel gives nothing back."""
    connection = t.connect()
    channel = connection.channel()
    queue = t.queue(channel)
    fill(channel, queue, "1", "2", "3")
    channel.basic_qos(prefetch_count=2)
    got: list[int] = []
    tag = channel.basic_consume(queue, lambda _c, m, _p, _b: got.append(m.delivery_tag))
    t.deliveries(connection)
    channel._impl._rpc(spec.Basic.Cancel(consumer_tag=tag), None, [spec.Basic.CancelOk])
    t.deliveries(connection)
    other = t.channel()
    t.note(other.queue_declare(queue, passive=True).method.message_count)
    channel.close()
    t.note([t.take(other, queue)[2:4] for _ in range(3)])


def priorities(t: Trial) -> None:
    """Of messages and of consumers; above the highest counts as the highest."""
    connection = t.connect()
    channel = connection.channel()
    queue = t.queue(channel, arguments={"x-max-priority": 5})
    channel.confirm_delivery()
    for number, priority in enumerate((0, 3, 9, 5, 3, None)):
        properties = pika.BasicProperties(priority=priority)
        channel.basic_publish("", queue, b"%d" % number, properties)
    t.note(t.take_all(channel, queue, 6))
    got: list[str] = []
    for name, arguments in (("low", {}), ("high", {"x-priority": 10})):
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(queue, lambda *_, name=name: got.append(name), arguments=arguments)
    for _ in range(3):
        channel.basic_publish("", queue, b"x")
    t.deliveries(connection)
    t.note(got)
