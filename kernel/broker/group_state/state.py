"""The state of one Raft group: topics, queues, routers, and the clients whose retries it answers.

Plain records, changed only by `machine`. Everything here is durable state, in snapshots and in
the state hash.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from ...api.model import DeadLetter, Reason, Route, RouterInfo, RouterOptions
from ...common.ids import LogIndex, Offset, QueueId, RaftGroup, TopicId, topic_of
from ...common.names import ByName
from ...raft.messages import Membership
from .deduplication import Recent
from .halves import Halves
from .queues import Queues
from .resized import ResizedTopic
from .retained import Retained
from .stored import Stored
from .topic_state import INDEX_GROUP, INDEX_GROUPS, QueueState, TopicState
from .tree_state import SubscriberState, WillItem
from .usage import Ledger

__all__ = [
    "INDEX_GROUP",
    "INDEX_GROUPS",
    "ClientResults",
    "GroupState",
    "OutboxItem",
    "QueueState",
    "RouterState",
    "Saver",
    "Section",
    "TopicState",
]


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
        "feature_level",
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
        "record_version",
        "records",
        "resized",
        "retained",
        "routers",
        "sealed",
        "stored",
        "subscriber_names",
        "subscribers",
        "term",
        "time_ms",
        "topic_names",
        "topics",
        "wills",
        "windows",
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
        self.feature_level = 0
        """What is on in this group (`feature_levels`); the log has raised it."""
        self.record_version = 0
        """With REGISTER on: no version of a record that was removed is above it, and that of each
        one that is made is."""
        self.next_topic = 1
        self.next_outbox = 1
        self.topics: dict[TopicId, TopicState] = {}
        self.topic_names: ByName[TopicId] = ByName()
        """Only topics whose home is this group."""
        self.queues = Queues(self.topics)
        self.resized: dict[TopicId, ResizedTopic] = {}
        """Of topics that were resized: stands with the topic in a snapshot."""
        self.sealed: set[QueueId] = set()
        """Queues that take no new message; follows from `resized`."""
        self.windows: dict[QueueId, Recent] = {}
        """What sealed queues of other groups that have successors here know of deduplication ids,
        until it is past."""
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
        self.stored = Stored()
        """What the queues hold: it follows from them, so no part of snapshots."""
        self.cut: Saver | None = None
        """The snapshot that is being taken; no part of the state."""

    def takes_nothing(self, queue: QueueId) -> bool:
        """Whether a queue is sealed, or has been and is gone: its topic has others by now."""
        return queue in self.sealed or (
            topic_of(queue) in self.resized and queue not in self.queues
        )

    def only_windows(self) -> set[TopicId]:
        """Ids of topics of which windows were told here, and nothing else is known (yet)."""
        return {topic_of(queue) for queue in self.windows} - self.topics.keys()

    def result_of(self, identity: tuple[int, int, int]) -> object:
        """What a gateway's batch (client, epoch, sequence) came to; None: it has not been applied,
        or so long ago that it is forgotten.
        """
        known = self.clients.get(identity[:2])
        return known.results.get(identity[2]) if known is not None else None

    def changing(self, section: Section, key: object) -> None:
        """An element is about to be changed or removed."""
        if self.cut is not None:
            self.cut.save(section, key)
