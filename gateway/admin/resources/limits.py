"""Limits over HTTP: what is set, by whom, and what of it is used at this process.

    GET    /limits?tenant=                of one tenant, or (without, who administers the node) all
    PATCH  /limits/SCOPE/NAME?tenant=     set or (null) lift some limits; the others stay
    DELETE /limits/SCOPE/NAME?tenant=     what was set so is gone; the settings hold again

SCOPE is tenant, user, topic or listener. A tenant is named by NAME alone; `*` is each tenant, or
each user of the tenant, that has no limits of its own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct

from auth.principal import name_fault
from gateway.admin.http.callers import caller_of, tenant_asked
from gateway.admin.http.requests import answer, nothing, path_name, read_body
from kernel.common.errors import Code, KernelError
from kernel.common.limits import NAME_BYTES_MAX
from kernel.quotas.accounts import Used
from kernel.quotas.limits import EACH, KINDS, PER_SECOND, Entity, LimitKind, Scope, settable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from starlette.requests import Request
    from starlette.responses import Response

    from gateway.access.limit_records import LimitRecords
    from kernel.api.client import Client
    from kernel.quotas.accounts import Quotas

LOOK_SECONDS = 1.0
"""What is used a second is what is used in this one."""

ROWS_MAX = 10_000
"""Of what is used: with a limit of each user there may be one for every user that is there."""


class LimitShown(Struct, frozen=True):
    scope: str
    tenant: str
    name: str
    limits: dict[str, int]
    origin: str
    """`settings`; `record`: set at run time."""


LimitChanges = dict[str, int | None]
"""Some limits of one by name: null lifts one, and what is left out stays."""


class LimitUsed(Struct, frozen=True):
    """What is used of one limit, at this process."""

    scope: str
    tenant: str
    name: str
    kind: str
    limit: int
    used: int
    """A second, of what is counted by the second."""
    share: float
    """How much of the limit this process may use; the others have the rest of it."""


class LimitedCount(Struct, frozen=True):
    """What a limit has done since this process was started."""

    tenant: str
    limit: str
    outcome: str
    count: int


class LimitList(Struct, frozen=True):
    limits: list[LimitShown]
    used: list[LimitUsed]
    limited: list[LimitedCount]


class LimitRoutes:
    """Handlers of limits."""

    def __init__(
        self,
        records: LimitRecords,
        quotas: Quotas,
        client: Client,
        tenants: Callable[[], Iterable[str]],
    ) -> None:
        """`tenants()`: those whose topics are counted though only `*` limits them."""
        self._records = records
        self._quotas = quotas
        self._client = client
        self._tenants = tenants

    async def list_limits(self, request: Request) -> Response:
        """Limits, what of them was used in the next second, and what they have done. Who
        administers the node and names no tenant sees all, others those of the tenant.
        """
        asked = _tenant_shown(request)
        before = {(each.entity, each.kind): each.amount for each in self._quotas.used()}
        await asyncio.sleep(LOOK_SECONDS)
        used = [
            LimitUsed(
                each.entity.scope.value,
                each.entity.tenant,
                each.entity.name,
                each.kind.value,
                each.limit,
                each.amount - before.get((each.entity, each.kind), 0)
                if each.kind in PER_SECOND
                else each.amount,
                each.share,
            )
            for each in (*self._quotas.used(), *self._defined())
            if asked is None or each.entity.tenant == asked
        ]
        busiest = sorted(used, key=lambda each: each.used / each.limit, reverse=True)
        counts = sorted(self._quotas.counts.items(), key=lambda each: each[1], reverse=True)
        records = self._records
        shown = [
            *self._shown(records.records, "record"),
            *self._shown(records.seeds.keys() - records.records.keys(), "settings"),
        ]
        return answer(
            LimitList(
                [each for each in shown if asked is None or _holds_for(each, asked)],
                busiest[:ROWS_MAX],
                [
                    LimitedCount(tenant, limit, outcome.value, count)
                    for (tenant, limit, outcome), count in counts
                    if asked is None or tenant == asked
                ],
            )
        )

    def _defined(self) -> Iterator[Used]:
        """How many topics and groups there are of tenants that may have so many."""
        named = {each.tenant for each in self._quotas.limits() if each.scope is Scope.TENANT}
        for tenant in sorted({*named, *self._tenants()} - {EACH}):
            limits = self._quotas.of_tenant(tenant)
            if limits.topics is None and limits.groups is None:
                continue
            groups = [
                len(each.groups) for each in self._client.topics(tenant) if each.options.durable
            ]
            for kind, amount in ((LimitKind.TOPICS, len(groups)), (LimitKind.GROUPS, sum(groups))):
                limit = limits.of(kind)
                if limit is not None:
                    yield Used(Entity(Scope.TENANT, tenant, ""), kind, limit, amount, 1.0, 0)

    def _shown(self, entities: Iterable[Entity], origin: str) -> list[LimitShown]:
        found = {**self._records.seeds, **self._records.records}
        return [
            LimitShown(each.scope.value, each.tenant, each.name, found[each].named(), origin)
            for each in sorted(entities, key=lambda each: (each[0].value, *each[1:]))
        ]

    async def change_limit(self, request: Request) -> Response:
        """Set some limits of one."""
        entity = _entity(request)
        changes = await read_body(request, LimitChanges)
        rates = await self._records.alter(entity, changes, str(caller_of(request)))
        scope, tenant, name = entity
        return answer(LimitShown(scope.value, tenant, name, rates.named(), "record"))

    async def delete_limit(self, request: Request) -> Response:
        """Forget what was set at run time."""
        await self._records.remove(_entity(request), str(caller_of(request)))
        return nothing()


def _tenant_shown(request: Request) -> str | None:
    """The only tenant whose limits the caller wants to see, or may; None: all."""
    is_named = "tenant" in request.query_params
    return tenant_asked(request) if is_named or not caller_of(request).administers_node else None


def _holds_for(shown: LimitShown, tenant: str) -> bool:
    """Whether a limit may hold for a tenant. One of a listener is the node's."""
    is_each = shown.scope == Scope.TENANT.value and shown.tenant == EACH
    return is_each or (shown.tenant == tenant and shown.scope != Scope.LISTENER.value)


def _entity(request: Request) -> Entity:
    """Whose limits a request is about. Raises KernelError INVALID_ARGUMENT, NOT_FOUND."""
    name = path_name(request, "name")
    try:
        scope = settable(path_name(request, "scope"))
    except ValueError:
        scopes = ", ".join(each.value for each in KINDS)
        raise KernelError(Code.NOT_FOUND, f"limits are of a {scopes}") from None
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        raise KernelError(Code.INVALID_ARGUMENT, f"a name has 1 to {NAME_BYTES_MAX} bytes")
    if scope is Scope.LISTENER:
        if not all(name.partition(".")):
            raise KernelError(Code.INVALID_ARGUMENT, "a listener is PROTOCOL.NAME, as amqp.tcp")
        return Entity(scope, "", name)
    tenant = name if scope is Scope.TENANT else tenant_asked(request)
    fault = None if tenant == EACH and scope is Scope.TENANT else name_fault("tenant", tenant)
    if fault is not None:
        raise KernelError(Code.INVALID_ARGUMENT, fault)
    if scope is Scope.TOPIC and name == EACH:
        raise KernelError(Code.INVALID_ARGUMENT, "a limit of topics names one")
    return Entity(scope, tenant, "" if scope is Scope.TENANT else name)
