"""Scenarios of time, dead letters and limits; and of what is refused."""

from __future__ import annotations

import time
from typing import Any

import pika

from .helpers import Arguments, fill, held
from .trial import BRIEF_S, Trial

# --- Time, dead letters, limits -------------------------------------------------------------------


def _deaths(found: list[Any]) -> list[Any]:
    """Key, redelivered, body and headers of a dead letter; its other properties."""
    properties = dict(found[4])
    headers = properties.pop("headers", None)
    return [*found[:4], headers, properties]


def rejected_dead_letters(t: Trial) -> None:
    """Exchange, key and history of what was rejected, twice, from two queues."""
    channel = t.channel()
    dead = t.queue(channel, "dead")
    dlx = t.exchange(channel, "dlx", "fanout")
    channel.queue_bind(dead, dlx)
    first = t.queue(channel, "first", arguments={"x-dead-letter-exchange": dlx})
    second = t.queue(
        channel,
        "second",
        arguments={"x-dead-letter-exchange": dlx, "x-dead-letter-routing-key": "other"},
    )
    for queue, headers in ((first, {"kept": 1}), (second, None)):
        channel.basic_publish("", queue, b"bad", pika.BasicProperties(headers=headers))
        channel.basic_reject(held(channel, queue, 1)[0], requeue=False)
        letter = t.take(channel, dead)
        t.note(_deaths(letter))


def expired_dead_letters(t: Trial) -> None:
    """By the message's TTL and by the queue's; TTL 0; the lower one counts; the head goes first."""
    channel = t.channel()
    dead = t.queue(channel, "dead")
    arguments: Arguments = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead,
        "x-message-ttl": 300,
    }
    queue = t.queue(channel, arguments=arguments)
    for body, expiration in (("queue", None), ("message", "50"), ("longer", "60000"), ("now", "0")):
        properties = pika.BasicProperties(expiration=expiration)
        channel.basic_publish("", queue, body.encode(), properties)
    dead_letters = sorted(
        (_deaths(t.take(channel, dead)) for _ in range(4)), key=lambda each: each[3]
    )
    t.note(dead_letters)
    t.note(t.take(channel, queue, wait=False))
    brief = t.queue(channel, "brief", arguments={"x-message-ttl": 0})
    channel.confirm_delivery()
    channel.basic_publish("", brief, b"nobody waits")
    t.note(t.until(lambda: channel.queue_declare(brief, passive=True).method.message_count == 0))


def full_queues(t: Trial) -> None:
    """drop-head, reject-publish, reject-publish-dlx; by number and by bytes."""
    channel = t.channel()
    channel.confirm_delivery()
    dead = t.queue(channel, "dead")
    to_dead: Arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    head = t.queue(channel, "head", arguments={"x-max-length": 2, **to_dead})
    for body in ("1", "2", "3"):
        t.attempt("head", lambda body=body: channel.basic_publish("", head, body.encode()))
    t.note(_deaths(t.take(channel, dead)))
    t.note(t.take_all(channel, head, 2))
    for overflow in ("reject-publish", "reject-publish-dlx"):
        arguments = {"x-max-length": 1, "x-overflow": overflow, **to_dead}
        queue = t.queue(channel, overflow, arguments=arguments)
        for body in ("1", "2"):
            t.attempt(
                overflow, lambda q=queue, body=body: channel.basic_publish("", q, body.encode())
            )
        t.note(t.take_all(channel, queue, 1))
        time.sleep(BRIEF_S)
        found = channel.basic_get(dead, auto_ack=True)
        t.note(_deaths(t.got(found)) if found[0] is not None else "no letter")
    large = t.queue(channel, "large", arguments={"x-max-length-bytes": 10})
    for body in ("12345", "67890", "x"):
        channel.basic_publish("", large, body.encode())
    t.note(t.take_all(channel, large, 2))


def dead_letters_in_circles(t: Trial) -> None:
    """A circle of expiries is cut; one with a rejection in it goes on, and is counted."""
    channel = t.channel()
    queue = t.name("q")
    arguments = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": queue,
        "x-message-ttl": 100,
    }
    channel.queue_declare(queue, arguments=arguments)
    channel.basic_publish("", queue, b"round")
    time.sleep(0.6)
    t.note(t.take(channel, queue, wait=False))
    self_fed = t.name("self")
    channel.queue_declare(
        self_fed,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self_fed},
    )
    channel.basic_publish("", self_fed, b"again")
    for _ in range(2):
        channel.basic_reject(held(channel, self_fed, 1)[0], requeue=False)
    t.note(_deaths(t.take(channel, self_fed)))


def delivery_limit(t: Trial) -> None:
    """A quorum queue counts deliveries, tells them, and dead-letters what is over its limit."""
    channel = t.channel()
    dead = t.queue(channel, "dead")
    arguments: Arguments = {
        "x-queue-type": "quorum",
        "x-delivery-limit": 2,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead,
    }
    queue = t.queue(channel, durable=True, arguments=arguments)
    fill(channel, queue, "1")
    for _ in range(3):
        found = channel.basic_get(queue)
        while found[0] is None:
            time.sleep(0.01)
            found = channel.basic_get(queue)
        t.note(t.got(found))
        channel.basic_nack(found[0].delivery_tag, requeue=True)
    t.note(_deaths(t.take(channel, dead)))


# --- Misuse ---------------------------------------------------------------------------------------


def misuse(t: Trial) -> None:
    """Methods that are refused whatever they ask."""
    t.attempt("flow off", lambda: t.channel().flow(False))

    def never_declared() -> Any:
        channel = t.channel()
        return channel.queue_purge("")

    t.attempt("no queue before", never_declared)


def copies(t: Trial) -> None:
    """CC and BCC name further queues; BCC is taken out."""
    channel = t.channel()
    queues = [t.queue(channel, f"q{number}") for number in range(3)]
    headers = {"CC": [queues[1]], "BCC": [queues[2]], "kept": 1}

    def publish() -> None:
        channel.basic_publish("", queues[0], b"cc", pika.BasicProperties(headers=headers))
        channel.basic_qos(prefetch_count=1)

    t.attempt("publish", publish)
    t.note([t.take(t.channel(), queue, wait=False)[:4] for queue in queues])


def exchange_type(t: Trial) -> None:
    """One that does not exist."""
    t.attempt("declare", lambda: t.channel().exchange_declare(t.name("e"), "no-such-type"))


def queue_mode(t: Trial) -> None:
    """A value that x-queue-mode never had."""
    arguments: Arguments = {"x-queue-mode": "fast"}
    t.attempt("declare", lambda: t.channel().queue_declare(t.name("q"), arguments=arguments))
