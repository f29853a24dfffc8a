"""Makes each protocol's adapter from the settings: the one place that knows every adapter."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import gateway
from adapters.amqp.handshake import AmqpSettings
from adapters.amqp.server import AmqpAdapter
from adapters.base import ListenerAddress
from adapters.mqtt.access.plugins import load_plugins
from adapters.mqtt.access.sign_in import StoreSignIn
from adapters.mqtt.environment import MqttSettings
from adapters.mqtt.server import MqttAdapter
from adapters.sqs.server import SqsAdapter
from adapters.sqs.settings import SqsSettings
from auth.principal import SignInMode
from auth.sigv4 import SigV4Verifier
from auth.tls import read_pem_pair, server_context
from gateway.config.tenants import ACCOUNT, NAMESPACE, VIRTUAL_HOST, names_in
from gateway.serving.origins import quieten_grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from ssl import SSLContext

    from adapters.base import Adapter, TrafficMeter
    from adapters.memory import GatewayMemory
    from auth.policy import Access
    from auth.records import AccessKey
    from auth.tls import CertificateFiles
    from gateway.access.identity import Identity
    from gateway.access.tls_failures import TlsFailures
    from gateway.config.schema import Protocol, Tenant
    from gateway.reporting.node_metering import NodeMetering
    from kernel.api.client import Client
    from kernel.common.ports import Clock, Random


@dataclass(frozen=True, slots=True)
class Services:
    """What every adapter is made of."""

    client: Client
    identity: Identity
    clock: Clock
    random: Random
    tls: Callable[[], CertificateFiles]
    """Where the certificate of this node's TLS listeners is; made when first asked for."""
    client_authority: Path | None
    """Who signs the certificates of clients."""
    tls_failures: TlsFailures
    memory: GatewayMemory
    """What clients of all protocols together may make this process hold."""
    tenants: Mapping[str, Tenant]
    """As the settings name them."""
    metering: NodeMetering | None = None
    """None: switched off."""

    def meter(self, protocol: str) -> TrafficMeter | None:
        """The meter of a protocol's adapter."""
        return None if self.metering is None else self.metering.traffic(protocol)


def addresses_of(key: str, protocol: Protocol, services: Services) -> list[ListenerAddress]:
    """Where a protocol's open listeners bind; `key`: its own in protocols.yaml."""

    def context(name: str, asks: str) -> SSLContext:
        made = server_context(
            services.tls(),
            client_authority=None if asks == "none" else services.client_authority,
            is_demanded=asks == "required",
        )
        return services.tls_failures.watch(made, f"{key}.{name}")

    return [
        ListenerAddress(
            name,
            each.host,
            each.port,
            context(name, each.client_certificate) if each.tls else None,
        )
        for name, each in protocol.open_listeners().items()
    ]


def build_amqp(protocol: Protocol, services: Services) -> Adapter:
    """The AMQP adapter."""
    values = protocol.values()
    settings = msgspec.convert(
        {
            **values,
            "version": values["version"] or gateway.__version__,
            "virtual_hosts": names_in(services.tenants, VIRTUAL_HOST),
        },
        AmqpSettings,
    )
    return AmqpAdapter(
        services.client,
        services.client.origins,
        services.identity,
        addresses_of("amqp", protocol, services),
        clock=services.clock,
        random=services.random,
        settings=settings,
        meter=services.meter("amqp"),
        memory=services.memory,
    )


def build_sqs(protocol: Protocol, services: Services) -> Adapter:
    """The SQS adapter."""
    directory = services.identity.directory
    policies = services.identity.policies
    mode = SignInMode(protocol.text("sign_in"))

    def rights_of(key: AccessKey) -> Access | None:
        principal = directory.principal_of(key)
        return None if principal is None else policies.access(principal)

    settings = SqsSettings(
        sign_in=mode,
        connections_max=protocol.limit("connections_max"),
        idle_timeout_s=protocol.limit("idle_timeout_s"),
        queue_count=protocol.limit("queue_count"),
        deleted_recently=protocol.flag("deleted_recently"),
        accounts=names_in(services.tenants, ACCOUNT),
        advertised={
            # A queue's path begins with the slash.
            name: each.advertised.rstrip("/")
            for name, each in protocol.open_listeners().items()
            if each.advertised
        },
    )
    return SqsAdapter(
        services.client,
        services.client,
        SigV4Verifier(directory.access_key, directory.secret_of, mode),
        rights_of,
        addresses_of("sqs", protocol, services),
        settings,
        clock=services.clock,
        random=services.random,
        meter=services.meter("sqs"),
        memory=services.memory,
    )


def build_rocketmq(protocol: Protocol, services: Services) -> Adapter:
    """The RocketMQ adapter."""
    quieten_grpc()
    # Here, because gRPC costs 12 MB and 0.1 s at start, which a node without RocketMQ need not pay.
    from adapters.rocketmq.server import GrpcListener, RocketmqAdapter
    from adapters.rocketmq.settings import RocketmqSettings

    listeners = protocol.open_listeners()
    values = protocol.values()
    advertised = {name: each.advertised for name, each in listeners.items() if each.advertised}
    # The file has no word for "any": there 0 stands for it.
    skew_ms_max = values["sign_in_skew_ms_max"] or None
    settings = msgspec.convert(
        {
            **values,
            "sign_in_skew_ms_max": skew_ms_max,
            "advertised": advertised,
            "is_loopback": services.identity.directory.has_development,
            "namespaces": {
                namespace: tenant
                for tenant, namespace in names_in(services.tenants, NAMESPACE).items()
            },
        },
        RocketmqSettings,
    )
    return RocketmqAdapter(
        services.client,
        services.client.origins,
        services.identity.directory,
        services.identity.policies,
        [
            GrpcListener(
                name,
                each.host,
                each.port,
                read_pem_pair(services.tls()) if each.tls else None,
                plain_too=each.plain_too,
                client_authority=(
                    services.client_authority.read_bytes()
                    if services.client_authority is not None
                    and each.client_certificate == "required"
                    else None
                ),
            )
            for name, each in listeners.items()
        ],
        clock=services.clock,
        settings=settings,
        meter=services.meter("rocketmq"),
        memory=services.memory,
    )


def build_mqtt(protocol: Protocol, services: Services) -> Adapter:
    """The MQTT adapter."""
    values = protocol.values()
    plugins = protocol.text("amqtt_plugins")
    return MqttAdapter(
        services.client,
        load_plugins(Path(plugins))
        if plugins
        else StoreSignIn(services.identity, protocol.text("anonymous_user")),
        addresses_of("mqtt", protocol, services),
        clock=services.clock,
        random=services.random,
        settings=msgspec.convert({**values, "session": values}, MqttSettings),
        meter=services.meter("mqtt"),
        version=gateway.__version__,
        memory=services.memory,
    )


BUILDERS: dict[str, Callable[[Protocol, Services], Adapter]] = {
    "amqp": build_amqp,
    "mqtt": build_mqtt,
    "rocketmq": build_rocketmq,
    "sqs": build_sqs,
}
"""By the protocol's key in protocols.yaml."""
