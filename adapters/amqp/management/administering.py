"""What the management API has of /api/v1: asked on behalf of the caller, with the rights that are
asked for there, and refused with the same reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from adapters.amqp.management.requests import Refused, bad_request, not_authorised
from adapters.definitions import FORMAT, Definitions, TenantDefined

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.amqp.management.requests import Asked

NOTHING: Final[Mapping[str, str]] = {}

_NOT_THERE: Final = 404
_DONE: Final = frozenset({200, 201, 202, 204})
_PARTLY: Final = 207


def part(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


async def ask(
    asked: Asked,
    method: str,
    path: str,
    body: object = None,
    query: Mapping[str, str] = NOTHING,
    *,
    of_own: bool = False,
) -> tuple[int, Any]:
    """Status and answer of a request that was carried out; `of_own`: it is about what is the
    caller's own, who needs no right for it. Raises Refused.
    """
    data = b"" if body is None else msgspec.json.encode(body)
    administration = asked.broker.administration
    rights = None if of_own else asked.own
    status, answer = await administration.ask(rights, method, path, query, data)
    found: Any = msgspec.json.decode(answer) if answer else None
    if status in _DONE:
        return status, found
    if status == _PARTLY:
        faults = found["faults"]
        failed = "; ".join(f"{each['kind']} {each['name']}: {each['reason']}" for each in faults)
        raise Refused(500, "internal_error", f"not all of it was done: {failed}")
    reason = str(found["error"]["message"])
    if status == 403:
        raise not_authorised(reason)
    if status == _NOT_THERE:
        raise Refused(404, "Object Not Found", reason)
    if status == 400:
        raise bad_request(reason)
    raise Refused(status, str(found["error"]["code"]), reason)


async def removed(asked: Asked, path: str, query: Mapping[str, str] = NOTHING) -> bool:
    """Remove something; False: it was not there. Raises Refused."""
    try:
        await ask(asked, "DELETE", path, None, query)
    except Refused as refused:
        if refused.status != _NOT_THERE:
            raise
        return False
    return True


async def defined(asked: Asked, tenant: str, kinds: str, name: str | None = None) -> TenantDefined:
    """What a tenant has of some kinds, parted by commas, or what is called so. Raises Refused."""
    query = {"only": kinds, "tenant": tenant}
    if name is not None:
        query["name"] = name
    _, found = await ask(asked, "GET", "/definitions", None, query)
    document = msgspec.convert(found, Definitions)
    return document.tenants.get(tenant, TenantDefined())


async def apply(asked: Asked, tenant: str, kinds: str, wanted: TenantDefined) -> None:
    """Have a tenant have this too. Raises Refused: nothing was done, or not all of it."""
    document = Definitions(format=FORMAT, tenants={tenant: wanted})
    await ask(asked, "POST", "/definitions", document, {"only": kinds, "tenant": tenant})


def administered(asked: Asked) -> list[tuple[str, str]]:
    """(tenant, virtual host) of all that the caller administers. Raises Refused 401: none."""
    found = [(tenant, host) for tenant, host in asked.tenants() if asked.administers(tenant)]
    if not found:
        raise not_authorised("Not administrator user")
    return found


def tenant_administered(asked: Asked, host: str) -> str:
    """The tenant of a virtual host that the caller administers. Raises Refused 401, 404."""
    tenant = asked.tenant_named(host)
    if not asked.administers(tenant):
        raise not_authorised("Not administrator user")
    return tenant
