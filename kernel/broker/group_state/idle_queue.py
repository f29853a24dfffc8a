"""A plain idle queue, packed: in one short record, with what was counted of its topic.

A queue is **plain** if a few runs without features and groups that hold nothing, and acked nothing
out of order, say all of it, and nothing about it waits for a moment in time but its topic's
retention. Nearly every idle queue is; its record (`idle_record`) is a tenth of what the objects
take.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...api.model import TopicKind, TopicOptions
from ...common.ids import Offset, QueueId, is_index
from ..index.run_page import YoungRun, dumped_young, young_of
from ..snapshots.snapshot_records import ProgressRecord, QueueRecord
from .idle_record import IdleGroup, IdleQueue, write
from .progress import GroupProgress
from .topic_state import QueueState, TopicState
from .topic_usage import counted_of

PLAIN_GROUPS_MAX = 8
"""Groups of a plain queue: a record has twenty bytes for each."""

# --- Which queues ---------------------------------------------------------------------------------


def is_plain(queue: QueueState) -> bool:
    """Whether a queue is plain, so that a record can say all of it."""
    return (
        is_short(queue)
        and queue.pending_acks is None
        and not is_watched(queue.topic.definition.options)
        and not any(map(_is_complex, queue.groups.values()))
    )


def is_short(queue: QueueState) -> bool:
    """Whether `record_of` says all of a queue: a plain one, or the list of a pattern that few
    subscribers have, with nothing out of order.
    """
    return (
        queue.recent is None
        and not queue.recalled
        and not queue.index.page_count
        and len(queue.groups) <= PLAIN_GROUPS_MAX
        and not any([each.pages for each in queue.groups.values()])  # noqa: C419 - as fast again
    )


def is_plain_record(record: QueueRecord, topic: TopicState) -> bool:
    """Whether the first record of a queue in a snapshot is all of it, and that of a plain one."""
    return (
        not record.pages
        and not record.recent
        and len(record.groups) <= PLAIN_GROUPS_MAX
        and not is_index(topic.id)
        and not is_watched(topic.options)
        and not any(map(_is_complex, record.groups.values()))
    )


def _is_complex(group: GroupProgress | ProgressRecord) -> bool:
    return bool(group.pages or group.members or group.joined)


def is_watched(options: TopicOptions) -> bool:
    """Whether a topic's settings have its messages looked after all the time."""
    return (
        options.messages_max is not None
        or options.bytes_max is not None
        or options.message_ttl_ms is not None
        or options.retention_bytes is not None
    )


# --- To a record and back -------------------------------------------------------------------------


def pack(queue: QueueState) -> bytes:
    """The record of a plain queue."""
    groups = {
        name: (each.floor, each.marks, each.used_ms, each.expired)
        for name, each in queue.groups.items()
    }
    return _packed(queue.topic, queue.index.tail, groups, queue.trimmed, queue.index.young())


def of_record(record: QueueRecord, topic: TopicState) -> bytes:
    """The same of a plain queue in a snapshot."""
    groups = {
        name: (each.floor, each.marks, each.used_ms, each.expired)
        for name, each in record.groups.items()
    }
    return _packed(topic, record.tail, groups, record.trimmed, young_of(record.young))


def _packed(
    topic: TopicState,
    tail: int,
    groups: dict[str, IdleGroup],
    trimmed: int,
    young: list[YoungRun],
) -> bytes:
    is_counted = topic.is_counted
    counted = counted_of(topic.usage) if is_counted and topic.has_one_queue else None
    return write(IdleQueue(tail, groups, trimmed, young, counted), is_counted=is_counted)


def unpack(packed: IdleQueue, ident: QueueId, topic: TopicState) -> QueueState:
    """The queue of a record."""
    groups: dict[str, GroupProgress] = {}
    for name, (floor, marks, used_ms, expired) in packed.groups.items():
        progress = groups[name] = GroupProgress(floor)
        progress.restore_marks(marks)
        progress.used_ms = used_ms
        progress.expired = expired
    queue = QueueState(ident, topic, groups)
    queue.index.restore([], packed.young, packed.tail)
    queue.trimmed = Offset(packed.trimmed)
    return queue


# --- In snapshots ---------------------------------------------------------------------------------


def record_of(queue: QueueState) -> QueueRecord:
    """The snapshot record of a short queue."""
    groups = {
        name: ProgressRecord(
            each.floor,
            each.marks,
            [],
            each.used_ms,
            each.expired,
            each.joined,
            each.listed_members,
        )
        for name, each in sorted(queue.groups.items())
    }
    index = queue.index
    topic = queue.topic.definition.id
    young = dumped_young(index.young())
    return QueueRecord(queue.id, topic, index.tail, [], groups, [], queue.trimmed, young)


def record_at(packed: IdleQueue, ident: QueueId, topic: TopicState) -> QueueRecord:
    """The same of a packed one."""
    groups = {
        name: ProgressRecord(floor, marks, [], used_ms, expired)
        for name, (floor, marks, used_ms, expired) in sorted(packed.groups.items())
    }
    young = dumped_young(packed.young)
    return QueueRecord(ident, topic.id, packed.tail, [], groups, [], packed.trimmed, young)


# --- What can be said of one without its objects --------------------------------------------------


def references_of(packed: IdleQueue, kind: TopicKind) -> Iterator[tuple[int, int]]:
    """(log index, messages that are needed) of each entry that it refers to."""
    if kind is TopicKind.STREAM:
        first = packed.trimmed
    else:
        first = min([floor for floor, *_ in packed.groups.values()], default=packed.tail)
    ends = [*[start for start, *_ in packed.young[1:]], packed.tail]
    for (start, index, _slot, _time_ms, _size), end in zip(packed.young, ends, strict=False):
        if end > first:
            yield index, end - max(start, first)


def was_handed_out(packed: IdleQueue) -> bool:
    """Whether a group has not acked everything below its dispatch marks."""
    return any(floor < min(packed.tail, max(marks)) for floor, marks, *_ in packed.groups.values())
