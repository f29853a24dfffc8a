"""The queues of a Raft group: those in use as objects, plain idle ones packed (`idle_record`).

A queue as an object costs 600 bytes with what goes with it, packed a hundred. Which of the two it
is makes no difference to anybody: nothing here is state, and replicas may differ in it (ADR 14).

    put, first use ──► live ──► (behind LIVE_MAX younger ones, plain, not `used`) ──► packed
                        ▲                                                                │
                        └───────────────────────────── get ◄─────────────────────────────┘

A live queue is the same object until `pack_idle` packs it, so that whoever keeps one (a
dispatcher) must say so there. `peek` shows a queue that is only to be looked at, for the moment.
The record of a topic's only queue stands in the topic, with its counts, so that it needs no key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from ...common.ids import NUMBER_BITS, QueueId, TopicId, topic_of
from ..snapshots.snapshot_records import QueueRecord
from .idle_queue import is_plain, is_plain_record, of_record, pack, unpack, was_handed_out
from .idle_record import IdleQueue, read
from .topic_state import QueueState, TopicState
from .topic_usage import NOTHING_COUNTED

LIVE_MAX = 4_096
"""Queues that nobody keeps and that stay objects nevertheless: 3 MB. To lay one down and take it up
again costs 15 us, which is what a message in one of more queues than these pays."""

PACKED_MAX = 256
"""Queues laid down at once: a millisecond or two."""


class Queues:
    """See the module's head. A mapping by id, as far as its users need one."""

    __slots__ = ("_candidates", "_come", "_records", "_topics", "live")

    def __init__(self, topics: dict[TopicId, TopicState]) -> None:
        self._topics = topics
        self.live: dict[QueueId, QueueState] = {}
        """Those that are objects, for loops that cannot afford a call each; `get` has them all."""
        self._records: dict[QueueId, bytes] = {}
        """Packed ones whose topics have several queues."""
        self._candidates: deque[QueueId] = deque()
        """Every live queue once, and some that are none any more; the one to look at next first."""
        self._come = 0
        """Queues that have become live since the last `idle_record`."""

    # --- One queue --------------------------------------------------------------------------

    def get(self, ident: QueueId) -> QueueState | None:
        """A queue, if there is one."""
        queue = self.live.get(ident)
        return queue if queue is not None else self._take_up(ident)

    def __getitem__(self, ident: QueueId) -> QueueState:
        """Raises KeyError."""
        queue = self.get(ident)
        if queue is None:
            raise KeyError(ident)
        return queue

    def _idle(self, ident: QueueId) -> bytes | None:
        """The record of a packed queue."""
        topic = self._topics.get(topic_of(ident))
        if topic is None or not topic.has_one_queue:
            return self._records.get(ident)
        return topic.idle_record if topic.refs[0].id == ident else None

    def _take_up(self, ident: QueueId) -> QueueState | None:
        data = self._idle(ident)
        if data is None:
            return None
        idle_record, topic = read(data), self._topics[topic_of(ident)]
        ident = _same_id(ident, topic)
        if topic.has_one_queue:
            topic.counted, topic.idle_record = idle_record.usage, None
        else:
            del self._records[ident]
        self[ident] = queue = unpack(idle_record, ident, topic)
        return queue

    def peek(self, ident: QueueId) -> QueueState | None:
        """A queue to be looked at now, never to be changed or kept."""
        data = self._idle(ident)
        if data is None:
            return self.live.get(ident)
        return unpack(read(data), ident, self._topics[topic_of(ident)])

    def raw(self, ident: QueueId) -> QueueState | IdleQueue | None:
        """A queue as it is kept."""
        data = self._idle(ident)
        return self.live.get(ident) if data is None else read(data)

    def __setitem__(self, ident: QueueId, queue: QueueState) -> None:
        """A new queue."""
        self.live[ident] = queue
        self._candidates.append(ident)
        self._come += 1

    def put_record(self, record: QueueRecord) -> bool:
        """Take a queue of a snapshot, if it can be packed."""
        ident = QueueId(record.id)
        topic = self._topics[topic_of(ident)]
        if is_plain_record(record, topic):
            self._put(_same_id(ident, topic), of_record(record, topic))
            return True
        return False

    def _put(self, ident: QueueId, data: bytes) -> None:
        topic = self._topics[topic_of(ident)]
        if topic.has_one_queue:
            topic.counted, topic.idle_record = NOTHING_COUNTED, data
        else:
            self._records[ident] = data

    def take_up(self, topic: TopicState) -> None:
        """A topic is about to have other queues: those that it has are objects from here on, until
        they are packed as queues of the new definition.
        """
        if topic.idle_record is not None:
            self._take_up(topic.refs[0].id)
        for ident in [each for each in self._records if topic_of(each) == topic.id]:
            self._take_up(ident)

    def pop(self, ident: QueueId) -> QueueState | None:
        """Remove a queue; what it was."""
        self.get(ident)
        return self.live.pop(ident, None)

    def __delitem__(self, ident: QueueId) -> None:
        """Raises KeyError."""
        if self.pop(ident) is None:
            raise KeyError(ident)

    def __contains__(self, ident: QueueId) -> bool:
        """Whether there is such a queue."""
        return ident in self.live or self._idle(ident) is not None

    # --- All of them ------------------------------------------------------------------------

    def __iter__(self) -> Iterator[QueueId]:
        """Every id."""
        yield from self.live
        yield from self.idle_ids()

    def __len__(self) -> int:
        """Queues of both kinds; asked of small stores only, for it counts them."""
        return len(self.live) + sum(1 for _ in self.idle_ids())

    def values(self) -> Iterator[QueueState]:
        """Every queue, to be looked at in its turn and not to be changed."""
        yield from self.live.values()
        for ident, idle_record in self.records():
            yield unpack(idle_record, ident, self._topics[topic_of(ident)])

    def idle_ids(self) -> Iterator[QueueId]:
        """The packed queues."""
        for topic in self._topics.values():
            if topic.idle_record is not None:
                yield topic.refs[0].id
        yield from self._records

    def records(self) -> Iterator[tuple[QueueId, IdleQueue]]:
        """The packed queues, as they lie."""
        for topic in self._topics.values():
            if topic.idle_record is not None:
                yield topic.refs[0].id, read(topic.idle_record)
        for ident, data in self._records.items():
            yield ident, read(data)

    def handed_out(self) -> list[QueueState]:
        """Every queue of which consumers may have messages that no lease in the log names."""
        found = [ident for ident, idle_record in self.records() if was_handed_out(idle_record)]
        return [*self.live.values(), *map(self.__getitem__, found)]

    def pack_idle(self, used: Callable[[QueueId], bool]) -> None:
        """Lay down what is too much; never what is `used`. To be called when nobody else has a
        queue in hand. Costs nothing while no queue has come to life.
        """
        candidates = self._candidates
        looks = len(candidates) - LIVE_MAX
        if looks <= 0:
            return
        # Two looks for each that has come, so that this keeps up; one more, so that those which
        # could not be laid down are looked at again in the end.
        looks = min(looks, 2 * self._come + 1, PACKED_MAX)
        self._come = max(0, self._come - looks // 2)
        for _ in range(looks):
            ident = candidates.popleft()
            queue = self.live.get(ident)
            if queue is None:
                continue
            if used(ident) or not is_plain(queue):
                candidates.append(ident)
            else:
                del self.live[ident]
                self._put(ident, pack(queue))


def _same_id(ident: QueueId, topic: TopicState) -> QueueId:
    """An id as the object that the definition keeps anyway, where it stands at its number."""
    refs, number = topic.refs, ident & NUMBER_BITS
    known = refs[number].id if number < len(refs) else ident
    return known if known == ident else ident
