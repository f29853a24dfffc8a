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
import re
from typing import TYPE_CHECKING, Final

from adapters.sqs.names import is_account
from auth.principal import DEFAULT_TENANT, name_fault
from kernel.common.limits import RESERVED_PREFIXES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gateway.config.path import Path
    from gateway.config.schema import Tenant

TENANTS_MAX: Final = 200
"""The meter keeps 20,000 active keys for all tenants: so many still have 100 each."""

VIRTUAL_HOST: Final = "amqp"
ACCOUNT: Final = "sqs"
NAMESPACE: Final = "rocketmq"

WORDS: Final[Mapping[str, str]] = {
    VIRTUAL_HOST: "virtual host",
    ACCOUNT: "account id",
    NAMESPACE: "namespace",
}
"""By protocol: its own word for a tenant."""

_ACCOUNT_ID: Final = re.compile(r"[0-9]{12}", re.ASCII)


def known_as(name: str, tenant: Tenant, protocol: str) -> str:
    """What a protocol calls a tenant."""
    return tenant.known_as.get(protocol, name)


def names_in(tenants: Mapping[str, Tenant], protocol: str) -> dict[str, str]:
    """The names of all tenants in a protocol, by tenant."""
    return {name: known_as(name, tenant, protocol) for name, tenant in tenants.items()}


def tenants_word(tenants: Mapping[str, Tenant]) -> str:
    """16 characters that are the same where tenants and their names in every protocol are, in
    whatever way the settings say so.
    """
    names = {protocol: names_in(tenants, protocol) for protocol in WORDS}
    spelled = json.dumps(names, sort_keys=True).encode()
    return hashlib.sha256(spelled).hexdigest()[:16]


def tenant_findings(
    tenants: Mapping[str, Tenant], changed: Sequence[Path]
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
            yield from _own_findings(name, tenant)
    for protocol, word in WORDS.items():
        taken: dict[str, str] = {}
        for name, shown in names_in(tenants, protocol).items():
            first = taken.setdefault(shown, name)
            if first != name:
                what = f"the {word} {shown!r} is that of the tenant {first} too"
                at = ("tenants", name)
                yield (
                    (*at, "known_as", protocol) if protocol in tenants[name].known_as else at,
                    what,
                )


def _own_findings(name: str, tenant: Tenant) -> Iterator[tuple[Path, str]]:
    at = ("tenants", name)
    fault = name_fault("tenant", name)
    if fault is None and name.startswith(RESERVED_PREFIXES):
        shown = ", ".join(RESERVED_PREFIXES)
        fault = f"the name of a tenant may not begin with {shown}: those are the server's"
    if fault is not None:
        yield at, fault
        return
    for protocol, shown in tenant.known_as.items():
        path = (*at, "known_as", protocol)
        word = WORDS.get(protocol)
        if protocol == "mqtt":
            yield path, f"MQTT has no word for a tenant: its users sign in as {name}:USER"
        elif word is None:
            yield path, f"is no protocol with a name for tenants; those are {', '.join(WORDS)}"
        elif protocol == ACCOUNT:
            if _ACCOUNT_ID.fullmatch(shown) is None:
                yield path, f"{shown!r} is no account id: that is 12 digits, in quotes"
        elif (fault := name_fault(word, shown)) is not None:
            yield path, fault
    if ACCOUNT not in tenant.known_as and not is_account(name):
        yield at, "needs known_as.sqs, 12 digits in quotes: SQS cannot spell the tenant's own name"
