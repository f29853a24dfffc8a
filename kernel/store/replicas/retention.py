"""Retention: which messages of a Raft group's queues have become too old, or too many by bytes.

The leader chooses by log time and says it in a TRIM command; nothing here is part of the state. A
queue is looked at when its oldest message is due, not each second, so that ten thousand idle queues
cost nothing: what comes later is younger. Only dead letters, which bring an age with them, and
delayed messages may be due earlier: a queue with such is looked at when they come, and again after
LOOK_MS_MAX at the latest. A queue is found anew for each look, since idle ones are not objects.

On a stream a delayed message is as old as the time when it was due, and keeps what stands behind
it: its delay may be longer than the retention.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from ...api.model import TopicKind, TopicOptions
from ...broker.group_state.state import QueueState
from ...broker.index.features import Feature
from ...broker.index.run_page import sent_ms
from ...broker.index.sizes import SizeWindow
from ...broker.log_commands.commands import Trim
from ...common.ids import Offset, QueueId, is_index, topic_of

TRIM_COUNT_MAX = 8_192
"""Messages that one command lets go of: bounds its apply (at one message an entry, half of them
leased, 15 ms; at 100 an entry 0.2 ms). The next follows when it is applied."""

LOOKS_MAX = 2_000
"""Queues that are looked at in one turn, 4.5 us each; the others when it is their turn again."""

LOOK_MS_MAX = 60_000
"""A queue with a retention in which a message may be due before those in front of it is looked at
so often at least."""

UNDER_WAY = -1
"""Stands for the time of the next look."""

SIZE_LOOK_MS = 1_000
"""One that is limited by bytes, so often."""


class Trimmer:
    """Looks after the retention of one group's queues."""

    def __init__(
        self,
        find: Callable[[QueueId], QueueState | None],
        now_ms: Callable[[], int],
        propose: Callable[[Trim, Callable[[object], None]], None],
    ) -> None:
        """`find` shows a queue, `now_ms` is log time; `propose(trim, done)` has a command applied,
        then calls `done`.
        """
        self._find = find
        self._now_ms = now_ms
        self._propose = propose
        self._windows: dict[QueueId, SizeWindow] = {}
        self._due_ms: dict[QueueId, int] = {}
        """When each queue is to be looked at, or UNDER_WAY: a command for it is."""
        self._heap: list[tuple[int, QueueId]] = []
        """The same as a heap, and entries that have been overtaken."""

    def watch(self, ident: QueueId, options: TopicOptions) -> None:
        """A queue has come, its topic's settings have changed, or it has got what is older than
        what it has: look at it next time.
        """
        if is_index(topic_of(ident)):
            return
        if not _is_limited(options):
            self.forget(ident)
        elif self._due_ms.get(ident) != UNDER_WAY:
            self._schedule(ident, 0)

    def forget(self, ident: QueueId) -> None:
        """A queue is gone, or is kept without a limit."""
        self._windows.pop(ident, None)
        self._due_ms.pop(ident, None)

    def look(self) -> None:
        """Propose to let go of what retention no longer covers; asked each second."""
        now = self._now_ms()
        heap = self._heap
        looks = 0
        while heap and heap[0][0] <= now and looks < LOOKS_MAX:
            due_ms, ident = heappop(heap)
            if self._due_ms.get(ident) == due_ms:
                looks += 1
                self._look_at(ident, now)

    def _schedule(self, ident: QueueId, due_ms: int) -> None:
        if self._due_ms.get(ident) != due_ms:
            self._due_ms[ident] = due_ms
            heappush(self._heap, (due_ms, ident))

    def _look_at(self, ident: QueueId, now_ms: int) -> None:
        queue = self._find(ident)
        if queue is None:
            self.forget(ident)
            return
        first = queue.first_needed
        end = min(self._end(queue, now_ms), first + TRIM_COUNT_MAX)
        if end <= first:
            self._schedule(ident, self._next_ms(queue, first, now_ms))
            return
        self._due_ms[ident] = UNDER_WAY
        self._propose(Trim(ident, Offset(end)), lambda _: self._trimmed(ident))

    def _trimmed(self, ident: QueueId) -> None:
        """A command was applied: go on with the rest of a long backlog at once."""
        if ident in self._due_ms:
            self._look_at(ident, self._now_ms())

    def _end(self, queue: QueueState, now_ms: int) -> int:
        """The first offset that is to stay."""
        options = queue.topic.options
        index = queue.index
        end = 0
        if options.retention_ms is not None:
            since_ms = now_ms - options.retention_ms
            end = index.first_sent_since(since_ms)
            if index.delays and options.kind is TopicKind.STREAM:
                end = index.first_due_since(since_ms, max(queue.trimmed, index.head), end)
        if options.retention_bytes is not None:
            window = self._windows.get(queue.id)
            if window is None:
                window = self._windows[queue.id] = SizeWindow(index, queue.trimmed)
            end = max(end, window.first_within(options.retention_bytes))
        return end

    def _next_ms(self, queue: QueueState, first: int, now_ms: int) -> int:
        """When the next look is due, if `first` is the oldest message."""
        options = queue.topic.options
        if options.retention_bytes is not None:
            return now_ms + SIZE_LOOK_MS
        assert options.retention_ms is not None, "queues without a limit are forgotten"
        due_ms = now_ms
        if queue.index.head <= first < queue.index.tail:
            run = queue.index.find(first)
            due_ms = sent_ms(run, first)
            if options.kind is TopicKind.STREAM:
                due_ms += run.value(Feature.DELAY, first)
        due_ms += options.retention_ms + 1
        if queue.index.delays or queue.index.aged:
            due_ms = min(due_ms, now_ms + LOOK_MS_MAX)
        return max(now_ms + 1, due_ms)


def _is_limited(options: TopicOptions) -> bool:
    return options.retention_ms is not None or options.retention_bytes is not None
