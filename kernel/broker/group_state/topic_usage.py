"""What was served of one topic: its counters, and how they stand in records.

A counter never falls. `usage` says what is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from .tally import Tally, Three

GROUPS_COUNTED_MAX = 64
"""Counters of consumer groups of one topic; those that come later are counted as OTHER_GROUP."""

OTHER_GROUP = "__other"

ORIGIN_BITS = 8
ACKED_BIT = 1 << ORIGIN_BITS
ORDERED_BIT = 2 << ORIGIN_BITS
RETURNED_BIT = 4 << ORIGIN_BITS

_NOTHING_SENT: dict[int, Tally] = {}
_NOTHING_TAKEN: dict[tuple[str, int], Tally] = {}
_NO_TALLY = Tally()
"""Shared by the topics that nothing was counted of; never changed."""


class TopicUsage:
    """Counts of one topic in one Raft group."""

    __slots__ = (
        "_sent",
        "acked_group",
        "acked_kind",
        "acked_tally",
        "last",
        "leased_group",
        "leased_kind",
        "leased_tally",
        "sent_key",
        "sent_tally",
        "since",
        "taken",
    )

    def __init__(self) -> None:
        self.since = 0
        """Log index of the first entry counted; 0: none yet."""
        self.last = 0
        """Log index of the last one."""
        self._sent = _NOTHING_SENT
        """By `origin | features << 8`, with the features in _GRADED, once there are two of them."""
        self.taken = _NOTHING_TAKEN
        """By group and origin with ACKED_BIT, RETURNED_BIT and ORDERED_BIT."""
        # The counters used last are at hand: a topic mostly has one writer's and one reader's kind.
        self.sent_key = -1
        self.sent_tally = _NO_TALLY
        self.leased_group = self.acked_group = ""
        self.leased_kind = self.acked_kind = -1
        self.leased_tally = self.acked_tally = _NO_TALLY

    def sent_by(self, key: int) -> Tally:
        """The counter of a key of `sent`, at hand from now on."""
        tally = self._sent.get(key)
        if tally is None:
            tally = Tally()
            if self.sent_key >= 0:
                self._sent = {**self.sent, key: tally}
        self.sent_key, self.sent_tally = key, tally
        return tally

    @property
    def sent(self) -> Mapping[int, Tally]:
        """Every counter of what was stored."""
        if self.sent_key >= 0 and self._sent is _NOTHING_SENT:
            return {self.sent_key: self.sent_tally}
        return self._sent

    @property
    def has_one_sent(self) -> bool:
        """Whether what is at hand is every counter of what was stored."""
        return self._sent is _NOTHING_SENT

    def restore_sent(self, key: int, messages: int, size: int, units: int) -> None:
        """Become what a snapshot says."""
        tally = self.sent_by(key)
        tally.messages, tally.size, tally.more_units = messages, size, units - messages

    def taken_by(self, group: str, kind: int) -> Tally:
        """The counter of a key of `taken`, at hand from now on."""
        tally = self.taken.get((group, kind))
        if tally is None:
            if self.taken is _NOTHING_TAKEN:
                self.taken = {}
            folded = OTHER_GROUP if len(self.taken) >= GROUPS_COUNTED_MAX else group
            tally = self.taken.setdefault((folded, kind), Tally())
        if kind & ACKED_BIT:
            self.acked_group, self.acked_kind, self.acked_tally = group, kind, tally
        elif not kind & RETURNED_BIT:
            self.leased_group, self.leased_kind, self.leased_tally = group, kind, tally
        return tally

    def returned(
        self,
        index: int,
        origin: int,
        group: str,
        count: int,
        size: int,
        units: int,
        ordered: bool | None,
    ) -> None:
        """Leases have reached nobody; `ordered`: None if the group is gone, and its leases tell."""
        self.last = index
        if ordered is None:
            ordered = (group, origin | ORDERED_BIT) in self.taken
        kind = origin | RETURNED_BIT | (ORDERED_BIT if ordered else 0)
        tally = self.taken_by(group, kind)
        tally.messages += count
        tally.size += size
        tally.more_units += units - count


NOTHING_COUNTED = TopicUsage()
"""Of every topic that nothing was counted of yet; never changed."""


@dataclass(slots=True)
class RetiredUsage:
    """Counts of a topic that was deleted."""

    tenant: str
    name: str
    usage: TopicUsage
    end: int
    """Its end offset, all queues of this Raft group together."""


# --- Snapshots --------------------------------------------------------------------------------


class LedgerRecord(msgspec.Struct, frozen=True, array_like=True, tag="ledger"):
    """How far the counts of this Raft group were reported."""

    metered: int
    forgotten: int


class UsageRecord(msgspec.Struct, frozen=True, array_like=True, tag="usage"):
    """Counts of one topic; `end` is -1 if it lives, else its end offset."""

    topic: int
    tenant: str
    name: str
    since: int
    last: int
    sent: list[tuple[int, int, int, int]]
    taken: list[tuple[str, int, int, int, int]]
    end: int


Counted = tuple[int, int, list[tuple[int, int, int, int]], list[tuple[str, int, int, int, int]]]
"""(since, last, what was stored, what was taken) of a topic."""


def taken_three(kind: int, tally: Tally) -> Three:
    """Of acks nobody knows bytes and units."""
    return (tally.messages, 0, 0) if kind & ACKED_BIT else tally.three


class UsageSums(NamedTuple):
    """What was counted of a topic, whoever asked for it."""

    published: int
    """Messages stored in the topic."""
    published_bytes: int
    acked: dict[str, int]
    """By group; those beyond GROUPS_COUNTED_MAX under OTHER_GROUP."""


def sums_of(counted: Counted) -> UsageSums:
    """The same of counts as they stand in records."""
    acked: dict[str, int] = {}
    for group, kind, messages, _, _ in counted[3]:
        if kind & ACKED_BIT:
            acked[group] = acked.get(group, 0) + messages
    sent = counted[2]
    if len(sent) == 1:
        return UsageSums(sent[0][1], sent[0][2], acked)
    return UsageSums(sum(each[1] for each in sent), sum(each[2] for each in sent), acked)


def usage_sums(usage: TopicUsage) -> UsageSums:
    """What was counted of a topic that is in use."""
    acked: dict[str, int] = {}
    for (group, kind), tally in usage.taken.items():
        if kind & ACKED_BIT:
            acked[group] = acked.get(group, 0) + tally.messages
    if usage.has_one_sent:
        return UsageSums(usage.sent_tally.messages, usage.sent_tally.size, acked)
    sent = usage.sent.values()
    return UsageSums(sum(each.messages for each in sent), sum(each.size for each in sent), acked)


def counted_of(usage: TopicUsage) -> Counted:
    """All of it, as it stands in records."""
    return (
        usage.since,
        usage.last,
        [(key, *usage.sent[key].three) for key in sorted(usage.sent)],
        [(*key, *taken_three(key[1], usage.taken[key])) for key in sorted(usage.taken)],
    )


def usage_of(counted: Counted) -> TopicUsage:
    """Inverse of `counted_of`."""
    since, last, sent, taken = counted
    usage = TopicUsage()
    usage.since = since
    usage.last = last
    for each in sent:
        usage.restore_sent(*each)
    if taken:
        usage.taken = {(group, kind): Tally(*three) for group, kind, *three in taken}
    return usage
