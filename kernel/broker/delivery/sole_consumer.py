"""Fresh messages passed on as they come, to the only consumer of a group, which takes them all.

With very many queues a commit brings each of them a message or two, so that what is done per queue
and commit is what a message costs. What must be asked of settings and consumers is therefore asked
when these change (`look`), and not when messages come (`pass_on`). The general way is left what
needs a closer look: messages that came back, priorities, TTLs, delays, ordering keys, filters,
timed leases, several consumers, entries that are not in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from ...common.limits import MARK_RENEW
from ...log.format import entry as entries
from ..group_state.progress import GroupProgress
from ..index.runs import Part
from .consumers import DispatchedConsumer, Handed, ServingDispatcher
from .delivery_scheduler import ALL, DeliveryScheduler
from .dispatch_port import Entries
from .group_counts import WaitHistogram
from .ready import Ready


class SoleConsumer:
    """Passes fresh messages of one dispatcher on to the only consumer."""

    __slots__ = (
        "_ask_mark",
        "_counts",
        "_dispatcher",
        "_group",
        "_in_flight_max",
        "_index",
        "_only",
        "_port",
        "_progress",
        "_queue",
        "_ready",
        "_scheduler",
        "_topic",
        "is_limited",
    )

    def __init__(
        self,
        dispatcher: ServingDispatcher,
        progress: GroupProgress,
        ready: Ready,
        port: Entries,
        ask_mark: Callable[[int], None],
        scheduler: DeliveryScheduler,
    ) -> None:
        """`ask_mark(level)` has the dispatch mark moved ahead."""
        self._scheduler = scheduler
        self._dispatcher = dispatcher
        self._queue = dispatcher.queue.id
        self._topic = dispatcher.queue.topic
        self._index = dispatcher.queue.index
        self._group = dispatcher.group
        self._counts = dispatcher.counts
        self._progress = progress
        self._ready = ready
        self._port = port
        self._ask_mark = ask_mark
        self._only: DispatchedConsumer | None = None
        self._in_flight_max = 0
        self.is_limited = True
        """Whether the queue may hold only so much: what is too much goes by the general way."""

    def look(self, consumers: Sequence[DispatchedConsumer]) -> None:
        """Consumers came or went, or what is set for topic or group has changed."""
        self._only = None
        options = self._topic.options
        self.is_limited = options.messages_max is not None or options.bytes_max is not None
        if len(consumers) != 1 or self._ready.levels > 1 or options.message_ttl_ms is not None:
            return
        group = self._topic.groups[self._group]
        self._in_flight_max = group.in_flight_max
        spec = consumers[0].spec
        is_plain = spec.lease_ms is None and spec.filter is None and not spec.auto_ack
        if is_plain and group.filter is None and not group.ordered:
            self._only = consumers[0]

    def pass_on(self) -> bool:
        """Hand out what goes this way; whether nothing is left to hand out now (hot)."""
        only, index = self._only, self._index
        if only is None or index.delays or index.ttls:
            return False
        dispatcher, progress, ready = self._dispatcher, self._progress, self._ready
        pool = only.pool
        scheduler, part_left = self._scheduler, ALL
        if scheduler.alone and scheduler.alone != self._topic.tenant and not self.is_limited:
            part_left = scheduler.part
            if scheduler.is_taken and pool.left > scheduler.few < ready.count:
                dispatcher.put_off()
                return True
        handed: Handed | None = None
        is_done = True
        while True:
            count = self._in_flight_max - dispatcher.held_count - dispatcher.leasing_count
            if pool.left < count:  # noqa: PLR1730 - a call costs more than a line
                count = pool.left
            if part_left < count:  # noqa: PLR1730
                count = part_left
            if count <= 0:
                break
            # Nothing beyond the mark: after a crash nobody would know that it may have been seen.
            found = ready.take_plain(progress.first_mark, count)
            if found is None:
                is_done = not ready.may_have()
                break
            first, end, parts = found
            slots = self._slots(parts)
            count = len(slots)
            if first + count < end:  # some of them have to be read first
                end = first + count
                ready.put_back_plain(end)
                is_done = False
                if not slots:
                    break
            # Long before it is reached, so that no delivery waits for the log.
            if progress.first_mark - end < MARK_RENEW:
                self._ask_mark(0)
            pool.left -= count
            part_left -= count
            dispatcher.held_count += count
            offsets = [first] if count == 1 else list(range(first, end))
            only.held.update(offsets)
            if handed is None:
                handed = Handed(self._queue, offsets, slots, None)
            else:
                handed.extend(offsets, slots, None)
            if not is_done or end == index.tail:
                break
        if handed is not None:
            if part_left <= 0:
                dispatcher.put_off()
                is_done = True
            if part_left < ALL:
                scheduler.took(len(handed.offsets))
            counts = self._counts
            counts.handed_out(handed.slots, None)
            if counts.waits is not None:
                self._count_waits(counts.waits, handed.offsets)
            if (trace := self._topic.trace) is not None:
                now_ms = self._port.log_time_ms()
                trace.handed_out(only, now_ms, self._queue, self._group, handed.offsets)
            only.sink.deliver(only, handed)
        return is_done

    def _count_waits(self, waits: WaitHistogram, offsets: Sequence[int]) -> None:
        """Count how long messages lay here, a run of them at a time."""
        now_ms, at = self._port.log_time_ms(), 0
        while at < len(offsets):
            run = self._index.find(offsets[at])
            count = min(run.end - offsets[at], len(offsets) - at)
            waits.add(now_ms - run.time_ms, count)
            at += count

    def _slots(self, parts: Sequence[Part]) -> list[bytes]:
        """The slots of some runs, up to the first that is not in memory."""
        newest = self._port.newest
        slots: list[bytes] = []
        for index, slot, count in parts:
            if index != newest.index:
                entry = self._port.entry(index)
                if entry is None:
                    break
                slots += entries.slots(entry, slot, count)
            elif count == 1:
                bounds = newest.bounds
                slots.append(newest.body[bounds[slot] : bounds[slot + 1]])
            else:
                body, bounds = newest.body, newest.bounds[slot : slot + count + 1]
                slots += [body[start:stop] for start, stop in pairwise(bounds)]
        return slots
