"""What one Raft group knows: topics, queues, routers, and the clients whose retries it answers.

Plain records, changed only by `machine`. Everything here is durable state, in snapshots and in
the state hash.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from ..ids import LogIndex, Offset, QueueId, RaftGroup, TopicId, is_index
from ..model import (
    DeadLetter,
    GroupOptions,
    QueueRef,
    Reason,
    Route,
    RouterInfo,
    RouterOptions,
    TopicInfo,
    TopicKind,
    TopicOptions,
)
from ..raft.messages import Membership
from .alike import alike_groups, alike_options
from .features import Feature
from .halves import Halves
from .owed import Owed
from .progress import Progress, unacked_by_any
from .recent import Recent
from .retained import Retained
from .runs import RunIndex
from .tree_state import SubscriberState, WillItem
from .usage import NOTHING_COUNTED, Ledger

_STREAM = TopicKind.STREAM


INDEX_GROUP = GroupOptions()


class _IndexGroups(dict[str, GroupOptions]):
    """Groups of a reference list: all the same, and so many that none of them stands here.
    `QueueState.groups` has their names.
    """

    __slots__ = ()

    def __missing__(self, name: str) -> GroupOptions:
        return INDEX_GROUP


INDEX_GROUPS = _IndexGroups()
"""Shared by all reference lists; never changed."""


class QueueState:
    """One queue: the index of its messages and how far each group has come."""

    __slots__ = ("groups", "id", "index", "owed", "recent", "topic", "trimmed")

    def __init__(self, ident: QueueId, topic: TopicState) -> None:
        self.id = ident
        self.topic = topic
        self.index = RunIndex()
        self.groups: dict[str, Progress] = {name: Progress() for name in topic.groups}
        self.owed = Owed() if is_index(topic.id) else None
        """Set for the reference list of a tree pattern, which may have very many groups."""
        self.trimmed = Offset(0)
        """Retention has let go of everything below it."""
        self.recent: Recent | None = None
        """Deduplication ids of the topic's window."""

    @property
    def needs_watching(self) -> bool:
        """Whether messages must be looked after although nobody consumes them. The reference lists
        of the topic tree are not: what expires there is dropped when somebody comes for it.
        """
        if self.owed is not None:
            return False
        options = self.topic.options
        limited = options.messages_max is not None or options.bytes_max is not None
        return limited or options.message_ttl_ms is not None or self.index.delays or self.index.ttls

    @property
    def first_needed(self) -> int:
        """The lowest offset that must be kept (`tail` if none), but for reference lists."""
        if self.topic.options.kind is _STREAM:
            return self.trimmed
        return min([each.floor for each in self.groups.values()], default=self.index.tail)

    def needed(self) -> list[tuple[int, int]]:
        """(start, end) ranges of offsets whose messages must be kept: what retention has not
        reached of a stream, what some group has not acked of anything else.
        """
        return self.needed_below(self.index.tail)

    def needed_below(self, end: int) -> list[tuple[int, int]]:
        """Those of the ranges that begin below `end` (at most `tail`), most cut off there."""
        if self.owed is not None:
            return self.owed.ranges()
        first = self.first_needed
        if self.topic.options.kind is _STREAM:
            return [(first, end)] if first < end else []
        return unacked_by_any(list(self.groups.values()), min(first, end), end)

    def is_needed(self, offset: int) -> bool:
        """Whether one message must be kept."""
        if self.topic.options.kind is TopicKind.STREAM:
            return offset >= self.trimmed
        if self.owed is not None:
            return self.owed.is_owed(offset)
        return not all(each.is_acked(offset) for each in self.groups.values())

    def fail_handed_out(self, progress: Progress, level: int, mark: int) -> None:
        """Count a failed delivery of every unacked message of a priority level below its mark."""
        single = self.topic.options.priority_max == 0
        start, end = max(progress.floor, self.index.head), min(mark, self.index.tail)
        while start < end:
            run = self.index.find(start)
            stop = min(run.end, end)
            for low, high in list(progress.free(start, stop)):
                for offset in range(low, high):
                    if single or run.value(Feature.PRIORITY, offset) == level:
                        progress.failed(offset)
            start = stop

    def forget(self) -> None:
        """Drop the front of the index that nobody needs any more."""
        if self.topic.options.kind is _STREAM:
            self.index.drop_below(self.trimmed)
        elif self.owed is not None:
            self.index.drop_below(self.owed.floor)
        elif len(self.groups) == 1:
            (progress,) = self.groups.values()
            self.index.drop_below(progress.floor)
        elif self.groups:
            self.index.drop_below(min([each.floor for each in self.groups.values()]))


class TopicState:
    """A topic: its definition (in its home group) or the copy that the group of a queue keeps."""

    __slots__ = ("groups", "id", "name", "options", "refs", "tenant", "usage", "version")

    def __init__(
        self,
        ident: TopicId,
        tenant: str,
        name: str,
        version: int,
        options: TopicOptions,
        refs: tuple[QueueRef, ...],
        groups: dict[str, GroupOptions],
    ) -> None:
        self.id = ident
        self.tenant = tenant
        self.name = name
        self.version = version
        self.options = alike_options(options)
        self.refs = refs
        self.groups = groups if groups is INDEX_GROUPS else alike_groups(groups)
        """Never changed, only replaced: many topics share it."""
        self.usage = NOTHING_COUNTED

    def info(self) -> TopicInfo:
        """The definition as gateways see it."""
        return TopicInfo(
            self.tenant,
            self.name,
            self.id,
            self.version,
            self.options,
            self.refs,
            self.groups,
        )


@dataclass(slots=True)
class RouterState:
    """A router and its routes, in insertion order."""

    tenant: str
    name: str
    version: int
    options: RouterOptions
    routes: dict[Route, None] = field(default_factory=dict)

    def info(self) -> RouterInfo:
        """The definition as gateways see it."""
        return RouterInfo(self.tenant, self.name, self.version, self.options, tuple(self.routes))


@dataclass(slots=True)
class OutboxItem:
    """A dead letter on its way to another queue: acked in its group, kept until it is there."""

    number: int
    tenant: str
    topic: str
    target: DeadLetter
    queue: QueueId
    offset: Offset
    index: LogIndex
    slot: int
    reason: Reason
    attempts: int
    stored_ms: int = 0
    """Log time at which the message was first stored, if its age goes with it; else 0."""


class ClientResults:
    """Results of the last batches of one gateway process: repeats are answered from here."""

    __slots__ = ("floor", "results", "used_ms")

    def __init__(self) -> None:
        self.floor = 0
        self.used_ms = 0
        """Log time of its last batch."""
        self.results: OrderedDict[int, object] = OrderedDict()


class Section(IntEnum):
    """Parts of a group's state whose elements stand in a snapshot one by one, in this order."""

    TOPICS = 1
    QUEUES = 2
    ROUTERS = 3
    OUTBOX = 4
    RECORDS = 5
    CLIENTS = 6
    HALVES = 7
    SUBSCRIBERS = 8
    ENDED_SUBSCRIBERS = 9
    WILLS = 10
    RETAINED = 11
    USAGE = 12
    """Counts of a topic: they change with its queues only, which a snapshot hears of."""


class Saver(Protocol):
    """A snapshot under way: hears of each element before it is changed or removed."""

    def save(self, section: Section, key: object) -> None:
        """Keep the element as it is, unless it is kept or written already; a queue with the
        progress of every group.
        """

    def save_queue(self, ident: QueueId, group: str) -> None:
        """The same for a queue of whose groups at most one is about to get on ("": none): there
        may be ten thousand.
        """


class GroupState:
    """Everything of one Raft group.

    Whoever changes or removes an element of a `Section` calls `changing` first: the snapshot that
    is being taken wants it as it was.
    """

    __slots__ = (
        "applied",
        "clients",
        "cut",
        "ended_subscribers",
        "expired",
        "group",
        "halves",
        "indexes",
        "ledger",
        "membership",
        "next_index",
        "next_outbox",
        "next_subscriber",
        "next_topic",
        "outbox",
        "outbox_clients",
        "queues",
        "records",
        "retained",
        "routers",
        "subscriber_names",
        "subscribers",
        "term",
        "time_ms",
        "topic_names",
        "topics",
        "wills",
    )

    def __init__(self, group: RaftGroup) -> None:
        self.group = group
        self.membership: Membership | None = None
        """Members of the Raft group, once there was a change of them; None: this node alone."""
        self.applied = LogIndex(0)
        self.term = 0
        self.time_ms = 0
        self.expired = 0
        """Messages dropped unacked because they were too old, each once for every group that lost
        it; those of topics that are gone included."""
        self.next_topic = 1
        self.next_outbox = 1
        self.topics: dict[TopicId, TopicState] = {}
        self.topic_names: dict[tuple[str, str], TopicId] = {}
        """Only topics whose home is this group."""
        self.queues: dict[QueueId, QueueState] = {}
        self.routers: dict[tuple[str, str], RouterState] = {}
        self.records: dict[str, tuple[int, bytes]] = {}
        """Metadata (in group 0): (version, value) by key; the kernel does not look inside."""
        self.outbox: dict[int, OutboxItem] = {}
        self.clients: dict[tuple[int, int], ClientResults] = {}
        """By (client, epoch), the one not used for longest first."""
        self.outbox_clients: dict[tuple[int, int], ClientResults] = {}
        """The same for outboxes of groups (`ids.OUTBOX_CLIENT`): never forgotten."""
        self.indexes: dict[tuple[str, str], TopicId] = {}
        """Reference lists of tree patterns in this group, by (tenant, pattern)."""
        self.next_index = 1
        self.retained = Retained()
        self.subscribers: dict[int, SubscriberState] = {}
        self.subscriber_names: dict[tuple[str, str], int] = {}
        self.next_subscriber = 1
        self.ended_subscribers: dict[int, SubscriberState] = {}
        """Those that are over, but have not left all their reference lists."""
        self.wills: dict[int, WillItem] = {}
        """Wills on their way into the tree."""
        self.halves = Halves()
        self.ledger = Ledger()
        """What was served, as far as it is not reported (each topic has its counts)."""
        self.cut: Saver | None = None
        """The snapshot that is being taken; no part of the state."""

    def changing(self, section: Section, key: object) -> None:
        """An element is about to be changed or removed."""
        if self.cut is not None:
            self.cut.save(section, key)
