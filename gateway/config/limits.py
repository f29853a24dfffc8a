"""Limits as the settings name them: of tenants, users, topics and listeners.

limits.tenants.acme            what the tenant acme may use
limits.tenants."*"             what each tenant may use that is not named
limits.users."acme:bob"        what one user may
limits.users."acme:*"          what each user of acme may that is not named
limits.topics."acme:orders"    what may be written to one topic, or got from it
limits.listeners."mqtt.tcp"    what may come in by one listener
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import asdict

from auth.principal import name_fault
from kernel.common.limits import NAME_BYTES_MAX
from kernel.quotas.limits import EACH, Entity, LimitSet, Scope

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gateway.config.path import Path
    from gateway.config.schema import Limits, Protocol, Settings, TrafficLimits


def quotas_of(limits: Limits) -> dict[Entity, LimitSet]:
    """The limits as the kernel takes them."""
    by_entity: dict[Entity, TrafficLimits] = {
        **{Entity(Scope.TENANT, tenant, ""): each for tenant, each in limits.tenants.items()},
        **{Entity(Scope.USER, *_split(named)): each for named, each in limits.users.items()},
        **{Entity(Scope.TOPIC, *_split(named)): each for named, each in limits.topics.items()},
        **{Entity(Scope.LISTENER, "", name): each for name, each in limits.listeners.items()},
    }
    return {entity: LimitSet(**asdict(each)) for entity, each in by_entity.items()}


def limits_findings(settings: Settings) -> Iterator[tuple[Path, str]]:
    """Everything wrong with limits, and where."""
    limits = settings.limits
    for tenant in limits.tenants:
        fault = None if tenant == EACH else name_fault("tenant", tenant)
        if fault is not None:
            yield ("limits", "tenants", tenant), fault
    yield from _named_findings("users", limits.users)
    yield from _named_findings("topics", limits.topics)
    for listener in limits.listeners:
        protocol, _, name = listener.partition(".")
        if name not in _listeners(settings.protocols.get(protocol)):
            yield (
                ("limits", "listeners", listener),
                "is no listener: one is PROTOCOL.NAME, as amqp.tcp",
            )


def _named_findings(
    section: str, entries: Mapping[str, TrafficLimits]
) -> Iterator[tuple[Path, str]]:
    for named in entries:
        path = ("limits", section, named)
        tenant, name = _split(named)
        fault = name_fault("tenant", tenant)
        if ":" not in named or not name:
            yield path, "names none: that is TENANT:NAME, as default:orders"
        elif fault is not None:
            yield path, fault
        elif len(name.encode()) > NAME_BYTES_MAX:
            yield path, f"a name has at most {NAME_BYTES_MAX} bytes"
        elif section == "topics" and name == EACH:
            yield path, "is for users and tenants: a limit of topics names one"


def _split(named: str) -> tuple[str, str]:
    tenant, _, name = named.partition(":")
    return tenant, name


def _listeners(protocol: Protocol | None) -> Mapping[str, object]:
    return protocol.listeners if protocol is not None else {}
