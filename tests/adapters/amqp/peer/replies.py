"""Scenarios of direct reply-to."""

from __future__ import annotations

from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from .trial import Trial

PSEUDO = "amq.rabbitmq.reply-to"


def _listen(channel: BlockingChannel, got: list[Any], *, auto_ack: bool = True) -> Any:
    def take(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
        got.append([method.exchange, method.redelivered, properties.correlation_id, body.decode()])

    return channel.basic_consume(PSEUDO, take, auto_ack=auto_ack)


def _ask(channel: BlockingChannel, queue: str, body: bytes = b"?") -> None:
    asked = pika.BasicProperties(reply_to=PSEUDO, correlation_id="7", headers={"a": 1})
    channel.basic_publish("", queue, body, asked)


def _address(t: Trial, channel: BlockingChannel, queue: str) -> str:
    """The reply-to of the next request."""
    found: list[Any] = [None]

    def asked() -> bool:
        method, properties, _ = channel.basic_get(queue, auto_ack=True)
        found[0] = properties
        return method is not None

    t.until(asked)
    address: str = found[0].reply_to
    return address


def direct_reply(t: Trial) -> None:
    """A request carries an address; what is published to it reaches the requester's channel."""
    channel, responder = t.channel(), t.channel()
    queue = t.queue(responder)
    got: list[Any] = []
    _listen(channel, got)
    _ask(channel, queue)
    address = _address(t, responder, queue)
    t.note(address.startswith(PSEUDO + "."))
    responder.basic_publish("", address, b"1", pika.BasicProperties(correlation_id="7"))
    responder.basic_publish("", address, b"2", pika.BasicProperties(correlation_id="8"))
    t.note(t.until(lambda: t.deliveries(channel.connection, 0.05) or len(got) == 2), got)
    t.attempt("there", lambda: bool(responder.queue_declare(address, passive=True)))
    t.attempt("pseudo", lambda: bool(responder.queue_declare(PSEUDO, passive=True)))
    channel.close()

    def is_gone() -> bool:
        asking = t.channel()
        return t.outcome(lambda: asking.queue_declare(address, passive=True))[:2] == [
            "channel",
            404,
        ]

    t.note("gone", t.until(is_gone))
    responder.confirm_delivery()
    t.attempt("late", lambda: responder.basic_publish("", address, b"3"))


def direct_reply_misuse(t: Trial) -> None:
    """What is refused, with which code."""
    queue = t.queue(t.channel())

    def asked(channel: BlockingChannel) -> None:
        _ask(channel, queue)
        channel.queue_declare(queue, passive=True)

    def twice(channel: BlockingChannel) -> None:
        _listen(channel, [])
        _listen(channel, [])

    def cancelled(channel: BlockingChannel) -> None:
        channel.basic_cancel(_listen(channel, []))
        asked(channel)

    def again(channel: BlockingChannel) -> bool:
        channel.basic_cancel(_listen(channel, []))
        return bool(_listen(channel, []))

    t.attempt("with acks", lambda: _listen(t.channel(), [], auto_ack=False))
    t.attempt("no consumer", lambda: asked(t.channel()))
    t.attempt("twice", lambda: twice(t.channel()))
    t.attempt("cancelled", lambda: cancelled(t.channel()))
    t.attempt("again", lambda: again(t.channel()))
    t.attempt("get", lambda: t.channel().basic_get(PSEUDO))
    t.attempt("none", lambda: t.channel().queue_declare(PSEUDO + ".none", passive=True))
