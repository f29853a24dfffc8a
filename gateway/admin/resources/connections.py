"""Connections of all gateways over HTTP.

GET    /connections?user=&protocol=&client_id=&node=&consumes=&sort=&after=&limit=&rates=&details=
GET    /connections/totals?user=&protocol=... how many there are
DELETE /connections?user=&reason=             all of a user, at every gateway
GET    /connections/CONNECTION                one, with its channels and consumers
DELETE /connections/CONNECTION?reason=

Each takes ?tenant=NAME (`tenants`). Who administers the node and names no tenant is shown all,
those who have not signed in too. `rates=true` looks twice, a second apart. The gateway that is
asked asks all others; those that have not answered are named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog
from msgspec import Struct

from adapters.connections import ConnectionShown
from gateway.admin.http.callers import caller_of, tenant_or_all
from gateway.admin.http.requests import answer, flag, nothing, page_of, path_name
from gateway.admin.resources import local_connections as local
from gateway.admin.resources.connection_order import place_of
from gateway.admin.resources.local_connections import (
    ConnectionDetails,
    ConnectionRow,
    Counting,
    Listing,
    LocalConnections,
    Named,
    Naming,
)
from kernel.common.errors import Code, KernelError
from kernel.remote.mesh.questions import Silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from gateway.access.disconnects import Disconnects
    from gateway.admin.resources.tenants import KnownTenants
    from kernel.remote.mesh.questions import Questions

ANSWER_S: Final = 2.0
"""Other gateways are waited for so long: longer than a pause of a garbage collection."""

UNNAMED: Final = "(one of the cluster)"
"""What a gateway is called to administrators of a tenant: addresses are the operator's."""

REASON: Final = "an operator has closed the connection"
REASON_CHARACTERS_MAX: Final = 200

FILTERS: Final = ("user", "protocol", "client_id", "listener", "state", "node", local.CONSUMES)
SORTS: Final = frozenset(ConnectionShown.__struct_fields__)

_log = structlog.get_logger("weir.admin")


class ConnectionPage(Struct, frozen=True):
    """`next`: what `after` is for the next page; null at the end."""

    connections: list[ConnectionRow]
    next: str | None
    silent: list[Silent] = []
    """Gateways that have not answered: their connections are missing here."""


class ConnectionTotals(Struct, frozen=True):
    """How many there are, at all gateways that have answered."""

    connections: int
    channels: int
    consumers: int
    silent: list[Silent] = []
    """Gateways that have not answered: theirs are missing here."""


class ConnectionRoutes:
    """Handlers of connections."""

    def __init__(
        self,
        own: LocalConnections,
        tenants: KnownTenants,
        disconnects: Disconnects,
        questions: Questions | None,
    ) -> None:
        """`own`: of this process; `questions`: to the other gateways; None: there are none."""
        self._own = own
        self._tenants = tenants
        self._disconnects = disconnects
        self._questions = questions

    async def list_connections(self, request: Request) -> Response:
        """Connections in the order of a column (`sort`; `-` before it: from the largest down), the
        oldest of each gateway first where that is the same; of all gateways that answer in time.
        """
        _, after, limit = page_of(request)
        query = request.query_params
        column = request.query_params.get("sort", "id")
        is_down, column = column.startswith("-"), column.removeprefix("-")
        if column not in SORTS:
            listed = ", ".join(sorted(SORTS))
            raise KernelError(
                Code.INVALID_ARGUMENT, f"sort={column} is no column; there are {listed}"
            )
        listing = Listing(
            tenant=tenant_or_all(request, self._tenants.of),
            wanted={name: query[name] for name in FILTERS if name in query},
            column=column,
            is_down=is_down,
            begin=place_of(after) if after else None,
            limit=limit,
            rates=flag(request, "rates"),
            details=flag(request, "details"),
        )
        rows = await self._own.rows(listing)
        silent: list[Silent] = []
        if listing.wanted.get("node") != self._own.node:
            silent = await self._ask(
                request,
                local.LIST,
                listing,
                lambda found: rows.add_all(local.rows_of(found)),
                ANSWER_S + local.RATE_S * listing.rates,
            )
        return answer(ConnectionPage(*rows.page(), silent))

    async def show_totals(self, request: Request) -> Response:
        """How many connections, channels and consumers there are, at all gateways that answer in
        time.
        """
        query = request.query_params
        counting = Counting(
            tenant=tenant_or_all(request, self._tenants.of),
            wanted={name: query[name] for name in FILTERS if name in query},
        )
        found = [await self._own.totals(counting)]
        silent: list[Silent] = []
        if counting.wanted.get("node") != self._own.node:
            silent = await self._ask(
                request,
                local.TOTALS,
                counting,
                lambda said: found.append(local.totals_of(said)),
                ANSWER_S,
            )
        return answer(
            ConnectionTotals(
                sum(each.connections for each in found),
                sum(each.channels for each in found),
                sum(each.consumers for each in found),
                silent,
            )
        )

    async def show_connection(self, request: Request) -> Response:
        """One connection with its channels, what it consumes, and its rates."""
        return answer(await self._named(request, None))

    async def close_connection(self, request: Request) -> Response:
        """Close one, at whichever gateway it is; its client may come back."""
        await self._named(request, _reason(request))
        return nothing()

    async def close_user(self, request: Request) -> Response:
        """Close all of a user's, at every gateway that can be reached."""
        user = request.query_params.get("user", "")
        if not user:
            raise KernelError(Code.INVALID_ARGUMENT, "user=NAME is missing: whose connections?")
        tenant, by = self._tenants.of(request), str(caller_of(request))
        reason = _reason(request)
        _log.info("user disconnected by hand", tenant=tenant, user=user, by=by, reason=reason)
        await self._disconnects.tell(tenant, user, reason)
        return nothing()

    # --- Asking -----------------------------------------------------------------------------

    async def _named(self, request: Request, reason: str | None) -> ConnectionDetails | None:
        """Show or close the connection that a path names. Raises KernelError NOT_FOUND;
        UNAVAILABLE: a gateway that may have it has not answered, and may close it yet.
        """
        name = path_name(request, "connection")
        ident, at, node = name.rpartition("@")
        naming = Naming(
            tenant=tenant_or_all(request, self._tenants.of),
            id=ident if at else name,
            node=node if at else self._own.node,
            reason=reason,
            by=str(caller_of(request)),
        )
        found: list[Named] = [await self._own.named(naming)]
        silent: list[Silent] = []
        if naming.node != self._own.node:
            silent = await self._ask(
                request,
                local.NAME,
                naming,
                lambda said: found.append(local.named_of(said)),
                ANSWER_S + local.RATE_S,
            )
        for each in found:
            if each.found:
                return each.details
        if silent:
            listed = ", ".join(f"{each.gateway} ({each.reason})" for each in silent[:8])
            message = f"connection {name} may be at a gateway that has not answered: {listed}"
            raise KernelError(Code.UNAVAILABLE, message)
        raise KernelError(Code.NOT_FOUND, f"there is no connection {name}")

    async def _ask(
        self,
        request: Request,
        kind: str,
        asked: Listing | Counting | Naming,
        heard: Callable[[bytes], None],
        within_s: float,
    ) -> list[Silent]:
        """Ask all other gateways; those that have not answered. Where they are is told to who
        administers the node alone.
        """
        if self._questions is None:
            return []
        silent = await self._questions.ask(kind, local.encoded(asked), within_s, heard)
        if caller_of(request).administers_node:
            return silent
        return [Silent(UNNAMED, each.reason) for each in silent]


def _reason(request: Request) -> str:
    given = request.query_params.get("reason", "")
    shown = "".join(each for each in given if each.isprintable())[:REASON_CHARACTERS_MAX]
    return shown or REASON
