"""Whose turn it is, where changes of one thing must not overlap and each awaits something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class _Line:
    """Those who want one thing to themselves."""

    __slots__ = ("lock", "wanted_by")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.wanted_by = 0
        """How many have it or wait for it. (A lock is not locked between two of them.)"""


class Turns:
    """One change at a time of each thing."""

    def __init__(self) -> None:
        self._lines: dict[tuple[Hashable, ...], _Line] = {}

    def __len__(self) -> int:
        """Keys that somebody has or waits for; the others are forgotten."""
        return len(self._lines)

    @asynccontextmanager
    async def of(self, *key: Hashable) -> AsyncIterator[None]:
        """Wait for the turn at what `key` names, and keep it for the block."""
        line = self._lines.setdefault(key, _Line())
        line.wanted_by += 1
        try:
            async with line.lock:
                yield
        finally:
            line.wanted_by -= 1
            if not line.wanted_by:
                del self._lines[key]
