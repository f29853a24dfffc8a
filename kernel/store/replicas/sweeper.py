"""Keeps the indexes of a group's queues short: looks at long ones each second, a command at a time.

A queue is worth it when its index has become long since the last sweep, or when much of it was
acked meanwhile; so that what a sweep looks at is in proportion to what came and went.
"""

from __future__ import annotations

from collections.abc import Callable

from ...broker.applying.sweep import is_swept, plan
from ...broker.group_state.state import QueueState
from ...broker.index.runs import LONG_PAGES
from ...broker.log_commands.commands import Sweep
from ...common.ids import QueueId

LOOKS_PER_TURN = 8
"""Stretches of an index that are looked at in one turn: up to a millisecond each, mostly 0.1."""

QUEUES_PER_SECOND = 1_000
"""Queues with a long index that are asked each second whether they have changed, 1 us each."""

ACKED_SHARE = 0.25
"""A queue is swept when so much of what its index covers was acked since the last time."""


class Sweeper:
    """One group's. `propose(command, done)` puts a command into the log; `done` once applied, and
    once the dispatchers have heard of all that was applied with it.
    """

    def __init__(
        self,
        find: Callable[[QueueId], QueueState | None],
        propose: Callable[[Sweep, Callable[[], None]], None],
    ) -> None:
        self._find = find
        self._propose = propose
        self._long: dict[QueueId, tuple[int, int]] = {}
        """Pages and messages acked of each long index at its last sweep."""
        self._ident: QueueId | None = None
        """The queue whose index is being swept."""
        self._at = 0
        self._waiting = False

    def watch(self, queue: QueueState) -> None:
        """A queue's index is long (hot: called for each entry that adds to such a queue)."""
        if queue.id not in self._long and is_swept(queue):
            self._long[queue.id] = (0, 0)

    def look(self) -> None:
        """Begin or go on; asked each second."""
        if self._waiting:
            return
        if self._ident is None:
            self._choose()
        self._go_on()

    def _choose(self) -> None:
        """The next queue that is worth it."""
        for _ in range(min(QUEUES_PER_SECOND, len(self._long))):
            ident = next(iter(self._long))
            known = self._long.pop(ident)
            queue = self._find(ident)
            if queue is None or queue.index.page_count <= LONG_PAGES:
                continue  # it is watched again when it has grown
            self._long[ident] = known
            if _is_worth_it(queue, *known):
                self._ident, self._at = ident, 0
                return

    def _go_on(self) -> None:
        """Look at the next stretches of the index, until one needs something done."""
        for _ in range(LOOKS_PER_TURN):
            queue = self._find(self._ident) if self._ident is not None else None
            if queue is None:
                self._ident = None
                return
            command, self._at = plan(queue, self._at)
            if self._at < 0:
                self._swept(queue)
            if command is not None:
                self._waiting = True
                self._propose(command, self._done)
                return

    def _swept(self, queue: QueueState) -> None:
        """The whole index was looked at; on to the next queue."""
        self._long[queue.id] = (queue.index.page_count, _acked(queue))
        self._ident = None
        self._choose()

    def _done(self) -> None:
        self._waiting = False
        self._go_on()


def _is_worth_it(queue: QueueState, pages: int, acked: int) -> bool:
    """Whether an index changed enough since it had so many pages, and so many were acked."""
    index = queue.index
    if index.page_count >= 2 * pages + LONG_PAGES:
        return True
    return _acked(queue) - acked >= ACKED_SHARE * (index.tail - index.head)


def _acked(queue: QueueState) -> int:
    """Messages acked by the group that is furthest behind."""
    return min([each.floor + each.acked_above for each in queue.groups.values()], default=0)
