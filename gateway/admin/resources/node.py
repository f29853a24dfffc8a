"""The process that is asked, over HTTP.

GET /node    what it is and how much room it has
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

import gateway
from gateway.admin.http.requests import answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from adapters.base import Adapter
    from adapters.memory import GatewayMemory
    from kernel.common.ports import Clock
    from kernel.store.space.disk_watch import DiskSpace


class DiskShown(Struct, frozen=True):
    free_bytes: int
    total_bytes: int
    mark_bytes: int
    """New messages are refused with less free."""


class PoolShown(Struct, frozen=True):
    """What clients make this process hold, and may."""

    bytes: int
    bytes_max: int


class NodeShown(Struct, frozen=True, kw_only=True):
    name: str
    version: str
    up_s: float
    disk: DiskShown | None
    """null: it has no store."""
    connections: dict[str, int]
    """By protocol."""
    memory: dict[str, PoolShown]


class NodeRoutes:
    """Handlers of the process."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        adapters: Sequence[Adapter],
        disk: Callable[[], DiskSpace] | None,
        memory: GatewayMemory | None,
    ) -> None:
        """`disk`: None where there is no store; `memory`: None where nobody is served."""
        self._name = name
        self._clock = clock
        self._adapters = adapters
        self._disk = disk
        self._memory = memory
        self._begun_ms = clock.monotonic_ms()

    async def show_node(self, request: Request) -> Response:
        """What this process is, its disk, its connections, what clients make it hold."""
        space = None if self._disk is None else self._disk()
        memory = self._memory
        pools = {}
        if memory is not None:
            pools = {"unfinished_input": memory.input, "unread_output": memory.output}
        room = None
        if space is not None:
            room = DiskShown(space.free_bytes, space.total_bytes, space.mark_bytes)
        shown = NodeShown(
            name=self._name,
            version=gateway.__version__,
            up_s=(self._clock.monotonic_ms() - self._begun_ms) / 1_000,
            disk=room,
            connections={each.name: each.statistics().connections for each in self._adapters},
            memory={name: PoolShown(each.bytes, each.bytes_max) for name, each in pools.items()},
        )
        return answer(shown)
