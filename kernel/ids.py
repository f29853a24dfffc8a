"""Identifiers that must not be swapped for one another, as distinct types.

A `QueueId` is `topic id << 8 | queue number`, so that the topic of a queue is known without a
look-up; a `TopicId` is `raft group << 32 | counter`, so that the group that defined the topic is.
"""

from __future__ import annotations

from typing import NewType

RaftGroup = NewType("RaftGroup", int)
"""Number of a Raft group: 0 is the metadata group, data groups follow, then the volatile one."""

METADATA_GROUP = RaftGroup(0)
VOLATILE_GROUP = RaftGroup(0xFFFF)
"""Group number of volatile topics in every process; never on disk or on the wire."""

LogIndex = NewType("LogIndex", int)
"""Position of an entry in one Raft group's log, from 1. Never a message's offset."""

Term = NewType("Term", int)
"""Raft term, from 1."""

OUTBOX_CLIENT = 1 << 63
"""Client number of a group's outbox is this plus the group: never that of a gateway, whose number
has 63 bits."""

Offset = NewType("Offset", int)
"""Position of a message in one queue: dense, from 0."""

TopicId = NewType("TopicId", int)
QueueId = NewType("QueueId", int)
SessionId = NewType("SessionId", int)

QUEUES_PER_TOPIC_MAX = 256
"""The queue number takes the low 8 bits of a `QueueId`."""


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


def home_of(topic: TopicId) -> RaftGroup:
    """Raft group that holds the topic's definition."""
    return RaftGroup(topic >> 32)


UUID_VERSION_BITS = 0x8000
"""Of version 8 (RFC 9562 5.8), in the high half of a uid."""

UUID_VARIANT = 1 << 63
"""In its low half."""


def uuid_of(data: bytes) -> bytes:
    """16 random bytes, or of a hash, as a UUID: with the bits of version 4 (RFC 9562 5.4)."""
    return data[:6] + bytes((data[6] & 0x0F | 0x40, data[7], data[8] & 0x3F | 0x80)) + data[9:]
