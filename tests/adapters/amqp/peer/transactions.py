"""Scenarios of transactions."""

from __future__ import annotations

from typing import Any

from pika.adapters.blocking_connection import BlockingChannel

from .helpers import fill, held
from .trial import Trial


def transaction(t: Trial) -> None:
    """What was published in one is there after the commit, not before."""
    channel = t.channel()
    queue = t.queue(channel)
    t.attempt("select", channel.tx_select)
    if channel.is_open:
        channel.basic_publish("", queue, b"x")
        t.note(t.take(t.channel(), queue, wait=False))
        t.attempt("commit", channel.tx_commit)
        t.note(t.take(t.channel(), queue))


def settled_in_a_transaction(t: Trial) -> None:
    """Acks, nacks and rejects wait for the commit; after a rollback they can be said again."""
    channel, other = t.channel(), t.channel()
    queue = t.queue(channel)
    fill(t.channel(), queue, "1", "2", "3", "4")
    channel.tx_select()
    tags = held(channel, queue, 4)
    channel.basic_ack(tags[1], multiple=True)
    channel.basic_nack(tags[2], requeue=True)
    channel.basic_reject(tags[3], requeue=False)
    t.note(t.take(other, queue, wait=False))
    t.attempt("rollback", channel.tx_rollback)
    t.note(t.take(other, queue, wait=False))
    channel.basic_ack(tags[0])
    channel.basic_nack(tags[1], requeue=True)
    t.attempt("commit", channel.tx_commit)
    t.note(t.take(other, queue))
    t.note(t.take(other, queue, wait=False))
    channel.basic_ack(tags[2])
    channel.close()  # without a commit
    t.note(t.take_all(other, queue, 2))


def acked_twice_in_a_transaction(t: Trial) -> None:
    """The second ack of a tag is refused at once, and the channel's end rolls the first back."""
    channel = t.channel()
    queue = t.queue(channel)
    fill(t.channel(), queue, "1")
    channel.tx_select()
    (tag,) = held(channel, queue, 1)
    channel.basic_ack(tag)
    channel.basic_ack(tag)
    t.attempt("commit", channel.tx_commit)
    t.note(t.take(t.channel(), queue)[:4])


def returned_at_the_commit(t: Trial) -> None:
    """Mandatory messages without a queue come back with the commit."""
    channel = t.channel()
    returned: list[Any] = []
    channel.add_on_return_callback(
        lambda _channel, method, _properties, body: returned.append([method.reply_code, body])
    )
    channel.tx_select()
    channel.basic_publish("", t.name("none"), b"1", mandatory=True)
    channel.basic_publish("", t.name("none"), b"2")
    t.deliveries(channel.connection)
    t.note(returned)
    channel.tx_commit()
    t.deliveries(channel.connection, 0)
    t.note(returned)


def modes_of_a_channel(t: Trial) -> None:
    """Confirms and transactions exclude each other; commit and rollback need a select."""

    def confirming() -> BlockingChannel:
        channel = t.channel()
        channel.confirm_delivery()
        return channel

    def transactional() -> BlockingChannel:
        channel = t.channel()
        channel.tx_select()
        return channel

    t.attempt("again", transactional().tx_select)
    t.attempt("confirm", transactional().confirm_delivery)
    t.attempt("tx", confirming().tx_select)
    t.attempt("commit", t.channel().tx_commit)
    t.attempt("rollback", t.channel().tx_rollback)
    t.attempt("commit of confirms", confirming().tx_commit)
    t.attempt("nothing", transactional().tx_commit)
    t.attempt("nothing", transactional().tx_rollback)


def refused_in_a_transaction(t: Trial) -> None:
    """A publish to an exchange that is not there closes the channel; nothing is committed."""
    channel = t.channel()
    queue = t.queue(channel)
    channel.tx_select()
    channel.basic_publish("", queue, b"1")
    channel.basic_publish(t.name("none"), "k", b"2")
    t.attempt("commit", channel.tx_commit)
    t.note(t.take(t.channel(), queue, wait=False))
