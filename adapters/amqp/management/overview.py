"""What there is as a whole, who asks, and health, over the management API."""

from __future__ import annotations

from typing import Any

from adapters.amqp.management import open_connections
from adapters.amqp.management.requests import INSPECT_TOPIC, Answer, Asked, Refused, not_found
from adapters.amqp.topology.exchanges import MATCHES
from kernel.api.model import DEFAULT_GROUP, TopicKind

MEASURED_MAX = 1_000
"""Queues whose messages are added up for totals: some milliseconds. Beyond it there are none."""


async def whoami(asked: Asked) -> Answer:
    """The caller's name and tags."""
    return Answer(200, {"name": asked.own.principal.name, "tags": _tags(asked)})


def _tags(asked: Asked) -> list[str]:
    return ["administrator"] if asked.is_administrator else ["management"]


async def overview(asked: Asked) -> Answer:
    """What is served, how many things there are, how many messages."""
    queues = exchanges = 0
    totals: dict[str, int] | None = {"messages_ready": 0, "messages_unacknowledged": 0}
    client = asked.broker.client
    for caller, _ in asked.hosts():
        exchanges += len(client.routers(caller.tenant)) + 1
        for topic in client.topics(caller.tenant):
            is_queue = topic.options.kind is TopicKind.WORK and DEFAULT_GROUP in topic.groups
            if not is_queue or not caller.rights.allows(INSPECT_TOPIC, topic.name):
                continue
            queues += 1
            if totals is None or queues > MEASURED_MAX:
                totals = None
                continue
            figures = await client.statistics(topic, DEFAULT_GROUP)
            totals["messages_ready"] += figures.ready
            totals["messages_unacknowledged"] += figures.leased
    open_now, silent = await open_connections.totals(asked)
    settings = asked.broker.settings
    if totals is not None:
        totals["messages"] = sum(totals.values())
    return Answer(
        200,
        {
            "product_name": settings.product,
            "product_version": asked.broker.version,
            # Tools decide by it what the API can do.
            "management_version": settings.version,
            "rabbitmq_version": settings.version,
            "cluster_name": settings.cluster_name,
            "node": settings.cluster_name,
            "rates_mode": "basic",
            "statistics_db_event_queue": 0,
            "message_stats": {},
            "queue_totals": totals or {},
            "object_totals": {
                "queues": queues,
                "exchanges": exchanges,
                **open_now,
            },
            "exchange_types": [{"name": name, "enabled": True} for name in MATCHES],
            "listeners": _listeners(asked),
            "contexts": [],
        },
        silent=silent,
    )


def _listeners(asked: Asked) -> list[dict[str, Any]]:
    node = asked.broker.settings.cluster_name
    return [
        {
            "node": node,
            "protocol": "amqp/ssl" if "tls" in name else "amqp",
            "ip_address": host,
            "port": port,
        }
        for name, (host, port) in asked.broker.adapter.addresses().items()
    ]


async def list_nodes(asked: Asked) -> Answer:
    """The one asked, which stands for all: `weir cluster` tells of the others."""
    return Answer(200, [_node(asked)])


async def show_node(asked: Asked) -> Answer:
    """The one asked."""
    if asked.names["name"] != asked.broker.settings.cluster_name:
        raise not_found()
    return Answer(200, _node(asked))


def _node(asked: Asked) -> dict[str, Any]:
    broker = asked.broker
    return {
        "name": broker.settings.cluster_name,
        "type": "disc",
        "running": True,
        "uptime": broker.clock.monotonic_ms() - broker.started_ms,
        "mem_alarm": False,
        "disk_free_alarm": not broker.client.accepting,
        "partitions": [],
        "rates_mode": "basic",
    }


async def list_virtual_hosts(asked: Asked) -> Answer:
    """Those that the caller may look into."""
    return Answer(200, [_host(host) for _, host in asked.tenants()])


async def show_virtual_host(asked: Asked) -> Answer:
    """One of them."""
    asked.tenant_named(asked.names["vhost"])
    return Answer(200, _host(asked.names["vhost"]))


def _host(name: str) -> dict[str, Any]:
    return {"name": name, "description": "", "tags": [], "tracing": False}


async def cluster_name(asked: Asked) -> Answer:
    """What clients are told it is called."""
    return Answer(200, {"name": asked.broker.settings.cluster_name})


async def nothing(_asked: Asked) -> Answer:
    """There is none of that kind here, and never is."""
    return Answer(200, [])


async def alarms(asked: Asked) -> Answer:
    """503 while new messages are refused because the disk is full."""
    if asked.broker.client.accepting:
        return Answer(200, {"status": "ok"})
    return Answer(503, {"status": "failed", "reason": "the disk is nearly full"})


async def well(_asked: Asked) -> Answer:
    """It answers, so it is."""
    return Answer(200, {"status": "ok"})


async def port_listener(asked: Asked) -> Answer:
    """Whether AMQP listens at a port."""
    ports = [port for _, port in asked.broker.adapter.addresses().values()]
    asked_for = asked.names["port"]
    if asked_for in map(str, ports):
        return Answer(200, {"status": "ok", "port": int(asked_for)})
    raise _missing("No active listener", asked_for)


async def protocol_listener(asked: Asked) -> Answer:
    """Whether a protocol is served here."""
    served = {each["protocol"] for each in _listeners(asked)}
    asked_for = asked.names["protocol"]
    if asked_for.removesuffix("091") in served or asked_for in {"amqp0-9-1", "amqp0.9.1"}:
        return Answer(200, {"status": "ok", "protocol": asked_for})
    raise _missing("No active listener", asked_for)


def _missing(reason: str, what: str) -> Refused:
    return Refused(503, "failed", f"{reason}: {what}")


async def aliveness(asked: Asked) -> Answer:
    """Whether messages are taken for a virtual host. RabbitMQ's sends one; this asks, and leaves
    no queue behind.
    """
    asked.tenant_named(asked.names["vhost"])
    return await alarms(asked)
