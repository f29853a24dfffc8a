"""Connections of this gateway over HTTP.

GET    /connections?user=&protocol=&client_id=&sort=&after=&limit=&rates=
DELETE /connections?user=&reason=             all of a user, at every gateway
GET    /connections/CONNECTION                one, with its channels and consumers
DELETE /connections/CONNECTION?reason=

Each takes ?tenant=NAME (`tenants`). Who administers the node and names no tenant is shown all,
those who have not signed in too. `rates=true` looks twice, a second apart.
"""

from __future__ import annotations

import asyncio
import base64
import heapq
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import asdict

from adapters.connections import ChannelShown, ConnectionShown
from gateway.admin.http.callers import caller_of, tenant_or_all
from gateway.admin.http.requests import answer, flag, nothing, page_of, path_name
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from adapters.base import Adapter
    from adapters.connections import OpenConnection
    from gateway.access.disconnects import Disconnects
    from gateway.admin.resources.tenants import KnownTenants

STEP: Final = 64
"""Connections looked at before others have their turn: half a millisecond."""

RATE_S: Final = 1.0
"""Between the two looks that a rate is made of."""

REASON: Final = "an operator has closed the connection"
REASON_CHARACTERS_MAX: Final = 200

FILTERS: Final = ("user", "protocol", "client_id", "listener", "state")
SORTS: Final = frozenset(ConnectionShown.__struct_fields__)

_log = structlog.get_logger("weir.admin")


class Rates(Struct, frozen=True):
    """Bytes a second."""

    recv_oct: float
    send_oct: float


class ConnectionRow(ConnectionShown, frozen=True, kw_only=True):
    node: str
    """The gateway it is connected to."""
    rates: Rates | None = None
    """If they were asked for, and it is still there."""


class ConnectionPage(Struct, frozen=True):
    """`next`: what `after` is for the next page; null at the end."""

    connections: list[ConnectionRow]
    next: str | None


class ConnectionDetails(Struct, frozen=True):
    connection: ConnectionRow
    channels: list[ChannelShown]


class ConnectionRoutes:
    """Handlers of connections."""

    def __init__(
        self,
        adapters: Sequence[Adapter],
        node: str,
        tenants: KnownTenants,
        disconnects: Disconnects,
    ) -> None:
        """`node`: what this process is called."""
        self._adapters = adapters
        self._node = node
        self._tenants = tenants
        self._disconnects = disconnects

    async def list_connections(self, request: Request) -> Response:
        """Connections in the order of a column (`sort`; `-` before it: from the largest down), the
        oldest first where that is the same.
        """
        _, after, limit = page_of(request)
        column = request.query_params.get("sort", "id")
        is_down, column = column.startswith("-"), column.removeprefix("-")
        if column not in SORTS:
            listed = ", ".join(sorted(SORTS))
            raise KernelError(
                Code.INVALID_ARGUMENT, f"sort={column} is no column; there are {listed}"
            )
        begin = _key_of(after) if after else None
        found: list[tuple[_Key, OpenConnection, ConnectionShown]] = []
        async for each, shown in self._all(request):
            value = each.number if column == "id" else getattr(shown, column)
            key = _Key(value, each.number, is_down=is_down)
            if begin is None or _Key(begin[0], begin[1], is_down=is_down) < key:
                found.append((key, each, shown))
        page = heapq.nsmallest(limit + 1, found, key=lambda each: each[0])
        rows = [(each, shown) for _, each, shown in page[:limit]]
        following = _token_of(page[limit - 1][0]) if len(page) > limit else None
        made = await self._rows(rows, rates=flag(request, "rates"))
        return answer(ConnectionPage(made, following))

    async def show_connection(self, request: Request) -> Response:
        """One connection with its channels, what it consumes, and its rates."""
        each, shown = await self._named(request)
        channels = list(each.channels_shown())
        (row,) = await self._rows([(each, shown)], rates=True)
        return answer(ConnectionDetails(row, channels))

    async def close_connection(self, request: Request) -> Response:
        """Close one; its client may come back."""
        each, shown = await self._named(request)
        by = str(caller_of(request))
        _log.info("connection closed by hand", id=shown.id, peer=shown.peer, by=by)
        each.end(_reason(request))
        return nothing()

    async def close_user(self, request: Request) -> Response:
        """Close all of a user's, at every gateway that can be reached."""
        user = request.query_params.get("user", "")
        if not user:
            raise KernelError(Code.INVALID_ARGUMENT, "user=NAME is missing: whose connections?")
        tenant, by = self._tenants.of(request), str(caller_of(request))
        _log.info("user disconnected by hand", tenant=tenant, user=user, by=by)
        await self._disconnects.tell(tenant, user, _reason(request))
        return nothing()

    # --- Looking ----------------------------------------------------------------------------

    async def _all(self, request: Request) -> AsyncIterator[tuple[OpenConnection, ConnectionShown]]:
        """Those that a request is about, a part in each turn of the event loop."""
        tenant, query = tenant_or_all(request, self._tenants.of), request.query_params
        wanted = {name: query[name] for name in FILTERS if name in query}
        seen = 0
        for adapter in self._adapters:
            for each in adapter.connections():
                seen += 1
                if not seen % STEP:
                    await asyncio.sleep(0)
                owner = each.owner
                if tenant is not None and owner[0] != tenant:
                    continue
                shown = each.shown()
                if all(getattr(shown, name) == value for name, value in wanted.items()):
                    yield each, shown

    async def _named(self, request: Request) -> tuple[OpenConnection, ConnectionShown]:
        """The connection that a path names. Raises KernelError NOT_FOUND."""
        name = path_name(request, "connection")
        async for each, shown in self._all(request):
            if shown.id == name:
                return each, shown
        raise KernelError(Code.NOT_FOUND, f"no connection {name} at this gateway")

    async def _rows(
        self, found: Sequence[tuple[OpenConnection, ConnectionShown]], *, rates: bool
    ) -> list[ConnectionRow]:
        measured: list[Rates | None] = [None] * len(found)
        if rates and found:
            await asyncio.sleep(RATE_S)
            measured = [_rates(shown, each.shown()) for each, shown in found]
        return [
            ConnectionRow(node=self._node, rates=rate, **asdict(shown))
            for (_, shown), rate in zip(found, measured, strict=True)
        ]


class _Key:
    """Where a connection stands in the order that was asked for."""

    __slots__ = ("is_down", "number", "value")

    def __init__(self, value: str | float | bool, number: int, *, is_down: bool) -> None:
        self.value = value
        self.number = number
        self.is_down = is_down

    def __lt__(self, other: _Key) -> bool:
        if self.value != other.value:
            return bool(self.value > other.value if self.is_down else self.value < other.value)  # type: ignore[operator]  # values of one column
        return self.number < other.number


def _token_of(key: _Key) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((key.value, key.number))).decode()


def _key_of(token: str) -> tuple[str | float | bool, int]:
    try:
        return msgspec.json.decode(
            base64.urlsafe_b64decode(token), type=tuple[str | float | bool, int]
        )
    except (ValueError, msgspec.MsgspecError):
        raise KernelError(Code.INVALID_ARGUMENT, "after is not the `next` of a page") from None


def _rates(before: ConnectionShown, now: ConnectionShown) -> Rates:
    passed_s = max(now.connected_s - before.connected_s, 1e-3)
    return Rates(
        round((now.recv_oct - before.recv_oct) / passed_s, 1),
        round((now.send_oct - before.send_oct) / passed_s, 1),
    )


def _reason(request: Request) -> str:
    given = request.query_params.get("reason", "")
    shown = "".join(each for each in given if each.isprintable())[:REASON_CHARACTERS_MAX]
    return shown or REASON
