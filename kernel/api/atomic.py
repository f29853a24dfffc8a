"""Several commands of one Raft group that are carried out together or not at all.

    publishes       a batch of `Client.batch`, filled and not submitted
    settlements     of messages that consumers' sessions hold
    changes         of timed leases, by token

All queues concerned, those published to and those settled in, must live in one Raft group
(`TopicInfo.queues[...].group`). Across groups there is no atomicity
(docs/design/delivery.md#transactions): a transaction that need not be `whole` is carried out in
steps where it cannot be otherwise (`cross_group`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .consuming import Consumer, LeaseChange, Settlement
from .model import Reason, TopicInfo
from .publishing import PublishBatch

TRANSACTION_MESSAGES_MAX = 8_192
TRANSACTION_BYTES_MAX = 64 * 1024 * 1024
"""Of the messages published: they make one entry, which nothing overtakes."""

TRANSACTION_SETTLEMENTS_MAX = 100_000
"""Messages settled: bounds the time of one apply to some 50 ms."""

TRANSACTION_PARTS_MAX = 10_000
"""Consumers, and queues with timed leases, that are concerned: each is a command or two of a batch,
whose number is a u16."""


@dataclass(frozen=True, slots=True)
class Settle:
    """What a consumer's session holds and is to be settled: ACK, RELEASE or DEAD_LETTER."""

    consumer: Consumer
    how: Settlement
    offsets: Sequence[int]
    reason: Reason = Reason.REJECTED


@dataclass(frozen=True, slots=True)
class ChangeLeases:
    """Timed leases of one topic and group, and what is to happen to each."""

    topic: TopicInfo
    group: str
    changes: Sequence[LeaseChange]


@dataclass(frozen=True, slots=True)
class Transaction:
    """What `Client.transact` carries out."""

    publishes: PublishBatch | None = None
    """After success its `place` and `duplicates` answer; its sink hears nothing."""
    settlements: Sequence[Settle] = ()
    changes: Sequence[ChangeLeases] = ()
    whole: bool = True
    """False: if its queues live in several groups, or in another process's memory, it is carried
    out in steps; what is held of topics that are gone counts as settled. Without `changes`."""
