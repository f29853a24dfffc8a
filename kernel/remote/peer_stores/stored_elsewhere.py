"""What is stored in groups that this store has no replica of: asked of their leaders each second,
so that limits of what a tenant stores hold for all groups together (ADR 29).

While a leader does not answer its last answer counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ...common.errors import KernelError
from ...common.ids import RaftGroup
from ...in_process.opening import LocalStore
from ...store.leading.stored_room import Sums

ASK_SECONDS: Final = 1.0


class StoredElsewhere:
    """Of one store. Asks until the store stops."""

    def __init__(self, local: LocalStore, stored: Callable[[RaftGroup], Awaitable[Sums]]) -> None:
        """`stored`: asks the leader of a group."""
        self._store = local.store
        self._stored = stored
        self._asking: dict[RaftGroup, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(ASK_SECONDS, self._ask)
        local.before_stop.append(self._stop)

    def _ask(self) -> None:
        self._timer = self._loop.call_later(ASK_SECONDS, self._ask)
        elsewhere = self._store.topic_room.stored.elsewhere
        missing = [each for each in self._store.groups if not self._store.holds(each)]
        for group in elsewhere.keys() - set(missing):
            del elsewhere[group]
        for group in missing:
            if group not in self._asking:
                self._asking[group] = self._loop.create_task(self._hear(group))

    async def _hear(self, group: RaftGroup) -> None:
        try:
            self._store.topic_room.stored.elsewhere[group] = await self._stored(group)
        except KernelError:
            pass  # nobody leads it, or an older build does
        finally:
            del self._asking[group]

    def _stop(self) -> None:
        self._timer.cancel()
        for task in self._asking.values():
            task.cancel()
