"""What a Raft group knows of a resized topic, as a snapshot record and back."""

from __future__ import annotations

from ..group_state.resized import Planned, ResizedTopic, Successor
from .snapshot_records import ResizedTopicRecord, SpreadTopicRecord, TopicRecord


def resized_record(
    topic: TopicRecord, rings: tuple[bytes, bytes], resized: ResizedTopic
) -> ResizedTopicRecord | SpreadTopicRecord:
    """The record of a topic that was resized; in order, so that equal states are equal bytes.
    `rings`: `TopicInfo.ring` and `once`.
    """
    ring, once = rings
    record = _record(topic, ring, resized)
    planned = resized.plan.once if resized.plan is not None else b""
    return SpreadTopicRecord(record, once, planned) if once or planned else record


def _record(topic: TopicRecord, ring: bytes, resized: ResizedTopic) -> ResizedTopicRecord:
    return ResizedTopicRecord(
        topic,
        ring,
        resized.offsets_from,
        resized.never_stored,
        resized.next_number,
        sorted(resized.sealed.items()),
        [
            (
                number,
                sorted(each.predecessors),
                {name: sorted(drained) for name, drained in sorted(each.drained.items())},
            )
            for number, each in sorted(resized.successors.items())
        ],
        {number: sorted(each) for number, each in sorted(resized.predecessors.items())},
        (resized.plan.ring, resized.plan.queues) if resized.plan is not None else None,
    )


def resized_of(record: ResizedTopicRecord, planned: bytes) -> ResizedTopic:
    """What a record says beside the topic and its ring; `planned`: `Planned.once`."""
    successors = {
        number: Successor(
            frozenset(predecessors), {name: frozenset(each) for name, each in drained.items()}
        )
        for number, predecessors, drained in record.successors
    }
    return ResizedTopic(
        record.offsets_from,
        dict(record.sealed),
        successors,
        {number: frozenset(each) for number, each in record.predecessors.items()},
        Planned(*record.plan, planned) if record.plan is not None else None,
        record.next_number,
        record.never_stored,
    )
