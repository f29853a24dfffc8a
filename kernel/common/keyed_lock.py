"""Whose turn it is, where changes of one thing must not overlap and each awaits something."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from types import TracebackType

_Lines = dict[tuple[Hashable, ...], "deque[asyncio.Future[None]] | None"]
"""Who waits for each thing that somebody has; None: nobody has waited yet."""


class _Held:
    """One turn, asked for by `async with`."""

    __slots__ = ("_key", "_lines")

    def __init__(self, lines: _Lines, key: tuple[Hashable, ...]) -> None:
        self._lines = lines
        self._key = key

    async def __aenter__(self) -> None:
        lines, key = self._lines, self._key
        if key not in lines:
            # What nearly every turn is: nobody else wants the same, so that nothing is made.
            lines[key] = None
            return
        line = lines[key]
        if line is None:
            line = lines[key] = deque()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._pass_on()  # it had come, and is not taken
            turn.cancel()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        line = self._lines[self._key]
        while line:
            turn = line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._lines[self._key]


class KeyedLock:
    """One change at a time of each thing."""

    def __init__(self) -> None:
        self._lines: _Lines = {}

    def __len__(self) -> int:
        """Keys that somebody has or waits for; the others are forgotten."""
        return len(self._lines)

    def is_taken(self, *key: Hashable) -> bool:
        """Whether somebody has what `key` names, or waits for it."""
        return key in self._lines

    def of(self, *key: Hashable) -> _Held:
        """Wait for the turn at what `key` names, and keep it for the block of `async with`."""
        return _Held(self._lines, key)
