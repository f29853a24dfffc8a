"""Room in limited topics whose overflow policy refuses: decided at the leader of the queue, for
publishers of every process alike.

    publish -> ready + on their way + this one > limit?  no  -> on its way, until it is applied
                                                         yes -> refused

What is refused of a run are its last messages. A batch that has lost some goes into the log with
what is left (`features.CUT`), so that a repeat hears what the first try did; slots that nobody
refers to any more stay out of it. One of which nothing is left goes there only if its messages were
dead-lettered: whoever leads when it comes again refuses it from what the state remembers, and makes
no second letter. A transaction is refused as a whole, and nothing of it is dead-lettered.

The limit of a topic counts those of its queues that are led in this process. What an outbox sends
is never refused: it has no publisher who could be told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate

from ...api.message import LENGTHS, LENGTHS_AT
from ...api.model import DEFAULT_GROUP, Overflow, TopicInfo
from ...broker.group_state.state import TopicState
from ...broker.index.features import CUT
from ...common.errors import Code, KernelError
from ...common.ids import OUTBOX_CLIENT, OUTBOX_EPOCH, QueueId, RaftGroup, TopicId, topic_of
from ...requests.leader import Done, Identity
from ...requests.publish_part import Part
from ..replicas.replica import Replica
from .stored_room import StoredRoom, too_much
from .stored_room import Taken as StoredTaken

DECIDED: Identity = (0, OUTBOX_EPOCH, 0)
"""Of a batch without an identity for which there is room, as somebody has made sure."""

Taken = dict[TopicId, tuple[int, int]]
"""(messages, bytes) by topic."""


class Slots:
    """The slots of a part, joined when somebody asks for their bytes."""

    __slots__ = ("_bytes", "_ends", "_part")

    def __init__(self, part: Part) -> None:
        self._part = part
        self._bytes: bytes | None = None
        self._ends: list[int] = []

    def _join(self) -> bytes:
        if self._bytes is None:
            self._bytes = b"".join(self._part.buffers)
            self._ends = [0, *accumulate(self._part.lengths)]
        return self._bytes

    def slot(self, number: int) -> bytes:
        """One message of the batch."""
        return self._join()[self._ends[number] : self._ends[number + 1]]

    def body_bytes(self, number: int) -> int:
        """Length of the body of one message."""
        joined = self._join()
        size: int = LENGTHS.unpack_from(joined, self._ends[number] + LENGTHS_AT)[0]
        return size


class Limited:
    """The messages of a batch on their way to the open entry."""

    __slots__ = ("has_dead_letters", "is_empty", "kept", "part")

    def __init__(self, part: Part) -> None:
        self.part = part
        """What is to be stored; another one once something has been refused."""
        self.kept: Mapping[int, int] = {}
        """How many messages are left of a run, by its position, of those that have lost some."""
        self.is_empty = False
        """Nothing of it is to be stored."""
        self.has_dead_letters = False
        """Something that was refused has been dead-lettered."""

    def cut(self, slots: Slots) -> None:
        """Take what has been refused out of the runs, and what nobody refers to out of the slots:
        those that are left of one run lie side by side as before.
        """
        runs: list[Sequence[int]] = []
        wanted = {slot for _, slot in self.part.retained}
        for at, run in enumerate(self.part.runs):
            if at in self.kept:
                run = (run[0], run[1], self.kept[at], run[3] | CUT)  # noqa: PLW2901 - what is left
            runs.append(run)
            wanted.update(range(run[1], run[1] + run[2]))
        place = {slot: at for at, slot in enumerate(sorted(wanted))}
        self.is_empty = not place
        buffers = [slots.slot(each) for each in place]
        self.part = Part(
            [(queue, place.get(slot, 0), count, bits) for queue, slot, count, bits in runs],
            list(map(len, buffers)),
            buffers,
            [(tenant, place[slot]) for tenant, slot in self.part.retained],
        )


class _Decision:
    """What became of one batch, until it is applied."""

    __slots__ = ("full", "kept", "stored", "taken")

    def __init__(self) -> None:
        self.kept: dict[int, int] = {}
        self.full: set[int] = set()
        """Runs that a limit of what may be stored has cut, by position: to store their messages as
        dead letters would exceed it as well."""
        self.taken: Taken = {}
        self.stored: StoredTaken = {}


class TopicRoom:
    """Keeps topics whose overflow policy refuses from taking more than they may hold."""

    def __init__(self, replica: Callable[[RaftGroup], Replica | None]) -> None:
        """`replica`: that of a group, if this process has one."""
        self._replica = replica
        self._coming: Taken = {}
        """What is on its way into the log."""
        self.dead_letter: Callable[[TopicInfo, bytes], None] | None = None
        """Takes what a topic has refused whose policy says so."""
        self.refused = 0
        """Messages refused since this process began."""
        self.stored = StoredRoom()
        """What tenants and topics may store at all."""

    def limit(self, replica: Replica, identity: Identity, batch: Limited, done: Done) -> Done:
        """Refuse what there is no room for, and take the place of the rest until it is applied; who
        is to hear of that.
        """
        if identity[0] >= OUTBOX_CLIENT or identity[1] == OUTBOX_EPOCH:
            return done
        slots = Slots(batch.part)
        decision = _Decision()
        self._decide(replica, batch.part, decision, slots)
        batch.kept = decision.kept
        self._dead_letter(replica, batch, decision, slots)
        if batch.kept:
            batch.cut(slots)
        return partial(self._arrived, decision, done)

    def limit_whole(self, replica: Replica, part: Part, done: Done) -> Done:
        """As `limit`, of what is stored as a whole or not at all. Raises KernelError REJECTED."""
        decision = _Decision()
        self._decide(replica, part, decision, Slots(part))
        for position in decision.kept:
            self._give_up(decision)
            topic = replica.state.topics[topic_of(QueueId(part.runs[position][0]))]
            if position in decision.full:
                raise too_much(topic)
            raise KernelError(Code.REJECTED, f"topic {topic.name} is full")
        return partial(self._arrived, decision, done)

    def _decide(self, replica: Replica, part: Part, decision: _Decision, slots: Slots) -> None:
        for position, run in enumerate(part.runs):
            topic, count = replica.limits.topics.get(QueueId(run[0])), run[2]
            kept = count if topic is None else self._room_for(topic, decision, run, slots)
            if self.stored.is_any and kept:
                fits = self._stored(replica, part, decision, run, kept)
                if fits < kept:
                    kept = fits
                    decision.full.add(position)
            if kept < count:
                decision.kept[position] = kept
                self.refused += count - kept
                replica.counts.refuse(QueueId(run[0]), count - kept)

    def _stored(
        self, replica: Replica, part: Part, decision: _Decision, run: Sequence[int], count: int
    ) -> int:
        """How many messages of a run its tenant and its topic may store."""
        topic = replica.state.topics.get(topic_of(QueueId(run[0])))
        if topic is None:  # it was deleted: nothing will be stored
            return count
        lengths = part.lengths[run[1] : run[1] + count]
        return self.stored.admit(replica.state, topic, lengths, decision.stored)

    def _dead_letter(
        self, replica: Replica, batch: Limited, decision: _Decision, slots: Slots
    ) -> None:
        """Dead-letter what has been refused, where the policy says so."""
        for position, kept in decision.kept.items():
            queue, first, count = batch.part.runs[position][:3]
            topic = replica.limits.topics.get(QueueId(queue))
            if topic is None or position in decision.full:
                continue
            if topic.options.overflow is not Overflow.REJECT_DEAD_LETTER or not self.dead_letter:
                continue
            batch.has_dead_letters = True
            for each in range(first + kept, first + count):
                self.dead_letter(topic.info(), slots.slot(each))

    def _room_for(
        self, topic: TopicState, decision: _Decision, run: Sequence[int], slots: Slots
    ) -> int:
        """How many messages of a run a topic takes; their places are taken."""
        messages_max, bytes_max = topic.options.messages_max, topic.options.bytes_max
        messages, size = self._there(topic)
        kept, more = run[2], 0
        if messages_max is not None:
            kept = min(kept, max(messages_max - messages, 0))
        if bytes_max is not None:
            for at in range(kept):
                body = slots.body_bytes(run[1] + at)
                if size + more + body > bytes_max:
                    kept = at
                    break
                more += body
        if kept:
            _count(self._coming, topic.id, kept, more)
            _count(decision.taken, topic.id, kept, more)
        return kept

    def _there(self, topic: TopicState) -> tuple[int, int]:
        """(messages, bytes) that are ready in a topic, or on their way there."""
        messages, size = self._coming.get(topic.id, (0, 0))
        for ref in topic.refs:
            replica = self._replica(ref.group)
            if replica is None:
                continue
            try:
                dispatcher = replica.dispatcher(ref.id, DEFAULT_GROUP)
            except KernelError:  # led elsewhere, or nobody consumes by that name
                continue
            messages += dispatcher.ready_count
            if topic.options.bytes_max is not None:
                dispatcher.ready.measure()
                size += dispatcher.ready.bytes
        return messages, size

    def _arrived(self, decision: _Decision, done: Done, results: object) -> None:
        """The state counts from now on what a batch brought, or it never will."""
        self._give_up(decision)
        done(results)

    def _give_up(self, decision: _Decision) -> None:
        for ident, (messages, size) in decision.taken.items():
            _count(self._coming, ident, -messages, -size)
        self.stored.give_up(decision.stored)


def _count(taken: Taken, topic: TopicId, messages: int, size: int) -> None:
    known = taken.get(topic, (0, 0))
    left = known[0] + messages, known[1] + size
    if left[0] > 0:
        taken[topic] = left
    else:
        taken.pop(topic, None)
