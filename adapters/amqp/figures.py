"""Figures of connections, for operators; gathered when somebody asks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from adapters.amqp.limits import PREFETCH_UNLIMITED
from adapters.base import AdapterStatistics
from adapters.connections import (
    DETAILS_MAX,
    ChannelShown,
    ConnectionShown,
    ConsumerShown,
    id_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from adapters.amqp.connection.state_machine import Connection
    from adapters.amqp.environment import Counters
    from adapters.amqp.lifecycle import ConnectionState
    from adapters.base import ListenerAddress
    from adapters.listener_figures import ListenerFigures
    from adapters.transport import StreamProtocol


@dataclass(frozen=True, slots=True)
class ConnectionStatistics:
    """Figures of one connection."""

    state: ConnectionState
    name: str
    """What the client calls itself (`connection_name`)."""
    login: str
    channels: int
    consumers: int
    unacked: int
    publish_bytes_in_flight: int
    is_blocked: bool


def of_connection(connection: Connection) -> ConnectionStatistics:
    """Figures now."""
    channels = connection.channels.values()
    return ConnectionStatistics(
        state=connection.state,
        name=connection.features.name,
        login=connection.login,
        channels=len(channels),
        consumers=sum(len(each.links) for each in channels),
        unacked=sum(each.outstanding for each in channels),
        publish_bytes_in_flight=connection.publish_bytes_in_flight,
        is_blocked=connection.is_blocked,
    )


def shown_connection(
    stream: StreamProtocol, connection: Connection, listener: ListenerAddress
) -> ConnectionShown:
    """A connection as operators see it."""
    figures, rights = of_connection(connection), connection.rights
    blocked = "disk" if figures.is_blocked else ""
    return ConnectionShown(
        id=id_of("amqp", stream.number),
        protocol="amqp",
        listener=listener.name,
        peer=stream.peer,
        ssl=stream.is_secret,
        tenant=rights.principal.tenant if rights is not None else "",
        user=rights.principal.name if rights is not None else "",
        client_id=figures.name,
        client=connection.features.product,
        state=figures.state.name.lower(),
        waits_for=", ".join(filter(None, (stream.waits_for, blocked))),
        connected_s=stream.loop.time() - stream.opened_s,
        channels=figures.channels,
        consumers=figures.consumers,
        messages_unacknowledged=figures.unacked,
        recv_oct=stream.bytes_in,
        send_oct=stream.bytes_out,
    )


def channels_of(connection: Connection) -> Iterator[ChannelShown]:
    """Its channels, with their consumers."""
    for channel in islice(list(connection.channels.values()), DETAILS_MAX):
        yield ChannelShown(
            number=channel.number,
            state=channel.state.name.lower(),
            confirm=channel.confirms is not None,
            transactional=channel.transaction is not None,
            prefetch_count=channel.limit or 0,
            messages_unacknowledged=channel.outstanding,
            consumers=[
                ConsumerShown(
                    consumer_tag=each.tag,
                    queue=each.queue,
                    ack_required=not each.no_ack,
                    prefetch_count=0 if each.limit >= PREFETCH_UNLIMITED else each.limit,
                    messages_unacknowledged=each.unacked,
                )
                for each in islice(channel.links.values(), DETAILS_MAX)
            ],
        )


def of_adapter(
    connections: Collection[Connection],
    counters: Counters,
    listeners: Sequence[ListenerFigures],
    staying: Mapping[str, int],
) -> AdapterStatistics:
    """Counters since the start, and sums over all connections now."""
    figures = [of_connection(each) for each in connections]
    return AdapterStatistics(
        connections=len(figures),
        counters={name: getattr(counters, name) for name in counters.__slots__},
        gauges={
            "channels": sum(each.channels for each in figures),
            "consumers": sum(each.consumers for each in figures),
            "unacked": sum(each.unacked for each in figures),
            "publish_bytes_in_flight": sum(each.publish_bytes_in_flight for each in figures),
        },
        listeners=listeners,
        staying=staying,
    )
