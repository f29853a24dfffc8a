"""What one Raft group knows: topics, queues, routers, and the clients whose retries it answers.

Plain records, changed only by `machine`. Everything here is durable state, in snapshots and in
the state hash.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from ..ids import LogIndex, Offset, QueueId, RaftGroup, TopicId
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
from .progress import Progress, unacked_by_any
from .runs import RunIndex

_STREAM = TopicKind.STREAM


class QueueState:
    """One queue: the index of its messages and how far each group has come."""

    __slots__ = ("groups", "id", "index", "recent", "topic", "trimmed")

    def __init__(self, ident: QueueId, topic: TopicState) -> None:
        self.id = ident
        self.topic = topic
        self.index = RunIndex()
        self.groups: dict[str, Progress] = {name: Progress() for name in topic.groups}
        self.trimmed = Offset(0)
        """Retention has let go of everything below it."""
        self.recent: OrderedDict[bytes, tuple[int, bytes, int]] | None = None
        """Deduplication ids of the topic's window, oldest first: (offset, uid, log time)."""

    def needed(self) -> list[tuple[int, int]]:
        """(start, end) ranges of offsets whose messages must be kept: what retention has not
        reached of a stream, what some group has not acked of anything else.
        """
        if self.topic.options.kind is TopicKind.STREAM:
            return [(self.trimmed, self.index.tail)] if self.trimmed < self.index.tail else []
        progresses = list(self.groups.values())
        floor = min((each.floor for each in progresses), default=self.index.tail)
        return unacked_by_any(progresses, floor, self.index.tail)

    def is_needed(self, offset: int) -> bool:
        """Whether one message must be kept."""
        if self.topic.options.kind is TopicKind.STREAM:
            return offset >= self.trimmed
        return not all(each.is_acked(offset) for each in self.groups.values())

    def forget(self) -> None:
        """Drop the front of the index that nobody needs any more."""
        if self.topic.options.kind is _STREAM:
            self.index.drop_below(self.trimmed)
        elif len(self.groups) == 1:
            (progress,) = self.groups.values()
            self.index.drop_below(progress.floor)
        elif self.groups:
            self.index.drop_below(min([each.floor for each in self.groups.values()]))


class TopicState:
    """A topic: its definition (in its home group) or the copy that the group of a queue keeps."""

    __slots__ = ("groups", "id", "name", "options", "refs", "tenant", "version")

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
        self.options = options
        self.refs = refs
        self.groups = groups

    def info(self) -> TopicInfo:
        """The definition as gateways see it."""
        return TopicInfo(
            self.tenant,
            self.name,
            self.id,
            self.version,
            self.options,
            self.refs,
            dict(self.groups),
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


class ClientResults:
    """Results of the last batches of one gateway process: repeats are answered from here."""

    __slots__ = ("floor", "results")

    def __init__(self) -> None:
        self.floor = 0
        self.results: OrderedDict[int, object] = OrderedDict()


class GroupState:
    """Everything of one Raft group."""

    __slots__ = (
        "applied",
        "clients",
        "group",
        "next_outbox",
        "next_topic",
        "outbox",
        "queues",
        "records",
        "routers",
        "term",
        "time_ms",
        "topic_names",
        "topics",
    )

    def __init__(self, group: RaftGroup) -> None:
        self.group = group
        self.applied = LogIndex(0)
        self.term = 0
        self.time_ms = 0
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
