"""Snapshot of a group's state: metadata only, no message bodies.

A stream of msgpack records, one per topic, queue, router, outbox item and client, behind a header;
the driver writes them to a file and puts a checksum behind. Records are sorted by id, so that equal
states give equal bytes: the hash of the stream is the state hash that replay must reproduce.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import blake2b

import msgspec

from ..ids import LogIndex, Offset, QueueId, RaftGroup, TopicId, is_index
from ..model import DeadLetter, GroupOptions, QueueRef, Reason, Route, RouterOptions, TopicOptions
from .owed import Owed
from .progress import LEASE_BITS, LEASE_MASK, Progress, ProgressPage
from .retained import RetainedMessage
from .runs import RunPage
from .state import ClientResults, GroupState, OutboxItem, QueueState, RouterState, TopicState
from .tree_commands import WillRecord
from .tree_state import SubscriberState, WillItem

FORMAT = 1


class Header(msgspec.Struct, frozen=True, array_like=True, tag="header"):
    """First record."""

    format: int
    group: int
    applied: int
    term: int
    time_ms: int
    next_topic: int
    next_outbox: int
    next_index: int
    next_subscriber: int


class TopicRecord(msgspec.Struct, frozen=True, array_like=True, tag="topic"):
    """One topic."""

    id: int
    tenant: str
    name: str
    version: int
    options: TopicOptions
    refs: tuple[QueueRef, ...]
    groups: dict[str, GroupOptions]
    home: bool


class ProgressRecord(msgspec.Struct, frozen=True, array_like=True):
    """One group's progress: pages as (number, acked bits, attempts, leased bits, leases)."""

    floor: int
    marks: list[int]
    pages: list[tuple[int, bytes, dict[int, int], bytes, list[tuple[int, int, int]]]]


class QueueRecord(msgspec.Struct, frozen=True, array_like=True, tag="queue"):
    """One queue: its run pages and the progress of its groups."""

    id: int
    topic: int
    tail: int
    pages: list[bytes]
    groups: dict[str, ProgressRecord]
    recent: list[tuple[bytes, int, bytes, int]]
    trimmed: int


class RouterRecord(msgspec.Struct, frozen=True, array_like=True, tag="router"):
    """One router with its routes."""

    tenant: str
    name: str
    version: int
    options: RouterOptions
    routes: list[Route]


class OutboxRecord(msgspec.Struct, frozen=True, array_like=True, tag="outbox"):
    """One outbox item."""

    number: int
    tenant: str
    topic: str
    target: DeadLetter
    queue: int
    offset: int
    index: int
    slot: int
    reason: Reason
    attempts: int


class MetadataRecord(msgspec.Struct, frozen=True, array_like=True, tag="record"):
    """One metadata record."""

    key: str
    version: int
    value: bytes


class ClientRecord(msgspec.Struct, frozen=True, array_like=True, tag="client"):
    """Batches remembered of one gateway. Results themselves are kept as their first offsets;
    other results of a repeated batch come back as UNKNOWN_OUTCOME after a restart.
    """

    session: int
    epoch: int
    floor: int
    results: dict[int, list[list[int | list[tuple[int, bytes]]] | None]]


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


Record = (
    Header
    | TopicRecord
    | QueueRecord
    | RouterRecord
    | OutboxRecord
    | MetadataRecord
    | ClientRecord
    | SubscriberRecord
    | WillItemRecord
    | RetainedRecord
)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


def dump(state: GroupState) -> Iterator[bytes]:
    """The records of a state, encoded."""
    encode = _encoder.encode
    yield encode(
        Header(
            FORMAT,
            state.group,
            state.applied,
            state.term,
            state.time_ms,
            state.next_topic,
            state.next_outbox,
            state.next_index,
            state.next_subscriber,
        )
    )
    for ident in sorted(state.topics):
        topic = state.topics[ident]
        yield encode(
            TopicRecord(
                topic.id,
                topic.tenant,
                topic.name,
                topic.version,
                topic.options,
                topic.refs,
                topic.groups,
                state.topic_names.get((topic.tenant, topic.name)) == ident,
            )
        )
    for queue_ident in sorted(state.queues):
        yield encode(_queue_record(state.queues[queue_ident]))
    for name in sorted(state.routers):
        router = state.routers[name]
        yield encode(
            RouterRecord(
                router.tenant, router.name, router.version, router.options, list(router.routes)
            )
        )
    for number in sorted(state.outbox):
        item = state.outbox[number]
        yield encode(
            OutboxRecord(
                item.number,
                item.tenant,
                item.topic,
                item.target,
                item.queue,
                item.offset,
                item.index,
                item.slot,
                item.reason,
                item.attempts,
            )
        )
    for key in sorted(state.records):
        version, value = state.records[key]
        yield encode(MetadataRecord(key, version, value))
    for session, epoch in sorted(state.clients):
        known = state.clients[session, epoch]
        results = {
            sequence: [each if isinstance(each, list) else None for each in result]
            for sequence, result in known.results.items()
            if isinstance(result, tuple)
        }
        yield encode(ClientRecord(session, epoch, known.floor, results))
    yield from map(encode, _tree_records(state))


def _tree_records(state: GroupState) -> Iterator[Record]:
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


def _queue_record(queue: QueueState) -> QueueRecord:
    groups = {
        name: ProgressRecord(
            progress.floor,
            progress.marks,
            [
                (
                    number,
                    page.acked.to_bytes(32, "little"),
                    page.attempts or {},
                    page.leased.to_bytes(32, "little"),
                    [
                        (offset, packed & LEASE_MASK, packed >> LEASE_BITS)
                        for offset, packed in sorted((page.leases or {}).items())
                    ],
                )
                for number, page in sorted(progress.pages.items())
                if page.acked or page.attempts or page.leases
            ],
        )
        for name, progress in sorted(queue.groups.items())
    }
    pages = [page.dump() for page in queue.index.pages()]
    recent = [
        (ident, offset, uid, time_ms)
        for ident, (offset, uid, time_ms) in (queue.recent or {}).items()
    ]
    return QueueRecord(
        queue.id, queue.topic.id, queue.index.tail, pages, groups, recent, queue.trimmed
    )


def load(records: Iterable[bytes]) -> GroupState:
    """The state of a dump. Raises ValueError (msgspec's included) if the bytes are none."""
    stream = iter(records)
    header = _decoder.decode(next(stream, b""))
    if not isinstance(header, Header):
        message = "snapshot does not begin with a header"
        raise ValueError(message)  # noqa: TRY004 - the bytes are wrong, not a caller's type
    if header.format != FORMAT:
        raise ValueError(f"snapshot format {header.format}, this build reads {FORMAT}")
    state = GroupState(RaftGroup(header.group))
    state.applied = LogIndex(header.applied)
    state.term = header.term
    state.time_ms = header.time_ms
    state.next_topic = header.next_topic
    state.next_outbox = header.next_outbox
    state.next_index = header.next_index
    state.next_subscriber = header.next_subscriber
    for data in stream:
        _restore(state, _decoder.decode(data))
    return state


def _restore(state: GroupState, record: Record) -> None:
    if isinstance(record, TopicRecord):
        ident = TopicId(record.id)
        state.topics[ident] = TopicState(
            ident,
            record.tenant,
            record.name,
            record.version,
            record.options,
            record.refs,
            record.groups,
        )
        if is_index(ident):
            state.indexes[record.tenant, record.name] = ident
        if record.home:
            state.topic_names[record.tenant, record.name] = ident
    elif isinstance(record, QueueRecord):
        queue = QueueState(QueueId(record.id), state.topics[TopicId(record.topic)])
        queue.index.restore([RunPage.load(page) for page in record.pages], record.tail)
        queue.groups = {name: _progress(each) for name, each in record.groups.items()}
        queue.trimmed = Offset(record.trimmed)
        if queue.owed is not None:
            unacked = (each.unacked(0, record.tail) for each in queue.groups.values())
            queue.owed = Owed.of(record.tail, map(list, unacked))
        if record.recent:
            queue.recent = OrderedDict(
                (ident, (offset, uid, time_ms)) for ident, offset, uid, time_ms in record.recent
            )
        state.queues[queue.id] = queue
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
        )
    elif isinstance(record, MetadataRecord):
        state.records[record.key] = (record.version, record.value)
    elif isinstance(record, ClientRecord):
        client = state.clients[record.session, record.epoch] = ClientResults()
        client.floor = record.floor
        for sequence, result in record.results.items():
            client.results[sequence] = tuple(result)
    elif isinstance(record, SubscriberRecord):
        _restore_subscriber(state, record)
    elif isinstance(record, WillItemRecord):
        state.wills[record.number] = WillItem(record.number, record.tenant, record.will)
    elif isinstance(record, RetainedRecord):
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


def _progress(record: ProgressRecord) -> Progress:
    progress = Progress(record.floor)
    progress.restore_marks(record.marks)
    for number, acked, attempts, leased, leases in record.pages:
        page = progress.pages[number] = ProgressPage()
        page.acked = int.from_bytes(acked, "little")
        page.attempts = attempts or None
        page.leased = int.from_bytes(leased, "little")
        for offset, lease, deadline_ms in leases:
            if page.leases is None:
                page.leases = {}
            page.leases[offset] = deadline_ms << LEASE_BITS | lease
            if page.leased >> (offset & 255) & 1:
                progress.leased += bool(lease)
                progress.hidden += not lease
        above = page.acked >> max(0, min(record.floor - (number << 8), 256))
        progress.acked_above += above.bit_count()
    return progress


def state_hash(state: GroupState) -> str:
    """Hash of the whole state: equal on every replica at the same applied index."""
    digest = blake2b(digest_size=16)
    for record in dump(state):
        digest.update(record)
    return digest.hexdigest()
