"""Consumers of reference lists that have brought nothing yet.

Ten thousand subscribers that wait for their first message must cost next to nothing, and what a
dispatcher keeps for a (list, group) is some 4 KB. So a consumer of a list with nothing in it waits
here, at some 100 bytes, and has its dispatcher made when a message comes.
"""

from __future__ import annotations

from typing import Protocol

from ...common.ids import QueueId


class Waiting(Protocol):
    """A consumer that waits for the first message of a list."""

    def filled(self) -> None:
        """The list has got one. Called once, before the dispatchers of the list hear of it."""


class IdleLists:
    """Who waits for which list of one Raft group."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[QueueId, Waiting | dict[Waiting, None]] = {}
        """A list of its own has one that waits, which stands here without a dictionary."""

    def __contains__(self, queue: QueueId) -> bool:
        return queue in self._waiting

    def add(self, queue: QueueId, waiting: Waiting) -> None:
        """Have `waiting` told of the next message."""
        known = self._waiting.get(queue)
        if known is None:
            self._waiting[queue] = waiting
        elif isinstance(known, dict):
            known[waiting] = None
        else:
            self._waiting[queue] = {known: None, waiting: None}

    def remove(self, queue: QueueId, waiting: Waiting) -> None:
        """It waits no more. Idempotent."""
        known = self._waiting.get(queue)
        if isinstance(known, dict):
            known.pop(waiting, None)
            if known:
                return
        elif known is not waiting:
            return
        del self._waiting[queue]

    def filled(self, queue: QueueId) -> None:
        """A list has got a message: tell all that wait for it, in the order in which they came."""
        known = self._waiting.pop(queue, None)
        if isinstance(known, dict):
            for each in known:
                each.filled()
        elif known is not None:
            known.filled()

    def drop(self, queue: QueueId) -> None:
        """The list is gone, and whoever waits for it waits for nothing."""
        self._waiting.pop(queue, None)
