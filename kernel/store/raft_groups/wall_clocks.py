"""The wall clock of a majority of a group's members: asked by a leader whose own is far away.

At an election a clock that is more than a minute ahead of the log is either wrong, or the only one
that knows how long everybody was down. Until that is known the leader stamps nothing, so that no
entry bears a time that the next one jumps away from. The time that a majority of every half of the
membership has reached is believed; one wrong clock among three never moves it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from ...common.errors import KernelError
from ...common.ports import Clock
from ..snapshots.transfer import Ask, ask_wall_clock

PATIENCE_SECONDS = 5.0
"""After that the leader goes on with the log's time: leases and delays run, if late."""

RETRY_SECONDS = 0.25
"""Pause before a member that gave no answer is asked again."""


class WallClocks:
    """Asks for one store."""

    def __init__(self, node: int, clock: Clock, ask: Ask) -> None:
        self._node = node
        self._clock = clock
        self._ask = ask
        self._tasks: dict[asyncio.Task[None], None] = {}

    def ask(
        self,
        halves: Collection[Collection[int]],
        leads: Callable[[], bool],
        told: Callable[[int | None], None],
    ) -> None:
        """Ask the voters in `halves`, as long as `leads`; then `told` once: how far a majority of
        each half is ahead of the monotonic clock at least, in ms, or None if too few answered.
        """
        task = asyncio.get_running_loop().create_task(self._round(halves, leads, told))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def stop(self) -> None:
        """Ask nobody any more."""
        for task in self._tasks:
            task.cancel()

    async def _round(
        self,
        halves: Collection[Collection[int]],
        leads: Callable[[], bool],
        told: Callable[[int | None], None],
    ) -> None:
        ahead = {self._node: self._clock.wall_ms() - self._clock.monotonic_ms()}
        others = {node for half in halves for node in half if node != self._node}
        loop = asyncio.get_running_loop()
        questions = [loop.create_task(self._one(node, ahead)) for node in sorted(others)]
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                waiting = set(questions)
                while waiting and agreed(halves, ahead) is None and leads():
                    first = asyncio.FIRST_COMPLETED
                    _, waiting = await asyncio.wait(waiting, return_when=first)
        except TimeoutError:
            pass
        finally:
            for question in questions:
                question.cancel()
        if leads():
            told(agreed(halves, ahead))

    async def _one(self, node: int, ahead: dict[int, int]) -> None:
        while True:
            try:
                wall = await ask_wall_clock(self._ask, node)
            except KernelError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            ahead[node] = wall - self._clock.monotonic_ms()
            return


def agreed(halves: Collection[Collection[int]], ahead: Mapping[int, int]) -> int | None:
    """What a majority of each half has reached; None if that is not known yet."""
    least: list[int] = []
    for half in halves:
        known = sorted((ahead[node] for node in half if node in ahead), reverse=True)
        majority = len(half) // 2 + 1
        if len(known) < majority:
            return None
        least.append(known[majority - 1])
    return min(least, default=None)
