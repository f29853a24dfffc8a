"""Makes each protocol's adapter from the settings: the one place that knows every adapter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

import gateway
from adapters.amqp.handshake import AmqpSettings
from adapters.amqp.server import AmqpAdapter
from adapters.base import ListenerAddress

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from adapters.base import Adapter
    from gateway.config_schema import Protocol
    from gateway.identity import Identity
    from kernel.local_client import LocalClient
    from kernel.ports import Clock, Random


@dataclass(frozen=True, slots=True)
class Services:
    """What every adapter is made of."""

    client: LocalClient
    identity: Identity
    clock: Clock
    random: Random
    tls: Callable[[], ssl.SSLContext]
    """The TLS context of this node's listeners, made when first asked for."""


def addresses_of(protocol: Protocol, services: Services) -> list[ListenerAddress]:
    """Where a protocol's open listeners bind."""
    return [
        ListenerAddress(name, each.host, each.port, services.tls() if each.tls else None)
        for name, each in protocol.open_listeners().items()
    ]


def build_amqp(protocol: Protocol, services: Services) -> Adapter:
    """The AMQP adapter."""
    values = protocol.values()
    settings = msgspec.convert(
        {**values, "version": values["version"] or gateway.__version__}, AmqpSettings
    )
    return AmqpAdapter(
        services.client,
        services.client.origins,
        services.identity,
        addresses_of(protocol, services),
        clock=services.clock,
        random=services.random,
        settings=settings,
    )


BUILDERS: dict[str, Callable[[Protocol, Services], Adapter]] = {"amqp": build_amqp}
"""By the protocol's key in protocols.yaml."""
