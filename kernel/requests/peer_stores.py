"""The other stores of a cluster, as the client of a store asks them (`remote.peer_stores.stores`).

A store has replicas of groups, of all perhaps, and leads some. What a group decides is decided by
its leader; what a store knows of the groups that others lead, by its replica or by a feed, is a
little behind. These are the questions that bridge both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from ..api.changes import Administration
from ..common.ids import QueueId, RaftGroup, TopicId
from .leader import Done, Identity, Leader
from .request_pipeline import Attempt

Kind = Literal["topic", "router"]

ListReader = tuple[str, str, str]
"""(tenant, pattern, consumer group): who reads a list of the topic tree."""

WANTED_READERS_MAX = 100
"""Readers that are asked about at once: of the longest patterns 7 MB, of usual ones some KB."""


class TopicUse(NamedTuple):
    """What was stored of a topic in one Raft group, since it has been there."""

    bytes: int
    tails: Mapping[int, int]
    """By number of a queue: the offset that comes next."""


Used = Mapping[TopicId, TopicUse]


Version = tuple[int, int, int]
"""Of the keys that a sealed queue has unsettled: (term, number of the list in it, keys that have
become free)."""

NO_VERSION: Version = (0, 0, 0)
"""Nothing is known."""


class KeysQuestion(NamedTuple):
    """Which keys has a sealed queue unsettled for a consumer group, or which have become free?"""

    queue: QueueId
    group: str
    end: int
    """Where the queue ends."""
    version: Version
    """What is known."""


class KeysAnswer(NamedTuple):
    """What its leader says."""

    version: Version
    keys: Sequence[int] | None
    """None: they are too many."""
    is_all: bool
    """These are all that have something unsettled; if not, they have become free since."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Something that does not exist any more, once a group has applied an index."""

    tenant: str
    kind: Kind
    name: str
    home: RaftGroup
    """The group that defined it."""
    index: int


@dataclass(frozen=True, slots=True)
class MoveStep:
    """Some of the ready messages of a queue that are to be moved (`mover`)."""

    tenant: str
    queue: QueueId
    group: str
    """Consumer group."""
    destination: str | None
    count: int
    """At most so many."""
    back_to: tuple[str, ...] | None = None
    """See `changes.StartMove`."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What has come of that."""

    moved: int
    left: int
    """Messages that are ready still."""
    failure: str | None = None
    """Value of `moves.MoveFailure`: why no more can be moved."""


@dataclass(frozen=True, slots=True)
class TopicPart:
    """What a group has of a topic, which is perhaps defined in another."""

    id: TopicId
    tenant: str
    name: str
    """Both empty if it has heard only what the topic's queues elsewhere have seen (ADD_WINDOW)."""
    groups: Collection[str]
    """Its consumer groups."""


class PeerStores(Protocol):
    """Each raises KernelError UNAVAILABLE if the leader that is asked does not answer in time."""

    def send(self, group: RaftGroup, attempt: Attempt, done: Done) -> None:
        """Have a command with an identity carried out in a group, once, whoever leads it."""

    def leader(self, group: RaftGroup) -> Leader:
        """The leader of a group, in another store."""

    def next_identity(self) -> Identity:
        """Under which a change of this store is made once."""

    async def administer(self, change: Administration, identity: Identity | None = None) -> object:
        """Make a change at the leader that decides it; this store's look-ups show it then."""

    async def level(self, groups: Iterable[RaftGroup]) -> None:
        """Return once look-ups show what these groups had committed when it asked."""

    async def reached(self, indexes: Mapping[RaftGroup, int]) -> None:
        """Return once look-ups show each group up to an index: that of its last change of a
        definition, or one before.
        """

    async def defined(self, group: RaftGroup) -> int:
        """Index of the last entry that has changed a definition of a group."""

    async def parts(self, group: RaftGroup, homes: Collection[RaftGroup]) -> Sequence[TopicPart]:
        """What a group has of topics that are defined in `homes`, as committed when it is asked."""

    async def clear(self, group: RaftGroup, gone: Gone) -> Mapping[RaftGroup, int]:
        """Have the routes to something that is gone removed from the routers of a group. Returns
        where look-ups show it: indexes by group.
        """

    async def used(self, group: RaftGroup, topics: Collection[TopicId]) -> Used:
        """What a group has stored of topics so far; of what is not there nothing."""

    async def wanted(self, home: RaftGroup, readers: Collection[ListReader]) -> set[ListReader]:
        """Which of these readers, WANTED_READERS_MAX at most, a subscriber wants who has its home
        there, as committed when it is asked.
        """

    async def unsettled_keys(self, group: RaftGroup, question: KeysQuestion) -> KeysAnswer:
        """What the leader of a sealed queue says, as soon as a key is free, or some time has
        passed. Raises KernelError NOT_FOUND (it knows no such queue), INVALID_ARGUMENT (a store of
        an older build).
        """

    async def idle_ms(self, group: RaftGroup, topic: TopicId) -> int:
        """How long nobody has used the queues that a topic has in a group."""

    async def move(self, group: RaftGroup, step: MoveStep) -> Moved:
        """Have messages moved from a queue. Asked once: what becomes of it without an answer is not
        known.
        """
