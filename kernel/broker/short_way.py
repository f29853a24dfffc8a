"""The dispatcher's short way for the common case: fresh messages without features, one consumer.

With very many queues a commit brings each of them a message or two, so that what is done per queue
and commit is what a message costs. `pump` does in one loop what `Dispatcher.pump` does by general
steps, and leaves to it whatever is not that plain: messages that came back, priorities, TTLs,
delays, ordering keys, filters, timed leases, several consumers, entries that are not in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..limits import MARK_RENEW
from ..log import entry as entries
from .consumers import DispatchedConsumer, Handed
from .progress import Progress
from .ready import Ready
from .state import QueueState

if TYPE_CHECKING:
    from .dispatcher import Dispatcher


class ShortWay:
    """Of one dispatcher."""

    __slots__ = (
        "_ask_mark",
        "_dispatcher",
        "_entry",
        "_group",
        "_only",
        "_progress",
        "_queue",
        "_ready",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        queue: QueueState,
        progress: Progress,
        ready: Ready,
        entry: Callable[[int], bytes | None],
        ask_mark: Callable[[int], None],
    ) -> None:
        """`entry(index)` is a log entry if it is in memory; `ask_mark(level)` has the dispatch mark
        moved ahead.
        """
        self._dispatcher = dispatcher
        self._queue = queue
        self._group = dispatcher.group
        self._progress = progress
        self._ready = ready
        self._entry = entry
        self._ask_mark = ask_mark
        self._only: DispatchedConsumer | None = None

    def consumers_changed(self, consumers: Sequence[DispatchedConsumer]) -> None:
        """A consumer came or went."""
        self._only = None
        if len(consumers) == 1 and self._ready.levels == 1:
            spec = consumers[0].spec
            if spec.lease_ms is None and spec.filter is None and not spec.auto_ack:
                self._only = consumers[0]

    def pump(self) -> bool:
        """Hand out what goes this way; whether nothing is left to hand out now (hot)."""
        consumer = self._only
        topic = self._queue.topic
        options = topic.groups[self._group]
        if consumer is None or options.ordered or options.filter is not None:
            return False
        if topic.options.message_ttl_ms is not None:
            return False
        dispatcher = self._dispatcher
        progress = self._progress
        ready = self._ready
        pool = consumer.pool
        handed: Handed | None = None
        is_done = False
        while True:
            credit = pool.left
            if credit <= 0 or dispatcher.leased_count >= options.in_flight_max:
                is_done = True
                break
            found = ready.next_plain()
            if found is None:
                is_done = not ready.may_have()
                break
            index, slot, first, end = found
            mark = progress.mark()
            entry = self._entry(index)
            if entry is None or first >= mark:
                break
            end = min(end, first + credit, mark)
            count = end - first
            slots = entries.slots(entry, slot, count)
            ready.pass_plain(end)
            if mark - end < MARK_RENEW:
                self._ask_mark(0)
            pool.left = credit - count
            dispatcher.held_count += count
            offsets = range(first, end)
            consumer.held.update(offsets)
            if handed is None:
                handed = Handed(self._queue.id, list(offsets), slots, None)
            else:
                handed.extend(offsets, slots, None)
            if not ready.may_have():
                is_done = True
                break
        if handed is not None:
            consumer.sink.deliver(consumer, handed)
        return is_done
