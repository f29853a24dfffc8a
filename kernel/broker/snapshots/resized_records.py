"""What a Raft group knows of a resized topic, as a snapshot record and back."""

from __future__ import annotations

from ..group_state.resized import Planned, ResizedTopic, Successor
from .snapshot_records import ResizedTopicRecord, TopicRecord


def resized_record(topic: TopicRecord, ring: bytes, resized: ResizedTopic) -> ResizedTopicRecord:
    """The record of a topic that was resized; in order, so that equal states are equal bytes."""
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


def resized_of(record: ResizedTopicRecord) -> ResizedTopic:
    """What a record says beside the topic and its ring."""
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
        Planned(*record.plan) if record.plan is not None else None,
        record.next_number,
        record.never_stored,
    )
