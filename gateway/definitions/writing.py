"""A document of definitions, in JSON, made while it is sent: 100,000 topics take the memory of one
piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from adapters.definitions import FORMAT, said
from gateway.definitions.things import KINDS
from gateway.process.slices import Slice

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence

    from gateway.definitions.known import Known

PIECE_THINGS: Final = 200
"""In a piece: some 50 KB."""


async def written(
    known: Known,
    tenants: Sequence[str],
    kinds: Collection[str],
    *,
    of_all: bool,
    only: str | None = None,
) -> AsyncIterator[bytes]:
    """The pieces of a document of some tenants; `of_all`: with what belongs to no tenant; `only`:
    of what is called so.
    """
    # Asked for in any case: what cannot be read fails before the first piece.
    limits = dict(known.limited(""))
    head = b'{"format":' + _json(FORMAT)
    if limits and of_all and "limits" in kinds:
        head += b',"limits":' + _json(limits)
    yield head + b',"tenants":{'
    for number, tenant in enumerate(tenants):
        yield (b"," if number else b"") + _json(tenant) + b":{"
        is_first = True
        for kind in KINDS:
            async for piece in _of_kind(known, tenant, kind, kinds, only):
                yield piece if piece[:1] != b'"' or is_first else b"," + piece
                is_first = False
        yield b"}"
    yield b"}}\n"


async def _of_kind(
    known: Known, tenant: str, kind: str, kinds: Collection[str], only: str | None
) -> AsyncIterator[bytes]:
    """The pieces of one kind; the first begins with its name. None, if there is nothing."""
    if kind == "tenants":
        settings = known.tenant(tenant) if kind in kinds else None
        if settings is not None:
            yield b'"tenant":' + _json(said(settings))
        return
    if kind == "routers" and not {"routers", "routes"}.isdisjoint(kinds):
        things: AsyncIterator[tuple[str, Any]] = known.routers(tenant, kinds, only)
    elif kind in kinds:
        things = known.things(tenant, kind, only)
    else:
        return
    piece = bytearray()
    count = 0
    work = Slice()
    async for name, value in things:
        piece += b"," if count else _json(kind) + b":{"
        piece += _json(name) + b":" + _json(value if isinstance(value, dict) else said(value))
        count += 1
        if count % PIECE_THINGS == 0:
            yield bytes(piece)
            # Behind the first piece nothing begins with a quote.
            piece.clear()
        if work.is_over:
            await work.pause()
    if count:
        yield bytes(piece) + b"}"


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)
