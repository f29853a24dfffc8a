"""Queues over the management API.

A queue is a work topic with the built-in group, whatever protocol made it; those that a connection
keeps to itself are shown too, as RabbitMQ does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adapters.amqp.codec import spec
from adapters.amqp.codec.fields import EMPTY_TABLE, Field, Table, text_of
from adapters.amqp.management.pages import Page
from adapters.amqp.management.requests import (
    INSPECT_TOPIC,
    Answer,
    Asked,
    bad_request,
    not_found,
)
from adapters.amqp.names import check_name
from adapters.amqp.topology.arguments import ADAPTER_NAME, QueueDeclaration
from kernel.api.model import DEFAULT_GROUP, TopicInfo, TopicKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from adapters.amqp.caller import Caller


async def list_queues(asked: Asked) -> Answer:
    """All that the caller may inspect, of one virtual host or of all."""
    page = Page(asked.query)
    seen: list[tuple[TopicInfo, str]] = []
    for caller, host in asked.hosts():
        seen += [(topic, host) for topic in sorted(_inspected(asked, caller), key=_name)]
    wanted = [each for each in seen if page.wanted(each[0].name)]
    if page.sort:
        # The figures of all have to be known first.
        every = [await _row(asked, *each) for each in _bounded(wanted)]
        some, made = page.cut(page.sorted_by(every), len(seen))
        return Answer(200, made(some))
    rows, made = page.cut(wanted, len(seen))
    return Answer(200, made([await _row(asked, *each) for each in rows]))


def _bounded(rows: list[Any]) -> list[Any]:
    if len(rows) > SORTED_MAX:
        raise bad_request(f"{len(rows)} queues are too many to sort: name some of them")
    return rows


SORTED_MAX = 1_000
"""Queues whose figures are asked for to sort them."""


async def show_queue(asked: Asked) -> Answer:
    """One queue."""
    topic, host = await found_queue(asked)
    row = await _row(asked, topic, host)
    return Answer(200, {**row, "consumer_details": [], "incoming": [], "deliveries": []})


async def declare_queue(asked: Asked) -> Answer:
    """queue.declare: 201 if it is new, 204 if it is so already."""
    caller, name = asked.host(), asked.names["name"]
    body = asked.read()
    declarations = asked.broker.declarations
    is_new = await declarations.topic(caller.tenant, name) is None
    method = spec.QueueDeclare(
        0,
        check_name(name, "queue"),
        durable=flag_of(body, "durable", True),
        auto_delete=flag_of(body, "auto_delete", False),
        arguments=table_of(body),
    )
    await declarations.declare_queue(caller, method)
    return Answer(201 if is_new else 204)


async def delete_queue(asked: Asked) -> Answer:
    """queue.delete; 404 if there is none."""
    topic, _ = await found_queue(asked)
    query = asked.query
    method = spec.QueueDelete(
        0,
        topic.name,
        if_unused=query.get("if-unused") == "true",
        if_empty=query.get("if-empty") == "true",
    )
    await asked.broker.declarations.delete_queue(asked.host(), method, "")
    return Answer(204)


async def purge_queue(asked: Asked) -> Answer:
    """queue.purge: what is ready goes."""
    topic, _ = await found_queue(asked)
    await asked.broker.declarations.purge_queue(asked.host(), spec.QueuePurge(0, topic.name), "")
    return Answer(204)


async def found_queue(asked: Asked) -> tuple[TopicInfo, str]:
    """The queue that a path names, and its virtual host. Raises Refused 404, also if the caller may
    not inspect it.
    """
    caller, name = asked.host(), asked.names["name"]
    topic = await asked.broker.declarations.topic(caller.tenant, name)
    if topic is None or not _is_queue(topic) or not caller.rights.allows(INSPECT_TOPIC, name):
        raise not_found()
    return topic, caller.virtual_host


def _name(topic: TopicInfo) -> str:
    return topic.name


def _inspected(asked: Asked, caller: Caller) -> Iterator[TopicInfo]:
    for topic in asked.broker.client.topics(caller.tenant):
        if _is_queue(topic) and caller.rights.allows(INSPECT_TOPIC, topic.name):
            yield topic


def _is_queue(topic: TopicInfo) -> bool:
    is_work = topic.options.kind is TopicKind.WORK and DEFAULT_GROUP in topic.groups
    return is_work and not topic.name.startswith("__")


async def _row(asked: Asked, topic: TopicInfo, host: str) -> dict[str, Any]:
    broker = asked.broker
    figures = await broker.client.statistics(topic, DEFAULT_GROUP)
    published = 0
    for number in topic.numbers:
        published += (await broker.client.span(topic, number))[1]
    now_ms = broker.clock.monotonic_ms()
    # A resized topic counts from another number on.
    version = hash((topic.id, *topic.numbers))
    rate = broker.rates.look(topic.tenant, topic.name, version, published, now_ms)
    ready, held = figures.ready, figures.leased
    return {
        **_declared(topic, host),
        "node": broker.settings.cluster_name,
        "state": "running",
        "policy": None,
        "operator_policy": None,
        "effective_policy_definition": {},
        "consumers": figures.consumers,
        "messages": ready + held,
        "messages_details": {"rate": 0.0},
        "messages_ready": ready,
        "messages_ready_details": {"rate": 0.0},
        "messages_unacknowledged": held,
        "messages_unacknowledged_details": {"rate": 0.0},
        "message_stats": {"publish": published, "publish_details": {"rate": rate}},
    }


def _declared(topic: TopicInfo, host: str) -> dict[str, Any]:
    declared = topic.options.declarations.get(ADAPTER_NAME)
    said = EMPTY_TABLE if declared is None else QueueDeclaration.decode(declared).arguments
    return {
        "name": topic.name,
        "vhost": host,
        "type": text_of(said.get("x-queue-type")) or "classic",
        "durable": topic.options.durable,
        "auto_delete": topic.options.delete_when_unused,
        "exclusive": topic.options.owner is not None,
        "arguments": plain_table(said),
    }


def declared_in(asked: Asked, caller: Caller) -> list[dict[str, Any]]:
    """The queues of a virtual host as they were declared, without figures, by name."""
    found = sorted(_inspected(asked, caller), key=_name)
    return [_declared(each, caller.virtual_host) for each in found]


def flag_of(body: Mapping[str, Any], name: str, default: bool) -> bool:
    """A yes-or-no of a body. Raises Refused 400."""
    value = body.get(name, default)
    if isinstance(value, str) and value in {"true", "false"}:  # as rabbitmqadmin sends it
        return value == "true"
    if not isinstance(value, bool):
        raise bad_request(f"{name} is true or false")
    return value


def table_of(body: Mapping[str, Any]) -> Table:
    """The arguments of a body. Raises Refused 400."""
    value = body.get("arguments") or {}
    if not isinstance(value, dict):
        raise bad_request("arguments is no object")
    try:
        return Table.of(value)
    except (TypeError, ValueError) as error:
        raise bad_request(f"arguments: {error}") from None


def plain_table(table: Table) -> dict[str, Any]:
    """A table as JSON says it."""
    return {name: _plain(field) for name, field in table.entries}


def _plain(field: Field) -> object:
    value = field.value
    if isinstance(value, Table):
        return plain_table(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, tuple) and field.tag == "A":
        return [_plain(each) for each in value if isinstance(each, Field)]
    return value if isinstance(value, bool | int | float | None) else str(value)
