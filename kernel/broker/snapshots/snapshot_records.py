"""The records of a snapshot: what `cut` writes and `snapshot` reads.

A queue with many pages is spread over several records, each small enough to be made in a
millisecond: its QUEUE record, then GROUPS, RUNS, PAGES and RECENT records of the same queue.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...api.model import (
    DeadLetter,
    GroupOptions,
    QueueRef,
    Reason,
    Route,
    RouterOptions,
    TopicOptions,
)
from ...common.errors import KernelError, error_named
from ...raft.messages import Membership
from ..group_state.topic_usage import LedgerRecord, UsageRecord
from .tree_records import RetainedRecord, SubscriberRecord, WillItemRecord

FORMAT = 1
FORMAT_WITH_LEVEL = 2
"""Of a state in which a feature is on: a build from before there were any must not take it for one
without. Any other state is of FORMAT, and what the header has more is nothing to such a build."""


class Header(msgspec.Struct, frozen=True, array_like=True, tag="header"):
    """First record."""

    format: int
    group: int
    applied: int
    term: int
    time_ms: int
    next_topic: int
    next_outbox: int
    next_half: int
    next_index: int
    next_subscriber: int
    expired: int = 0
    membership: Membership | None = None
    feature_level: int = 0
    record_version: int = 0


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


SealedRow = tuple[int, int]
"""(number, end) of a sealed queue."""

SuccessorRow = tuple[int, list[int], dict[str, list[int]]]
"""(number, predecessors, of each consumer group those that are drained)."""


class ResizedTopicRecord(msgspec.Struct, frozen=True, array_like=True, tag="resized"):
    """One topic that was resized, instead of its TopicRecord."""

    topic: TopicRecord
    ring: bytes
    offsets_from: int
    never_stored: int
    next_number: int
    sealed: list[SealedRow]
    successors: list[SuccessorRow]
    predecessors: dict[int, list[int]]
    plan: tuple[bytes, tuple[QueueRef, ...]] | None
    """(ring, new queues)."""


class SpreadTopicRecord(msgspec.Struct, frozen=True, array_like=True, tag="spread"):
    """One topic that was spread over other Raft groups, or is to be."""

    resized: ResizedTopicRecord
    once: bytes
    planned: bytes
    """`once` of the plan."""


LEASE_BYTES = 17
Leases = bytes | list[tuple[int, int, int]]
"""Leases of a page, ascending: a byte each of `offset & 255`, then 16 bytes each of `deadline << 64
| lease`. The first snapshots had lists of (offset, lease, deadline)."""

PageRow = tuple[int, bytes, dict[int, int], bytes, Leases]
"""(number, acked bits, attempts, leased bits, leases) of a page."""


class ProgressRecord(msgspec.Struct, frozen=True, array_like=True):
    """One group's progress."""

    floor: int
    marks: list[int]
    pages: list[PageRow]
    used_ms: int = 0
    expired: int = 0
    joined: int = 0
    members: list[tuple[int, int, int]] = []
    """(process, number, epoch) of each member of a share."""


class QueueRecord(msgspec.Struct, frozen=True, array_like=True, tag="queue"):
    """One queue: its run pages, the young runs behind them, and the progress of its groups."""

    id: int
    topic: int
    tail: int
    pages: list[bytes]
    groups: dict[str, ProgressRecord]
    recent: list[tuple[bytes, int, bytes, int]]
    trimmed: int
    young: list[tuple[int, ...]] = []
    """See `run_page.dumped_young`."""
    recalled: list[int] = []
    """Offsets, rising."""


class GroupsRecord(msgspec.Struct, frozen=True, array_like=True, tag="groups"):
    """Further groups of a queue."""

    queue: int
    groups: dict[str, ProgressRecord]


class RunsRecord(msgspec.Struct, frozen=True, array_like=True, tag="runs"):
    """Further run pages of a queue."""

    queue: int
    pages: list[bytes]


class PagesRecord(msgspec.Struct, frozen=True, array_like=True, tag="pages"):
    """Further pages of a group's progress in a queue."""

    queue: int
    group: str
    pages: list[PageRow]


class RecentRecord(msgspec.Struct, frozen=True, array_like=True, tag="recent"):
    """Further deduplication ids of a queue."""

    queue: int
    rows: list[tuple[bytes, int, bytes, int]]


class WindowRecord(msgspec.Struct, frozen=True, array_like=True, tag="window"):
    """Deduplication ids of a queue that is in another group."""

    queue: int
    rows: list[tuple[bytes, int, bytes, int]]


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
    stored_ms: int = 0


class MetadataRecord(msgspec.Struct, frozen=True, array_like=True, tag="record"):
    """One metadata record."""

    key: str
    version: int
    value: bytes


class FailedResult(msgspec.Struct, frozen=True):
    """A KernelError that a command came to."""

    code: str
    message: str


Result = FailedResult | bool | int | list[int | list[tuple[int, bytes]]] | None
"""What a command came to. None too for what tells of a thing that was made, which is there to be
looked at: a topic, a router, a subscriber."""


def kept(result: object) -> Result:
    """What a snapshot keeps of what a command came to."""
    if isinstance(result, KernelError):
        return FailedResult(result.code.wire, result.message)
    return result if isinstance(result, bool | int | list) else None


def restored(result: Result) -> object:
    """What is known of it behind the snapshot."""
    if isinstance(result, FailedResult):
        return error_named(result.code, result.message)
    return result


class ClientRecord(msgspec.Struct, frozen=True, array_like=True, tag="client"):
    """Batches remembered of one gateway, and of each what its commands came to."""

    session: int
    epoch: int
    floor: int
    results: dict[int, list[Result]]
    used_ms: int


class HalfRecord(msgspec.Struct, frozen=True, array_like=True, tag="half"):
    """One half message."""

    number: int
    queue: int
    index: int
    slot: int
    size_bytes: int
    producers: str
    values: tuple[tuple[int, int], ...]
    prepared_ms: int
    due_ms: int
    checks: int
    origin: int


class OutcomesRecord(msgspec.Struct, frozen=True, array_like=True, tag="outcomes"):
    """Outcomes of half messages: (number, queue, offset), oldest first."""

    outcomes: list[tuple[int, int, int]]


Record = (
    Header
    | TopicRecord
    | ResizedTopicRecord
    | SpreadTopicRecord
    | QueueRecord
    | GroupsRecord
    | RunsRecord
    | PagesRecord
    | RecentRecord
    | WindowRecord
    | RouterRecord
    | OutboxRecord
    | MetadataRecord
    | ClientRecord
    | HalfRecord
    | OutcomesRecord
    | SubscriberRecord
    | WillItemRecord
    | RetainedRecord
    | LedgerRecord
    | UsageRecord
)


def pack_leases(leases: Mapping[int, int]) -> bytes:
    """The leases of a page, as they stand in a row."""
    offsets = sorted(leases)
    lows = bytes([offset & 255 for offset in offsets])
    return lows + b"".join([leases[offset].to_bytes(16, "little") for offset in offsets])


def unpack_leases(number: int, leases: Leases) -> dict[int, int]:
    """Offset to `deadline << 64 | lease` of the leases of page `number`."""
    if isinstance(leases, list):
        return {offset: deadline_ms << 64 | lease for offset, lease, deadline_ms in leases}
    count = len(leases) // LEASE_BYTES
    return {
        number << 8 | leases[at]: int.from_bytes(
            leases[(start := count + 16 * at) : start + 16], "little"
        )
        for at in range(count)
    }


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Record).decode
