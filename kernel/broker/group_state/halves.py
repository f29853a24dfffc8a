"""The half messages that one Raft group holds, and the outcomes it remembers.

Durable are `next`, `waiting` and `outcomes`; the rest is derived from them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from ...common.ids import LogIndex, QueueId, TopicId, topic_of
from ...common.limits import HALF_OUTCOMES_KEPT


@dataclass(slots=True)
class HalfMessage:
    """One half message. Changed only by `Halves`."""

    number: int
    queue: QueueId
    index: LogIndex
    slot: int
    size_bytes: int
    producers: str
    """Producer group, whose members may be asked for the outcome."""
    values: tuple[tuple[int, int], ...]
    """(`runs.Feature`, value) of what it has beyond the plain."""
    prepared_ms: int
    due_ms: int
    """Log time of the next question."""
    checks: int
    """Questions asked so far."""
    origin: int = 0
    """Who prepared it (`kernel.api.origins`): its commit counts as published by it."""


class Halves:
    """By number: rising, never used again."""

    __slots__ = ("_by_index", "_due", "_figures", "bytes", "next", "outcomes", "waiting")

    def __init__(self) -> None:
        self.next = 1
        self.waiting: dict[int, HalfMessage] = {}
        self.outcomes: OrderedDict[int, tuple[QueueId, int]] = OrderedDict()
        """Number to (queue, offset), -1 for a rollback; oldest first."""
        self.bytes = 0
        self._figures: dict[TopicId, tuple[int, int]] = {}
        self._by_index: dict[int, dict[int, HalfMessage]] = {}
        self._due: list[tuple[int, int]] = []

    def put(self, half: HalfMessage) -> None:
        """A new half message, or one from a snapshot."""
        self.waiting[half.number] = half
        self._by_index.setdefault(half.index, {})[half.number] = half
        heappush(self._due, (half.due_ms, half.number))
        self._count(half, 1)

    def remove(self, half: HalfMessage) -> None:
        """It is gone, without an outcome to be remembered."""
        del self.waiting[half.number]
        others = self._by_index[half.index]
        del others[half.number]
        if not others:
            del self._by_index[half.index]
        self._count(half, -1)

    def resolved(self, half: HalfMessage, offset: int) -> None:
        """A half message has been committed or rolled back."""
        self.remove(half)
        self.outcomes[half.number] = (half.queue, offset)
        if len(self.outcomes) > HALF_OUTCOMES_KEPT:
            self.outcomes.popitem(last=False)

    def due_at(self, half: HalfMessage, due_ms: int) -> None:
        """The next question comes at a log time."""
        half.due_ms = due_ms
        heappush(self._due, (due_ms, half.number))

    def due(self, now_ms: int, count: int) -> list[int]:
        """Up to `count` numbers that are due. They stay due until `due_at` or an outcome."""
        found: list[tuple[int, int]] = []
        while self._due and self._due[0][0] <= now_ms and len(found) < count:
            due_ms, number = heappop(self._due)
            half = self.waiting.get(number)
            if half is not None and half.due_ms == due_ms:
                found.append((due_ms, number))
        for each in found:
            heappush(self._due, each)
        return [number for _, number in found]

    def figures(self, topic: TopicId) -> tuple[int, int]:
        """(messages, bytes) of a topic."""
        return self._figures.get(topic, (0, 0))

    def waiting_in(self, queue: QueueId) -> int:
        """How many wait of one queue: a look at all, for what is done seldom."""
        return sum(each.queue == queue for each in self.waiting.values())

    def of_entry(self, index: int) -> Iterator[HalfMessage]:
        """Those that lie in a log entry."""
        return iter(self._by_index.get(index, {}).values())

    def _count(self, half: HalfMessage, sign: int) -> None:
        topic = topic_of(half.queue)
        messages, size = self._figures.get(topic, (0, 0))
        self.bytes += sign * half.size_bytes
        if messages + sign:
            self._figures[topic] = (messages + sign, size + sign * half.size_bytes)
        else:
            del self._figures[topic]
