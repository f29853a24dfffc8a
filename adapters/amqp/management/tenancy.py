"""Virtual hosts made and removed, limits of virtual hosts and users, over the management API.

max-connections     connections
max-queues          topics        (of a virtual host)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from adapters.amqp.importing.rabbit_definitions import LIMITS
from adapters.amqp.management.administering import (
    administered,
    ask,
    defined,
    part,
    removed,
    tenant_administered,
)
from adapters.amqp.management.people import login_of, named_user
from adapters.amqp.management.requests import Answer, Asked, Refused, bad_request, not_found

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_TENANT: Final = "tenant"
_OF_USER: Final = "user:"
_NAMES: Final = {kind: name for name, kind in LIMITS.items()}

_QUEUE_TYPES: Final = frozenset({None, "", "undefined", "classic", "quorum"})
"""Of which clients cannot tell one from the other."""


# --- Virtual hosts ----------------------------------------------------------------------------


async def put_virtual_host(asked: Asked) -> Answer:
    """Make a tenant of that name; 204 if it is there."""
    body, host = asked.read(), asked.names["vhost"]
    for name in ("description", "tags", "metadata", "tracing"):
        if body.get(name):
            raise bad_request(f"a virtual host has no {name} here")
    if body.get("default_queue_type") not in _QUEUE_TYPES:
        raise bad_request(f"there is no queue type {body['default_queue_type']!r}")
    if any(host == known for _, known in asked.tenants()):
        return Answer(204)
    await ask(asked, "POST", "/tenants", {"name": host})
    return Answer(201)


async def delete_virtual_host(asked: Asked) -> Answer:
    """Remove a tenant with all that it has: begun when this is answered (ADR 33)."""
    tenant = tenant_administered(asked, asked.names["vhost"])
    if not await removed(asked, f"/tenants/{part(tenant)}"):
        raise not_found()
    return Answer(204)


# --- Limits -----------------------------------------------------------------------------------


async def list_host_limits(asked: Asked) -> Answer:
    """Of all virtual hosts that the caller administers, or of one."""
    return Answer(200, await host_limits(asked))


async def host_limits(asked: Asked) -> list[dict[str, Any]]:
    """Rows of the virtual hosts that have some."""
    named = asked.names.get("vhost")
    hosts = administered(asked) if named is None else [(tenant_administered(asked, named), named)]
    rows = []
    for tenant, host in hosts:
        limits = (await defined(asked, tenant, "limits", _OF_TENANT)).limits
        value = _value(limits.get(_OF_TENANT, {}))
        if value:
            rows.append({"vhost": host, "value": value})
    return rows


async def put_host_limit(asked: Asked) -> Answer:
    """Set one."""
    tenant = tenant_administered(asked, asked.names["vhost"])
    await ask(asked, "PATCH", f"/limits/tenant/{part(tenant)}", _told(asked, LIMITS))
    return Answer(204)


async def delete_host_limit(asked: Asked) -> Answer:
    """Lift one."""
    tenant = tenant_administered(asked, asked.names["vhost"])
    await ask(asked, "PATCH", f"/limits/tenant/{part(tenant)}", {_kind(asked, LIMITS): None})
    return Answer(204)


_OF_USERS: Final = {name: kind for name, kind in LIMITS.items() if kind == "connections"}
"""A user has no topics."""


async def list_user_limits(asked: Asked) -> Answer:
    """Of all users that the caller administers, or of one."""
    found = await limits_by_user(asked)
    return Answer(200, [{"user": login, "value": value} for login, value in found.items()])


async def limits_by_user(asked: Asked) -> dict[str, dict[str, int]]:
    """Limits of those that have some, by login."""
    rows = {}
    if "user" in asked.names:
        tenant, _, name = named_user(asked, asked.names["user"])
        limits = (await defined(asked, tenant, "limits", _OF_USER + name)).limits
        found = [(tenant, limits)]
    else:
        found = [
            (tenant, (await defined(asked, tenant, "limits")).limits)
            for tenant, _ in administered(asked)
        ]
    for tenant, limits in found:
        for entity, kinds in limits.items():
            value = _value(kinds)
            if entity.startswith(_OF_USER) and value:
                login = login_of(tenant, entity.removeprefix(_OF_USER))
                rows[login] = value
    return rows


async def put_user_limit(asked: Asked) -> Answer:
    """Set one."""
    await _change_user(asked, _told(asked, _OF_USERS))
    return Answer(204)


async def delete_user_limit(asked: Asked) -> Answer:
    """Lift one."""
    await _change_user(asked, {_kind(asked, _OF_USERS): None})
    return Answer(204)


async def _change_user(asked: Asked, changes: Mapping[str, int | None]) -> None:
    tenant, _, name = named_user(asked, asked.names["user"])
    users = (await defined(asked, tenant, "users", name)).users
    if name not in users:
        raise Refused(404, "Object Not Found", f"there is no user {asked.names['user']}")
    await ask(asked, "PATCH", f"/limits/user/{part(name)}", changes, {"tenant": tenant})


def _value(kinds: Mapping[str, int]) -> dict[str, int]:
    """Limits as RabbitMQ calls them; those that it does not have are left out."""
    return {_NAMES[kind]: limit for kind, limit in kinds.items() if kind in _NAMES}


def _kind(asked: Asked, known: Mapping[str, str]) -> str:
    kind = known.get(asked.names["limit"])
    if kind is None:
        there = ", ".join(known)
        raise bad_request(f"the limit {asked.names['limit']} has no equal here; there are {there}")
    return kind


def _told(asked: Asked, known: Mapping[str, str]) -> dict[str, int | None]:
    value: Any = asked.read(["value"])["value"]
    if not isinstance(value, int) or isinstance(value, bool) or value < -1 or value == 0:
        raise bad_request("value is a whole number from 1, or -1: no limit")
    return {_kind(asked, known): None if value == -1 else value}
