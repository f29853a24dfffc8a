"""What a gateway holds by the word of a group's leader is told to each new one until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ...common.errors import KernelError
from ...common.ids import RaftGroup

CLAIM_PAUSE_SECONDS = 0.5
"""Before a leader is told again that did not answer in time."""


class Claiming:
    """One round a group at a time; a leader that comes meanwhile is told in a round of its own."""

    def __init__(self, claim_all: Callable[[RaftGroup], Awaitable[None]]) -> None:
        """`claim_all(group)` tells the leader of all that is held; raises KernelError."""
        self._claim_all = claim_all
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[RaftGroup, bool] = {}
        """Groups that are being told, and whether they must be told again."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_over(self) -> bool:
        """Whether every leader has heard all of it."""
        return not self._under_way

    def begin(self, group: RaftGroup) -> None:
        """A group has another leader, or another connection to it."""
        if group in self._under_way:
            self._under_way[group] = True
            return
        self._under_way[group] = False
        task = self._loop.create_task(self._claim(group))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _claim(self, group: RaftGroup) -> None:
        try:
            again = True
            while again:
                self._under_way[group] = False
                try:
                    await self._claim_all(group)
                except KernelError:
                    await asyncio.sleep(CLAIM_PAUSE_SECONDS)
                    continue
                again = self._under_way[group]
        finally:
            del self._under_way[group]

    async def stop(self) -> None:
        """Tell nothing more."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
