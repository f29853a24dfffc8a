"""What push streams ask of the process that leads groups: the same of all who lead any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ...api.model import TopicInfo
from ...common.errors import Code, KernelError
from ...common.ids import TRANSIENT_GROUP, RaftGroup, TopicId
from ...in_process.opening import LocalStore
from ...store.replicas.replica import Replica
from ...store.transient import TransientGroup


class LedGroups(Protocol):
    """The groups whose streams a process serves while it leads them."""

    @property
    def groups(self) -> Sequence[RaftGroup]:
        """All that it may lead."""

    @property
    def is_draining(self) -> bool:
        """Whether it is about to end."""

    def serving(self, group: RaftGroup, /) -> object:
        """What serves a group, if this process leads it, else None (hot)."""

    def standing(self, group: RaftGroup, /) -> tuple[int, int]:
        """(term of a group, number of the node that leads it, or 0)."""

    def replica(self, group: RaftGroup, /) -> Replica:
        """A group (hot)."""

    def dirty(self, replica: Replica, /, *, urgent: bool) -> None:
        """Have what a replica was asked for carried out."""

    def is_alone(self, group: RaftGroup, /) -> bool:
        """Whether nobody else can lead a group."""

    def used(self, topic: TopicId, group: str, /) -> None:
        """Somebody consumes from a topic."""

    def check_consumer(self, topic: TopicInfo, /) -> None:
        """Raise KernelError LOCKED if nobody else may consume from a topic."""


class StoreGroups:
    """`LedGroups` of a store."""

    def __init__(self, local: LocalStore) -> None:
        self._store = local.store
        self._client = local.client
        # Asked for every message: no call in between.
        self.serving = self._store.serving
        self.replica = self._store.replica
        self.dirty = self._store.dirty
        self.standing = self._store.standing
        self.used = self._client.used
        self._store.awaits_claims = True

    @property
    def groups(self) -> Sequence[RaftGroup]:
        """All that the store may lead."""
        return self._store.groups

    @property
    def is_draining(self) -> bool:
        """Whether the store is about to end."""
        return self._client.is_draining

    def is_alone(self, group: RaftGroup, /) -> bool:
        """Whether no other store can lead a group."""
        return self._store.consensus.is_alone(self._store.member(group))

    def check_consumer(self, topic: TopicInfo, /) -> None:
        """What is durable is no session's own."""


class MemoryGroup:
    """`LedGroups` of a gateway: one group, its memory, which nobody else leads, in term 1."""

    groups: Sequence[RaftGroup] = (TRANSIENT_GROUP,)

    def __init__(self, transient: TransientGroup, used: Callable[[TopicId], None]) -> None:
        """`used` is told of topics that somebody consumes from."""
        self._transient = transient
        self._used = used
        self.dirty = transient.dirty
        self.is_draining = False

    def serving(self, group: RaftGroup, /) -> object:
        """What serves the group; None: another is asked for."""
        return self._transient.leader if group == TRANSIENT_GROUP else None

    def standing(self, _group: RaftGroup, /) -> tuple[int, int]:
        """It never changes."""
        return 1, 0

    def replica(self, _group: RaftGroup, /) -> Replica:
        """The group."""
        return self._transient.replica

    def is_alone(self, _group: RaftGroup, /) -> bool:
        """Nobody else can lead it."""
        return True

    def used(self, topic: TopicId, _group: str, /) -> None:
        """Somebody consumes from a topic."""
        self._used(topic)

    def check_consumer(self, topic: TopicInfo, /) -> None:
        """Raise KernelError LOCKED if a topic is a session's own, which is one of this gateway."""
        if topic.options.owner is not None:
            raise KernelError(Code.LOCKED, f"topic {topic.name} is another session's")
