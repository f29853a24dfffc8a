"""Snapshot records of the topic tree's part of a state: subscribers, wills, retained messages."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from .retained import RetainedMessage
from .state import GroupState
from .tree_commands import WillRecord
from .tree_state import SubscriberState, WillItem


class SubscriberRecord(msgspec.Struct, frozen=True, array_like=True, tag="subscriber"):
    """One subscriber of the topic tree."""

    number: int
    tenant: str
    name: str
    epoch: int
    connected: bool
    expiry_ms: int | None
    will: WillRecord | None
    will_at_ms: int | None
    ends_at_ms: int | None
    subscriptions: list[tuple[str, str, bytes]]
    notes: list[tuple[bytes, bytes]]
    ended: bool


class WillItemRecord(msgspec.Struct, frozen=True, array_like=True, tag="will"):
    """One will on its way."""

    number: int
    tenant: str
    will: WillRecord


class RetainedRecord(msgspec.Struct, frozen=True, array_like=True, tag="retained"):
    """One retained message."""

    tenant: str
    name: str
    index: int
    slot: int
    time_ms: int
    ttl_ms: int


TreeRecord = SubscriberRecord | WillItemRecord | RetainedRecord


def dump_tree(state: GroupState) -> Iterator[TreeRecord]:
    """The records of a state's tree, in order."""
    for ended, subscribers in ((False, state.subscribers), (True, state.ended_subscribers)):
        for number in sorted(subscribers):
            each = subscribers[number]
            yield SubscriberRecord(
                number,
                each.tenant,
                each.name,
                each.epoch,
                each.connected,
                each.expiry_ms,
                each.will,
                each.will_at_ms,
                each.ends_at_ms,
                [(*key, each.subscriptions[key]) for key in sorted(each.subscriptions)],
                sorted(each.notes.items()),
                ended,
            )
    for number in sorted(state.wills):
        item = state.wills[number]
        yield WillItemRecord(number, item.tenant, item.will)
    for tenant, name, kept in state.retained.all():
        yield RetainedRecord(tenant, name, kept.index, kept.slot, kept.time_ms, kept.ttl_ms)


def restore_tree(state: GroupState, record: TreeRecord) -> None:
    """Take over a record of `dump_tree`."""
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
        record.tenant,
        record.name,
        record.epoch,
        record.connected,
        record.expiry_ms,
        record.will,
        record.will_at_ms,
        record.ends_at_ms,
        {(share, pattern): options for share, pattern, options in record.subscriptions},
        dict(record.notes),
    )
    if record.ended:
        state.ended_subscribers[record.number] = subscriber
    else:
        state.subscribers[record.number] = subscriber
        state.subscriber_names[record.tenant, record.name] = record.number
