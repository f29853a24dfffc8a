"""Connections of one gateway: listed, shown, and closed, for its own API and for other gateways
that ask (`kernel.remote.mesh.questions`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import asdict

from adapters.connections import ChannelShown, ConnectionShown
from gateway.admin.resources.connection_order import FirstRows, Place, Value
from gateway.process.slices import Slice
from kernel.common.errors import UNDECODABLE, Code, KernelError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from adapters.base import Adapter
    from adapters.connections import OpenConnection
    from kernel.remote.mesh.questions import Questions

    Found = tuple[OpenConnection, ConnectionShown]

LIST: Final = "connections"
NAME: Final = "connection"
TOTALS: Final = "connection-totals"
"""Kinds of question."""

CONSUMES: Final = "consumes"

RATE_S: Final = 1.0
"""Between the two looks that a rate is made of."""

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
    opened: list[ChannelShown] | None = None
    """Its channels with their consumers, if they were asked for."""


class ConnectionDetails(Struct, frozen=True):
    connection: ConnectionRow
    channels: list[ChannelShown]


class Listing(Struct, frozen=True):
    """Which connections are listed, in which order."""

    tenant: str | None
    """None: of all tenants, and of those who have not signed in."""
    wanted: dict[str, str]
    """Columns that have exactly a value; under CONSUMES, what they consume by this name."""
    column: str
    is_down: bool
    begin: Place | None
    limit: int
    rates: bool
    details: bool = False
    """With channels and consumers."""


class Counting(Struct, frozen=True):
    """Which connections are counted, as in `Listing`."""

    tenant: str | None
    wanted: dict[str, str]


class Totals(Struct, frozen=True):
    """How many there are."""

    connections: int = 0
    channels: int = 0
    consumers: int = 0


class Naming(Struct, frozen=True):
    """One connection, which is shown or closed."""

    tenant: str | None
    id: str
    node: str
    reason: str | None
    """What its client is told when it is closed; None: it is shown only."""
    by: str


class Named(Struct, frozen=True):
    """`found`: the gateway has it (and has closed it); `details`: if it was to be shown."""

    found: bool
    details: ConnectionDetails | None = None


_encode = msgspec.msgpack.encode
_listing = msgspec.msgpack.Decoder(Listing)
_counting = msgspec.msgpack.Decoder(Counting)
_naming = msgspec.msgpack.Decoder(Naming)
_rows = msgspec.msgpack.Decoder(list[tuple[Place, ConnectionRow]])
_named = msgspec.msgpack.Decoder(Named)
_totals = msgspec.msgpack.Decoder(Totals)


class LocalConnections:
    """Those of this process. Belongs to its event loop."""

    def __init__(self, adapters: Sequence[Adapter], node: str, *, in_cluster: bool) -> None:
        """`adapters`: read anew each time. `node`: what this process is called. `in_cluster`: ids
        say whose they are.
        """
        self._adapters = adapters
        self.node = node
        self._in_cluster = in_cluster

    def answer(self, questions: Questions) -> None:
        """Answer other gateways from now on."""
        questions.serve(LIST, self._list)
        questions.serve(NAME, self._name)
        questions.serve(TOTALS, self._count)

    async def _list(self, asked: bytes) -> bytes:
        try:
            listing = _listing.decode(asked)
        except UNDECODABLE as error:
            raise KernelError(Code.INVALID_ARGUMENT, str(error)) from None
        return _encode((await self.rows(listing)).first())

    async def _count(self, asked: bytes) -> bytes:
        try:
            counting = _counting.decode(asked)
        except UNDECODABLE as error:
            raise KernelError(Code.INVALID_ARGUMENT, str(error)) from None
        return _encode(await self.totals(counting))

    async def _name(self, asked: bytes) -> bytes:
        try:
            naming = _naming.decode(asked)
        except UNDECODABLE as error:
            raise KernelError(Code.INVALID_ARGUMENT, str(error)) from None
        return _encode(await self.named(naming))

    # --- What is asked ----------------------------------------------------------------------

    async def rows(self, listing: Listing) -> FirstRows[ConnectionRow]:
        """The first `limit + 1` of this gateway. Raises KernelError INVALID_ARGUMENT."""
        if listing.column not in ConnectionShown.__struct_fields__:
            raise KernelError(Code.INVALID_ARGUMENT, f"there is no column {listing.column[:80]}")
        found: FirstRows[Found] = FirstRows(listing.limit, listing.begin, is_down=listing.is_down)
        async for each, shown in self._wanted(listing.tenant, listing.wanted):
            by: Value = each.number if listing.column == "id" else getattr(shown, listing.column)
            found.add((by, each.number, self.node), (each, shown))
        first = found.first()
        chosen = [row for _, row in first]
        made = await self._made(chosen, rates=listing.rates, details=listing.details)
        rows: FirstRows[ConnectionRow] = FirstRows(listing.limit, None, is_down=listing.is_down)
        rows.add_all((place, row) for (place, _), row in zip(first, made, strict=True))
        return rows

    async def totals(self, counting: Counting) -> Totals:
        """How many there are at this gateway."""
        connections = channels = consumers = 0
        async for _, shown in self._wanted(counting.tenant, counting.wanted):
            connections += 1
            channels += shown.channels
            consumers += shown.consumers
        return Totals(connections, channels, consumers)

    async def named(self, naming: Naming) -> Named:
        """Show or close the connection, if it is one of this gateway's."""
        if naming.node != self.node:
            return Named(False)
        async for each, shown in self._all(naming.tenant):
            if shown.id != naming.id:
                continue
            if naming.reason is None:
                channels = list(each.channels_shown())
                (row,) = await self._made([(each, shown)], rates=True)
                return Named(True, ConnectionDetails(row, channels))
            _log.info(
                "connection closed by hand",
                id=shown.id,
                peer=shown.peer,
                by=naming.by,
                reason=naming.reason,
            )
            each.end(naming.reason)
            return Named(True)
        return Named(False)

    # --- Looking ----------------------------------------------------------------------------

    async def _wanted(self, tenant: str | None, wanted: Mapping[str, str]) -> AsyncIterator[Found]:
        """Those that are what is wanted (`Listing.wanted`)."""
        equal = dict(wanted)
        consumed = equal.pop(CONSUMES, None)
        if equal.pop("node", self.node) != self.node:
            return
        async for each, shown in self._all(tenant):
            if consumed is not None and not (shown.consumers and _consumes(each, consumed)):
                continue
            if all(getattr(shown, name, None) == value for name, value in equal.items()):
                yield each, shown

    async def _all(self, tenant: str | None) -> AsyncIterator[Found]:
        """Those of a tenant, in slices between which others have their turn."""
        piece = Slice()
        for adapter in self._adapters:
            for each in adapter.connections():
                if piece.is_over:
                    await piece.pause()
                if tenant is None or each.owner[0] == tenant:
                    yield each, each.shown()

    async def _made(
        self, found: Sequence[Found], *, rates: bool, details: bool = False
    ) -> list[ConnectionRow]:
        measured: list[Rates | None] = [None] * len(found)
        if rates and found:
            await asyncio.sleep(RATE_S)
            measured = [_rates(shown, each.shown()) for each, shown in found]
        rows = []
        piece = Slice()
        for (each, shown), rate in zip(found, measured, strict=True):
            opened = list(each.channels_shown()) if details else None
            rows.append(self._row(shown, rate, opened))
            if piece.is_over:
                await piece.pause()
        return rows

    def _row(
        self, shown: ConnectionShown, rates: Rates | None, opened: list[ChannelShown] | None
    ) -> ConnectionRow:
        facts = asdict(shown)
        if self._in_cluster:
            facts["id"] = f"{shown.id}@{self.node}"
        return ConnectionRow(node=self.node, rates=rates, opened=opened, **facts)


def _consumes(connection: OpenConnection, name: str) -> bool:
    channels = connection.channels_shown()
    return any(each.queue == name for channel in channels for each in channel.consumers)


def rows_of(answer: bytes) -> list[tuple[Place, ConnectionRow]]:
    """What another gateway has found. Raises KernelError UNAVAILABLE for what is no answer."""
    try:
        return _rows.decode(answer)
    except UNDECODABLE:
        raise _no_answer() from None


def named_of(answer: bytes) -> Named:
    """What another gateway says of one connection. Raises KernelError UNAVAILABLE."""
    try:
        return _named.decode(answer)
    except UNDECODABLE:
        raise _no_answer() from None


def totals_of(answer: bytes) -> Totals:
    """How many another gateway has. Raises KernelError UNAVAILABLE."""
    try:
        return _totals.decode(answer)
    except UNDECODABLE:
        raise _no_answer() from None


def encoded(asked: Listing | Counting | Naming) -> bytes:
    """A question as other gateways read it."""
    return _encode(asked)


def _no_answer() -> KernelError:
    return KernelError(Code.UNAVAILABLE, "its answer cannot be read by this version")


def _rates(before: ConnectionShown, now: ConnectionShown) -> Rates:
    passed_s = max(now.connected_s - before.connected_s, 1e-3)
    return Rates(
        round((now.recv_oct - before.recv_oct) / passed_s, 1),
        round((now.send_oct - before.send_oct) / passed_s, 1),
    )
