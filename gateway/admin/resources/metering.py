"""The node's metering over HTTP.

GET  /metering            flushes made and waiting
POST /metering/export     flush now, export everything to DATA/metering; what was added
                          ?new_archive=true: the one that was there is lost, or was moved away
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.admin.http.requests import answer, flag
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from gateway.reporting.node_metering import NodeMetering


class MeteringRoutes:
    """Handlers of the metering; `metering` is None if it is switched off."""

    def __init__(self, metering: NodeMetering | None) -> None:
        self._metering = metering

    async def show(self, request: Request) -> Response:
        """Figures now."""
        return answer(self._found().statistics())

    async def export(self, request: Request) -> Response:
        """Flush and export."""
        anew = flag(request, "new_archive")
        return answer(await self._found().export(anew=anew))

    def _found(self) -> NodeMetering:
        if self._metering is None:
            raise KernelError(Code.UNAVAILABLE, "this node does not meter (node.metering.enabled)")
        return self._metering
