"""Tenants as the settings name them: what each protocol calls them, and what may not be said.

    protocols.yaml                    AMQP            SQS             RocketMQ      MQTT
    tenants.default                   /               000000000000    (empty)       alice
    tenants.acme: {}                  acme            acme            acme          acme:alice
    tenants.acme.known_as.amqp: shop  shop            acme            acme          acme:alice

A name that is not given is the tenant's own. Users sign in as TENANT:USER in every protocol that
sends a login; an access key belongs to the user that it was made for.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from msgspec import to_builtins

from auth.principal import DEFAULT_TENANT, name_fault
from kernel.common.limits import RESERVED_PREFIXES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from adapters.base import Declaration, TenantWord
    from gateway.config.path import Path
    from gateway.config.schema import Limits, Tenant

TENANTS_MAX: Final = 200
"""The meter keeps 20,000 active keys for all tenants: so many still have 100 each."""


def known_as(name: str, tenant: Tenant, protocol: str) -> str:
    """What a protocol calls a tenant."""
    return tenant.known_as.get(protocol, name)


def names_in(tenants: Mapping[str, Tenant], protocol: str) -> dict[str, str]:
    """The names of all tenants in a protocol, by tenant."""
    return {name: known_as(name, tenant, protocol) for name, tenant in tenants.items()}


def words_in(declared: Mapping[str, Declaration]) -> dict[str, TenantWord]:
    """The words for a tenant, by the protocols that have one."""
    return {name: each.tenant for name, each in declared.items() if each.tenant is not None}


def settings_word(
    tenants: Mapping[str, Tenant], declared: Mapping[str, Declaration], limits: Limits
) -> str:
    """16 characters that are the same where tenants, their names in every protocol and all limits
    are that gateways share, in whatever way the settings say so. Without limits they are what
    builds have said that compared tenants alone.
    """
    names: dict[str, object] = {
        protocol: names_in(tenants, protocol) for protocol in words_in(declared)
    }
    shared = {**limits.tenants, **limits.users, **limits.topics}
    if shared:
        named = {"tenants": limits.tenants, "users": limits.users, "topics": limits.topics}
        names[""] = to_builtins(named)
    spelled = json.dumps(names, sort_keys=True).encode()
    return hashlib.sha256(spelled).hexdigest()[:16]


def tenant_findings(
    tenants: Mapping[str, Tenant], declared: Mapping[str, Declaration], changed: Sequence[Path]
) -> Iterator[tuple[Path, str]]:
    """Everything wrong with tenants, and where; `changed`: paths that are not as shipped."""
    for path in changed:
        if path[:2] == ("tenants", DEFAULT_TENANT):
            yield (
                path,
                "is fixed: the built-in tenant keeps its names; give another tenant this one",
            )
    if len(tenants) > TENANTS_MAX:
        yield ("tenants",), f"there are {len(tenants)}; at most {TENANTS_MAX} are allowed"
    for name, tenant in tenants.items():
        if name != DEFAULT_TENANT:
            yield from _own_findings(name, tenant, declared)
    for protocol, of_protocol in words_in(declared).items():
        taken: dict[str, str] = {}
        for name, shown in names_in(tenants, protocol).items():
            first = taken.setdefault(shown, name)
            if first != name:
                what = f"the {of_protocol.word} {shown!r} is that of the tenant {first} too"
                at = ("tenants", name)
                yield (
                    (*at, "known_as", protocol) if protocol in tenants[name].known_as else at,
                    what,
                )


def _own_findings(
    name: str, tenant: Tenant, declared: Mapping[str, Declaration]
) -> Iterator[tuple[Path, str]]:
    at = ("tenants", name)
    fault = name_fault("tenant", name)
    if fault is None and name.startswith(RESERVED_PREFIXES):
        shown = ", ".join(RESERVED_PREFIXES)
        fault = f"the name of a tenant may not begin with {shown}: those are the server's"
    if fault is not None:
        yield at, fault
        return
    words = words_in(declared)
    for protocol, shown in tenant.known_as.items():
        path = (*at, "known_as", protocol)
        word = words.get(protocol)
        if word is not None:
            fault = word.fault(shown) if word.fault is not None else name_fault(word.word, shown)
            if fault is not None:
                yield path, fault
        elif protocol in declared:
            title = declared[protocol].title
            yield path, f"{title} has no word for a tenant: its users sign in as {name}:USER"
        else:
            yield path, f"is no protocol with a name for tenants; those are {', '.join(words)}"
    for protocol, word in words.items():
        if protocol not in tenant.known_as and (fault := word.own_fault(name)) is not None:
            yield at, fault
