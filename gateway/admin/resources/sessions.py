"""Kept sessions of MQTT clients over HTTP: those that outlive their connections.

GET    /sessions?prefix=&after=&limit=
GET    /sessions/CLIENT              with its subscriptions, and what waits for them
DELETE /sessions/CLIENT

Each takes ?tenant=NAME (`tenants`). Sessions that end with their connection are in no log: they are
among the connections. A session belongs to the user that made it, and nobody else is
let have its client id: of a user that is gone, or who has taken an id that is somebody else's by
right, it is ended here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from msgspec import Struct

from gateway.admin.http.callers import caller_of
from gateway.admin.http.requests import answer, nothing, page_of, path_name
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from adapters.base import Declaration
    from gateway.admin.resources.tenants import KnownTenants
    from kernel.api.client import Client
    from kernel.api.tree import SubscriberFacts

_log = structlog.get_logger("weir.admin")


class SessionShown(Struct, frozen=True):
    """A kept session."""

    client: str
    """Its client id; of one that is too long for a name, the digest that stands for it."""
    user: str
    """Whose it is; empty: nobody's yet (an older version made it)."""
    connected: bool
    expiry_s: float | None
    """How long it is kept without a connection; null: for ever."""
    ends_in_s: float | None
    """Until it is gone; null: it is connected, or it is kept for ever."""
    subscriptions: int
    exchanges: int
    """Messages that are being handed over, and whatever else the session has to remember."""
    has_will: bool


class SubscriptionShown(Struct, frozen=True):
    filter: str
    share: str
    """Empty: the session's own."""
    waiting: int | None
    """Messages that it has not acknowledged; null: not counted, beyond the first thousand."""


class SessionDetails(Struct, frozen=True):
    session: SessionShown
    subscriptions: list[SubscriptionShown]
    waiting: int
    """Of all subscriptions that are the session's own."""


class SessionPage(Struct, frozen=True):
    """`next`: what `after` is for the next page; null at the end."""

    sessions: list[SessionShown]
    next: str | None


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

    async def list_sessions(self, request: Request) -> Response:
        """Kept sessions by client id, connected or not."""
        prefix, after, limit = page_of(request)
        tenant = self._tenants.of(request)
        found = await self._client.tree.subscribers(tenant, prefix, after, limit + 1)
        following = found[limit - 1].name if len(found) > limit else None
        return answer(SessionPage([_shown(each) for each in found[:limit]], following))

    async def show_session(self, request: Request) -> Response:
        """One session with its subscriptions, and what waits for each."""
        tenant, client_id = self._tenants.of(request), path_name(request, "client")
        tree = self._client.tree
        for name in [name_of(client_id) for name_of in self._names_of] if client_id else []:
            found = await tree.subscribers(tenant, name, "", 1)
            if found and found[0].name == name:
                some = await tree.subscriptions(tenant, name)
                shown = [SubscriptionShown(each.pattern, each.share, each.waiting) for each in some]
                waiting = sum(each.waiting or 0 for each in shown if not each.share)
                return answer(SessionDetails(_shown(found[0]), shown, waiting))
        raise KernelError(Code.NOT_FOUND, f"no client {client_id} has a kept session")

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


def _shown(facts: SubscriberFacts) -> SessionShown:
    return SessionShown(
        facts.name,
        facts.user,
        facts.connected,
        _seconds(facts.expiry_ms),
        _seconds(facts.ends_in_ms),
        facts.subscriptions,
        facts.notes,
        facts.has_will,
    )


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1_000
