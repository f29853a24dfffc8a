"""What the rest of Weir knows about the line protocol (`adapters.base.Declaration`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.base import Declaration, Trial
from tests.line_protocol.origin import ORIGIN_BYTE

if TYPE_CHECKING:
    from adapters.base import Adapter, Services


def make(services: Services) -> Adapter:
    """The adapter, from its entry in protocols.yaml."""
    from tests.line_protocol.server import LineAdapter

    return LineAdapter(services)


LINE: Final = Declaration(
    name="line",
    title="the line protocol",
    origin=ORIGIN_BYTE,
    make=make,
    needs=frozenset({"connections_max", "line_bytes_max", "unacked_max"}),
    trials=(Trial("socat", "tcp", r"printf 'LOGIN guest guest\n' | socat - TCP:{address}"),),
    tells_address_only_to_move=True,
)
