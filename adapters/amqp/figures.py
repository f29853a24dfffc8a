"""Figures of connections, for operators; gathered when somebody asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapters.base import AdapterStatistics

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from adapters.amqp.connection.state_machine import Connection
    from adapters.amqp.environment import Counters
    from adapters.amqp.lifecycle import ConnectionState


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


def of_adapter(
    connections: Collection[Connection], counters: Counters, staying: Mapping[str, int]
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
        staying=staying,
    )
