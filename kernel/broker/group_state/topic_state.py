"""A topic and its queues, as the state of a Raft group holds them.

Plain records, changed only by `machine` and what it is made of. A million topics may stand in one
process: what many have in common is one object (`alike`), the definition is the very object that
gateways in this process look up, and counts of idle queues are kept as their snapshot record.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import intern
from typing import TYPE_CHECKING

from msgspec import structs

from ...api.model import GroupOptions, QueueRef, TopicInfo, TopicKind, TopicOptions
from ...common.ids import Offset, QueueId, TopicId, is_index
from ..index.features import Feature
from ..index.runs import RunIndex
from .alike import alike_groups, alike_options
from .deduplication import Recent
from .idle_record import IdleQueue, is_counted, read, write
from .pending_acks import PendingAcks
from .progress import GroupProgress, unacked_by_any
from .topic_usage import NOTHING_COUNTED, Counted, TopicUsage, usage_of

if TYPE_CHECKING:
    from ..tracing import TopicTrace

_STREAM = TopicKind.STREAM

_NONE_RECALLED: dict[int, None] = {}
"""Shared by all queues of which nothing was recalled; never changed."""

INDEX_GROUP = GroupOptions()


class _IndexGroups(dict[str, GroupOptions]):
    """Groups of a reference list: all the same, and so many that none of them stands here.
    `QueueState.groups` has their names.
    """

    __slots__ = ()

    def __missing__(self, name: str) -> GroupOptions:
        return INDEX_GROUP


INDEX_GROUPS = _IndexGroups()
"""Shared by all reference lists; never changed."""


class TopicState:
    """A topic: its definition (in its home group) or the copy that the group of a queue keeps."""

    __slots__ = ("counted", "definition", "idle_record", "trace")

    def __init__(
        self,
        ident: TopicId,
        tenant: str,
        name: str,
        version: int,
        options: TopicOptions,
        refs: tuple[QueueRef, ...],
        groups: dict[str, GroupOptions],
    ) -> None:
        self.definition = TopicInfo(
            intern(tenant),
            name,
            ident,
            version,
            alike_options(options),
            refs,
            groups if groups is INDEX_GROUPS else alike_groups(groups),
        )
        """What gateways see. Never changed, only replaced; so are its groups, which it shares."""
        self.counted: TopicUsage = NOTHING_COUNTED
        """What was served of it, to be changed while its queue is in use."""
        self.idle_record: bytes | None = None
        """While its only queue is at `idle_record`: the record of both, and nothing in
        `counted`."""
        self.trace: TopicTrace | None = None
        """Who notes what becomes of its messages, at the leader of a topic that is traced."""

    def change(self, version: int, options: TopicOptions, groups: dict[str, GroupOptions]) -> None:
        """Have another definition, of the same queues."""
        known = self.definition
        self.definition = TopicInfo(
            known.tenant,
            known.name,
            known.id,
            version,
            alike_options(options),
            known.queues,
            alike_groups(groups),
            known.ring,
            known.once,
        )

    def resize(
        self,
        version: int,
        options: TopicOptions,
        groups: dict[str, GroupOptions],
        queues: tuple[QueueRef, ...],
        rings: tuple[bytes, bytes],
    ) -> None:
        """Have another definition, of other queues: none of them packed (`Queues.take_up`).
        `rings`: `TopicInfo.ring` and `once`.
        """
        self.change(version, options, groups)
        ring, once = rings
        self.definition = structs.replace(self.definition, queues=queues, ring=ring, once=once)

    @property
    def id(self) -> TopicId:
        """The id of the topic."""
        return self.definition.id

    @property
    def tenant(self) -> str:
        """The tenant that the topic belongs to."""
        return self.definition.tenant

    @property
    def name(self) -> str:
        """Its name; of a reference list its pattern."""
        return self.definition.name

    @property
    def version(self) -> int:
        """Rises with every change of options or groups."""
        return self.definition.version

    @property
    def options(self) -> TopicOptions:
        """The settings of the topic."""
        return self.definition.options

    @property
    def refs(self) -> tuple[QueueRef, ...]:
        """Its queues, wherever they are."""
        return self.definition.queues

    @property
    def groups(self) -> dict[str, GroupOptions]:
        """The consumer groups of the topic, by name."""
        return self.definition.groups

    @property
    def usage(self) -> TopicUsage:
        """What was served of it, to be read."""
        return self.counted if self.idle_record is None else read(self.idle_record).usage

    @property
    def is_counted(self) -> bool:
        """Whether anything was ever counted of it."""
        return (
            self.counted is not NOTHING_COUNTED
            if self.idle_record is None
            else is_counted(self.idle_record)
        )

    def restore_usage(self, counted: Counted) -> None:
        """Take over the counts of a snapshot."""
        if self.idle_record is None:
            self.counted = usage_of(counted)
        else:
            idle_record = read(self.idle_record)
            idle_record = IdleQueue(
                idle_record.tail,
                idle_record.groups,
                idle_record.trimmed,
                idle_record.young,
                counted,
            )
            self.idle_record = write(idle_record, is_counted=True)

    @property
    def has_one_queue(self) -> bool:
        """Whether it has no more than one, wherever that is, and always had."""
        return len(self.definition.queues) == 1 and not self.definition.ring

    def info(self) -> TopicInfo:
        """The definition as gateways see it."""
        return self.definition


class QueueState:
    """One queue: the index of its messages and how far each group has come."""

    __slots__ = ("groups", "id", "index", "pending_acks", "recalled", "recent", "topic", "trimmed")

    def __init__(
        self, ident: QueueId, topic: TopicState, groups: dict[str, GroupProgress] | None = None
    ) -> None:
        """`groups`: how far they are; None: nothing was ever in the queue."""
        self.id = ident
        self.topic = topic
        self.index = RunIndex()
        if groups is None:
            groups = {name: GroupProgress() for name in topic.groups}
        self.groups = groups
        self.pending_acks = PendingAcks() if is_index(topic.id) else None
        """Set for the reference list of a tree pattern, which may have very many groups."""
        self.trimmed = Offset(0)
        """Retention has let go of everything below it."""
        self.recent: Recent | None = None
        """Deduplication ids of the topic's window."""
        self.recalled = _NONE_RECALLED
        """Offsets of a stream's messages that nobody gets, since they were recalled. Never changed,
        only replaced."""

    @property
    def needs_watching(self) -> bool:
        """Whether messages must be looked after although nobody consumes them. The reference lists
        of the topic tree are not: what expires there is dropped when somebody comes for it.
        """
        if self.pending_acks is not None:
            return False
        options = self.topic.options
        limited = options.messages_max is not None or options.bytes_max is not None
        return limited or options.message_ttl_ms is not None or self.index.delays or self.index.ttls

    @property
    def first_needed(self) -> int:
        """The lowest offset that must be kept (`tail` if none), but for reference lists."""
        if self.topic.options.kind is _STREAM:
            return self.trimmed
        return min([each.floor for each in self.groups.values()], default=self.index.tail)

    def needed(self) -> list[tuple[int, int]]:
        """(start, end) ranges of offsets whose messages must be kept: what retention has not
        reached of a stream, what some group has not acked of anything else.
        """
        return self.needed_below(self.index.tail)

    def needed_below(self, end: int) -> list[tuple[int, int]]:
        """Those of the ranges that begin below `end` (at most `tail`), most cut off there."""
        if self.pending_acks is not None:
            return self.pending_acks.ranges()
        first = self.first_needed
        if self.topic.options.kind is _STREAM:
            return list(self._not_recalled(first, end))
        return unacked_by_any(list(self.groups.values()), min(first, end), end)

    def _not_recalled(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """(start, end) ranges of [start, end) without what was recalled."""
        for offset in sorted(self.recalled):
            if start <= offset < end:
                if start < offset:
                    yield start, offset
                start = offset + 1
        if start < end:
            yield start, end

    def is_needed(self, offset: int) -> bool:
        """Whether one message must be kept."""
        if self.topic.options.kind is TopicKind.STREAM:
            return offset >= self.trimmed and offset not in self.recalled
        if self.pending_acks is not None:
            return self.pending_acks.is_pending(offset)
        return not all(each.is_acked(offset) for each in self.groups.values())

    def fail_handed_out(self, progress: GroupProgress, level: int, mark: int) -> None:
        """Count a failed delivery of every unacked message of a priority level below its mark."""
        single = self.topic.options.priority_max == 0
        start, end = max(progress.floor, self.index.head), min(mark, self.index.tail)
        while start < end:
            run = self.index.find(start)
            stop = min(run.end, end)
            for low, high in list(progress.free(start, stop)):
                for offset in range(low, high):
                    if single or run.value(Feature.PRIORITY, offset) == level:
                        progress.failed(offset)
            start = stop

    def forget(self) -> None:
        """Drop the front of the index that nobody needs any more."""
        if self.topic.options.kind is _STREAM:
            self.index.drop_below(self.trimmed)
            if self.recalled:
                self.recalled = {each: None for each in self.recalled if each >= self.trimmed}
        elif self.pending_acks is not None:
            self.index.drop_below(self.pending_acks.floor)
        elif len(self.groups) == 1:
            (progress,) = self.groups.values()
            self.index.drop_below(progress.floor)
        elif self.groups:
            self.index.drop_below(min([each.floor for each in self.groups.values()]))
