"""AMQP's rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pika import BasicProperties

from tests.rights.rows import Row
from tests.rights.site import Actor

NO_RIGHT_OF_ITS_OWN = {
    "connection.start/start-ok": "a login is not a right",
    "connection.tune": "about the connection",
    "connection.close": "about the connection",
    "connection.blocked": "sent by the server",
    "connection.update-secret": "the password of the same user",
    "heartbeat": "about the connection",
    "channel.open": "about the channel",
    "channel.close": "about the channel",
    "channel.flow": "about the channel",
    "access.request": "always granted, means nothing",
    "basic.qos": "about the channel",
    "basic.cancel": "of one's own consumer",
    "basic.return": "sent by the server",
    "basic.ack": "of what the connection was given: consume, when it was",
    "basic.reject": "of what the connection was given: consume, when it was",
    "basic.nack": "of what the connection was given: consume, when it was",
    "basic.recover": "of what the connection was given: consume, when it was",
    "confirm.select": "about the channel",
    "tx.select": "about the channel",
    "tx.rollback": "of what the channel has not committed",
    "direct reply-to": "whoever was told an address may answer to it",
    "message and queue TTL": "an argument of queue.declare",
    "queue length limit": "an argument of queue.declare",
    "priorities": "an argument of queue.declare",
    "single active consumer": "an argument of queue.declare",
    "delivery limit": "an argument of queue.declare; its dead letters: see there",
    "delayed messages": "basic.publish, later",
}


def queue(*names: str, **arguments: Any) -> Callable[[Actor], object]:
    """Declare durable queues."""

    def do(who: Actor) -> None:
        for name in names or ("{n}",):
            given = {key.replace("_", "-"): who(value) for key, value in arguments.items()}
            who.channel.queue_declare(who(name), durable=True, arguments=given)

    return do


def exchange(*names: str, kind: str = "topic", **arguments: Any) -> Callable[[Actor], object]:
    """Declare durable exchanges."""

    def do(who: Actor) -> None:
        for name in names or ("{n}",):
            given = {key.replace("_", "-"): who(value) for key, value in arguments.items()}
            who.channel.exchange_declare(who(name), kind, durable=True, arguments=given)

    return do


def tree_topic(name: str = "{n}") -> Callable[[Actor], object]:
    """A topic that is part of the tree."""

    def do(who: Actor) -> None:
        who.site.admin("POST", "/topics", {"name": who(name), "type": "work", "tree": True})

    return do


def both(*steps: Callable[[Actor], object]) -> Callable[[Actor], object]:
    """One after the other."""

    def do(who: Actor) -> None:
        for step in steps:
            step(who)

    return do


def publish(exchange: str, key: str) -> Callable[[Actor], object]:
    """One message, confirmed."""
    return lambda who: who.channel.basic_publish(who(exchange), who(key), b"x")


def publish_copies(exchange: str, key: str, **headers: str) -> Callable[[Actor], object]:
    """One message with a further key, confirmed."""

    def do(who: Actor) -> None:
        given = {name: [who(value)] for name, value in headers.items()}
        who.channel.basic_publish(who(exchange), who(key), b"x", BasicProperties(headers=given))

    return do


def bind(source: str, key: str, target: str = "{n}") -> Callable[[Actor], object]:
    """Bind a queue."""
    return lambda who: who.channel.queue_bind(who(target), who(source), who(key))


def bind_exchange(source: str, key: str, target: str) -> Callable[[Actor], object]:
    """Bind an exchange."""
    return lambda who: who.channel.exchange_bind(who(target), who(source), who(key))


def consume(who: Actor) -> None:
    """A consumer, which is cancelled again."""
    tag = who.channel.basic_consume(who("{n}"), lambda *_: None, auto_ack=True)
    who.channel.basic_cancel(tag)


def held(who: Actor) -> Callable[[], bool]:
    """A consumer that stays."""
    channel = who.channel
    ended: list[object] = []
    channel.add_on_cancel_callback(ended.append)
    channel.basic_consume(who("{n}"), lambda *_: None)

    def has_ended() -> bool:
        channel.connection.process_data_events(time_limit=0.01)
        return bool(ended)

    return has_ended


def commit(who: Actor) -> None:
    """A transaction with one message."""
    channel = who.channel.connection.channel()
    channel.tx_select()
    channel.basic_publish("", who("{n}"), b"x")
    channel.tx_commit()
    channel.close()


QUEUE, EXCHANGE = queue(), exchange()
DECLARED = ("configure topic:{n}", "consume topic:{n}")
ALL_QUEUES = ("publish topic:*", "publish tree:#")

ROWS = [
    Row(operation="connection.open", needs=(), do=lambda who: who.channel),
    # --- Exchanges
    Row(operation="exchange.declare", needs=("configure router:{n}",), do=EXCHANGE),
    Row(
        operation="exchange.declare",
        way="passive",
        needs=("inspect router:{n}",),
        before=EXCHANGE,
        do=lambda who: who.channel.exchange_declare(who("{n}"), passive=True),
    ),
    Row(
        operation="exchange.declare",
        way="alternate exchange",
        needs=("configure router:{n}", "consume router:{n}", "publish router:{n}-2"),
        do=exchange(alternate_exchange="{n}-2"),
        again=False,
    ),
    Row(
        operation="exchange.declare",
        way="alternate exchange amq.topic",
        needs=(
            *("configure router:{n}", "consume router:{n}"),
            *("publish router:amq.topic", "publish tree:#"),
        ),
        do=exchange(alternate_exchange="amq.topic"),
        again=False,
    ),
    Row(
        operation="exchange.declare",
        way="alternate exchange weir.topics",
        needs=(
            *("configure router:{n}", "consume router:{n}"),
            *("publish router:weir.topics", *ALL_QUEUES),
        ),
        do=exchange(alternate_exchange="weir.topics"),
        again=False,
    ),
    Row(
        operation="exchange.delete",
        needs=("configure router:{n}",),
        before=EXCHANGE,
        do=lambda who: who.channel.exchange_delete(who("{n}")),
    ),
    Row(
        operation="exchange.bind",
        needs=("consume router:{n}", "publish router:{n}-2"),
        before=exchange("{n}", "{n}-2"),
        do=bind_exchange("{n}", "a.#", "{n}-2"),
    ),
    Row(
        operation="exchange.bind",
        way="into amq.topic",
        needs=("consume router:{n}", "publish router:amq.topic", "publish tree:{n}/+/#"),
        before=EXCHANGE,
        do=bind_exchange("{n}", "{n}.*.#", "amq.topic"),
    ),
    Row(
        operation="exchange.bind",
        way="a fanout into amq.topic",
        needs=("consume router:{n}", "publish router:amq.topic", "publish tree:#"),
        before=exchange(kind="fanout"),
        do=bind_exchange("{n}", "{n}", "amq.topic"),
    ),
    Row(
        operation="exchange.bind",
        way="a headers exchange into amq.topic",
        needs=("consume router:{n}", "publish router:amq.topic", "publish tree:#"),
        before=exchange(kind="headers"),
        do=bind_exchange("{n}", "{n}", "amq.topic"),
    ),
    Row(
        operation="exchange.bind",
        way="from amq.topic",
        needs=("consume router:amq.topic", "publish router:{n}", "consume tree:{n}/#"),
        before=EXCHANGE,
        do=bind_exchange("amq.topic", "{n}.#.x", "{n}"),
    ),
    Row(
        operation="exchange.unbind",
        needs=("consume router:{n}", "publish router:{n}-2"),
        before=exchange("{n}", "{n}-2"),
        do=lambda who: who.channel.exchange_unbind(who("{n}-2"), who("{n}"), "a"),
    ),
    # --- Queues
    Row(operation="queue.declare", needs=("configure topic:{n}",), do=QUEUE),
    Row(
        operation="queue.declare",
        way="passive",
        needs=("inspect topic:{n}",),
        before=QUEUE,
        do=lambda who: who.channel.queue_declare(who("{n}"), passive=True),
    ),
    Row(
        operation="queue.bind",
        needs=("consume router:{n}", "publish topic:{n}"),
        before=both(QUEUE, EXCHANGE),
        do=bind("{n}", "a"),
    ),
    Row(
        operation="queue.bind",
        way="from amq.topic",
        needs=("consume router:amq.topic", "publish topic:{n}", "consume tree:{n}/+"),
        before=QUEUE,
        do=bind("amq.topic", "{n}.*"),
    ),
    Row(
        operation="queue.bind",
        way="from weir.topics",
        needs=("consume router:weir.topics", "publish topic:{n}", "consume topic:{n}-2"),
        before=queue("{n}", "{n}-2"),
        do=bind("weir.topics", "{n}-2"),
    ),
    Row(
        operation="queue.bind",
        way="from weir.topics, a topic in the tree",
        needs=(
            *("consume router:weir.topics", "publish topic:{n}"),
            *("consume topic:{n}-2", "consume tree:{n}-2/#"),
        ),
        before=both(QUEUE, tree_topic("{n}-2")),
        do=bind("weir.topics", "{n}-2"),
    ),
    Row(
        operation="queue.bind",
        way="a topic in the tree",
        needs=("consume router:{n}", "publish topic:{n}", "publish tree:{n}"),
        before=both(tree_topic(), EXCHANGE),
        do=bind("{n}", "a"),
    ),
    Row(
        operation="queue.unbind",
        needs=("consume router:{n}", "publish topic:{n}"),
        before=both(QUEUE, EXCHANGE),
        do=lambda who: who.channel.queue_unbind(who("{n}"), who("{n}"), "a"),
    ),
    Row(
        operation="queue.purge",
        needs=("consume topic:{n}",),
        before=QUEUE,
        do=lambda who: who.channel.queue_purge(who("{n}")),
    ),
    Row(
        operation="queue.delete",
        needs=("configure topic:{n}",),
        before=QUEUE,
        do=lambda who: who.channel.queue_delete(who("{n}")),
    ),
    # --- Messages
    Row(
        operation="basic.publish",
        needs=("publish topic:{n}",),
        before=QUEUE,
        do=publish("", "{n}"),
    ),
    Row(
        operation="basic.publish",
        way="an exchange",
        needs=("publish router:{n}",),
        before=EXCHANGE,
        do=publish("{n}", "a"),
    ),
    Row(
        operation="basic.publish",
        way="a headers exchange",
        needs=("publish router:{n}",),
        before=exchange(kind="headers"),
        do=publish("{n}", "a"),
    ),
    Row(
        operation="basic.publish",
        way="amq.topic",
        needs=("publish router:amq.topic", "publish tree:{n}/secret"),
        do=publish("amq.topic", "{n}.secret"),
    ),
    Row(
        operation="basic.publish",
        way="weir.topics",
        needs=("publish router:weir.topics", "publish topic:{n}"),
        before=QUEUE,
        do=publish("weir.topics", "{n}"),
    ),
    Row(
        operation="basic.publish",
        way="a topic in the tree",
        needs=("publish topic:{n}", "publish tree:{n}"),
        before=tree_topic(),
        do=publish("", "{n}"),
    ),
    Row(
        operation="basic.publish",
        way="weir.topics, a topic in the tree",
        needs=("publish router:weir.topics", "publish topic:{n}", "publish tree:{n}"),
        before=tree_topic(),
        do=publish("weir.topics", "{n}"),
    ),
    Row(
        operation="basic.publish",
        way="CC",
        needs=("publish topic:{n}", "publish topic:{n}-2"),
        before=queue("{n}", "{n}-2"),
        do=publish_copies("", "{n}", CC="{n}-2"),
    ),
    Row(
        operation="basic.publish",
        way="BCC",
        needs=("publish topic:{n}", "publish topic:{n}-2"),
        before=queue("{n}", "{n}-2"),
        do=publish_copies("", "{n}", BCC="{n}-2"),
    ),
    Row(
        operation="basic.publish",
        way="CC, a topic in the tree",
        needs=("publish topic:{n}", "publish topic:{n}-2", "publish tree:{n}-2"),
        before=both(QUEUE, tree_topic("{n}-2")),
        do=publish_copies("", "{n}", CC="{n}-2"),
    ),
    Row(
        operation="basic.publish",
        way="amq.topic and BCC",
        needs=("publish router:amq.topic", "publish tree:{n}/open", "publish tree:{n}/secret"),
        do=publish_copies("amq.topic", "{n}.open", BCC="{n}.secret"),
        at_gateways=False,  # they do not know which names lead somewhere: 540
    ),
    Row(
        operation="basic.publish",
        way="weir.topics and CC",
        needs=("publish router:weir.topics", "publish topic:{n}", "publish topic:{n}-2"),
        before=queue("{n}", "{n}-2"),
        do=publish_copies("weir.topics", "{n}", CC="{n}-2"),
    ),
    Row(
        operation="basic.consume",
        needs=("consume topic:{n}",),
        before=QUEUE,
        do=consume,
        hold=held,
    ),
    Row(
        operation="basic.consume",
        way="a topic in the tree",
        needs=("consume topic:{n}", "consume tree:{n}/#"),
        before=tree_topic(),
        do=consume,
        hold=held,
    ),
    Row(
        operation="basic.get",
        needs=("consume topic:{n}",),
        before=QUEUE,
        do=lambda who: who.channel.basic_get(who("{n}")),
    ),
    Row(
        operation="basic.get",
        way="a topic in the tree",
        needs=("consume topic:{n}", "consume tree:{n}/#"),
        before=tree_topic(),
        do=lambda who: who.channel.basic_get(who("{n}")),
    ),
    Row(operation="tx.commit", needs=("publish topic:{n}",), before=QUEUE, do=commit),
    # --- Dead letters
    Row(
        operation="dead-letter exchange",
        needs=(*DECLARED, "publish router:{n}"),
        do=queue(x_dead_letter_exchange="{n}"),
        again=False,
    ),
    Row(
        operation="dead-letter exchange",
        way="the default exchange and a key",
        needs=(*DECLARED, "publish topic:{n}-2"),
        do=queue(x_dead_letter_exchange="", x_dead_letter_routing_key="{n}-2"),
        again=False,
    ),
    Row(
        operation="dead-letter exchange",
        way="the default exchange and the message's own key",
        needs=(*DECLARED, *ALL_QUEUES),
        do=queue(x_dead_letter_exchange=""),
        again=False,
    ),
    Row(
        operation="dead-letter exchange",
        way="the default exchange, a topic in the tree",
        needs=(*DECLARED, "publish topic:{n}-2", "publish tree:{n}-2"),
        before=tree_topic("{n}-2"),
        do=queue(x_dead_letter_exchange="", x_dead_letter_routing_key="{n}-2"),
        again=False,
    ),
    Row(
        operation="dead-letter exchange",
        way="amq.topic and a key",
        needs=(*DECLARED, "publish router:amq.topic", "publish tree:{n}/secret"),
        do=queue(x_dead_letter_exchange="amq.topic", x_dead_letter_routing_key="{n}.secret"),
        again=False,
    ),
    Row(
        operation="dead-letter exchange",
        way="amq.topic and the message's own key",
        needs=(*DECLARED, "publish router:amq.topic", "publish tree:#"),
        do=queue(x_dead_letter_exchange="amq.topic"),
        again=False,
    ),
    Row(
        operation="dead-letter exchange",
        way="weir.topics and a key",
        needs=(*DECLARED, "publish router:weir.topics", "publish topic:{n}-2"),
        do=queue(x_dead_letter_exchange="weir.topics", x_dead_letter_routing_key="{n}-2"),
        again=False,
    ),
]
