"""Snapshot of a group's state: metadata only, no message bodies.

A stream of msgpack records, one per topic, queue, router, outbox item and client, behind a header;
the driver writes them to a file and puts a checksum behind. Records are sorted by id, so that equal
states give equal bytes: the hash of the stream is the state hash that replay must reproduce.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from operator import itemgetter

import msgspec

from ..ids import OUTBOX_CLIENT, LogIndex, Offset, QueueId, RaftGroup, TopicId
from ..model import DeadLetter, GroupOptions, QueueRef, Reason, Route, RouterOptions, TopicOptions
from .progress import LEASE_BITS, LEASE_MASK, Progress, ProgressPage
from .runs import RunPage
from .state import ClientResults, GroupState, OutboxItem, QueueState, RouterState, TopicState

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
    used_ms: int = 0
    """0 in a snapshot of a build that did not keep it: then the snapshot's own time counts."""


Record = (
    Header | TopicRecord | QueueRecord | RouterRecord | OutboxRecord | MetadataRecord | ClientRecord
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
    for (session, epoch), known in sorted(
        (*state.clients.items(), *state.outbox_clients.items()), key=itemgetter(0)
    ):
        results = {
            sequence: [each if isinstance(each, list) else None for each in result]
            for sequence, result in known.results.items()
            if isinstance(result, tuple)
        }
        yield encode(ClientRecord(session, epoch, known.floor, results, known.used_ms))


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
    for data in stream:
        _restore(state, _decoder.decode(data))
    state.clients = dict(sorted(state.clients.items(), key=lambda each: each[1].used_ms))
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
        if record.home:
            state.topic_names[record.tenant, record.name] = ident
    elif isinstance(record, QueueRecord):
        queue = QueueState(QueueId(record.id), state.topics[TopicId(record.topic)])
        queue.index.restore([RunPage.load(page) for page in record.pages], record.tail)
        queue.groups = {name: _progress(each) for name, each in record.groups.items()}
        queue.trimmed = Offset(record.trimmed)
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
        is_outbox = record.session >= OUTBOX_CLIENT
        client = ClientResults()
        client.floor = record.floor
        client.used_ms = record.used_ms or state.time_ms
        clients = state.outbox_clients if is_outbox else state.clients
        clients[record.session, record.epoch] = client
        for sequence, result in record.results.items():
            client.results[sequence] = tuple(result)


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
