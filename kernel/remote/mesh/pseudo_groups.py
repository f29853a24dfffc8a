"""Numbers by which a process knows the transient groups of others, and ids of what is in them.

Each process numbers the others as they come, from `ids.MEMORY_FIRST` on. Where a topic lives, its
group has the number TRANSIENT_GROUP: ids that go out or come in have the number of the group
rewritten (`ids.queue_there`), and nothing else.
"""

from __future__ import annotations

from ...api.model import QueueRef, TopicInfo
from ...common.ids import MEMORY_FIRST, QUEUE_BITS, TRANSIENT_GROUP, QueueId, RaftGroup, TopicId

PSEUDO_GROUPS = TRANSIENT_GROUP - MEMORY_FIRST
"""So many other processes can be known at once."""

_TOPIC_BITS = (1 << 32) - 1


def is_pseudo_group(group: RaftGroup) -> bool:
    """Whether it stands for the transient group of another process."""
    return MEMORY_FIRST <= group < TRANSIENT_GROUP


def as_here(topic: TopicInfo, group: RaftGroup) -> TopicInfo:
    """A topic of another process, with ids of its pseudo-group."""
    queues = (QueueId(group << 40 | each.id & QUEUE_BITS) for each in topic.queues)
    return TopicInfo(
        topic.tenant,
        topic.name,
        TopicId(group << 32 | topic.id & _TOPIC_BITS),
        topic.version,
        topic.options,
        tuple(QueueRef(each, group) for each in queues),
        topic.groups,
    )
