"""What the rest of Weir knows about the AMQP adapter (`adapters.base.Declaration`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from adapters.amqp.origin import ORIGIN_BYTE
from adapters.base import WEIR, Declaration, TenantWord, Trial

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.amqp.handshake import AmqpSettings
    from adapters.base import Adapter, Administration, Application, Services
    from adapters.definitions import Foreign
    from kernel.api.model import RouterOptions
    from kernel.api.origins import OriginReader


def _settings(services: Services) -> AmqpSettings:
    import msgspec

    from adapters.amqp.handshake import AmqpSettings

    values = services.settings.values()
    settings = msgspec.convert(
        {**values, "version": values["version"] or services.version}, AmqpSettings
    )
    # Not converted, which would copy the names of now.
    return replace(settings, virtual_hosts=services.tenant_names)


def management(services: Services, adapter: Adapter, administration: Administration) -> Application:
    """RabbitMQ's management API."""
    from adapters.amqp.management.application import Management

    return Management(services, adapter, _settings(services), administration)


def make(services: Services) -> Adapter:
    """The adapter, from its entry in protocols.yaml."""
    from adapters.amqp.server import AmqpAdapter

    return AmqpAdapter(
        services.client,
        services.client.origins,
        services.users,
        services.listeners(),
        clock=services.clock,
        random=services.random,
        settings=_settings(services),
        meter=services.meter,
        memory=services.memory,
        quotas=services.quotas,
    )


def reader() -> OriginReader:
    """Of what AMQP clients wrote."""
    from adapters.amqp.messages.stored import AMQP_ORIGIN

    return AMQP_ORIGIN


def predeclared() -> Mapping[str, RouterOptions]:
    """The exchanges that every virtual host has."""
    from adapters.amqp.names import PREDECLARED
    from adapters.amqp.topology import exchanges

    return {name: exchanges.predeclared(name).router_options() for name in PREDECLARED}


def definitions(data: bytes, tenants: Mapping[str, str]) -> Foreign | None:
    """What RabbitMQ's definitions.json defines."""
    from adapters.amqp.importing.rabbit_definitions import read

    return read(data, tenants)


AMQP: Final = Declaration(
    name="amqp",
    title="AMQP",
    origin=ORIGIN_BYTE,
    make=make,
    reader=reader,
    tenant=TenantWord(word="virtual host", shown_as="virtual_host"),
    trials=(
        Trial(WEIR, "tcp", "{weir} bench amqp --url amqp://guest:guest@{address}/%2f --duration 5"),
    ),
    tells_address_only_to_move=True,
    predeclared=predeclared,
    definitions=definitions,
    management=management,
)
