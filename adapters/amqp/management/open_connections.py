"""Connections, channels and consumers of this gateway over the management API: of the caller's own
user; of a whole tenant for who administers it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from adapters.amqp.management.pages import Page
from adapters.amqp.management.requests import Answer, Asked, not_found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from adapters.base import Adapter
    from adapters.connections import ChannelShown, ConnectionShown, OpenConnection

REASON: Final = "Closed via management plugin"
"""What RabbitMQ tells a client whose connection is closed here, unless X-Reason says more."""


def _open(asked: Asked) -> Iterator[tuple[OpenConnection, ConnectionShown, str]]:
    """(connection, what it is, virtual host) of all that the caller may see."""
    hosts = dict(asked.tenants())
    own = asked.own.principal
    adapter: Adapter = asked.broker.adapter
    for each in adapter.connections():
        tenant, user = each.owner
        if tenant not in hosts:
            continue
        if asked.administers(tenant) or (tenant, user) == (own.tenant, own.name):
            yield each, each.shown(), hosts[tenant]


async def list_connections(asked: Asked) -> Answer:
    """All of them."""
    host = asked.names.get("vhost")
    rows = [_row(shown, at) for _, shown, at in _open(asked) if host in {None, at}]
    return _listed(asked, rows)


async def show_connection(asked: Asked) -> Answer:
    """One, by its name."""
    for _, shown, host in _open(asked):
        if shown.peer == asked.names["name"]:
            return Answer(200, _row(shown, host))
    raise not_found()


async def close_connection(asked: Asked) -> Answer:
    """Say goodbye to one."""
    for each, shown, _ in _open(asked):
        if shown.peer == asked.names["name"]:
            each.end(REASON)
            return Answer(204)
    raise not_found()


async def list_channels(asked: Asked) -> Answer:
    """Channels of all connections, or of the one that the path names."""
    rows = []
    for each, shown, host in _open(asked):
        if asked.names.get("name", shown.peer) == shown.peer:
            rows += [_channel(channel, shown, host) for channel in each.channels_shown()]
    return _listed(asked, rows)


async def list_consumers(asked: Asked) -> Answer:
    """Consumers of all channels."""
    wanted = asked.names.get("vhost")
    rows = []
    for each, shown, host in _open(asked):
        if wanted not in {None, host}:
            continue
        for channel in each.channels_shown():
            details = _details(channel, shown)
            rows += [
                {
                    "consumer_tag": consumer.consumer_tag,
                    "queue": {"name": consumer.queue, "vhost": host},
                    "ack_required": consumer.ack_required,
                    "prefetch_count": consumer.prefetch_count,
                    "exclusive": False,
                    "active": True,
                    "arguments": {},
                    "channel_details": details,
                }
                for consumer in channel.consumers
            ]
    return _listed(asked, rows)


def _listed(asked: Asked, rows: list[dict[str, Any]]) -> Answer:
    page = Page(asked.query)
    wanted = [each for each in rows if page.wanted(str(each.get("name", "")))]
    some, made = page.cut(page.sorted_by(wanted), len(rows))
    return Answer(200, made(some))


def _row(shown: ConnectionShown, host: str) -> dict[str, Any]:
    address, _, port = shown.peer.rpartition(":")
    return {
        "name": shown.peer,
        "vhost": host,
        "user": shown.user,
        "protocol": "AMQP 0-9-1",
        "state": shown.state,
        "ssl": shown.ssl,
        "peer_host": address.strip("[]"),
        "peer_port": int(port) if port.isdigit() else 0,
        "channels": shown.channels,
        "recv_oct": shown.recv_oct,
        "send_oct": shown.send_oct,
        "client_properties": {"product": shown.client, "connection_name": shown.client_id},
        "user_provided_name": shown.client_id,
        "node": "",
        "type": "network",
    }


def _channel(channel: ChannelShown, shown: ConnectionShown, host: str) -> dict[str, Any]:
    return {
        "name": f"{shown.peer} ({channel.number})",
        "number": channel.number,
        "vhost": host,
        "user": shown.user,
        "state": channel.state,
        "confirm": channel.confirm,
        "transactional": channel.transactional,
        "prefetch_count": channel.prefetch_count,
        "consumer_count": len(channel.consumers),
        "messages_unacknowledged": channel.messages_unacknowledged,
        "connection_details": {"name": shown.peer},
    }


def _details(channel: ChannelShown, shown: ConnectionShown) -> dict[str, Any]:
    return {
        "name": f"{shown.peer} ({channel.number})",
        "number": channel.number,
        "connection_name": shown.peer,
        "user": shown.user,
    }
