"""Limits over HTTP: what is set, by whom, and what of it is used at this process.

    GET    /limits
    PATCH  /limits/SCOPE/NAME?tenant=     set or (null) lift some limits; the others stay
    DELETE /limits/SCOPE/NAME?tenant=     what was set so is gone; the settings hold again

SCOPE is tenant, user, topic or listener. A tenant is named by NAME alone; `*` is each tenant, or
each user of the tenant, that has no limits of its own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.routing import Route

from auth.principal import name_fault
from gateway.admin.http.callers import caller_of, tenant_asked
from gateway.admin.http.requests import answer, nothing, path_name, read_body
from kernel.common.errors import Code, KernelError
from kernel.common.limits import NAME_BYTES_MAX
from kernel.quotas.rates import EACH, PER_SECOND, Scope, Whose

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request
    from starlette.responses import Response

    from gateway.access.limit_records import LimitRecords
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

    def __init__(self, records: LimitRecords, quotas: Quotas) -> None:
        self._records = records
        self._quotas = quotas

    def routes(self) -> list[Route]:
        """Path, method and handler of each."""
        return [
            Route("/limits", self.list_limits, methods=["GET"]),
            Route("/limits/{scope}/{name}", self.change_limit, methods=["PATCH"]),
            Route("/limits/{scope}/{name}", self.delete_limit, methods=["DELETE"]),
        ]

    async def list_limits(self, _request: Request) -> Response:
        """All limits, what of them was used in the next second, and what they have done."""
        before = {(each.whose, each.kind): each.amount for each in self._quotas.used()}
        await asyncio.sleep(LOOK_SECONDS)
        used = [
            LimitUsed(
                each.whose.scope.value,
                each.whose.tenant,
                each.whose.name,
                each.kind.value,
                each.limit,
                each.amount - before.get((each.whose, each.kind), 0)
                if each.kind in PER_SECOND
                else each.amount,
                each.share,
            )
            for each in self._quotas.used()
        ]
        busiest = sorted(used, key=lambda each: each.used / each.limit, reverse=True)
        counts = sorted(self._quotas.counts.items(), key=lambda each: each[1], reverse=True)
        records = self._records
        return answer(
            LimitList(
                [
                    *self._shown(records.records, "record"),
                    *self._shown(records.seeds.keys() - records.records.keys(), "settings"),
                ],
                busiest[:ROWS_MAX],
                [
                    LimitedCount(tenant, limit, outcome.value, count)
                    for (tenant, limit, outcome), count in counts
                ],
            )
        )

    def _shown(self, all_whose: Iterable[Whose], origin: str) -> list[LimitShown]:
        found = {**self._records.seeds, **self._records.records}
        return [
            LimitShown(whose.scope.value, whose.tenant, whose.name, found[whose].named(), origin)
            for whose in sorted(all_whose, key=lambda each: (each[0].value, *each[1:]))
        ]

    async def change_limit(self, request: Request) -> Response:
        """Set some limits of one."""
        whose = _whose(request)
        changes = await read_body(request, dict[str, int | None])
        rates = await self._records.alter(whose, changes, str(caller_of(request)))
        scope, tenant, name = whose
        return answer(LimitShown(scope.value, tenant, name, rates.named(), "record"))

    async def delete_limit(self, request: Request) -> Response:
        """Forget what was set at run time."""
        await self._records.remove(_whose(request), str(caller_of(request)))
        return nothing()


def _whose(request: Request) -> Whose:
    """Whose limits a request is about. Raises KernelError INVALID_ARGUMENT, NOT_FOUND."""
    name = path_name(request, "name")
    try:
        scope = Scope(path_name(request, "scope"))
    except ValueError:
        scopes = ", ".join(each.value for each in Scope)
        raise KernelError(Code.NOT_FOUND, f"limits are of a {scopes}") from None
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        raise KernelError(Code.INVALID_ARGUMENT, f"a name has 1 to {NAME_BYTES_MAX} bytes")
    if scope is Scope.LISTENER:
        if not all(name.partition(".")):
            raise KernelError(Code.INVALID_ARGUMENT, "a listener is PROTOCOL.NAME, as amqp.tcp")
        return Whose(scope, "", name)
    tenant = name if scope is Scope.TENANT else tenant_asked(request)
    fault = None if tenant == EACH and scope is Scope.TENANT else name_fault("tenant", tenant)
    if fault is not None:
        raise KernelError(Code.INVALID_ARGUMENT, fault)
    if scope is Scope.TOPIC and name == EACH:
        raise KernelError(Code.INVALID_ARGUMENT, "a limit of topics names one")
    return Whose(scope, tenant, "" if scope is Scope.TENANT else name)
