"""Consumer groups that nobody uses stop holding data (docs/design/model.md#consumer-groups).

A group that was added to a work topic holds what it has not acked, for itself alone, for ever. If
nobody has used it for `GroupOptions.unused_ms` (30 days), what it holds is let go, again every
minute until somebody uses it. The group and its settings stay. The built-in group of a work topic
never counts as unused: its messages wait for as long as it takes; streams keep by time and size.

Use is a consumer or a receive. When a group was last used stands in the state (`Progress.used_ms`):
every lease, mark and settlement says so, and this module once a day for consumers that find
nothing. Whoever begins to lead a queue holds nobody to be gone before it had an hour to come.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..api.model import DEFAULT_GROUP, TopicKind
from ..broker.group_state.state import QueueState
from ..broker.log_commands import commands
from ..common.ids import Offset, RaftGroup, TopicId, topic_of
from ..store.leading import group_use
from ..store.node import Store
from ..store.replicas.replica import Replica

CHECK_MS = 60_000
"""How often groups are looked at."""

GRACE_MS = 3_600_000
"""Time for consumers to come to a new leader."""


class UnusedGroups:
    """Looks after the groups of a store in this process."""

    def __init__(self, store: Store, now_ms: int) -> None:
        """`now_ms` here and below: the monotonic clock."""
        self._store = store
        self._started_ms = now_ms
        self._looked_ms = now_ms
        self._began_ms: dict[RaftGroup, int] = {}
        """When each group began to be led here."""
        self._used: set[tuple[TopicId, str]] = set()
        self.messages_let_go = 0
        """Messages that unused groups have let go since this process began."""

    def begin(self, group: RaftGroup, now_ms: int) -> None:
        """A group is led here from now on."""
        self._began_ms[group] = now_ms

    def used(self, topic: TopicId, group: str) -> None:
        """Somebody consumes, or tries to."""
        if group != DEFAULT_GROUP:
            self._used.add((topic, group))

    def look(self, now_ms: int) -> None:
        """Note use, let go of what unused groups hold; called each second."""
        if now_ms - self._looked_ms < CHECK_MS:
            return
        self._looked_ms = now_ms
        used, self._used = self._used, set()
        for replica in self._store.replicas():
            if not replica.serving:
                continue
            time_ms = replica.log_time_ms()
            leading_ms = now_ms - self._began_ms.get(replica.group, self._started_ms)
            for queue, group in _named_groups(replica):
                self._look_at(replica, queue, group, time_ms, leading_ms, used)

    def _look_at(
        self,
        replica: Replica,
        queue: QueueState,
        group: str,
        time_ms: int,
        leading_ms: int,
        used: set[tuple[TopicId, str]],
    ) -> None:
        progress = queue.groups[group]
        unused_max_ms = queue.topic.groups[group].unused_ms
        if unused_max_ms is None:
            return
        in_use = (queue.topic.id, group) in used or replica.has_consumer(queue.id, group)
        unused_ms = time_ms - progress.used_ms
        note_ms = min(group_use.NOTE_MS, unused_max_ms // 2)
        if not progress.used_ms or (in_use and unused_ms >= note_ms):
            replica.propose_mark(queue.id, group, 0, 0)
        elif in_use or unused_ms < unused_max_ms or leading_ms < min(GRACE_MS, unused_max_ms):
            return
        elif progress.floor < queue.index.tail:
            tail = Offset(queue.index.tail)
            purge = commands.Purge(queue.id, group, tail, (), forget=False)
            replica.propose(purge, (0, 0, 0), self._let_go)

    def _let_go(self, result: object) -> None:
        count = result[0] if isinstance(result, tuple) and result else 0
        self.messages_let_go += count if isinstance(count, int) else 0


def _named_groups(replica: Replica) -> Iterator[tuple[QueueState, str]]:
    """(queue, group) of every group that was added to a work topic."""
    queues, topics = replica.state.queues, replica.state.topics
    idle_ids = [each for each in queues.idle_ids() if len(topics[topic_of(each)].groups) > 1]
    shown = (queues.peek(each) for each in idle_ids)
    for queue in (*queues.live.values(), *filter(None, shown)):
        if len(queue.groups) > 1 and queue.topic.options.kind is TopicKind.WORK:
            for group in queue.groups:
                if group != DEFAULT_GROUP:
                    yield queue, group
