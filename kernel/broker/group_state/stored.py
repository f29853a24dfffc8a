"""What the queues of a Raft group hold, by tenant, and by topic where that is limited: messages,
and their bytes.

Each queue counts what it holds: a message in three queues counts three times. Bytes are those of
properties and bodies, from the level STORED of the log's features on; what was stored before counts
as messages alone (ADR 29). Counted as messages come and as the last group is done with them, by the
runs of the index, so that it costs two additions a run. It follows from the queues: no snapshot has
it, and `load` counts anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...api.model import TopicKind
from ...common.ids import QueueId, TopicId
from ..index.run_page import young_of
from ..snapshots.snapshot_records import QueueRecord
from .topic_state import QueueState, TopicState

MESSAGES, SIZE = 0, 1
"""What stands where in a tally."""

Tally = list[int]


class Stored:
    """See the module."""

    __slots__ = ("by_tenant", "by_topic")

    def __init__(self) -> None:
        self.by_tenant: dict[str, Tally] = {}
        """Tenants that have any message here."""
        self.by_topic: dict[TopicId, Tally] = {}
        """Topics that somebody watches."""

    def came(self, topic: TopicState, messages: int, size: int) -> None:
        """So much has come into a queue of a topic (hot)."""
        tally = self.by_tenant.get(topic.definition.tenant)
        if tally is None:
            if not messages:  # a run of which nothing is left
                return
            tally = self.by_tenant[topic.definition.tenant] = [0, 0]
        tally[MESSAGES] += messages
        tally[SIZE] += size
        if self.by_topic and (watched := self.by_topic.get(topic.definition.id)) is not None:
            watched[MESSAGES] += messages
            watched[SIZE] += size

    def left(self, topic: TopicState, messages: int, size: int) -> None:
        """Nobody needs so much of a queue any more (hot)."""
        tenant = topic.definition.tenant
        tally = self.by_tenant.get(tenant)
        if tally is not None:
            tally[MESSAGES] -= messages
            tally[SIZE] -= size
            if tally[MESSAGES] <= 0:
                del self.by_tenant[tenant]
        if self.by_topic and (watched := self.by_topic.get(topic.definition.id)) is not None:
            watched[MESSAGES] -= messages
            watched[SIZE] -= size

    def watch(self, topics: Mapping[TopicId, Iterable[QueueState]]) -> None:
        """These topics, each with its queues here, are counted by themselves, and no others."""
        self.by_topic = {
            ident: known if (known := self.by_topic.get(ident)) is not None else _sum(queues)
            for ident, queues in topics.items()
        }

    def count_record(self, topic: TopicState, record: QueueRecord) -> None:
        """Count a plain queue of a snapshot."""
        if topic.options.kind is TopicKind.STREAM:
            first = record.trimmed
        else:
            floors = [each.floor for each in record.groups.values()]
            first = min(floors, default=record.tail)
        if first < record.tail and record.young:
            queue = QueueState(QueueId(record.id), topic)
            queue.index.restore([], young_of(record.young), record.tail)
            self.came(topic, record.tail - first, queue.index.bytes_between(first, record.tail))

    def count(self, queues: Iterable[QueueState]) -> None:
        """Count queues that are objects."""
        for queue in queues:
            messages, size = _sum((queue,))
            if messages:
                self.came(queue.topic, messages, size)


def _sum(queues: Iterable[QueueState]) -> Tally:
    messages = size = 0
    for queue, start, end in _needed(queues):
        messages += end - start
        size += queue.index.bytes_between(start, end)
    return [messages, size]


def _needed(queues: Iterable[QueueState]) -> Iterator[tuple[QueueState, int, int]]:
    for queue in queues:
        for start, end in queue.needed():
            first = max(start, queue.index.head)
            if first < end:
                yield queue, first, end
