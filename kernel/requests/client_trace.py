"""Who has published, taken, settled and seen messages of traced topics, noted by the process that
clients are connected to.

    answered publish    where each run lies                    -> PUBLISHED
    delivery, pull      what came for a connection             -> TAKEN
    settlement          what a connection asked for            -> SETTLED, with how
    a look              what somebody was shown                -> READ

Leaders note what happened (`broker.tracing`) and know no connection; the process that has the
connection knows who it is, and by the answer or the token which queue and offset it is about. Both
choose the same messages of a sample, by queue and offset. Where nothing is traced, `modes` is
empty: that is all that is asked of it for each batch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, Protocol

from ..api.consuming import LeaseChange, LeaseVerb, Received, ReceiveSpec, Settlement
from ..api.model import Reason
from ..api.session import Session
from ..api.tracing import ConnectedUser, TraceMode
from ..broker.tracing import Event, Range, TraceBuffer, What, ranges_of, wanted_of
from ..common.errors import KernelError
from ..common.ids import MEMORY_FIRST, NUMBER_BITS, QueueId, TopicId, topic_of
from .publish import ProducerBatch
from .publish_part import BatchPart
from .pull import decode_token


class _Spec(Protocol):
    @property
    def group(self) -> str:
        """The consumer group."""

    @property
    def session(self) -> Session | None:
        """Who holds what it takes."""


class TakingConsumer(Protocol):
    """A consumer of one queue, wherever its leader is."""

    @property
    def spec(self) -> _Spec:
        """As it was asked for."""

    @property
    def queue(self) -> QueueId:
        """What it takes from."""


class Place(NamedTuple):
    """Where a message lies, or lay."""

    topic: str
    """Its name."""
    queue: QueueId
    offset: int
    uid: bytes
    """By which the message is known there."""

    @property
    def shown(self) -> str:
        """For people."""
        return f"topic {self.topic}, queue {self.queue & NUMBER_BITS}, offset {self.offset}"


class ClientTrace:
    """Of one process."""

    def __init__(self, buffer: TraceBuffer, wall_ms: Callable[[], int]) -> None:
        self.modes: Mapping[TopicId, TraceMode] = {}
        """Topics that are traced: whoever calls one of the methods has seen that there are any."""
        self.buffer = buffer
        self._wall_ms = wall_ms

    def published(self, batch: ProducerBatch) -> None:
        """A batch is stored, as far as it was not refused."""
        if batch.by is None and not batch.speakers:
            return
        for part, placed in batch.results:
            if part.group >= MEMORY_FIRST:
                continue
            for run, where in zip(part.runs, placed, strict=True):
                queue = QueueId(run[0])
                if topic_of(queue) not in self.modes:
                    continue
                for by, first, behind in _speakers(batch, part, run[1], run[1] + run[2]):
                    if isinstance(where, list):
                        some = where[first - run[1] : behind - run[1]]
                        ranges = ranges_of([offset for offset, original in some if not original])
                    elif where >= 0:
                        ranges = [(where + first - run[1], behind - first)]
                    else:
                        continue  # the queue is gone, or takes nothing new
                    self._note(What.PUBLISHED, queue, "", by, ranges)

    def committed(self, queue: QueueId, offset: int, by: ConnectedUser | None) -> None:
        """A half message is a message from now on, since somebody has said so."""
        self._note(What.PUBLISHED, queue, "", by, [(offset, 1)], "committed")

    def took(self, consumer: TakingConsumer, offsets: Sequence[int]) -> None:
        """Messages have come for a push consumer."""
        session, queue = consumer.spec.session, consumer.queue
        if session is not None and topic_of(queue) in self.modes:
            group, by = consumer.spec.group, session.by
            self._note(What.TAKEN, queue, group, by, ranges_of(offsets))

    def received(self, spec: ReceiveSpec, received: Received) -> None:
        """A pull has brought what it has."""
        deliveries = received.deliveries
        if deliveries is not None and spec.topic.id in self.modes:
            by = spec.session.by if spec.session is not None else spec.by
            ranges = ranges_of(deliveries.offsets)
            self._note(What.TAKEN, deliveries.queue, spec.group, by, ranges)

    def settled(
        self, consumer: TakingConsumer, how: Settlement, offsets: Sequence[int], reason: Reason
    ) -> None:
        """Somebody wants to have settled what a consumer holds."""
        session, queue = consumer.spec.session, consumer.queue
        if session is not None and topic_of(queue) in self.modes:
            group, by = consumer.spec.group, session.by
            said = how.name.lower() if how is not Settlement.DEAD_LETTER else reason.value
            self._note(What.SETTLED, queue, group, by, ranges_of(offsets), said)

    def acknowledged(self, acks: Iterable[tuple[TakingConsumer, Sequence[int]]]) -> None:
        """Somebody wants to have acked what consumers hold."""
        for consumer, offsets in acks:
            self.settled(consumer, Settlement.ACK, offsets, Reason.REJECTED)

    def changed(
        self,
        group: str,
        changes: Sequence[LeaseChange],
        results: Sequence[KernelError | None],
    ) -> None:
        """Timed leases were changed, as far as nothing was wrong with them."""
        found: dict[tuple[QueueId, ConnectedUser, str], list[int]] = {}
        for change, failure in zip(changes, results, strict=True):
            token = decode_token(change.token)
            if failure is not None or change.by is None or token is None:
                continue
            said = _VERBS[change.verb] or change.reason.value
            found.setdefault((QueueId(token[0]), change.by, said), []).append(token[1])
        for (queue, by, said), offsets in found.items():
            self._note(What.SETTLED, queue, group, by, ranges_of(offsets), said)

    def read(self, queue: QueueId, group: str, by: ConnectedUser, offsets: Sequence[int]) -> None:
        """Somebody was shown messages that he has not taken."""
        self._note(What.READ, queue, group, by, ranges_of(offsets))

    def moved(self, source: Place, target: Place, why: Reason) -> None:
        """A message has gone on from one topic to another: noted at both ends."""
        text = f"to {target.shown}: {why.value}"
        self._note(What.MOVED, source.queue, "", None, [(source.offset, 1)], text, target.uid)
        text = f"from {source.shown}: {why.value}"
        self._note(What.CAME, target.queue, "", None, [(target.offset, 1)], text, source.uid)

    def _note(
        self,
        what: What,
        queue: QueueId,
        group: str,
        by: ConnectedUser | None,
        ranges: Sequence[Range],
        reason: str = "",
        uid: bytes = b"",
    ) -> None:
        topic = topic_of(queue)
        mode = self.modes.get(topic)
        if mode is None or (by is None and not uid):
            return
        wanted = wanted_of(mode, queue, ranges)
        if wanted:
            number, time_ms = queue & NUMBER_BITS, self._wall_ms()
            event = Event(int(what), time_ms, number, group, 0, reason, 0, wanted, uid, by)
            self.buffer.add(topic, event)


_VERBS = {
    LeaseVerb.ACK: "ack",
    LeaseVerb.ACK_IN_TIME: "ack",
    LeaseVerb.RELEASE: "release",
    LeaseVerb.RETURN: "return",
    LeaseVerb.EXTEND: "extend",
    LeaseVerb.DEAD_LETTER: "",
}


_POSITION = itemgetter(0)


def _speakers(
    batch: ProducerBatch, part: BatchPart, first: int, behind: int
) -> Iterator[tuple[ConnectedUser | None, int, int]]:
    """Who has published which slots of a part, from `first` to `behind`."""
    speakers = batch.speakers
    if not speakers:
        yield batch.by, first, behind
        return
    at = first
    while at < behind:
        place = bisect_right(speakers, part.positions[at], key=_POSITION)
        ends = speakers[place][0] if place < len(speakers) else batch.count
        begun, at = at, at + 1
        while at < behind and part.positions[at] < ends:
            at += 1
        yield (speakers[place - 1][1] if place else batch.by), begun, at
