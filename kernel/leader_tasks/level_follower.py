"""Has every group turn on the features that group 0 has decided on (ADR 26).

Group 0 decides: its level is raised first, and is committed before anybody here sees it. The leader
of each other group then raises the level in its own log, whenever it comes to lead or group 0's
level has risen: a group without a leader, or whose members are away, follows later, and until then
nothing that takes the level is written to it.
"""

from __future__ import annotations

from functools import partial

from ..broker.log_commands import commands
from ..common.ids import METADATA_GROUP, RaftGroup
from ..requests.leader import NO_IDENTITY
from ..store.node import Store


class LevelFollower:
    """Of one store. Asked each second."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asked: set[RaftGroup] = set()
        """Groups of which a raise is on its way into the log."""

    def look(self) -> None:
        """Raise the level of groups that are led here and are behind group 0."""
        store = self._store
        if METADATA_GROUP not in store.groups:
            return
        level = store.feature_level
        for group in store.data_groups:
            leader = store.serving(group)
            behind = store.replica(group).state.feature_level < level
            if leader is not None and behind and group not in self._asked:
                self._asked.add(group)
                leader.propose(commands.RaiseLevel(level), NO_IDENTITY, partial(self._done, group))

    def _done(self, group: RaftGroup, _result: object) -> None:
        self._asked.discard(group)
