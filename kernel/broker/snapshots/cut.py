"""A group's state at one applied index, written down while the state goes on changing.

A cut takes the keys of everything there is, which costs little, and then makes the records one
after the other, whenever it is asked. What is about to change before its turn has come is kept as
it was: `GroupState.changing` says so before each change (docs/design/storage.md#checkpoint).

    a queue      an idle one (`pack`) is its record at once; of others the pages of runs
                 are listed, and the groups; a full page of runs never changes
    a group      its pages of progress are listed when it is about to get on, or when its turn has
                 come; a page that changes later is copied first (`Progress.cut`)
    the rest     its record is made at once: small, and changed seldom

    state.cut = cut = Cut(state)
    for record in cut: ...            in slices; a record takes about a millisecond at most
    state.cut = None
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import cast

from ...common.ids import QueueId, TopicId, topic_of
from ..group_state.halves import HalfMessage
from ..group_state.idle_queue import is_short, record_at, record_of
from ..group_state.idle_record import IdleQueue
from ..group_state.progress import Held, ProgressPage
from ..group_state.state import (
    ClientResults,
    GroupState,
    OutboxItem,
    QueueState,
    RouterState,
    Section,
    TopicState,
)
from ..group_state.topic_usage import LedgerRecord
from ..group_state.usage import living_usage, usage_record
from ..index.run_page import RunPage, dumped_young
from .resized_records import resized_record
from .snapshot_records import (
    FORMAT,
    FORMAT_WITH_LEVEL,
    ClientRecord,
    GroupsRecord,
    HalfRecord,
    Header,
    MetadataRecord,
    OutboxRecord,
    OutcomesRecord,
    PageRow,
    PagesRecord,
    ProgressRecord,
    QueueRecord,
    RecentRecord,
    Record,
    ResizedTopicRecord,
    RouterRecord,
    RunsRecord,
    SpreadTopicRecord,
    TopicRecord,
    WindowRecord,
    encode,
    kept,
    pack_leases,
)
from .tree_snapshot import retained_record, subscriber_record, will_record

PAGES_PER_RECORD = 4
"""Pages of a queue in one record: with 256 leases a page, half a millisecond."""

GROUPS_PER_RECORD = 200
"""Groups of a queue in one record, at some 2 us each."""

_number_of = itemgetter(0)


"""What `Progress.cut` gives."""


class SnapshotCut:
    """See the module's head. Made between two applies. `state.Saver`."""

    def __init__(self, state: GroupState) -> None:
        self._saved: dict[tuple[Section, object], QueueCut | bytes | None] = {}
        self._done: dict[Section, set[object]] = {section: set() for section in Section}
        """What is written, or saved, of each section that is not wholly written."""
        self._writing: QueueCut | None = None
        """The queue whose records are being made."""
        containers = {
            Section.TOPICS: state.topics,
            Section.ROUTERS: state.routers,
            Section.OUTBOX: state.outbox,
            Section.RECORDS: state.records,
            Section.CLIENTS: ChainMap(state.clients, state.outbox_clients),
            Section.HALVES: state.halves.waiting,
            Section.SUBSCRIBERS: state.subscribers,
            Section.ENDED_SUBSCRIBERS: state.ended_subscribers,
            Section.WILLS: state.wills,
            Section.RETAINED: state.retained.messages,
            Section.USAGE: state.topics,
        }
        self._containers = cast("dict[Section, Mapping[object, object]]", containers)
        self._queues = state.queues
        self._topics = state.topics
        self._records = _records(state)
        self._keys: list[tuple[Section, list[object]]] = [
            (section, list(self._containers.get(section, ()))) for section in Section
        ]
        # Queues are no container, since idle ones are packed; of topics only some have counts.
        self._keys[1] = (Section.QUEUES, list(state.queues))
        counted = [ident for ident, topic in state.topics.items() if topic.is_counted]
        self._keys[-1] = (Section.USAGE, cast("list[object]", counted))
        self._header = encode(_header(state))
        self._outcomes: list[tuple[int, int, int]] = [
            (each, *outcome) for each, outcome in state.halves.outcomes.items()
        ]
        self._ledger = LedgerRecord(state.ledger.metered, state.ledger.forgotten)
        self._retired = list(state.ledger.retired.items())
        self._windows = [(ident, each.cut()) for ident, each in sorted(state.windows.items())]

    def save(self, section: Section, key: object) -> None:
        """The element is about to change: keep it as it is."""
        self._keep(section, key)
        if section is Section.QUEUES:
            self._hold(key, None)

    def save_queue(self, ident: QueueId, group: str) -> None:
        """A queue is about to change, and of its groups at most this one."""
        self._keep(Section.QUEUES, ident)
        if group:
            self._hold(ident, group)

    def _hold(self, key: object, group: str | None) -> None:
        """Keep the progress of a group, or of every one, in a queue."""
        saved = self._saved.get((Section.QUEUES, key))
        if isinstance(saved, QueueCut):
            saved.hold(group)
        elif self._writing is not None and self._writing.ident == key:
            self._writing.hold(group)

    def _keep(self, section: Section, key: object) -> None:
        done = self._done.get(section)
        if done is not None and key not in done:
            done.add(key)
            place = (section, key)
            if section is Section.QUEUES:
                self._saved[place] = self._kept_queue(cast("QueueId", key))
                return
            element = self._containers[section].get(key)
            if element is None:  # made after the cut, or about to be
                self._saved[place] = None
            else:
                self._saved[place] = encode(self._records[section](key))
                if section is Section.TOPICS and cast("TopicState", element).is_counted:
                    self._keep(Section.USAGE, key)

    def _kept_queue(self, ident: QueueId) -> QueueCut | bytes | None:
        """A queue as it is: one that is plain is its record."""
        element = self._queues.raw(ident)
        if element is None:
            return None
        topic = self._topics[topic_of(ident)]
        if topic.is_counted:
            self._keep(Section.USAGE, topic.id)
        if isinstance(element, IdleQueue):
            return encode(record_at(element, ident, topic))
        return encode(record_of(element)) if is_short(element) else QueueCut(element)

    def __iter__(self) -> Iterator[bytes]:
        """The records, in the order of `Section`, each section by key."""
        yield self._header
        yield encode(self._ledger)
        while self._keys:
            section, keys = self._keys.pop(0)
            if section is not Section.RETAINED:
                keys.sort(key=cast("Callable[[object], int]", _itself))  # all of one kind
            for key in keys:
                self._keep(section, key)
                saved = self._saved.pop((section, key))
                if isinstance(saved, QueueCut):
                    self._writing = saved
                    yield from saved
                    self._writing = None
                elif saved is not None:
                    yield saved
            del self._done[section]
        if self._outcomes:
            yield encode(OutcomesRecord(self._outcomes))
        for ident, retired in self._retired:
            yield encode(usage_record(ident, retired))
        for queue, chunks in self._windows:
            for chunk, first, end in chunks:
                yield encode(WindowRecord(queue, chunk[first:end]))


def _header(state: GroupState) -> Header:
    return Header(
        FORMAT_WITH_LEVEL if state.feature_level else FORMAT,
        state.group,
        state.applied,
        state.term,
        state.time_ms,
        state.next_topic,
        state.next_outbox,
        state.halves.next,
        state.next_index,
        state.next_subscriber,
        state.expired,
        state.membership,
        state.feature_level,
        state.record_version,
    )


def _itself(key: object) -> object:
    return key


class QueueCut:
    """One queue as it was: the list of its pages of runs, the last one as bytes, and its young
    runs; its groups, those that got on since as they were.
    """

    __slots__ = (
        "_groups",
        "_held",
        "_pages",
        "_queue",
        "_recalled",
        "_recent",
        "_tail",
        "_trimmed",
        "_young",
        "ident",
    )

    def __init__(self, queue: QueueState) -> None:
        self.ident = queue.id
        self._queue = queue
        self._tail = queue.index.tail
        self._trimmed = queue.trimmed
        self._recalled = queue.recalled
        self._pages: list[RunPage | bytes] = [*queue.index.pages()]
        if self._pages:
            self._pages[-1] = _dumped(self._pages[-1])
        self._young = dumped_young(queue.index.young())
        self._groups = dict(queue.groups)
        """Groups that are as they were."""
        self._held: dict[str, Held] = {}
        self._recent = queue.recent.cut() if queue.recent is not None else []

    def hold(self, group: str | None) -> None:
        """The progress of a group, or of every one, is about to change: keep it as it is."""
        for name in [*self._groups] if group is None else [group]:
            progress = self._groups.pop(name, None)
            if progress is not None:
                self._held[name] = progress.cut()

    def __iter__(self) -> Iterator[bytes]:
        """Its records. What is small stands in the first one."""
        ident = self.ident
        step = PAGES_PER_RECORD
        inline = [_dumped(page) for page in self._pages[:step]]
        recent = [row for chunk, first, end in self._recent[:1] for row in chunk[first:end]]
        later: list[tuple[str, list[tuple[int, ProgressPage]]]] = []
        groups = self._group_records(later)
        topic = self._queue.topic.id
        some = next(groups, {})
        recalled = sorted(self._recalled)
        own = (self._tail, inline, some, recent, self._trimmed, self._young, recalled)
        yield encode(QueueRecord(ident, topic, *own))
        for some in groups:
            yield encode(GroupsRecord(ident, some))
        for at in range(step, len(self._pages), step):
            yield encode(RunsRecord(ident, [_dumped(page) for page in self._pages[at : at + step]]))
        for name, pages in later:
            for at in range(0, len(pages), step):
                yield encode(PagesRecord(ident, name, _rows(pages[at : at + step])))
        for chunk, first, end in self._recent[1:]:
            yield encode(RecentRecord(ident, chunk[first:end]))

    def _group_records(
        self, later: list[tuple[str, list[tuple[int, ProgressPage]]]]
    ) -> Iterator[dict[str, ProgressRecord]]:
        """The groups by name, some at a time; into `later` goes who has too many pages for that."""
        some: dict[str, ProgressRecord] = {}
        rows_left = PAGES_PER_RECORD
        for name in sorted([*self._groups, *self._held]):
            self.hold(name)
            floor, marks, used_ms, expired, joined, members, pages = self._held.pop(name)
            more = used_ms, expired, joined, members
            pages.sort(key=_number_of)
            if len(pages) <= rows_left:
                rows_left -= len(pages)
                some[name] = ProgressRecord(floor, marks, _rows(pages), *more)
            else:
                some[name] = ProgressRecord(floor, marks, [], *more)
                later.append((name, pages))
            if len(some) == GROUPS_PER_RECORD:
                yield some
                some, rows_left = {}, PAGES_PER_RECORD
        if some:
            yield some


def _dumped(page: RunPage | bytes) -> bytes:
    return page.dump() if isinstance(page, RunPage) else page


def _rows(pages: list[tuple[int, ProgressPage]]) -> list[PageRow]:
    return [
        (
            number,
            page.acked.to_bytes(32, "little"),
            page.attempts or {},
            page.leased.to_bytes(32, "little"),
            pack_leases(page.leases or {}),
        )
        for number, page in pages
        if page.acked or page.attempts or page.leases
    ]


def _records(state: GroupState) -> dict[Section, Callable[[object], Record]]:
    """How the record of an element is made, but for queues."""
    makers: dict[Section, object] = {
        Section.TOPICS: lambda ident: _topic(state, ident),
        Section.ROUTERS: lambda key: _router(state.routers[key]),
        Section.OUTBOX: lambda number: _outbox(state.outbox[number]),
        Section.RECORDS: lambda key: MetadataRecord(key, *state.records[key]),
        Section.CLIENTS: lambda key: _client(
            key, (state.clients.get(key) or state.outbox_clients[key])
        ),
        Section.HALVES: lambda number: _half(state.halves.waiting[number]),
        Section.SUBSCRIBERS: lambda number: subscriber_record(
            state.subscribers[number], ended=False
        ),
        Section.ENDED_SUBSCRIBERS: lambda number: subscriber_record(
            state.ended_subscribers[number], ended=True
        ),
        Section.WILLS: lambda number: will_record(state.wills[number]),
        Section.RETAINED: lambda key: retained_record(key, state.retained.messages[key]),
        Section.USAGE: lambda ident: living_usage(state.topics[ident]),
    }
    return cast("dict[Section, Callable[[object], Record]]", makers)


def _topic(
    state: GroupState, ident: TopicId
) -> TopicRecord | ResizedTopicRecord | SpreadTopicRecord:
    topic = state.topics[ident]
    record = TopicRecord(
        topic.id,
        topic.tenant,
        topic.name,
        topic.version,
        topic.options,
        topic.refs,
        topic.groups,
        state.topic_names.get((topic.tenant, topic.name)) == ident,
    )
    resized = state.resized.get(ident)
    if resized is None:
        return record
    return resized_record(record, (topic.definition.ring, topic.definition.once), resized)


def _router(router: RouterState) -> RouterRecord:
    return RouterRecord(
        router.tenant, router.name, router.version, router.options, list(router.routes)
    )


def _outbox(item: OutboxItem) -> OutboxRecord:
    return OutboxRecord(
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
        item.stored_ms,
    )


def _client(key: tuple[int, int], known: ClientResults) -> ClientRecord:
    results = {
        sequence: list(map(kept, result))
        for sequence, result in known.results.items()
        if isinstance(result, tuple)
    }
    return ClientRecord(*key, known.floor, results, known.used_ms)


def _half(half: HalfMessage) -> HalfRecord:
    return HalfRecord(
        half.number,
        half.queue,
        half.index,
        half.slot,
        half.size_bytes,
        half.producers,
        half.values,
        half.prepared_ms,
        half.due_ms,
        half.checks,
        half.origin,
    )
