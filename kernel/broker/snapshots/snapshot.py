"""Snapshot of a group's state: metadata only, no message bodies.

A stream of msgpack records (`snapshot_records`), made by `cut`; the driver writes them to a file
and puts a checksum behind. Elements are sorted by id, so that equal states give equal bytes: the
hash of the stream is the state hash that replay must reproduce.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from sys import intern

from ...common.feature_levels import LATEST, newer
from ...common.ids import (
    OUTBOX_CLIENT,
    LogIndex,
    Offset,
    QueueId,
    RaftGroup,
    TopicId,
    is_index,
    queue_id,
)
from ...log.errors import FormatError
from ..group_state.deduplication import Recent
from ..group_state.halves import HalfMessage
from ..group_state.pending_acks import PendingAcks
from ..group_state.state import (
    INDEX_GROUPS,
    ClientResults,
    GroupState,
    OutboxItem,
    QueueState,
    RouterState,
    TopicState,
)
from ..group_state.topic_usage import LedgerRecord, UsageRecord
from ..group_state.usage import restore_ledger, restore_usage
from ..index.run_page import RunPage
from .cut import SnapshotCut
from .queue_records import progress_of, queue_of, restore_pages
from .resized_records import resized_of
from .snapshot_records import (
    FORMAT,
    FORMAT_WITH_LEVEL,
    ClientRecord,
    GroupsRecord,
    HalfRecord,
    Header,
    MetadataRecord,
    OutboxRecord,
    OutcomesRecord,
    PagesRecord,
    QueueRecord,
    RecentRecord,
    Record,
    ResizedTopicRecord,
    RouterRecord,
    RunsRecord,
    SpreadTopicRecord,
    TopicRecord,
    WindowRecord,
    decode,
    restored,
)
from .tree_records import RetainedRecord, SubscriberRecord, WillItemRecord
from .tree_snapshot import index_queue, restore_tree


def dump(state: GroupState) -> Iterator[bytes]:
    """The records of a state, encoded, all before anything changes."""
    return iter(SnapshotCut(state))


def load(records: Iterable[bytes], understands: int = LATEST) -> GroupState:
    """The state of a dump. Raises ValueError (msgspec's included) if the bytes are none;
    FormatError for one of a newer build. `understands`: the level up to which this one does.
    """
    stream = iter(records)
    header = decode(next(stream, b""))
    if not isinstance(header, Header):
        message = "snapshot does not begin with a header"
        raise ValueError(message)  # noqa: TRY004 - the bytes are wrong, not a caller's type
    if header.format not in {FORMAT, FORMAT_WITH_LEVEL}:
        raise FormatError(
            f"a snapshot has format {header.format}, this Weir knows {FORMAT_WITH_LEVEL}"
        )
    if header.feature_level > understands:
        raise FormatError(newer("a snapshot", header.feature_level, understands))
    state = GroupState(RaftGroup(header.group))
    state.applied = LogIndex(header.applied)
    state.term = header.term
    state.time_ms = header.time_ms
    state.next_topic = header.next_topic
    state.next_outbox = header.next_outbox
    state.halves.next = header.next_half
    state.next_index = header.next_index
    state.next_subscriber = header.next_subscriber
    state.expired = header.expired
    state.membership = header.membership
    state.feature_level = header.feature_level
    state.record_version = header.record_version
    for data in stream:
        _restore(state, decode(data))
    state.clients = dict(sorted(state.clients.items(), key=lambda each: each[1].used_ms))
    for ident in state.indexes.values():
        _restore_pending_acks(state.queues[index_queue(ident)])
    state.stored.count(state.queues.live.values())
    return state


def _restore_resized(
    state: GroupState, record: ResizedTopicRecord, once: bytes = b"", planned: bytes = b""
) -> None:
    _restore(state, record.topic)
    ident = TopicId(record.topic.id)
    topic = state.topics[ident]
    topic.resize(topic.version, topic.options, topic.groups, topic.refs, (record.ring, once))
    state.resized[ident] = resized = resized_of(record, planned)
    state.sealed.update(queue_id(ident, number) for number in resized.sealed)


def _restore(state: GroupState, record: Record) -> None:
    if isinstance(record, ResizedTopicRecord):
        _restore_resized(state, record)
    elif isinstance(record, SpreadTopicRecord):
        _restore_resized(state, record.resized, record.once, record.planned)
    elif isinstance(record, TopicRecord):
        ident = TopicId(record.id)
        tenant = intern(record.tenant)
        state.topics[ident] = TopicState(
            ident,
            tenant,
            record.name,
            record.version,
            record.options,
            record.refs,
            record.groups if not is_index(ident) else INDEX_GROUPS,
        )
        if is_index(ident):
            state.indexes[tenant, record.name] = ident
        if record.home:
            state.topic_names[tenant, record.name] = ident
    elif isinstance(record, QueueRecord | GroupsRecord | RunsRecord | PagesRecord | RecentRecord):
        _restore_queue(state, record)
    elif isinstance(record, RouterRecord):
        router = RouterState(record.tenant, record.name, record.version, record.options)
        router.routes = dict.fromkeys(record.routes)
        state.routers[record.tenant, record.name] = router
    elif isinstance(record, OutboxRecord):
        state.outbox[record.number] = OutboxItem(
            record.number,
            record.tenant,
            record.topic,
            record.target,
            QueueId(record.queue),
            Offset(record.offset),
            LogIndex(record.index),
            record.slot,
            record.reason,
            record.attempts,
            record.stored_ms,
        )
    elif isinstance(record, MetadataRecord):
        state.records[record.key] = (record.version, record.value)
    elif isinstance(record, ClientRecord):
        client = ClientResults()
        client.floor = record.floor
        client.used_ms = record.used_ms
        # Outboxes are never forgotten, so they do not stand among those that are.
        is_outbox = record.session >= OUTBOX_CLIENT
        clients = state.outbox_clients if is_outbox else state.clients
        clients[record.session, record.epoch] = client
        for sequence, result in record.results.items():
            client.results[sequence] = tuple(map(restored, result))
    elif isinstance(record, SubscriberRecord | WillItemRecord | RetainedRecord):
        restore_tree(state, record)
    elif isinstance(record, LedgerRecord):
        restore_ledger(state, record)
    elif isinstance(record, UsageRecord):
        restore_usage(state, record)
    else:
        _restore_more(state, record)


def _restore_more(state: GroupState, record: Record) -> None:
    if isinstance(record, HalfRecord):
        state.halves.put(
            HalfMessage(
                record.number,
                QueueId(record.queue),
                LogIndex(record.index),
                record.slot,
                record.size_bytes,
                record.producers,
                record.values,
                record.prepared_ms,
                record.due_ms,
                record.checks,
                record.origin,
            )
        )
    elif isinstance(record, OutcomesRecord):
        for number, queue_ident, offset in record.outcomes:
            state.halves.outcomes[number] = (QueueId(queue_ident), offset)
    elif isinstance(record, WindowRecord):
        window = state.windows.setdefault(QueueId(record.queue), Recent())
        for row in record.rows:
            window.add(row)


def _restore_queue(
    state: GroupState,
    record: QueueRecord | GroupsRecord | RunsRecord | PagesRecord | RecentRecord,
) -> None:
    if isinstance(record, QueueRecord):
        topic = state.topics[TopicId(record.topic)]
        if state.queues.put_record(record):
            state.stored.count_record(topic, record)
        else:
            queue = queue_of(record, topic)
            state.queues[queue.id] = queue
        return
    queue = state.queues[QueueId(record.queue)]
    if isinstance(record, GroupsRecord):
        queue.groups.update((name, progress_of(each)) for name, each in record.groups.items())
    elif isinstance(record, RunsRecord):
        queue.index.restore_more([RunPage.load(page) for page in record.pages])
    elif isinstance(record, PagesRecord):
        restore_pages(queue.groups[record.group], record.pages)
    else:
        if queue.recent is None:
            queue.recent = Recent()
        for row in record.rows:
            queue.recent.add(row)


def _restore_pending_acks(queue: QueueState) -> None:
    """Count the pending acks of a reference list: it follows from the progress of its groups."""
    tail = queue.index.tail
    unacked = (each.unacked(0, tail) for each in queue.groups.values())
    queue.pending_acks = PendingAcks.of(tail, map(list, unacked))


def state_hash(state: GroupState) -> str:
    """Hash of the whole state: equal on every replica at the same applied index."""
    digest = blake2b(digest_size=16)
    for record in dump(state):
        digest.update(record)
    return digest.hexdigest()
