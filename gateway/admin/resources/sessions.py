"""Sessions of MQTT clients over HTTP: what an administrator may do with one.

DELETE /sessions/CLIENT

It takes ?tenant=NAME (`tenants`). A session belongs to the user that made it, and nobody else is
let have its client id: of a user that is gone, or who has taken an id that is somebody else's by
right, it is ended here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from gateway.admin.http.callers import caller_of
from gateway.admin.http.requests import nothing, path_name
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from adapters.base import Declaration
    from gateway.admin.resources.tenants import KnownTenants
    from kernel.api.client import Client

_log = structlog.get_logger("weir.admin")


class SessionRoutes:
    """Handlers of sessions."""

    def __init__(
        self, client: Client, tenants: KnownTenants, declared: Mapping[str, Declaration]
    ) -> None:
        self._client = client
        self._tenants = tenants
        self._names_of = [
            each.session_name for each in declared.values() if each.session_name is not None
        ]

    async def delete_session(self, request: Request) -> Response:
        """End a session with its subscriptions and what waits for it; its client, if it is there,
        is disconnected. 404 if there is none.
        """
        tenant, client_id = self._tenants.of(request), path_name(request, "client")
        names = [name_of(client_id) for name_of in self._names_of] if client_id else []
        if not any([await self._client.tree.drop(tenant, name) for name in names]):
            raise KernelError(Code.NOT_FOUND, f"no client {client_id} has a session")
        _log.info("session dropped", tenant=tenant, client_id=client_id, by=str(caller_of(request)))
        return nothing()
