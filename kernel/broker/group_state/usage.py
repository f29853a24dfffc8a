"""Usage: what was served of each topic, counted by the state machine. Cumulative, for the bill.

Part of the state: in snapshots, in the state hash, the same after a replay. A counter never falls.
What is counted, each message once, by the origin (`kernel.api.origins`) of the batch that asked:

    PUBLISHED   accepted: stored in the first of its destinations
    ROUTED      stored in a queue; every queue counts. Of a topic all origins together are the
                growth of its end offsets, message by message: the reconciliation of the bill
    DELIVERED   leased until a deadline (deliveries without a timed lease are not in the log)
    RETURNED    of these, what has reached nobody: who was to get it had gone, or had had enough.
                Both counters rise; what was delivered is the one less the other
    ACKED       a consumer is done with it, for its group

What the server moves itself (dead letters) has the origin INTERNAL and counts as ROUTED only. A
message's size is that of its slot without the fixed header: properties and body.

Counting costs three additions a run of messages. What has been reported is said
by the command METERED; a deleted topic's counts stay until then, RETIRED_MAX of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from typing import Protocol

from ...api.message import HEADER_BYTES, SLOT_BYTES_SMALL, UNIT_BYTES
from ...common.ids import QueueId, TopicId, is_index
from ..index.features import CLASS_SHIFT, CLASSES, COPY, Feature
from .queues import Queues
from .resized import ResizedTopic
from .tally import Three
from .topic_state import QueueState, TopicState
from .topic_usage import (
    ACKED_BIT,
    NOTHING_COUNTED,
    ORDERED_BIT,
    ORIGIN_BITS,
    RETURNED_BIT,
    LedgerRecord,
    RetiredUsage,
    TopicUsage,
    UsageRecord,
    counted_of,
    taken_three,
    usage_of,
)

RETIRED_MAX = 10_000
"""Deleted topics of a Raft group whose counts nobody has reported yet: some 500 bytes each. At a
report a minute this is 160 deletions a second; beyond it the oldest go unbilled, and counted."""

PATTERN_PREFIX = "__tree/"
"""Before the patterns of reference lists, which are counted like topics: no topic is named so."""

_GRADED = int(Feature.KEY | Feature.DELAY) | COPY | CLASSES


class Verb(IntEnum):
    """What is counted."""

    PUBLISHED = 1
    ROUTED = 2
    DELIVERED = 3
    ACKED = 4
    RETURNED = 5


class Grade(IntEnum):
    """What a price may depend on."""

    PLAIN = 0
    ORDERED = 1
    """With an ordering key; of deliveries and acks: of a group that keeps the order of keys."""
    DELAYED = 2
    CLASS_1 = 3
    """Of the class that its protocol gave the publishing; so the next (`message.Flag`)."""
    CLASS_2 = 4
    HALF = 5
    """Committed after it had been prepared."""


HALF_FEATURES = CLASSES
"""Bits that a committed half message is counted with: both classes, which no publishing has."""


class Ledger:
    """The counts of one Raft group that somebody has to report."""

    __slots__ = ("counted", "forgotten", "metered", "retired")

    def __init__(self) -> None:
        self.metered = 0
        """Everything counted up to this log index was reported."""
        self.counted = array("Q")
        """Ids of the topics counted since then, each once, deleted ones included."""
        self.retired: dict[TopicId, RetiredUsage] = {}
        self.forgotten = 0
        """Messages stored in deleted topics that went unreported, above RETIRED_MAX."""

    def _enter(self, topic: TopicState, index: int) -> TopicUsage:
        """Something of a topic is counted, for the first time since the last report."""
        usage = topic.usage
        if usage is NOTHING_COUNTED:
            usage = topic.counted = TopicUsage()
        usage.since = usage.since or index
        self.counted.append(topic.id)
        return usage

    def sent(
        self,
        topic: TopicState,
        index: int,
        origin: int,
        features: int,
        count: int,
        size: int,
        units: int,
    ) -> None:
        """A log entry brought a run of messages (hot)."""
        usage = topic.counted
        if usage.last <= self.metered:
            usage = self._enter(topic, index)
        usage.last = index
        key = origin | (features & _GRADED) << ORIGIN_BITS if features else origin
        tally = usage.sent_tally if key == usage.sent_key else usage.sent_by(key)
        tally.messages += count
        tally.size += size
        if units != count:
            tally.more_units += units - count

    def leased(
        self,
        topic: TopicState,
        index: int,
        origin: int,
        group: str,
        count: int,
        size: int,
        units: int,
    ) -> None:
        """A log entry leased messages until a deadline (hot)."""
        usage = topic.counted
        if usage.last <= self.metered:
            usage = self._enter(topic, index)
        usage.last = index
        kind = origin | ORDERED_BIT if topic.definition.groups[group].ordered else origin
        if kind == usage.leased_kind and group == usage.leased_group:
            tally = usage.leased_tally
        else:
            tally = usage.taken_by(group, kind)
        tally.messages += count
        tally.size += size
        if units != count:
            tally.more_units += units - count

    def returned(
        self,
        topic: TopicState,
        index: int,
        origin: int,
        group: str,
        count: int,
        size: int,
        units: int,
    ) -> None:
        """A log entry undoes leases that have reached nobody."""
        usage = topic.counted
        if usage.last <= self.metered:
            usage = self._enter(topic, index)
        options = topic.definition.groups.get(group)
        ordered = options.ordered if options is not None else None
        usage.returned(index, origin, group, count, size, units, ordered)

    def returned_of_gone(
        self,
        ident: TopicId,
        index: int,
        origin: int,
        group: str,
        count: int,
        size: int,
        units: int,
    ) -> None:
        """The same of a topic that was deleted meanwhile, if its counts were not reported yet. A
        cut may still hold these: they are copied.
        """
        item = self.retired.get(ident)
        if item is not None:
            usage = usage_of(counted_of(item.usage))
            usage.returned(index, origin, group, count, size, units, None)
            self.retired[ident] = replace(item, usage=usage)

    def acked(
        self, topic: TopicState, index: int, origin: int, group: str, count: int, *, ordered: bool
    ) -> None:
        """A log entry says that a consumer is done with messages; how large they were it does not
        say (hot).
        """
        usage = topic.counted
        if usage.last <= self.metered:
            usage = self._enter(topic, index)
        usage.last = index
        kind = origin | ACKED_BIT | ORDERED_BIT if ordered else origin | ACKED_BIT
        if kind == usage.acked_kind and group == usage.acked_group:
            usage.acked_tally.messages += count
        else:
            usage.taken_by(group, kind).messages += count

    def retire(self, topic: TopicState, queues: Sequence[QueueState], never_stored: int) -> None:
        """A topic was deleted, with these queues; `never_stored`: see `ResizedTopic`."""
        usage = topic.usage
        if usage.last <= self.metered:
            return
        end = sum(queue.index.tail for queue in queues) - never_stored
        self.retired[topic.id] = RetiredUsage(topic.tenant, _shown(topic), usage, end)
        if len(self.retired) > RETIRED_MAX:
            oldest = next(iter(self.retired))
            self.forgotten += _messages(self.retired.pop(oldest).usage)
            if oldest in self.counted:
                self.counted.remove(oldest)

    def reported(self, index: int, topics: dict[TopicId, TopicState]) -> None:
        """Everything counted up to a log index was reported: METERED."""
        self.metered = max(self.metered, index)
        left = array("Q")
        for number in self.counted:
            ident = TopicId(number)
            item = self.retired.get(ident) or topics.get(ident)
            if item is None or item.usage.last <= self.metered:
                self.retired.pop(ident, None)
            else:
                left.append(ident)
        self.counted = left


def units_between(bounds: Sequence[int]) -> int:
    """4 KiB units of the messages whose slots lie between these bounds, one after the other."""
    return units_of([end - start for start, end in pairwise(bounds)])


def measure_slots(slot_sizes: Sequence[int]) -> tuple[int, int]:
    """(bytes, 4 KiB units) of messages by the sizes of their slots (hot)."""
    count = len(slot_sizes)
    if count == 1:
        size = slot_sizes[0]
        if size <= SLOT_BYTES_SMALL:
            return size - HEADER_BYTES, 1
    elif count and max(slot_sizes) <= SLOT_BYTES_SMALL:
        return sum(slot_sizes) - HEADER_BYTES * count, count
    return sum(slot_sizes) - HEADER_BYTES * count, units_of(slot_sizes)


def units_of(slot_sizes: Sequence[int]) -> int:
    """4 KiB units of messages by the sizes of their slots; an empty one is one unit."""
    if not slot_sizes or max(slot_sizes) <= SLOT_BYTES_SMALL:
        return len(slot_sizes)
    fixed = HEADER_BYTES - UNIT_BYTES + 1
    return sum([(size - fixed) // UNIT_BYTES or 1 for size in slot_sizes])


# --- Reading ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UsageCount:
    """One cumulative counter, as of the state it was read from."""

    topic_id: TopicId
    tenant: str
    topic: str
    group: str
    """Consumer group; empty for PUBLISHED and ROUTED."""
    origin: int
    verb: Verb
    grade: Grade
    since: int
    """Log index of the first entry counted. In one Raft group a counter of the same names with
    another `since` is another counter, from zero; those of two groups may have begun at the same.
    """
    messages: int
    size_bytes: int
    units_4k: int
    end_offset: int
    """Of the topic's queues in this Raft group together; its ROUTED of all origins is equal."""


class CountedGroup(Protocol):
    """The state of a Raft group, as far as it is counted."""

    ledger: Ledger
    topics: dict[TopicId, TopicState]
    queues: Queues
    resized: dict[TopicId, ResizedTopic]


def counts(state: CountedGroup) -> Iterator[UsageCount]:
    """Every counter of the topics that were counted since the last METERED; those of one topic
    stand together, ROUTED first.
    """
    for ident in map(TopicId, state.ledger.counted):
        yield from counts_of(state, ident)


def counts_of(state: CountedGroup, ident: TopicId) -> Iterator[UsageCount]:
    """Those of one topic; none if it is gone, and has been reported."""
    retired = state.ledger.retired.get(ident)
    topic = state.topics.get(ident)
    if retired is not None:
        yield from _counts(ident, retired)
    elif topic is not None:
        ids: Iterable[QueueId] = (ref.id for ref in topic.refs)
        resized, never_stored = state.resized.get(ident), 0
        if resized is not None:
            ids, never_stored = resized.queues_here(ident, ids), resized.never_stored
        queues = map(state.queues.peek, ids)
        end = sum(queue.index.tail for queue in queues if queue is not None) - never_stored
        yield from _counts(ident, RetiredUsage(topic.tenant, _shown(topic), topic.usage, end))


def _shown(topic: TopicState) -> str:
    """The name that a topic's counts are told under. A pattern may be spelled like a topic, and
    both be written to by one entry: their counters must not be taken for one another.
    """
    return PATTERN_PREFIX + topic.name if is_index(topic.id) else topic.name


def _counts(ident: TopicId, item: RetiredUsage) -> Iterator[UsageCount]:
    found: dict[tuple[Verb, str, int, Grade], list[int]] = {}
    for verb in (Verb.ROUTED, Verb.PUBLISHED):
        for key, tally in item.usage.sent.items():
            features = key >> ORIGIN_BITS
            if verb is Verb.ROUTED or not features & COPY:
                _add(found, (verb, "", key & 255, _grade(features)), tally.three)
    for (group, kind), tally in item.usage.taken.items():
        verb = Verb.RETURNED if kind & RETURNED_BIT else Verb.DELIVERED
        if kind & ACKED_BIT:
            verb = Verb.ACKED
        grade = Grade.ORDERED if kind & ORDERED_BIT else Grade.PLAIN
        _add(found, (verb, group, kind & 255, grade), taken_three(kind, tally))
    for (verb, group, origin, grade), (messages, size, units) in found.items():
        yield UsageCount(
            ident,
            item.tenant,
            item.name,
            group,
            origin,
            verb,
            grade,
            item.usage.since,
            messages,
            size,
            units,
            item.end,
        )


_GRADES_OF_CLASS = (Grade.PLAIN, Grade.CLASS_1, Grade.CLASS_2, Grade.HALF)


def _grade(features: int) -> Grade:
    if features & CLASSES:
        return _GRADES_OF_CLASS[(features & CLASSES) >> CLASS_SHIFT]
    if features & Feature.KEY:
        return Grade.ORDERED
    return Grade.DELAYED if features & Feature.DELAY else Grade.PLAIN


def _add(
    found: dict[tuple[Verb, str, int, Grade], list[int]],
    key: tuple[Verb, str, int, Grade],
    three: Three,
) -> None:
    known = found.setdefault(key, [0, 0, 0])
    for position, value in enumerate(three):
        known[position] += value


# --- Snapshots --------------------------------------------------------------------------------


def living_usage(topic: TopicState) -> UsageRecord:
    """The record of a topic's counts."""
    return usage_record(topic.id, RetiredUsage(topic.tenant, topic.name, topic.usage, -1))


def usage_record(ident: TopicId, item: RetiredUsage) -> UsageRecord:
    """The record of counts; `end` -1: of a topic that lives."""
    return UsageRecord(ident, item.tenant, item.name, *counted_of(item.usage), item.end)


def _messages(usage: TopicUsage) -> int:
    return sum(each.messages for each in usage.sent.values())


def restore_ledger(state: CountedGroup, record: LedgerRecord) -> None:
    """Take over a record of a snapshot."""
    state.ledger.metered = record.metered
    state.ledger.forgotten = record.forgotten


def restore_usage(state: CountedGroup, record: UsageRecord) -> None:
    """Take over a record of a snapshot."""
    ident = TopicId(record.topic)
    counted = (record.since, record.last, record.sent, record.taken)
    if record.end < 0:
        state.topics[ident].restore_usage(counted)
    else:
        retired = RetiredUsage(record.tenant, record.name, usage_of(counted), record.end)
        state.ledger.retired[ident] = retired
    if record.last > state.ledger.metered:
        state.ledger.counted.append(ident)
