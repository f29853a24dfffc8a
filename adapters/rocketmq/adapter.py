"""What the rest of Weir knows about the RocketMQ adapter (`adapters.base.Declaration`).

gRPC is imported when the adapter is made or what it wrote is read: it costs 12 MB and 0.1 s, which
a process without RocketMQ need not pay.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from adapters.base import WEIR, Declaration, LoginKind, TenantWord, Trial
from adapters.rocketmq.origin import ORIGIN_BYTE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from adapters.base import (
        Adapter,
        GroupDefaults,
        ListenerSettings,
        ProtocolSettings,
        Services,
        TopicTypes,
    )
    from kernel.api.origins import OriginReader


def _quieten_grpc() -> None:
    """Before anything imports gRPC: what it would write to stderr in a format of its own, the
    adapter tells or the client hears.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def make(services: Services) -> Adapter:
    """The adapter, from its entry in protocols.yaml."""
    _quieten_grpc()
    import msgspec

    from adapters.rocketmq.server import GrpcListener, RocketmqAdapter
    from adapters.rocketmq.settings import RocketmqSettings

    listeners = services.settings.open_listeners()
    values = services.settings.values()
    directory = services.users.directory
    # The file has no word for "any": there 0 stands for it.
    skew_ms_max = values["sign_in_skew_ms_max"] or None
    settings = msgspec.convert(
        {
            **values,
            "sign_in_skew_ms_max": skew_ms_max,
            "advertised": {
                name: each.advertised for name, each in listeners.items() if each.advertised
            },
            "is_loopback": directory.has_development,
        },
        RocketmqSettings,
    )
    # Not converted, which would copy the names of now.
    settings = replace(settings, namespaces=services.tenants_named)
    return RocketmqAdapter(
        services.client,
        services.client.origins,
        directory,
        services.users.policies,
        [
            GrpcListener(
                name,
                each.host,
                each.port,
                services.certificate() if each.tls else None,
                plain_too=each.plain_too,
                renewed=services.certificate,
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
        meter=services.meter,
        memory=services.memory,
        quotas=services.quotas,
    )


def reader() -> OriginReader:
    """Of what RocketMQ clients wrote."""
    _quieten_grpc()
    from adapters.rocketmq.messages.stored import ORIGIN

    return ORIGIN


def listener_faults(listener: ListenerSettings) -> Iterator[tuple[str, str]]:
    """gRPC asks every client of a listener for a certificate, or none."""
    asked = listener.client_certificate
    if asked == "optional" or (asked == "required" and listener.plain_too):
        yield (
            "client_certificate",
            "is `none` or, with `plain_too: false`, `required` in RocketMQ",
        )


def topic_types() -> TopicTypes:
    """The message types of topics."""
    from adapters.rocketmq.topics.made_by_hand import TYPES

    return TYPES


def group_defaults(settings: ProtocolSettings) -> GroupDefaults:
    """Groups made by hand are as those that RocketMQ's clients make by use."""
    from adapters.rocketmq.topics.made_by_hand import Groups

    return Groups(settings)


ROCKETMQ: Final = Declaration(
    name="rocketmq",
    title="RocketMQ",
    origin=ORIGIN_BYTE,
    make=make,
    reader=reader,
    tenant=TenantWord(word="namespace", shown_as="namespace"),
    login=LoginKind.ACCESS_KEY,
    trials=(
        Trial(
            WEIR,
            "grpc",
            "{weir} bench rocketmq --url rocketmq://weir:weir-secret@{address} --duration 5",
        ),
    ),
    leases_are_timed=True,
    reads_plain_too=True,
    listener_faults=listener_faults,
    topic_types=topic_types,
    group_defaults=group_defaults,
)
