"""The topic tree's part of a state to snapshot records and back."""

from __future__ import annotations

from sys import intern

from ...common.ids import QueueId, TopicId, queue_id
from ..group_state.retained import RetainedMessage
from ..group_state.state import GroupState
from ..group_state.tree_state import NO_NOTES, SubscriberState, WillItem
from .tree_records import RetainedRecord, SubscriberRecord, TreeRecord, WillItemRecord


def index_queue(topic: TopicId) -> QueueId:
    """The one queue of a reference list."""
    return queue_id(topic, 0)


def subscriber_record(subscriber: SubscriberState, *, ended: bool) -> SubscriberRecord:
    """The record of a subscriber."""
    subscriptions = subscriber.subscriptions
    return SubscriberRecord(
        subscriber.number,
        subscriber.tenant,
        subscriber.name,
        subscriber.epoch,
        subscriber.connected,
        subscriber.expiry_ms,
        subscriber.will,
        subscriber.will_at_ms,
        subscriber.ends_at_ms,
        [(*key, subscriptions[key]) for key in sorted(subscriptions)],
        sorted(subscriber.notes.items()),
        ended,
        subscriber.owner,
        subscriber.user,
    )


def will_record(item: WillItem) -> WillItemRecord:
    """The record of a will on its way."""
    return WillItemRecord(item.number, item.tenant, item.will)


def retained_record(key: tuple[str, str], kept: RetainedMessage) -> RetainedRecord:
    """The record of the retained message of a (tenant, name)."""
    return RetainedRecord(*key, kept.index, kept.slot, kept.time_ms, kept.ttl_ms)


def restore_tree(state: GroupState, record: TreeRecord) -> None:
    """Take over one of these records."""
    if isinstance(record, SubscriberRecord):
        _restore_subscriber(state, record)
    elif isinstance(record, WillItemRecord):
        state.wills[record.number] = WillItem(record.number, record.tenant, record.will)
    else:
        kept = RetainedMessage(record.index, record.slot, record.time_ms, record.ttl_ms)
        state.retained.put(record.tenant, record.name, kept)


def _restore_subscriber(state: GroupState, record: SubscriberRecord) -> None:
    subscriber = SubscriberState(
        record.number,
        intern(record.tenant),
        record.name,
        record.epoch,
        record.connected,
        record.expiry_ms,
        record.will,
        record.will_at_ms,
        record.ends_at_ms,
        {(share, pattern): options for share, pattern, options in record.subscriptions},
        dict(record.notes) or NO_NOTES,
        record.owner,
        intern(record.user),
    )
    if record.ended:
        state.ended_subscribers[record.number] = subscriber
    else:
        state.subscribers[record.number] = subscriber
        state.subscriber_names[subscriber.tenant, subscriber.name] = record.number
