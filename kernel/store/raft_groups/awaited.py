"""Waiting until this node has applied so much of a group's log: up to an index that is known, or up
to what the group has committed by now, as its leader says once a majority still follows it
(docs/design/replication.md#leader-lease). Either may be never: whoever waits gives it a deadline.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from ...common.ids import RaftGroup
from ...raft.errors import RaftError

READ_SECONDS = 1.0
"""A request is made again after so long: the leader has gone, or a message was lost."""

PAUSE_SECONDS = 0.05
"""Before that, if nobody is known to lead."""

_CONTEXT = struct.Struct("<IQQ")
"""Of a request: node, when it began (ms), number."""


class Awaited:
    """Waits until this node has applied so much of a group."""

    def __init__(
        self,
        node: int,
        began_ms: int,
        ask: Callable[[RaftGroup, bytes], None],
        applied: Callable[[RaftGroup], int],
    ) -> None:
        """`began_ms`: when this process began, so that its requests are told from those of the
        last one; `ask(group, context)`: see `Consensus.ask_index`; `applied`: how far a group is.
        """
        self._node = node
        self._began_ms = began_ms
        self._ask = ask
        self._applied = applied
        self._waiting: list[tuple[RaftGroup, int, asyncio.Future[None]]] = []
        self._reads: dict[bytes, asyncio.Future[int]] = {}
        self._number = 0

    async def reached(self, group: RaftGroup, index: int) -> None:
        """Return once a group is applied up to `index`, and what is told of it has been told."""
        if self._applied(group) < index:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((group, index, future))
            await future

    async def level(self, group: RaftGroup) -> None:
        """Return once what a group had committed when this was called is applied: look-ups miss
        nothing then that anybody had been told of.
        """
        index: int | None = None
        while index is None:
            index = await self._committed(group)
        await self.reached(group, index)

    async def _committed(self, group: RaftGroup) -> int | None:
        """What a group has committed; None if nobody says."""
        self._number += 1
        context = _CONTEXT.pack(self._node, self._began_ms, self._number)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._reads[context] = future
        try:
            self._ask(group, context)
            async with asyncio.timeout(READ_SECONDS):
                return await future
        except (RaftError, TimeoutError):
            await asyncio.sleep(PAUSE_SECONDS)
            return None
        finally:
            del self._reads[context]

    def answered(self, context: bytes, index: int) -> None:
        """A leader has said what is committed."""
        asked = self._reads.get(context)
        if asked is not None and not asked.done():
            asked.set_result(index)

    def look(self) -> None:
        """Something was applied (hot): tell those who have waited for it."""
        if not self._waiting:
            return
        left = []
        for each in self._waiting:
            group, index, future = each
            if future.done():
                continue
            if self._applied(group) >= index:
                future.set_result(None)
            else:
                left.append(each)
        self._waiting = left
