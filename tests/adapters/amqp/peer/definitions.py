"""Scenarios of queues, exchanges and bindings: made, found, changed, deleted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from .helpers import Arguments, fill, held
from .trial import Trial

# --- Queues -------------------------------------------------------------------------------------


def passive_declare(t: Trial) -> None:
    """A queue that is there tells its counts, also with other properties; a missing one is 404."""
    channel = t.channel()
    queue = t.queue(channel)
    fill(channel, queue, "1", "2")
    channel.basic_consume(queue, lambda *_: None)
    t.attempt("there", lambda: t.channel().queue_declare(queue, passive=True, durable=True))
    t.attempt("missing", lambda: t.channel().queue_declare(t.name("none"), passive=True))
    t.attempt("exchange", lambda: t.channel().exchange_declare(t.name("none"), passive=True))
    t.attempt("known", lambda: t.channel().exchange_declare("amq.topic", passive=True))


def exclusive_queue(t: Trial) -> None:
    """Every use by another connection is 405; it goes with its connection."""
    owner = t.connect()
    queue = t.queue(owner.channel(), exclusive=True)
    owner.channel().queue_bind(queue, "amq.direct", "bound")
    uses: dict[str, Callable[[BlockingChannel], Any]] = {
        "declare": lambda c: c.queue_declare(queue, exclusive=True),
        "passive": lambda c: c.queue_declare(queue, passive=True),
        "consume": lambda c: c.basic_consume(queue, lambda *_: None),
        "get": lambda c: c.basic_get(queue),
        "bind": lambda c: c.queue_bind(queue, "amq.direct", "k"),
        "unbind": lambda c: c.queue_unbind(queue, "amq.direct", "bound"),
        "purge": lambda c: c.queue_purge(queue),
        "delete": lambda c: c.queue_delete(queue),
    }
    for name, use in uses.items():
        t.attempt(name, lambda use=use: use(t.channel()))
    t.attempt("again", lambda: owner.channel().queue_declare(queue, exclusive=True))
    t.attempt("not exclusive", lambda: owner.channel().queue_declare(queue))
    owner.close()

    def is_gone() -> bool:
        return t.outcome(lambda: t.channel().queue_declare(queue, passive=True))[:2] == [
            "channel",
            404,
        ]

    t.note("gone", t.until(is_gone))


def auto_delete_queue(t: Trial) -> None:
    """It goes with its last consumer, and not before the first came."""
    channel = t.channel()
    queue = t.queue(channel, auto_delete=True)
    fill(channel, queue, "1")
    t.note(t.take(channel, queue))
    first = channel.basic_consume(queue, lambda *_: None)
    second = channel.basic_consume(queue, lambda *_: None)
    channel.basic_cancel(first)
    t.attempt("one left", lambda: t.channel().queue_declare(queue, passive=True))
    channel.basic_cancel(second)
    missing = ["channel", 404]
    t.note(
        "gone",
        t.until(
            lambda: t.outcome(lambda: t.channel().queue_declare(queue, passive=True))[:2] == missing
        ),
    )


def server_named_queue(t: Trial) -> None:
    """An empty name makes one; afterwards the empty name means it. Such names are reserved."""
    channel = t.channel()
    t.attempt("declare", lambda: channel.queue_declare("", exclusive=True))
    t.attempt("bind", lambda: channel.queue_bind("", "amq.direct", "server-named"))
    fill(channel, "", "nowhere")
    channel.basic_publish("amq.direct", "server-named", b"bound")
    t.note(t.take(channel, ""))
    t.attempt("reserved", lambda: t.channel().queue_declare("amq.mine"))
    t.attempt("generated", lambda: t.channel().queue_declare("amq.gen-mine", passive=True))
    t.attempt("none before", lambda: t.channel().queue_bind("", "amq.direct", "x"))
    t.attempt("get", lambda: t.channel().basic_get(""))


def queue_equivalence(t: Trial) -> None:
    """A queue declared again must be asked for as it is."""
    channel = t.channel()
    arguments: Arguments = {"x-message-ttl": 60_000, "x-max-length": 5}
    queue = t.queue(channel, durable=True, arguments=arguments)
    same = {"durable": True, "arguments": arguments}
    t.attempt("same", lambda: t.channel().queue_declare(queue, **same))
    for name, change in {
        "durable": {"durable": False},
        "exclusive": {"exclusive": True},
        "auto-delete": {"auto_delete": True},
        "ttl": {"arguments": {**arguments, "x-message-ttl": 1}},
        "no ttl": {"arguments": {"x-max-length": 5}},
        "one more": {"arguments": {**arguments, "x-expires": 1_000}},
        "unknown": {"arguments": {**arguments, "x-mine": 1}},
    }.items():
        t.attempt(
            name, lambda change=change: t.channel().queue_declare(queue, **{**same, **change})
        )


def queue_arguments(t: Trial) -> None:
    """Values that an argument may not have."""
    wrong: dict[str, Arguments] = {
        "ttl < 0": {"x-message-ttl": -1},
        "ttl text": {"x-message-ttl": "1"},
        "expires 0": {"x-expires": 0},
        "length < 0": {"x-max-length": -1},
        "bytes < 0": {"x-max-length-bytes": -1},
        "overflow": {"x-overflow": "burst"},
        "key alone": {"x-dead-letter-routing-key": "k"},
        "exchange number": {"x-dead-letter-exchange": 1},
        "priority 256": {"x-max-priority": 256},
        "priority < 0": {"x-max-priority": -1},
        "type": {"x-queue-type": "fast"},
        "single": {"x-single-active-consumer": "yes"},
    }
    for name, arguments in wrong.items():
        t.attempt(name, lambda a=arguments: t.channel().queue_declare(t.name("q"), arguments=a))
    t.attempt("none was made", lambda: t.channel().queue_declare(t.name("q"), passive=True))


def quorum_queue(t: Trial) -> None:
    """Durable, nobody's, without priorities."""
    quorum: Arguments = {"x-queue-type": "quorum"}
    for name, how in {
        "transient": {"durable": False},
        "exclusive": {"durable": True, "exclusive": True},
        "auto-delete": {"durable": True, "auto_delete": True},
    }.items():
        t.attempt(
            name,
            lambda how=how: t.channel().queue_declare(t.name("q"), arguments=quorum, **how),
        )
    queue = t.queue(t.channel(), durable=True, arguments=quorum)
    t.attempt("as classic", lambda: t.channel().queue_declare(queue, durable=True))


def delete_and_purge(t: Trial) -> None:
    """Conditional deletion, and what purge and delete answer."""
    channel = t.channel()
    queue = t.queue(channel)
    fill(channel, queue, "1", "2", "3")
    (tag,) = held(channel, queue, 1)
    t.attempt("not empty", lambda: t.channel().queue_delete(queue, if_empty=True))
    t.attempt("purge", lambda: channel.queue_purge(queue))
    channel.basic_nack(tag, requeue=True)
    t.note("held is kept", t.until(lambda: channel.queue_declare(queue).method.message_count == 1))
    consumer = channel.basic_consume(queue, lambda *_: None)
    t.attempt("in use", lambda: t.channel().queue_delete(queue, if_unused=True))
    channel.basic_cancel(consumer)
    t.attempt("delete", lambda: channel.queue_delete(queue))
    t.attempt("delete again", lambda: channel.queue_delete(queue))
    t.attempt("purge missing", lambda: t.channel().queue_purge(queue))


def expiring_queue(t: Trial) -> None:
    """x-expires: gone when nobody used it for so long; a get counts as use, a publish does not."""
    channel = t.channel()
    queue = t.queue(channel, arguments={"x-expires": 1_500})
    for _ in range(4):
        time.sleep(0.5)
        channel.basic_get(queue)
    t.attempt("used", lambda: t.channel().queue_declare(queue, passive=True))
    gone = ["channel", 404]
    time.sleep(3)
    t.note(t.outcome(lambda: t.channel().queue_declare(queue, passive=True))[:2] == gone)


# --- Exchanges and bindings -----------------------------------------------------------------------


def exchange_equivalence(t: Trial) -> None:
    """An exchange declared again must be asked for as it is; names of the server are reserved."""
    channel = t.channel()
    name = t.exchange(channel, "e", "direct", durable=True)
    for what, how in {
        "same": {},
        "type": {"exchange_type": "fanout"},
        "durable": {"durable": False},
        "auto-delete": {"auto_delete": True},
        "internal": {"internal": True},
        "alternate": {"arguments": {"alternate-exchange": "amq.fanout"}},
    }.items():
        asked = {"exchange_type": "direct", "durable": True, **how}
        t.attempt(what, lambda asked=asked: t.channel().exchange_declare(name, **asked))
    t.attempt("reserved", lambda: t.channel().exchange_declare("amq.mine", "direct"))
    t.attempt("default", lambda: t.channel().exchange_declare("", "direct"))
    t.attempt("predeclared", lambda: t.channel().exchange_declare("amq.direct", durable=True))
    t.attempt("delete predeclared", lambda: t.channel().exchange_delete("amq.direct"))
    t.attempt("delete default", lambda: t.channel().exchange_delete(""))


def exchange_deletion(t: Trial) -> None:
    """if-unused, a missing one, auto-delete with the last binding."""
    channel = t.channel()
    queue = t.queue(channel)
    kept = t.exchange(channel, "kept", "direct")
    channel.queue_bind(queue, kept, "k")
    t.attempt("in use", lambda: t.channel().exchange_delete(kept, if_unused=True))
    channel.queue_unbind(queue, kept, "k")
    t.attempt("unused", lambda: t.channel().exchange_delete(kept, if_unused=True))
    t.attempt("missing", lambda: t.channel().exchange_delete(kept))
    passing = t.exchange(channel, "passing", "fanout", auto_delete=True)
    channel.queue_bind(queue, passing)
    channel.queue_unbind(queue, passing)
    t.attempt("gone", lambda: t.channel().exchange_declare(passing, passive=True))


def bindings(t: Trial) -> None:
    """Of things that are not there, of the default exchange, twice, and undone twice."""
    channel = t.channel()
    queue = t.queue(channel)
    exchange = t.exchange(channel, "e", "direct")
    none = t.name("none")
    t.attempt("no queue", lambda: t.channel().queue_bind(none, exchange, "k"))
    t.attempt("no exchange", lambda: t.channel().queue_bind(queue, none, "k"))
    t.attempt("default", lambda: t.channel().queue_bind(queue, "", "k"))
    t.attempt("unbind default", lambda: t.channel().queue_unbind(queue, "", "k"))
    t.attempt("unbind nothing", lambda: t.channel().queue_unbind(queue, exchange, "k"))
    t.attempt("unbind no queue", lambda: t.channel().queue_unbind(none, exchange, "k"))
    t.attempt("unbind no exchange", lambda: t.channel().queue_unbind(queue, none, "k"))
    for _ in range(2):
        channel.queue_bind(queue, exchange, "k")
    channel.basic_publish(exchange, "k", b"once")
    t.note(t.take_all(channel, queue, 1))
    channel.queue_unbind(queue, exchange, "k")
    channel.basic_publish(exchange, "k", b"never")
    t.note(t.take(channel, queue, wait=False))
    t.attempt("e2e none", lambda: t.channel().exchange_bind(none, exchange, "k"))
    t.attempt("e2e default", lambda: t.channel().exchange_bind("", exchange, "k"))


def routing(t: Trial) -> None:
    """Direct, fanout, topic, headers, exchange to exchange, alternate."""
    channel = t.channel()
    channel.confirm_delivery()
    queues = [t.queue(channel, f"q{number}") for number in range(4)]
    topic = t.exchange(channel, "topic", "topic")
    for queue, pattern in zip(queues, ("a.*", "a.#", "#", "*.b.*"), strict=True):
        channel.queue_bind(queue, topic, pattern)

    def reached() -> list[bool]:
        return [channel.basic_get(queue, auto_ack=True)[0] is not None for queue in queues]

    for key in ("a", "a.b", "a.b.c", "b", "", "a..c", ".a", "x.b.y"):
        channel.basic_publish(topic, key, b"x")
        t.note("topic", key, reached())
    headers = t.exchange(channel, "headers", "headers")
    for queue, arguments in zip(
        queues,
        (
            {"x-match": "all", "a": 1, "b": "two"},
            {"x-match": "any", "a": 1, "b": "two"},
            {"a": None},
            {},
        ),
        strict=True,
    ):
        channel.queue_bind(queue, headers, "", arguments)
    for sent in ({"a": 1, "b": "two"}, {"a": 1}, {"b": "two", "c": 1}, {"a": "1"}, {}, None):
        channel.basic_publish(headers, "", b"x", pika.BasicProperties(headers=sent))
        t.note("headers", sent, reached())
    t.attempt(
        "x-match", lambda: t.channel().queue_bind(queues[0], headers, "", {"x-match": "some"})
    )
    fanout = t.exchange(channel, "fanout", "fanout")
    channel.queue_bind(queues[0], fanout, "ignored")
    direct = t.exchange(channel, "direct", "direct", arguments={"alternate-exchange": fanout})
    channel.queue_bind(queues[1], direct, "k")
    channel.exchange_bind(direct, topic, "to.direct")
    for exchange, key in ((direct, "k"), (direct, "other"), (topic, "to.direct"), ("", "none")):
        channel.basic_publish(exchange, key, b"x")
        t.note("mixed", key, reached())
