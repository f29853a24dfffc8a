"""What push streams ask of the process that leads groups: the same of all who lead any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...common.ids import RaftGroup, TopicId
from ...in_process.opening import LocalStore
from ...store.replicas.replica import Replica


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
