"""What the leader of a queue counts of one group beside what the state machine counts: plain
integers, for metrics. In memory, from zero when this process began; nothing is billed by them.

A dispatcher has its group's counts in hand, so that counting is an addition for each batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from ...api.message import HEADER_BYTES
from ...api.model import Reason
from ...common.ids import QueueId
from ..group_state.state import QueueState
from ..group_state.topic_usage import usage_sums

COUNTS_MAX = 100_000
"""Groups of one Raft group that are counted: 40 MB at most. Beyond it the one that began first, and
that nobody consumes from, begins at zero again."""

WAIT_BOUNDS_MS = (1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 60_000, 600_000, 3_600_000)
"""Buckets of the time in queue: up to so many milliseconds, and one for all above."""


class WaitHistogram:
    """How long messages lay in their queue before they were handed out."""

    __slots__ = ("buckets", "sum_ms")

    def __init__(self) -> None:
        self.buckets = [0] * (len(WAIT_BOUNDS_MS) + 1)
        self.sum_ms = 0

    def add(self, waited_ms: int, messages: int) -> None:
        """Count messages that waited as long as each other."""
        waited_ms = max(waited_ms, 0)
        self.buckets[bisect_left(WAIT_BOUNDS_MS, waited_ms)] += messages
        self.sum_ms += waited_ms * messages

    def add_all(self, other: WaitHistogram) -> None:
        """What another one has counted."""
        pairs = zip(self.buckets, other.buckets, strict=True)
        self.buckets = [one + more for one, more in pairs]
        self.sum_ms += other.sum_ms

    def cumulative(self) -> list[int]:
        """Messages that waited up to each bound, and all of them."""
        return list(accumulate(self.buckets))


class GroupCounts:
    """Of one (queue, group)."""

    __slots__ = (
        "dead_letters",
        "delivered",
        "delivered_bytes",
        "discarded",
        "redelivered",
        "waits",
    )

    def __init__(self, waits: WaitHistogram | None = None) -> None:
        """`waits`: None: nobody asked for the time in queue."""
        self.delivered = 0
        """Messages handed to consumers, each time they were."""
        self.delivered_bytes = 0
        """Their properties and bodies."""
        self.redelivered = 0
        """Of these, messages whose delivery before came to nothing."""
        self.dead_letters: dict[Reason, int] | None = None
        self.discarded: dict[Reason, int] | None = None
        """Messages that would have been dead letters, if somebody took these."""
        self.waits = waits

    def with_those_of(self, other: GroupCounts) -> GroupCounts:
        """Both added up, in another object."""
        found = GroupCounts()
        found.delivered = self.delivered + other.delivered
        found.delivered_bytes = self.delivered_bytes + other.delivered_bytes
        found.redelivered = self.redelivered + other.redelivered
        for each in (self, other):
            for reason, messages in (each.dead_letters or {}).items():
                found.given_up(reason, messages, dead_lettered=True)
            for reason, messages in (each.discarded or {}).items():
                found.given_up(reason, messages, dead_lettered=False)
            if each.waits is not None:
                found.waits = found.waits or WaitHistogram()
                found.waits.add_all(each.waits)
        return found

    def handed_out(self, slots: Sequence[bytes], attempts: Sequence[int] | None) -> None:
        """A batch goes to consumers (hot)."""
        count = len(slots)
        self.delivered += count
        # One of a queue is what batches over many queues are made of: a sum costs thrice as much.
        size = len(slots[0]) if count == 1 else sum(map(len, slots))
        self.delivered_bytes += size - HEADER_BYTES * count
        if attempts is not None:
            self.redelivered += sum([each > 1 for each in attempts])

    def given_up(self, reason: Reason, messages: int, *, dead_lettered: bool) -> None:
        """Messages left the group unacked."""
        counts = self.dead_letters if dead_lettered else self.discarded
        if counts is None:
            counts = {}
            if dead_lettered:
                self.dead_letters = counts
            else:
                self.discarded = counts
        counts[reason] = counts.get(reason, 0) + messages


NOTHING_COUNTED = GroupCounts()
"""Of every group that nothing was counted of; never changed."""


class GoneCounts:
    """What had been counted of one tenant's groups that are gone, so that no sum ever falls."""

    __slots__ = (
        "acked",
        "dead_lettered",
        "delivered",
        "delivered_bytes",
        "discarded",
        "published",
        "published_bytes",
        "redelivered",
        "refused",
    )

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)

    published: int
    published_bytes: int
    acked: int
    delivered: int
    delivered_bytes: int
    redelivered: int
    dead_lettered: int
    discarded: int
    refused: int

    def add(self, counts: GroupCounts) -> None:
        """The counts of a group are given up."""
        self.delivered += counts.delivered
        self.delivered_bytes += counts.delivered_bytes
        self.redelivered += counts.redelivered
        self.dead_lettered += sum((counts.dead_letters or {}).values())
        self.discarded += sum((counts.discarded or {}).values())


class CountsOfGroups:
    """The counts of all groups of one Raft group, as far as they were ever needed here."""

    def __init__(
        self,
        in_use: Callable[[tuple[QueueId, str]], bool],
        tenant_of: Callable[[QueueId], str | None],
    ) -> None:
        """`in_use(key)`: whether somebody keeps the counts of a (queue, group)."""
        self._in_use = in_use
        self._tenant_of = tenant_of
        self.gone: dict[str, GoneCounts] = {}
        """By tenant."""
        self._counts: dict[tuple[QueueId, str], GroupCounts] = {}
        self.refused: dict[QueueId, int] = {}
        """Messages that a full topic refused, by the queue they were for."""
        self.wants_waits: Callable[[QueueId], bool] = lambda _queue: False
        """Whether the time in a queue is to be counted; asked once for each of its groups."""
        self.forgotten = 0
        """Groups that began at zero again, above COUNTS_MAX."""

    def get(self, queue: QueueId, group: str) -> GroupCounts | None:
        """The counts of a group, if there are any."""
        return self._counts.get((queue, group))

    def of(self, queue: QueueId, group: str) -> GroupCounts:
        """The counts of a group, made if there are none."""
        found = self._counts.get((queue, group))
        if found is None:
            if len(self._counts) >= COUNTS_MAX:
                self._forget_one()
            waits = WaitHistogram() if self.wants_waits(queue) else None
            found = self._counts[queue, group] = GroupCounts(waits)
        return found

    def delivered_bytes(self) -> int:
        """Of all groups, those that are gone included: one look at each."""
        gone = sum(each.delivered_bytes for each in self.gone.values())
        return gone + sum([each.delivered_bytes for each in self._counts.values()])

    def refuse(self, queue: QueueId, messages: int) -> None:
        """A full topic refused messages."""
        self.refused[queue] = self.refused.get(queue, 0) + messages

    def _forget_one(self) -> None:
        """Forget the first that nobody keeps; of those that somebody does, two are passed over."""
        for _ in range(3):
            key = next(iter(self._counts))
            found = self._counts.pop(key)
            if not self._in_use(key):
                self.forgotten += 1
                tenant = self._tenant_of(key[0])
                if tenant is not None:
                    self.gone_of(tenant).add(found)
                return
            self._counts[key] = found

    def gone_of(self, tenant: str) -> GoneCounts:
        """What is gone of one tenant's."""
        found = self.gone.get(tenant)
        if found is None:
            found = self.gone[tenant] = GoneCounts()
        return found

    def queues_removed(self, queues: Sequence[QueueState]) -> None:
        """Queues of a topic are gone with it."""
        for queue in queues:
            tenant = queue.topic.tenant
            self.drop(tenant, queue.id, queue.groups)
            self.gone_of(tenant).refused += self.refused.pop(queue.id, 0)
        if queues:
            usage = usage_sums(queues[0].topic.usage)
            gone = self.gone_of(queues[0].topic.tenant)
            gone.published += usage.published
            gone.published_bytes += usage.published_bytes
            gone.acked += sum(usage.acked.values())

    def drop(self, tenant: str, queue: QueueId, groups: Iterable[str]) -> None:
        """Groups of a queue are gone."""
        for group in groups:
            found = self._counts.pop((queue, group), None)
            if found is not None:
                self.gone_of(tenant).add(found)
