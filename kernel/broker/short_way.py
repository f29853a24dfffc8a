"""The dispatcher's short way for the common case: fresh messages without features, one consumer.

With very many queues a commit brings each of them a message or two, so that what is done per queue
and commit is what a message costs. `pump` does in one loop what `Dispatcher.pump` does by general
steps, and leaves to it whatever is not that plain: messages that came back, priorities, TTLs,
delays, ordering keys, filters, timed leases, several consumers, entries that are not in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..client import Settlement
from ..limits import MARK_RENEW
from ..log import entry as entries
from .consumers import DispatchedConsumer, Handed
from .dispatch_port import Port
from .progress import Progress
from .ready import Ready

if TYPE_CHECKING:
    from .dispatcher import Dispatcher


ACK = Settlement.ACK
"""A name looked up once: a member of an Enum costs 0.12 us each time it is named."""


class ShortWay:
    """Of one dispatcher."""

    __slots__ = (
        "_ask_mark",
        "_dispatcher",
        "_entry",
        "_group",
        "_only",
        "_progress",
        "_propose_acks",
        "_queue",
        "_ready",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        progress: Progress,
        ready: Ready,
        port: Port,
        ask_mark: Callable[[int], None],
    ) -> None:
        """`ask_mark(level)` has the dispatch mark moved ahead."""
        self._dispatcher = dispatcher
        self._queue = dispatcher.queue
        self._group = dispatcher.group
        self._progress = progress
        self._ready = ready
        self._entry = port.entry
        self._propose_acks = port.propose_acks
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
        mark = progress.mark()
        while True:
            credit = pool.left
            if credit <= 0 or dispatcher.leased_count >= options.in_flight_max:
                is_done = True
                break
            found = ready.take_plain(mark, credit)
            if found is None:
                is_done = not ready.may_have()
                break
            index, slot, first, end = found
            entry = self._entry(index)
            if entry is None:
                ready.put_back_plain(first)
                break
            if mark - end < MARK_RENEW:
                self._ask_mark(0)
            count = end - first
            pool.left = credit - count
            dispatcher.held_count += count
            slots = entries.slots(entry, slot, count)
            offsets = [first] if count == 1 else list(range(first, end))
            consumer.held.update(offsets)
            if handed is None:
                handed = Handed(self._queue.id, offsets, slots, None)
            else:
                handed.extend(offsets, slots, None)
            if end == self._queue.index.tail:
                is_done = True
                break
        if handed is not None:
            consumer.sink.deliver(consumer, handed)
        return is_done

    def ack(self, consumer: DispatchedConsumer, offsets: Sequence[int], *, urgent: bool) -> bool:
        """Ack the one message named, if the consumer takes messages and holds it and the group is
        not ordered; False, and nothing done, otherwise (hot).
        """
        queue = self._queue
        offset = offsets[0]
        if consumer.ended or offset not in consumer.held or queue.topic.groups[self._group].ordered:
            return False
        consumer.held.remove(offset)
        self._dispatcher.held_count -= 1
        self._propose_acks(queue.id, self._group, offsets, consumer.origin, urgent=urgent)
        return True
