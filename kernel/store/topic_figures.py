"""Figures of topics and their groups, read from what the leaders in this process have: depth, ages,
counts. Nothing is counted here, and nothing is changed: idle queues stay as they are packed.

Whoever has many topics goes through them a part at a time, by the iterator of `survey`, and lets
the event loop run in between; each topic is shown as it is at that moment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping

from ..api.model import TopicInfo, TopicKind
from ..broker.delivery.group_counts import NOTHING_COUNTED, GroupCounts
from ..broker.group_state.idle_record import IdleQueue
from ..broker.group_state.progress import GroupProgress
from ..broker.group_state.state import QueueState, TopicState
from ..broker.group_state.topic_usage import UsageSums, sums_of, usage_sums
from ..common.ids import QueueId, RaftGroup, TopicId, is_index
from .replicas.replica import Replica

_STREAM = TopicKind.STREAM


class GroupFigures:
    """Figures of one consumer group of a topic: its queues that are led in this process."""

    __slots__ = (
        "acked",
        "consumers",
        "counts",
        "delayed",
        "expired",
        "lag",
        "leased",
        "oldest_ms",
        "ready",
    )

    def __init__(
        self,
        lag: int,
        ready: int,
        leased: int,
        delayed: int,
        consumers: int,
        oldest_ms: int | None,
        expired: int,
        counts: GroupCounts,
    ) -> None:
        self.lag = lag
        """Messages that the group is not done with: those ready, leased and delayed."""
        self.ready = ready
        self.leased = leased
        self.delayed = delayed
        self.consumers = consumers
        self.oldest_ms = oldest_ms
        """Log time at which the oldest of them was stored."""
        self.acked = 0
        self.expired = expired
        self.counts = counts
        """What its leader counts, as it goes on; not to be changed."""

    def add(self, other: GroupFigures) -> None:
        """The figures of one queue more."""
        self.lag += other.lag
        self.ready += other.ready
        self.leased += other.leased
        self.delayed += other.delayed
        self.consumers += other.consumers
        self.expired += other.expired
        if self.oldest_ms is None or (
            other.oldest_ms is not None and other.oldest_ms < self.oldest_ms
        ):
            self.oldest_ms = other.oldest_ms
        self.counts = self.counts.with_those_of(other.counts)


QueueFigures = tuple[int, int, int]
"""Of one queue: its number, the first offset that somebody needs, the offset that comes next."""


class TopicFigures:
    """Figures of one topic: its queues that are led in this process."""

    __slots__ = (
        "acked",
        "groups",
        "info",
        "messages",
        "published",
        "published_bytes",
        "queues",
        "refused",
    )

    def __init__(self, info: TopicInfo) -> None:
        self.info = info
        self.published = self.published_bytes = self.refused = 0
        self.acked = 0
        """By all groups, those that are gone included."""
        self.messages = 0
        """From the first that somebody needs to the last, of all its queues."""
        self.queues: list[QueueFigures] = []
        self.groups: dict[str, GroupFigures] = {}

    def add_queue(self, number: int, first: int, following: int) -> None:
        """A queue; see `QueueFigures`."""
        self.queues.append((number, first, following))
        self.messages += following - first

    def add_group(self, name: str, group: GroupFigures) -> None:
        """A group of one queue."""
        known = self.groups.get(name)
        if known is None:
            self.groups[name] = group
        else:
            known.add(group)

    def add_usage(self, usage: UsageSums) -> None:
        """What one Raft group has counted of the topic."""
        self.published += usage.published
        self.published_bytes += usage.published_bytes
        for name, messages in usage.acked.items():
            self.acked += messages
            group = self.groups.get(name)
            if group is not None:
                group.acked += messages


def survey(replicas: Iterable[Replica]) -> Iterator[TopicFigures]:
    """Figures of every topic of which a queue is led here, each once. Topics that come meanwhile
    may be missing, those that go are left out.
    """
    serving = {each.group: each for each in replicas if each.serving}
    for replica in list(serving.values()):
        for ident in list(replica.state.topics):
            found = _figures(serving, replica, ident)
            if found is not None:
                yield found


def _figures(
    serving: Mapping[RaftGroup, Replica], replica: Replica, ident: TopicId
) -> TopicFigures | None:
    """Figures of a topic; None: another group's turn shows it, or none of its queues is here."""
    topic = replica.state.topics.get(ident)
    if topic is None or not replica.serving:
        return None
    info = topic.definition
    if len(info.queues) == 1:
        ref = info.queues[0]
        if ref.group != replica.group:
            return None
        figures = TopicFigures(info)
        _add_queue(figures, replica, topic, 0, ref.id)
        if topic.idle_record is None:
            figures.add_usage(usage_sums(topic.counted))
        return figures if figures.queues else None
    first = next((ref.group for ref in info.queues if ref.group in serving), None)
    if first != replica.group:
        return None
    figures = TopicFigures(info)
    topics: dict[RaftGroup, TopicState] = {}
    for number, ref in zip(info.numbers, info.queues, strict=True):
        each = serving.get(ref.group)
        own = each.state.topics.get(ident) if each is not None else None
        if each is not None and own is not None:
            topics[ref.group] = own
            _add_queue(figures, each, own, number, ref.id)
    for own in topics.values():
        figures.add_usage(usage_sums(own.counted))
    return figures if figures.queues else None


def _add_queue(
    figures: TopicFigures, replica: Replica, topic: TopicState, number: int, ident: QueueId
) -> None:
    queues, refused = replica.state.queues, replica.counts.refused
    queue = queues.live.get(ident)
    if queue is None:
        idle = queues.raw(ident)
        if isinstance(idle, IdleQueue):
            _add_idle(figures, replica, topic, idle, number, ident)
        return
    if refused:
        figures.refused += refused.get(ident, 0)
    tail = queue.index.tail
    if queue.pending_acks is not None:
        # A list of the topic tree: its groups are subscribers, too many to be shown here.
        figures.add_queue(number, min(queue.pending_acks.floor, tail), tail)
        return
    figures.add_queue(number, min(queue.first_needed, tail), tail)
    for name, progress in queue.groups.items():
        figures.add_group(name, _progress(replica, queue, name, progress))


def _add_idle(
    figures: TopicFigures,
    replica: Replica,
    topic: TopicState,
    queue: IdleQueue,
    number: int,
    ident: QueueId,
) -> None:
    """A packed queue, of which nobody holds anything and nothing waits for its time."""
    counts, tail, young = replica.counts, queue.tail, queue.young
    figures.refused += counts.refused.get(ident, 0)
    first = tail
    for name, (floor, _marks, _used_ms, expired) in queue.groups.items():
        oldest_ms = None
        if floor < tail:
            first = min(first, floor)
            at = max(bisect_right(young, (floor + 1,)) - 1, 0)
            oldest_ms = young[at][3] if young else None
        lag = tail - floor
        counted = counts.get(ident, name) or NOTHING_COUNTED
        figures.add_group(name, GroupFigures(lag, lag, 0, 0, 0, oldest_ms, expired, counted))
    if topic.definition.options.kind is _STREAM:
        first = queue.trimmed
    figures.add_queue(number, first, tail)
    if queue.counted is not None:
        figures.add_usage(sums_of(queue.counted))


def _progress(
    replica: Replica, queue: QueueState, name: str, progress: GroupProgress
) -> GroupFigures:
    """How far a group is in a queue, and what it was handed."""
    floor, tail = progress.floor, queue.index.tail
    lag, oldest_ms = 0, None
    if floor < tail:
        lag = tail - floor - progress.acked_above
        oldest_ms = queue.index.time_at(max(floor, queue.index.head))
    counts = replica.counts.get(queue.id, name) or NOTHING_COUNTED
    expired = progress.expired
    dispatcher = replica.known_dispatcher(queue.id, name)
    if dispatcher is None:
        leased, hidden = progress.leased, progress.hidden
        ready = max(lag - leased - hidden, 0)
        return GroupFigures(lag, ready, leased, hidden, 0, oldest_ms, expired, counts)
    return GroupFigures(
        lag,
        dispatcher.ready_count,
        dispatcher.leased_count,
        dispatcher.delayed_count,
        dispatcher.consumer_count,
        oldest_ms,
        expired,
        counts,
    )


def is_shown(topic: TopicInfo) -> bool:
    """Whether a topic is one by name: not one that a client keeps to itself, nor a list of the
    topic tree. Those others count for their tenant.
    """
    return not topic.options.hidden and not is_index(topic.id)
