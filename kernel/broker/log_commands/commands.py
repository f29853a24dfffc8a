"""Commands of the log: what a leader proposes and every replica applies.

Hot commands are packed structs over columns; the rest is msgpack of frozen structs. Each command
stands in a batch of an entry (`kernel.log.format.entry`) with its type and version byte. What a
build before this one may not understand is written only once its level is on (`LEVELS`).

    ENQUEUE  u32 runs | run [runs]
             run: u64 queue | u32 first slot | u16 slots | u16 features
    SETTLE   u64 queue | u8 how | u8 reason | u8 group length | group | u32 ranges | range [ranges]
                                             range: u64 first offset | u32 offsets
    ACK      u8 group length | group | range [ranges]       acks of any number of queues
                                             range: u64 queue | u64 first offset | u32 offsets
    RETAIN   see `tree_commands`
    MARK     u64 queue | u64 offset | u8 priority level | group
    LEASE    u64 queue | u64 deadline ms | u64 bytes | u32 units | u8 group length | group
             u32 ranges | range [ranges]        bytes, 4 KiB units: of all messages named
             version 2: each lease ends at once, its attempt counted, unless it is the last one that
             the group allows: that lasts until the deadline
    CHANGE   u64 queue | u8 group length | group | u32 changes | change [changes]
             change: u64 offset | u64 lease | u8 verb | u8 reason | u64 until ms
             version 2: change | u32 slot bytes      of a message that its lease has brought to
             nobody, else 0; the batch's origin is that of the lease
    PREPARE  u8 producers length | producers | ENQUEUE
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum

import msgspec

from ...api.client import LeaseVerb, Settlement
from ...api.model import GroupOptions, QueueRef, Reason, Route, RouterOptions, TopicOptions
from ...common.feature_levels import REGISTER, RESIZE, SPREAD, TENANTS, WINDOWS
from ...common.ids import Offset, QueueId, TopicId
from . import tree_commands as tree
from .give_up import GiveUp
from .reasons import REASON_CODES, REASONS
from .resize_commands import (
    AddWindow,
    Drained,
    Plan,
    ReadWindow,
    Resize,
    ResizeControl,
    Retire,
    Seal,
    SpreadPlan,
    SpreadResize,
)

VERSION = 1

CHANGE_RETURNS = 2
"""Version of a CHANGE that undoes deliveries; all others are of version 1."""

LEASE_ENDING = 2
"""Version of a LEASE that ends at once; all others are of version 1."""

RUN = struct.Struct("<QIHH")
RANGE = struct.Struct("<QI")
ACK_RANGE = struct.Struct("<QQI")
_COUNT = struct.Struct("<I")
_SETTLE = struct.Struct("<QBBB")
_MARK = struct.Struct("<QQB")
_LEASE = struct.Struct("<QQQIB")
_CHANGE = struct.Struct("<QB")
CHANGE = struct.Struct("<QQBBQ")
_RETURNING = struct.Struct("<QQBBQI")


class Command(IntEnum):
    """Type byte of a command."""

    ENQUEUE = 1
    SETTLE = 2
    MARK = 3
    LEASE = 4
    CHANGE = 5
    PREPARE = 6
    ACK = 8
    LEADER_START = 16
    PUT_TOPIC = 17
    PUT_QUEUES = 18
    DELETE_TOPIC = 19
    PURGE = 20
    PUT_ROUTER = 21
    DELETE_ROUTER = 22
    PUT_ROUTE = 23
    DELETE_ROUTE = 24
    OUTBOX_DONE = 25
    PUT_RECORD = 26
    TRIM = 27
    DELETE_GROUP = 28
    RESOLVE_HALF = 29
    CHECK_HALVES = 30
    GUARD = 31
    # 7 and 32 to 43 are the topic tree's (`tree_commands`); other new ones begin at 64.
    RETAIN = 7
    JOIN_INDEX = 32
    LEAVE_INDEX = 33
    OPEN_SUBSCRIBER = 34
    CLOSE_SUBSCRIBER = 35
    NOTE_SUBSCRIBER = 36
    PUT_SUBSCRIPTION = 37
    DELETE_SUBSCRIPTION = 38
    SUBSCRIBER_DUE = 39
    END_SUBSCRIBER = 40
    SUBSCRIBER_LEFT = 41
    WILL_SENT = 42
    FORGET_RETAINED = 43
    OUTBOX_AGAIN = 44
    METERED = 64
    MOVE = 65
    SWEEP = 66
    LISTED = 67
    GIVE_UP = 68
    RECALL = 70
    SEEK = 71
    RAISE_LEVEL = 72
    PUT_RECORDS = 73
    SEAL = 74
    RESIZE = 75
    DRAINED = 76
    RETIRE = 77
    PLAN = 78
    FORGET_TENANT = 79
    SPREAD_PLAN = 80
    SPREAD_RESIZE = 81
    READ_WINDOW = 82
    ADD_WINDOW = 83


WITH_MESSAGES = frozenset({Command.ENQUEUE, Command.PREPARE, Command.RETAIN})
"""Commands over slots of their own entry: without the slots they must not stand there."""


class LeaderStart(msgspec.Struct, frozen=True, array_like=True):
    """First entry of a leader's term: what was handed out before returns as redelivered, unless
    the last leader ended in order and took everything back itself.
    """

    node: str
    clean: bool


class PutTopic(msgspec.Struct, frozen=True, array_like=True):
    """Create or change a topic, in its home group. Result: `TopicInfo` or an error."""

    tenant: str
    name: str
    options: TopicOptions
    groups: dict[str, GroupOptions]
    must_be_new: bool
    ident: TopicId
    """Id of a new topic, chosen by the leader: its queues in other groups are made first."""
    placement: tuple[int, ...]
    """Raft group of each queue, chosen by the leader; ignored if the topic exists."""


class PutQueues(msgspec.Struct, frozen=True, array_like=True):
    """Make the queues of a topic that live in this group, or update its settings (idempotent)."""

    topic: TopicId
    version: int
    tenant: str
    name: str
    options: TopicOptions
    queues: tuple[QueueRef, ...]
    groups: dict[str, GroupOptions]


class DeleteTopic(msgspec.Struct, frozen=True, array_like=True):
    """Delete a topic's definition and its queues in this group. Result: its id or None."""

    topic: TopicId


class Purge(msgspec.Struct, frozen=True, array_like=True):
    """Ack everything of a group below `end`, but for the offsets kept (leased ones)."""

    queue: QueueId
    group: str
    end: Offset
    keep: tuple[Offset, ...]
    forget: bool
    """Forget the deduplication window too."""


class PutRouter(msgspec.Struct, frozen=True, array_like=True):
    """Create or change a router. Result: `RouterInfo` or an error."""

    tenant: str
    name: str
    options: RouterOptions
    must_be_new: bool


class DeleteRouter(msgspec.Struct, frozen=True, array_like=True):
    """Delete a router and the routes from it."""

    tenant: str
    name: str
    if_unused: bool


class PutRoute(msgspec.Struct, frozen=True, array_like=True):
    """Add a route. Result: None or an error."""

    tenant: str
    router: str
    route: Route


class DeleteRoute(msgspec.Struct, frozen=True, array_like=True):
    """Remove a route. Result: whether it was there."""

    tenant: str
    router: str
    route: Route


class OutboxDone(msgspec.Struct, frozen=True, array_like=True):
    """Outbox items up to and including this number have reached their target."""

    number: int


class OutboxAgain(msgspec.Struct, frozen=True, array_like=True):
    """Give an outbox item that was never sent a new number, behind all others."""

    number: int


class PutRecord(msgspec.Struct, frozen=True, array_like=True):
    """Set or (value None) remove a metadata record, if its version is the one expected (0: there
    is none; None: whatever it is). Result: the new version, or an error.
    """

    key: str
    value: bytes | None
    expected: int | None


class PutRecords(msgspec.Struct, frozen=True, array_like=True):
    """Set or remove several metadata records, all of them or, if one has not the version expected,
    none. Result: a list of their new versions, or an error.
    """

    changes: tuple[PutRecord, ...]


class RaiseLevel(msgspec.Struct, frozen=True, array_like=True):
    """From here on this Raft group has the features up to a level (`feature_levels`); a lower one
    changes nothing. Result: the level that is on.
    """

    level: int


class Trim(msgspec.Struct, frozen=True, array_like=True):
    """Retention: let go of every message of a queue below an offset, acked, leased or neither, for
    all groups. Nothing of it becomes a dead letter; what a group had not acked counts as expired.
    """

    queue: QueueId
    end: Offset


class Sweep(msgspec.Struct, frozen=True, array_like=True):
    """Make one hole of the index's runs in each of these (first, end) ranges of offsets, which
    every group is done with, and put the pages that cover offsets [start, end) together. The
    leader says what is worth it. Result: the runs saved.
    """

    queue: QueueId
    start: Offset
    end: Offset
    ranges: tuple[tuple[int, int], ...]


class DeleteGroup(msgspec.Struct, frozen=True, array_like=True):
    """Remove a group from a topic's definition and from its queues in this Raft group."""

    topic: TopicId
    group: str


class ResolveHalf(msgspec.Struct, frozen=True, array_like=True):
    """Commit or roll back a half message. Result: a list of one number, as
    `half_messages.HalfCommands.resolve` says.
    """

    queue: QueueId
    number: int
    commit: bool


class CheckHalves(msgspec.Struct, frozen=True, array_like=True):
    """These half messages are due: count a question, or roll back what was asked often enough.
    Result: the numbers to ask for; those rolled back negative.
    """

    numbers: tuple[int, ...]


class Move(msgspec.Struct, frozen=True, array_like=True):
    """Take messages out of a group, those of the offsets that are neither acked nor leased, and
    send them to a topic by way of the outbox. Result: how many.
    """

    queue: QueueId
    group: str
    topic: str
    offsets: tuple[Offset, ...]


class Recall(msgspec.Struct, frozen=True, array_like=True):
    """Have no group get a message that is not due yet. Result: see `offsets`."""

    queue: QueueId
    offset: Offset


class Seek(msgspec.Struct, frozen=True, array_like=True):
    """Have a group of a stream go on from an offset. Result: the offset, or an error."""

    queue: QueueId
    group: str
    offset: Offset


class Metered(msgspec.Struct, frozen=True, array_like=True):
    """Everything that this Raft group has counted up to a log index was reported (`usage`)."""

    index: int


class Guard(msgspec.Struct, frozen=True, array_like=True):
    """What stands behind it in its batch is carried out only if every lease named here is good:
    (queue, group, offset, lease, verb) of each. Result: the positions of those that are not.
    """

    leases: tuple[tuple[QueueId, str, int, int, int], ...]


Control = (
    LeaderStart
    | PutTopic
    | PutQueues
    | DeleteTopic
    | Purge
    | PutRouter
    | DeleteRouter
    | PutRoute
    | DeleteRoute
    | OutboxDone
    | OutboxAgain
    | PutRecord
    | PutRecords
    | RaiseLevel
    | Trim
    | Sweep
    | DeleteGroup
    | tree.TreeControl
    | ResolveHalf
    | CheckHalves
    | Metered
    | Move
    | Guard
    | GiveUp
    | Recall
    | Seek
    | ResizeControl
)

CONTROL_TYPES: dict[Command, type[Control]] = {
    Command.LEADER_START: LeaderStart,
    Command.PUT_TOPIC: PutTopic,
    Command.PUT_QUEUES: PutQueues,
    Command.DELETE_TOPIC: DeleteTopic,
    Command.PURGE: Purge,
    Command.PUT_ROUTER: PutRouter,
    Command.DELETE_ROUTER: DeleteRouter,
    Command.PUT_ROUTE: PutRoute,
    Command.DELETE_ROUTE: DeleteRoute,
    Command.OUTBOX_DONE: OutboxDone,
    Command.OUTBOX_AGAIN: OutboxAgain,
    Command.PUT_RECORD: PutRecord,
    Command.TRIM: Trim,
    Command.SWEEP: Sweep,
    Command.DELETE_GROUP: DeleteGroup,
    Command.JOIN_INDEX: tree.JoinIndex,
    Command.LEAVE_INDEX: tree.LeaveIndex,
    Command.OPEN_SUBSCRIBER: tree.OpenSubscriber,
    Command.CLOSE_SUBSCRIBER: tree.CloseSubscriber,
    Command.NOTE_SUBSCRIBER: tree.NoteSubscriber,
    Command.PUT_SUBSCRIPTION: tree.PutSubscription,
    Command.DELETE_SUBSCRIPTION: tree.DeleteSubscription,
    Command.SUBSCRIBER_DUE: tree.SubscriberDue,
    Command.END_SUBSCRIBER: tree.EndSubscriber,
    Command.SUBSCRIBER_LEFT: tree.SubscriberLeft,
    Command.WILL_SENT: tree.WillSent,
    Command.FORGET_RETAINED: tree.ForgetRetained,
    Command.FORGET_TENANT: tree.ForgetTenant,
    Command.LISTED: tree.Listed,
    Command.RESOLVE_HALF: ResolveHalf,
    Command.CHECK_HALVES: CheckHalves,
    Command.METERED: Metered,
    Command.MOVE: Move,
    Command.GUARD: Guard,
    Command.GIVE_UP: GiveUp,
    Command.RECALL: Recall,
    Command.SEEK: Seek,
    Command.RAISE_LEVEL: RaiseLevel,
    Command.PUT_RECORDS: PutRecords,
    Command.PLAN: Plan,
    Command.SEAL: Seal,
    Command.RESIZE: Resize,
    Command.DRAINED: Drained,
    Command.RETIRE: Retire,
    Command.SPREAD_PLAN: SpreadPlan,
    Command.SPREAD_RESIZE: SpreadResize,
    Command.READ_WINDOW: ReadWindow,
    Command.ADD_WINDOW: AddWindow,
}
_TYPE_OF = {kind: command for command, kind in CONTROL_TYPES.items()}

_RESIZES = (Command.PLAN, Command.SEAL, Command.RESIZE, Command.DRAINED, Command.RETIRE)

LEVELS: dict[tuple[int, int], int] = {
    **{(int(each), VERSION): 0 for each in Command},
    (int(Command.LEASE), LEASE_ENDING): 0,
    (int(Command.CHANGE), CHANGE_RETURNS): 0,
    (int(Command.PUT_RECORDS), VERSION): REGISTER,
    (int(Command.FORGET_TENANT), VERSION): TENANTS,
    **{(int(each), VERSION): RESIZE for each in _RESIZES},
    (int(Command.SPREAD_PLAN), VERSION): SPREAD,
    (int(Command.SPREAD_RESIZE), VERSION): SPREAD,
    (int(Command.READ_WINDOW), VERSION): WINDOWS,
    (int(Command.ADD_WINDOW), VERSION): WINDOWS,
}
"""Every command that this build understands, by type and version, and the level that has to be on
before one is written."""

FIRST_WITH_LEVEL = int(Command.RAISE_LEVEL)
"""Types from here on have to be looked up in LEVELS; those below only in another version than 1."""

SECOND_VERSIONS = {
    kind: version for (kind, version), level in LEVELS.items() if version != VERSION and not level
}
"""Versions of before there were levels, by type: known without a look-up (hot)."""

CONTROL_LEVELS: dict[type[Control], int] = {
    command: level
    for kind, command in CONTROL_TYPES.items()
    if (level := LEVELS[int(kind), VERSION])
}
"""The level of those control commands that need one."""

Packed = tuple[int, int, bytes]
"""A command as it stands in a batch: (type, version, bytes)."""

_encoder = msgspec.msgpack.Encoder()
_decoders = {command: msgspec.msgpack.Decoder(kind) for command, kind in CONTROL_TYPES.items()}


def shifted(command: Packed, base: int) -> Packed:
    """A command over slots that are numbered from `base` on, made of one that counts from 0."""
    kind, version, body = command
    if not base or kind not in WITH_MESSAGES:
        return command
    if kind == Command.RETAIN:
        tenant, slots = tree.decode_retain(body)
        return kind, version, tree.encode_retain(tenant, [slot + base for slot in slots])
    if kind == Command.ENQUEUE:
        return kind, version, encode_enqueue(decode_enqueue(body), base)
    producers, runs = decode_prepare(body)
    moved = [(queue, slot + base, count, features) for queue, slot, count, features in runs]
    return kind, version, encode_prepare(producers, moved)


def encode_control(change: Control) -> Packed:
    """A control command, as `entry.Batch` takes it."""
    return _TYPE_OF[type(change)], VERSION, _encoder.encode(change)


def decode_control(kind: int, body: bytes) -> Control:
    """The control command of a type byte. Raises ValueError for bytes that are none."""
    decoded: Control = _decoders[Command(kind)].decode(body)
    return decoded


def encode_enqueue(runs: Sequence[Sequence[int]], base: int = 0) -> bytes:
    """ENQUEUE of (queue, first slot, slots, features) runs, whose slots count from `base`;
    `runs.Feature` lists the features.
    """
    pack = RUN.pack
    packed = [pack(queue, slot + base, count, bits) for queue, slot, count, bits in runs]
    return b"".join((_COUNT.pack(len(runs)), *packed))


def decode_enqueue(body: bytes) -> list[tuple[QueueId, int, int, int]]:
    """Runs of an ENQUEUE."""
    return list(RUN.iter_unpack(memoryview(body)[_COUNT.size :]))


def encode_prepare(producers: str, runs: Sequence[Sequence[int]]) -> bytes:
    """PREPARE of half messages of one producer group."""
    name = producers.encode()
    return bytes((len(name),)) + name + encode_enqueue(runs)


def decode_prepare(body: bytes) -> tuple[str, list[tuple[QueueId, int, int, int]]]:
    """(producer group, runs) of a PREPARE."""
    end = 1 + body[0]
    return body[1:end].decode(), decode_enqueue(body[end:])


def encode_settle(
    queue: QueueId,
    group: str,
    how: Settlement,
    reason: Reason,
    ranges: Sequence[tuple[int, int]],
) -> bytes:
    """SETTLE of ascending (first offset, offsets) ranges."""
    name = group.encode()
    head = _SETTLE.pack(queue, how.value, REASON_CODES[reason], len(name))
    pack = RANGE.pack
    return b"".join([head, name, _COUNT.pack(len(ranges)), *[pack(*each) for each in ranges]])


def decode_settle(body: bytes) -> tuple[QueueId, str, Settlement, Reason, list[tuple[int, int]]]:
    """(queue, group, how, reason, ranges) of a SETTLE."""
    queue, how, reason, length = _SETTLE.unpack_from(body)
    at = _SETTLE.size + length
    group = body[_SETTLE.size : at].decode()
    ranges = list(RANGE.iter_unpack(memoryview(body)[at + _COUNT.size :]))
    return QueueId(queue), group, Settlement(how), REASONS[reason], ranges


def encode_ack(group: str, ranges: Sequence[bytes]) -> bytes:
    """ACK of ranges (`ACK_RANGE`), ascending in each queue."""
    name = group.encode()
    return b"".join((bytes((len(name),)), name, *ranges))


def decode_ack(body: bytes) -> tuple[str, Iterator[tuple[QueueId, int, int]]]:
    """(group, (queue, first offset, offsets) ranges) of an ACK."""
    at = 1 + body[0]
    return body[1:at].decode(), ACK_RANGE.iter_unpack(memoryview(body)[at:])


def encode_mark(queue: QueueId, group: str, level: int, offset: int) -> bytes:
    """MARK: messages of a level below `offset` may have been handed to a consumer."""
    return _MARK.pack(queue, offset, level) + group.encode()


def decode_mark(body: bytes) -> tuple[QueueId, str, int, Offset]:
    """(queue, group, level, offset) of a MARK."""
    queue, offset, level = _MARK.unpack_from(body)
    return QueueId(queue), body[_MARK.size :].decode(), level, Offset(offset)


def encode_lease(
    queue: QueueId,
    group: str,
    deadline_ms: int,
    ranges: Sequence[tuple[int, int]],
    size: int,
    units: int,
) -> bytes:
    """LEASE of (first offset, offsets) ranges until a log time; their bytes and 4 KiB units."""
    name = group.encode()
    pack = RANGE.pack
    head = _LEASE.pack(queue, deadline_ms, size, units, len(name))
    return b"".join([head, name, _COUNT.pack(len(ranges)), *[pack(*each) for each in ranges]])


def decode_lease(body: bytes) -> tuple[QueueId, str, int, list[tuple[int, int]], int, int]:
    """(queue, group, deadline, ranges, bytes, units) of a LEASE."""
    queue, deadline_ms, size, units, length = _LEASE.unpack_from(body)
    at = _LEASE.size + length
    group = body[_LEASE.size : at].decode()
    ranges = list(RANGE.iter_unpack(memoryview(body)[at + _COUNT.size :]))
    return QueueId(queue), group, deadline_ms, ranges, size, units


Change = tuple[int, int, LeaseVerb, Reason, int, int]
"""(offset, lease, verb, reason, log time until which it is hidden, slot bytes) of a CHANGE."""


def encode_change(queue: QueueId, group: str, changes: Sequence[Change]) -> Packed:
    """CHANGE, of the lowest version that can say it."""
    name = group.encode()
    returns = any(each[5] for each in changes)
    if returns:
        packed = [
            _RETURNING.pack(offset, lease, verb.value, REASON_CODES[reason], until_ms, size)
            for offset, lease, verb, reason, until_ms, size in changes
        ]
    else:
        packed = [
            CHANGE.pack(offset, lease, verb.value, REASON_CODES[reason], until_ms)
            for offset, lease, verb, reason, until_ms, _ in changes
        ]
    body = b"".join([_CHANGE.pack(queue, len(name)), name, _COUNT.pack(len(packed)), *packed])
    return int(Command.CHANGE), CHANGE_RETURNS if returns else VERSION, body


def decode_change(version: int, body: bytes) -> tuple[QueueId, str, list[Change]]:
    """(queue, group, changes) of a CHANGE."""
    queue, length = _CHANGE.unpack_from(body)
    at = _CHANGE.size + length
    rest = memoryview(body)[at + _COUNT.size :]
    changes: list[Change]
    if version == VERSION:
        changes = [
            (offset, lease, LeaseVerb(verb), REASONS[reason], until_ms, 0)
            for offset, lease, verb, reason, until_ms in CHANGE.iter_unpack(rest)
        ]
    else:
        changes = [
            (offset, lease, LeaseVerb(verb), REASONS[reason], until_ms, size)
            for offset, lease, verb, reason, until_ms, size in _RETURNING.iter_unpack(rest)
        ]
    return QueueId(queue), body[_CHANGE.size : at].decode(), changes
