"""A document of definitions taken apart into things.

A thing is what one change makes: a tenant, a policy, a user, a key, limits, a topic with its
groups, a router, a route. They are applied in the order of KINDS, in which each refers to earlier
ones only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from adapters.definitions import (
    Definitions,
    KeyDefined,
    PolicyDefined,
    RouteDefined,
    RouterDefined,
    TenantDefined,
    TenantSettings,
    TopicDefined,
    UserDefined,
    said,
    size_defined,
    topic_size,
)
from kernel.api.model import TOPICS_ROUTER
from kernel.common.errors import Code, KernelError
from kernel.quotas.limits import EACH, Entity, Scope, settable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

KINDS: Final = ("tenants", "policies", "users", "keys", "limits", "topics", "routers", "routes")

SINGULAR: Final = {
    "tenants": "tenant",
    "policies": "policy",
    "users": "user",
    "keys": "key",
    "limits": "limits",
    "topics": "topic",
    "routers": "router",
    "routes": "route",
}
"""A kind, of one thing."""

Limited = dict[str, int]
Value = (
    TenantSettings
    | PolicyDefined
    | UserDefined
    | KeyDefined
    | Limited
    | TopicDefined
    | RouterDefined
    | RouteDefined
)


class Thing(NamedTuple):
    """What a document says of one name."""

    kind: str
    tenant: str
    """Empty: of no tenant, as the limits of a listener."""
    name: str
    value: Value
    source: str = ""
    """Of a route: the router that it is from."""


def chosen_kinds(text: str | None) -> frozenset[str]:
    """The kinds that a list such as `topics,routers` names; all of them without one. Raises
    KernelError INVALID_ARGUMENT.
    """
    if text is None:
        return frozenset(KINDS)
    asked = frozenset(text.split(","))
    for unknown in sorted(asked - frozenset(KINDS)):
        message = f"there is no kind {unknown!r} of definitions; there are {', '.join(KINDS)}"
        raise KernelError(Code.INVALID_ARGUMENT, message)
    return asked


def things_of(document: Definitions, kinds: Collection[str]) -> Iterator[Thing]:
    """The things of a document that are of these kinds, in the order of KINDS."""
    for kind in KINDS:
        if kind not in kinds:
            continue
        if kind == "limits":
            yield from (Thing(kind, "", name, each) for name, each in document.limits.items())
        for tenant, defined in document.tenants.items():
            yield from _of_tenant(kind, tenant, defined)


def _of_tenant(kind: str, tenant: str, defined: TenantDefined) -> Iterator[Thing]:
    if kind == "tenants":
        if defined.tenant is not None:
            yield Thing(kind, tenant, tenant, defined.tenant)
        return
    if kind != "routes":
        for name, value in getattr(defined, kind).items():
            # Built in: a document says its routes.
            if kind != "routers" or name != TOPICS_ROUTER:
                yield Thing(kind, tenant, name, value)
        return
    for name, router in defined.routers.items():
        for route in router.routes:
            yield Thing(kind, tenant, route_name(name, route), route, name)


def route_name(router: str, route: RouteDefined) -> str:
    """A route for people: from where to where, and by what; no other of a tenant is called so."""
    to = f"topic {route.topic}" if route.topic is not None else f"router {route.router}"
    rest = {
        name: each for name, each in said(route).items() if name not in {"key", "topic", "router"}
    }
    more = f" {msgspec.json.encode(rest, order='sorted').decode()}" if rest else ""
    return f"{router} {route.key!r} to {to}{more}"


# --- Limits -----------------------------------------------------------------------------------


def entity_of(tenant: str, name: str) -> Entity:
    """Whose limits a name of a document means. Raises ValueError."""
    word, colon, rest = name.partition(":")
    scope = settable(word)
    if scope is Scope.LISTENER and not tenant and all(rest.partition(".")):
        return Entity(scope, "", rest)
    if scope is Scope.TENANT and not tenant and rest == EACH:
        return Entity(scope, EACH, "")
    if scope is Scope.TENANT and tenant and not colon:
        return Entity(scope, tenant, "")
    if scope in {Scope.USER, Scope.TOPIC} and tenant and rest:
        return Entity(scope, tenant, rest)
    raise ValueError(name)


def spelled_entity(entity: Entity) -> tuple[str, str]:
    """(tenant, name) of limits in a document: the inverse of `entity_of`."""
    scope, tenant, name = entity
    if scope is Scope.LISTENER:
        return "", f"{scope.value}:{name}"
    if scope is Scope.TENANT:
        return ("", f"{scope.value}:{EACH}") if tenant == EACH else (tenant, scope.value)
    return tenant, f"{scope.value}:{name}"


def plain(value: Value) -> dict[str, Any]:
    """A thing's settings as JSON says them, by name; without defaults."""
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, TopicDefined) and value.size is not None:
        # The name of a class and its figures are the same.
        in_figures = size_defined(topic_size(value.size, 0))
        value = msgspec.structs.replace(value, size=in_figures)
    found = said(value)
    found.pop("routes", None)
    return found
