"""Groups that this store has no replica of: it hears of them from their leaders, as a gateway does,
so that its look-ups show all that is defined in the cluster.

    member of the group         the replica shows it
    no member, or not yet       a mirror shows it (`definitions`), which begins as what is known

A store that leads a group needs this to change and to mend what the group decides (ADR 11):
whether the end of a route exists, and which routes lead to what is gone.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...api.model import TopicInfo
from ...common.ids import RaftGroup
from ...in_process.opening import LocalStore
from ...store.replicas.replica import Replica
from ..definitions.definitions import Definitions
from ..definitions.feed_service import everything
from ..definitions.mirror import SILENCE, InTopology, Mirror
from ..leader_calls.leaders import RemoteLeaders


class FollowedGroups:
    """Of one store."""

    def __init__(self, local: LocalStore, leaders: RemoteLeaders) -> None:
        """`leaders`: of connections to all stores."""
        self._store = local.store
        self._definitions = Definitions(leaders)
        self._definitions.hear(_InLookUps(local))
        self._definitions.watch()
        leaders.add(self._definitions)
        local.before_stop.append(self._definitions.stop)
        local.store.consensus.membership_watchers.append(self._look)

    def _look(self) -> None:
        """Follow what this store has no replica of, and nothing else."""
        followed = set(self._definitions.groups)
        for group in self._store.data_groups:
            holds = self._store.holds(group)
            if holds == (group in followed):
                known = _shown_by(self._store.replica(group))
                if holds:
                    self._definitions.leave(group, known)
                else:
                    self._definitions.follow(group, known)

    async def reached(self, indexes: Mapping[RaftGroup, int]) -> None:
        """Return once look-ups show every change of followed groups up to these indexes, which are
        those of changes of definitions. It may be never.
        """
        await self._definitions.until(indexes)


class _InLookUps(InTopology):
    """Has the store's client hear what it would hear of a replica."""

    def __init__(self, local: LocalStore) -> None:
        super().__init__(local.client.topology)
        self._client = local.client

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """Dead letters may have waited for it, and it may be one that is deleted if unused."""
        self._client.topic_changed(topic, removed=removed)


def _shown_by(replica: Replica) -> Mirror:
    """What look-ups show of a group as long as its replica counts."""
    mirror = Mirror()
    for item in everything(replica):
        mirror.take(item, SILENCE)
    return mirror
