"""The dispatch marks of one (queue, group) as its leader asks for them, one per priority level.

A mark in the log says that messages below it may have been handed to push consumers. It runs
MARK_AHEAD messages ahead, so that dispatch does not wait for its sync
(docs/design/delivery.md#what-a-crash-may-repeat).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...common.limits import MARK_AHEAD, MARK_RENEW
from ..group_state.progress import GroupProgress
from ..index.run_page import Run
from .ready import Ready


class Marks:
    """What was asked for. `propose(level, offset)` puts a mark into the log."""

    __slots__ = ("_asked", "_progress", "_propose", "_ready")

    def __init__(
        self, progress: GroupProgress, ready: Ready, propose: Callable[[int, int], None]
    ) -> None:
        self._progress = progress
        self._ready = ready
        self._propose = propose
        self._asked = [progress.mark(level) for level in range(ready.levels)]

    def ask(self, level: int) -> None:
        """Have the mark of a level moved ahead, unless that is under way."""
        wanted = self._ready.beyond(level) + MARK_AHEAD
        if wanted >= self._asked[level] + MARK_AHEAD - MARK_RENEW:
            self._asked[level] = wanted
            self._propose(level, wanted)

    def take(self, count: int, *, timed: bool) -> tuple[Run, Sequence[int]] | None:
        """The next ready messages, of the highest level that has any. For session leases only
        below the level's dispatch mark; a level that waits for its mark lets no lower one pass.
        """
        tail = self._ready.tail
        for level in range(self._ready.levels - 1, -1, -1):
            mark = tail if timed else self._progress.mark(level)
            taken = self._ready.take(level, mark, count)
            if not timed and mark - self._ready.beyond(level) < MARK_RENEW:
                self.ask(level)
            if taken is not None:
                return taken
            if self._ready.beyond(level) < tail:
                return None
        return None

    @property
    def are_on_their_way(self) -> bool:
        """Whether some mark was asked for and is not in the log yet."""
        mark = self._progress.mark
        return any(asked > mark(level) for level, asked in enumerate(self._asked))
