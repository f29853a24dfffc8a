"""Identifiers that must not be swapped for one another, as distinct types.

A `QueueId` is `topic id << 8 | queue number`, so that the topic of a queue is known without a
look-up; a `TopicId` is `raft group << 32 | counter`, so that the group that defined the topic is.
"""

from __future__ import annotations

from typing import NewType

RaftGroup = NewType("RaftGroup", int)
"""Number of a Raft group: 0 is the metadata group, data groups follow, then the transient one."""

METADATA_GROUP = RaftGroup(0)
ADDED_FIRST = RaftGroup(65)
"""Data groups from here up were added while the cluster ran (ADR 30). Those below it are what it
began with, and the homes of names, for ever: so a number alone says which of the two a group is,
also to who has not heard of the register yet."""
TRANSIENT_GROUP = RaftGroup(0xFFFF)
"""Group number of transient topics in every process; never on disk."""

MEMORY_FIRST = RaftGroup(0xF000)
"""Groups from here up are kept in the memory of one process, without a log: no other process ever
leads one. The last one is this process's own (TRANSIENT_GROUP); it numbers those of other processes
as it comes to know them, so these numbers are never on disk or on the wire."""

LogIndex = NewType("LogIndex", int)
"""Position of an entry in one Raft group's log, from 1. Never a message's offset."""

Term = NewType("Term", int)
"""Raft term, from 1."""

OUTBOX_CLIENT = 1 << 63
"""Client number of a group's outbox is this plus the group: never that of a gateway, whose number
has 63 bits."""

OUTBOX_EPOCH = 2
"""Epoch of a transient outbox, whose client number is like any other process's: all others have
epoch 1."""

Offset = NewType("Offset", int)
"""Position of a message in one queue: dense, from 0."""

TopicId = NewType("TopicId", int)
QueueId = NewType("QueueId", int)
SessionId = NewType("SessionId", int)

QUEUE_BITS = (1 << 40) - 1
"""Of a `QueueId`, without its Raft group."""

QUEUES_PER_TOPIC_MAX = 256
"""The queue number takes the low 8 bits of a `QueueId`."""

NUMBER_BITS = QUEUES_PER_TOPIC_MAX - 1
"""Of a `QueueId`: the number of the queue."""


TOPIC_IDS_PER_TERM = 4_096
"""A new leader of a group gives its first topic an id so far behind those of the last one: what
that has begun elsewhere and not finished stays apart. More are never begun at once, and 500,000
leaders find room below INDEX_BIT."""

INDEX_BIT = 1 << 31
"""Set in the counter of a `TopicId` that stands for the reference list of a tree pattern."""


def is_index(topic: TopicId) -> bool:
    """Whether the id stands for the reference list of a tree pattern."""
    return bool(topic & INDEX_BIT)


def queue_id(topic: TopicId, number: int) -> QueueId:
    """Id of queue `number` (0 <= number < QUEUES_PER_TOPIC_MAX) of a topic."""
    return QueueId(topic << 8 | number)


def topic_of(queue: QueueId) -> TopicId:
    """Id of the topic that a queue belongs to."""
    return TopicId(queue >> 8)


def queue_there(queue: QueueId) -> QueueId:
    """Id of a transient queue in the process in whose memory it is (hot)."""
    return QueueId(TRANSIENT_GROUP << 40 | queue & QUEUE_BITS)


def home_of(topic: TopicId) -> RaftGroup:
    """Raft group that holds the topic's definition."""
    return RaftGroup(topic >> 32)


UUID_VERSION_BITS = 0x8000
"""Of version 8 (RFC 9562 5.8), in the high half of a uid."""

UUID_VARIANT = 1 << 63
"""In its low half."""


def dashed(uuid: bytes) -> str:
    """A UUID as text (RFC 9562 4)."""
    text = uuid.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def uuid_text(bits: int) -> str:
    """128 random bits as the text of a UUID."""
    return dashed(uuid_of(bits.to_bytes(16, "big")))


def uuid_of(data: bytes) -> bytes:
    """16 random bytes, or of a hash, as a UUID: with the bits of version 4 (RFC 9562 5.4)."""
    return data[:6] + bytes((data[6] & 0x0F | 0x40, data[7], data[8] & 0x3F | 0x80)) + data[9:]
