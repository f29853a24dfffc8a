"""The node's metering over HTTP.

GET  /metering            flushes made and waiting
POST /metering/export     flush now, export everything to DATA/metering; what was added
                          ?new_archive=true: the one that was there is lost, or was moved away
POST /metering/bill       work out what a month has come to so far, by the billing jobs
GET  /metering/bill       what the last one came to; who administers a tenant is told that tenant's
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from gateway.admin.http.callers import tenant_or_all
from gateway.admin.http.requests import answer, flag, read_body
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from gateway.admin.resources.tenants import KnownTenants
    from gateway.reporting.node_metering import NodeMetering


class BillAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """Which month."""

    period: Annotated[str, Meta(pattern=r"^20[0-9]{2}-(0[1-9]|1[0-2])$")]


class MeteringRoutes:
    """Handlers of the metering; `metering` is None if it is switched off."""

    def __init__(self, metering: NodeMetering | None, tenants: KnownTenants) -> None:
        self._metering = metering
        self._tenants = tenants

    async def show(self, request: Request) -> Response:
        """Figures now."""
        return answer(self._found().statistics())

    async def export(self, request: Request) -> Response:
        """Flush and export."""
        anew = flag(request, "new_archive")
        return answer(await self._found().export(anew=anew))

    async def begin_bill(self, request: Request) -> Response:
        """Work out a month's invoices so far, beside the server; what GET answers tells when it is
        done. 423 while one is worked out.
        """
        bill = self._found().bill
        asked = await read_body(request, BillAsked)
        return answer(bill.begin(asked.period), 202)

    async def show_bill(self, request: Request) -> Response:
        """What was worked out last, by this process: of all tenants, or of one."""
        tenant = tenant_or_all(request, self._tenants.of)
        shown = self._found().bill.shown
        return answer(shown if tenant is None else shown.of(tenant))

    def _found(self) -> NodeMetering:
        if self._metering is None:
            raise KernelError(Code.UNAVAILABLE, "this node does not meter (node.metering.enabled)")
        return self._metering
