"""Who has changed what, over HTTP: the audit topic (`gateway.reporting.audit`).

GET /audit?offset=&since_ms=&limit=    entries from an offset and a time on, the oldest first
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gateway.admin.http.requests import PAGE_DEFAULT, PAGE_MAX, answer, number
from gateway.reporting.audit import AuditRow

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from gateway.reporting.audit import AuditTrail


class AuditPage(Struct, frozen=True):
    entries: list[AuditRow]
    next: int
    """What `offset` is for those that follow."""
    first: int
    """The offset of the oldest that is kept."""


class AuditRoutes:
    """Handlers of the audit."""

    def __init__(self, trail: AuditTrail) -> None:
        self._trail = trail

    async def list_entries(self, request: Request) -> Response:
        """Changes by the admin API, of all processes, the oldest first: who asked for what, and
        what came of it.
        """
        offset = number(request, "offset", 0)
        since_ms = number(request, "since_ms", 0)
        most = number(request, "limit", PAGE_DEFAULT, least=1, most=PAGE_MAX)
        return answer(AuditPage(*await self._trail.read(offset, since_ms, most)))
