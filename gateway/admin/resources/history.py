"""An hour of figures over HTTP.

GET /history               totals of a tenant; of all, if who administers the node names none
GET /history?topic=TOPIC   one topic, from when it is first asked for
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gateway.admin.http.callers import caller_of, tenant_or_all
from gateway.admin.http.requests import answer
from gateway.admin.metrics.history import STEP_S
from gateway.admin.resources.topics import topic_named
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from gateway.admin.metrics.history import History
    from gateway.admin.resources.tenants import KnownTenants
    from kernel.api.client import Client


class HistoryShown(Struct, frozen=True):
    """`series`: 360 points each, the oldest first, null where nothing was measured. Of what is
    counted (`published`, `delivered`, `acked`, `done`) messages a second, of the others messages.
    """

    step_s: int
    end_ms: int
    """When the last point was, since the epoch."""
    series: dict[str, list[float | None]]
    without: list[str] = []
    """Stores and gateways that the last point of totals is without. Why, and which gateway, is for
    who administers the node: it may name an address.
    """


class HistoryRoutes:
    """Handler of the history."""

    def __init__(self, history: History | None, client: Client, tenants: KnownTenants) -> None:
        """`history`: None where none is kept."""
        self._history = history
        self._client = client
        self._tenants = tenants

    async def show_history(self, request: Request) -> Response:
        """The last hour of a topic, or the totals of a tenant or of all."""
        if self._history is None:
            raise KernelError(Code.UNAVAILABLE, "this process keeps no history")
        tenant = tenant_or_all(request, self._tenants.of)
        name = request.query_params.get("topic")
        if name is None:
            end_ms, series = self._history.of_tenant(tenant)
        else:
            topic = await topic_named(self._client, self._tenants.of(request), name)
            end_ms, series = self._history.of_topic(topic)
        silent = self._history.silent if name is None else []
        is_told_why = caller_of(request).administers_node
        without = [each.why if is_told_why else each.who for each in silent]
        return answer(HistoryShown(STEP_S, end_ms, series, without))
