"""What queues promise (docs/design/replication.md#how-it-is-tested): histories of messages with ids
of their own."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from kernel.api import message as messages
from kernel.api.message import Flag
from kernel.broker.delivery.consumers import DispatchedConsumer, Handed
from kernel.broker.group_state.state import GroupState
from kernel.broker.log_commands.give_up import GiveUp
from kernel.common.errors import Code
from kernel.common.ids import NUMBER_BITS, QueueId, topic_of
from kernel.log.format import entry as entries
from kernel.store.raft_groups.member import Member

if TYPE_CHECKING:
    from .run import Run

PENDING, ACKED, FAILED, UNKNOWN = "pending", "acked", "failed", "unknown"
REFUSED = frozenset({Code.NO_SPACE, Code.BUSY})
"""A message is stored nowhere of which a producer hears this."""

Place = tuple[int, int]
"""Queue and offset."""


@dataclass(slots=True)
class Sent:
    """A message and what became of its publishing."""

    uid: bytes
    producer: int
    number: int
    queue: int
    """Where it is; of a topic that is resized, any until that is known."""
    key: bytes
    ttl_ms: int
    deduplication: bytes
    outcome: str = PENDING
    offset: int = -1
    received: int = 0
    refused: bool = False
    """A leader had no room for one of its tries, whether or not its producer has heard of that."""

    @property
    def topic(self) -> int:
        """To which it was sent."""
        return self.queue >> 8


@dataclass(slots=True)
class Known:
    """What is known of a message in a queue."""

    uid: bytes
    term: int = 0
    attempt: int = 0
    returned: bool = False
    """The last holder gave it back without an attempt, perhaps."""
    lease: int = 0
    deadline_ms: int = 0
    let_go: bool = False
    """The last holder may have let go of it."""
    acked_by: int = -1
    """Lease (or 0) of an answered ack."""


class QueueRules:
    """Of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.sent: dict[bytes, Sent] = {}
        self.known: dict[Place, Known] = {}
        self._placed: dict[tuple[int, bytes], Place] = {}
        self._keys: dict[tuple[int, bytes], list[Place]] = {}
        self._sealed: set[Place] = set()
        self._deduplicated: dict[bytes, bytes] = {}
        self._claimed: dict[Place, tuple[Member, int, DispatchedConsumer]] = {}
        """By whom, and from which leader in which term."""
        self.delivered = 0
        self.bad: dict[tuple[int, int], set[bytes]] = {}
        """Entries that a disk has lost, by group and index, and the messages in them."""
        self._given_up: dict[tuple[int, int], None] = {}
        self._lost: set[bytes] = set()
        self._gone: dict[Place, int] = {}
        """What was given up, and by which entry."""

    def _broken(self, invariant: str, what: str) -> None:
        self._run.broken(invariant, what)

    # --- Publishing -------------------------------------------------------------------------

    def published(self, sent: Sent, result: object) -> None:
        """A publish was answered with the result of its only command."""
        if isinstance(result, bool) or not isinstance(result, int):
            if not isinstance(result, list):
                return
            ((offset, original),) = result
            sent.outcome = ACKED
            if not original or original == sent.uid:
                self._place(sent, offset)
            return
        if result < 0:
            sent.outcome = FAILED
            return
        sent.outcome = ACKED
        self._place(sent, result)

    def refused(self, sent: Sent, code: Code) -> None:
        """A leader refuses a message: as one that came too late only if it was refused before."""
        if code is Code.NO_SPACE:
            sent.refused = True
        elif code is Code.BUSY and not sent.refused:
            self._broken("refused_for_a_reason", f"{sent.uid.hex()} was never refused before")

    def stored(self, sent: Sent, queue: int, offset: int, original: bytes) -> None:
        """A gateway was told where a message is."""
        sent.outcome = ACKED
        if not original or original == sent.uid:
            sent.queue = queue
            self._place(sent, offset)

    def _place(self, sent: Sent, offset: int) -> None:
        sent.offset = offset
        self.stored_once(sent.uid, sent.queue, offset)
        self.offset_keeps_its_message(sent.uid, sent.queue, offset)

    def offset_keeps_its_message(self, uid: bytes, queue: int, offset: int) -> Known:
        known = self.known.get((queue, offset))
        if known is None:
            known = self.known[queue, offset] = Known(uid)
            sent = self.sent.get(uid)
            if sent is not None and sent.key and sent.topic == queue >> 8:
                self._keys.setdefault((sent.topic, sent.key), []).append((queue, offset))
        elif known.uid != uid:
            what = f"queue {queue:x} offset {offset}: {known.uid.hex()}, then {uid.hex()}"
            self._broken("offset_keeps_its_message", what)
        return known

    def stored_once(self, uid: bytes, queue: int, offset: int) -> None:
        """A batch that was sent again is stored once: `in_one_queue` of a topic."""
        at = self._placed.setdefault((queue >> 8, uid), (queue, offset))
        if at[0] != queue:
            what = f"{uid.hex()} at {at[0]:x}/{at[1]} and at {queue:x}/{offset}"
            self._broken("in_one_queue", what)
        elif at[1] != offset:
            what = f"queue {queue:x}: {uid.hex()} at {at[1]} and at {offset}"
            self._broken("stored_once", what)

    # --- Consuming --------------------------------------------------------------------------

    def handed(self, member: Member, group: str, handed: Handed) -> None:
        """A leader hands out messages."""
        current = member.core.term >= self._run.term_of(int(member.group))
        attempts = handed.attempts or [1] * len(handed.offsets)
        for offset, slot, attempt in zip(handed.offsets, handed.slots, attempts, strict=True):
            message = messages.decode(slot)
            sent = self.sent.get(message.uid)
            if sent is None:
                self._broken("nothing_from_nowhere", f"{message.uid.hex()} was never sent")
                continue
            if sent.outcome == FAILED:
                self._broken("failed_never_appears", f"{message.uid.hex()} was refused")
            self.delivered += 1
            queue = int(handed.queue)
            # What was leased before, if by the same entry, is handed out when both are applied.
            gone = self._gone.get((queue, offset), 0)
            if gone and not 0 < handed.lease <= gone:
                what = f"queue {queue:x} offset {offset}"
                self._broken("given_up_is_never_delivered", what)
            self.stored_once(sent.uid, queue, offset)
            known = self.offset_keeps_its_message(sent.uid, queue, offset)
            if not message.flags & Flag.DEAD_LETTER:
                self.delay_never_early(member, queue, offset, message)
                self.deduplicated_once(sent)
                if not handed.lease:
                    self.expired_never_delivered(member, queue, offset, message)
            if not current:
                what = f"queue {queue:x} offset {offset} of term {member.core.term}"
                self._broken("deposed_hands_nothing_out", what)
                continue
            self.claimed_is_kept(member, queue, offset)
            if known.acked_by >= 0:
                what = f"queue {queue:x} offset {offset} after its ack was answered"
                self._broken("acked_stays_acked", what)
            self.attempts_rise(known, queue, offset, attempt, member.core.term)
            if handed.lease:
                self.one_lease_holder(member, known, group, (queue, offset), handed.lease)
            if sent.key and sent.topic == queue >> 8:
                self.first_in_first_out(member, group, sent, offset, handed)

    def claimed(self, member: Member, queue: int, consumer: DispatchedConsumer) -> None:
        """A consumer has claimed from a new leader what the last one had handed to it."""
        if consumer.held:
            self._run.count("session re-claim")
        for offset in consumer.held:
            self._claimed[queue, offset] = (member, member.core.term, consumer)
            known = self.known[queue, offset]
            if known.acked_by >= 0:
                what = f"queue {queue:x} offset {offset} is claimed after its ack was answered"
                self._broken("acked_stays_acked", what)

    def claimed_is_kept(self, member: Member, queue: int, offset: int) -> None:
        """What a consumer has claimed, and holds, is handed to nobody else by that leader."""
        claimed = self._claimed.get((queue, offset))
        if claimed is None or claimed[:2] != (member, member.core.term):
            return
        if not claimed[2].ended and offset in claimed[2].held:
            what = f"queue {queue:x} offset {offset} is held by who has claimed it"
            self._broken("claimed_is_kept", what)

    def attempts_rise(self, known: Known, queue: int, offset: int, attempt: int, term: int) -> None:
        """A repeat is marked: its attempt is higher, unless it came back as never delivered."""
        least = known.attempt + (0 if known.returned else 1)
        if attempt < least:
            what = f"queue {queue:x} offset {offset}: attempt {known.attempt}, then {attempt}"
            self._broken("attempts_rise", what)
        if attempt > known.attempt + 1 and term == known.term:
            what = f"queue {queue:x} offset {offset}: attempt {known.attempt}, then {attempt}"
            self._broken("attempts_rise_by_one", what)
        known.attempt, known.term, known.returned = attempt, term, False

    def one_lease_holder(
        self, member: Member, known: Known, group: str, place: Place, lease: int
    ) -> None:
        """A timed lease is given only once the one before has ended."""
        queue, offset = place
        progress = member.state.queues[queue].groups[group]  # type: ignore[index]
        now = member.replica.log_time_ms()
        if known.lease and lease != known.lease:
            if now < known.deadline_ms and not known.let_go:
                what = f"queue {queue:x} offset {offset}: {known.lease} was leased until later"
                self._broken("one_lease_holder", what)
            if not known.let_go:
                self._run.count("lease expiry")
        holder = progress.holder(offset)
        known.lease, known.let_go = lease, holder is not None and not holder[2]
        known.deadline_ms = holder[1] if holder is not None else 0

    def acked_by_lease(self, place: Place, lease: int, good: object) -> None:
        """An ack by token was answered: `lease_is_fenced`."""
        known = self.known[place]
        if not good:
            return
        if lease != known.lease:
            what = f"{place}: the ack of lease {lease} was good, but {known.lease} was given since"
            self._broken("lease_is_fenced", what)
        known.acked_by = lease

    def delay_never_early(
        self, member: Member, queue: int, offset: int, message: messages.Message
    ) -> None:
        if message.delay_ms:
            due = self._stored_ms(member, queue, offset) + message.delay_ms
            if member.replica.log_time_ms() < due:
                what = f"queue {queue:x} offset {offset}: due at {due}"
                self._broken("delay_never_early", what)

    def expired_never_delivered(
        self, member: Member, queue: int, offset: int, message: messages.Message
    ) -> None:
        if message.ttl_ms:
            until = self._stored_ms(member, queue, offset) + message.ttl_ms
            if member.replica.log_time_ms() > until:
                what = f"queue {queue:x} offset {offset}: expired at {until}"
                self._broken("expired_never_delivered", what)

    def _stored_ms(self, member: Member, queue: int, offset: int) -> int:
        return member.state.queues[queue].index.find(offset).time_ms  # type: ignore[index]

    def deduplicated_once(self, sent: Sent) -> None:
        """Of messages with one deduplication id one is delivered."""
        if sent.deduplication:
            uid = self._deduplicated.setdefault(sent.deduplication, sent.uid)
            if uid != sent.uid:
                what = f"{sent.deduplication.hex()}: {uid.hex()} and {sent.uid.hex()}"
                self._broken("deduplicated_once", what)

    def first_in_first_out(
        self, member: Member, group: str, sent: Sent, offset: int, handed: Handed
    ) -> None:
        """A message of an ordering key waits for those of its key before it."""
        queues, here = member.state.queues, int(handed.queue)
        if not queues[here].topic.groups[group].ordered:  # type: ignore[index]
            return
        for queue, earlier in self._keys[sent.topic, sent.key]:
            if earlier >= offset or (queue == here and earlier in handed.offsets):
                continue
            before = queues.get(queue)  # type: ignore[call-overload]
            if before is not None:
                is_acked = before.groups[group].is_acked(earlier)
            else:
                is_acked = self._run.is_acked(queue, group, earlier)
            if not is_acked:
                what = f"{here:x}/{offset} before {queue:x}/{earlier} of key {sent.key!r}"
                rule = "first_in_first_out" if queue == here else "predecessor_before_successor"
                self._broken(rule, what)

    # --- What a disk has lost ---------------------------------------------------------------

    def goes_bad(self, group: int, index: int, body: bytes) -> None:
        """An entry will not read any more, and nobody else has it."""
        self.bad[group, index] = {
            messages.uid_at(body, start)
            for start, end in pairwise(entries.directory(body))
            if start < end  # else a rewrite has left it out
        }

    def given_up(self, state: GroupState, command: GiveUp) -> None:
        """An entry is given up, or was and is replayed."""
        key = (int(state.group), int(command.index))
        if key not in self.bad:
            what = f"entry {key[1]} of group {key[0]} is as it was written"
            self._broken("only_what_is_lost_is_given_up", what)
            return
        if key not in self._given_up:
            self._given_up[key] = None
            self._run.count("entry given up")
        self._lost |= self.bad[key]
        for queue in command.queues:
            found = state.queues.get(queue)
            for _, count, first in found.index.offsets_of(command.index) if found else ():
                for at in range(count):
                    self._gone.setdefault((int(queue), first + at), int(state.applied))

    # --- Queues that are sealed -------------------------------------------------------------

    def sealed_takes_nothing(self, state: GroupState) -> None:
        """A sealed queue ends where it was sealed, with its half messages: before that if some were
        rolled back.
        """
        for queue in state.sealed:
            end = state.resized[topic_of(queue)].sealed[queue & NUMBER_BITS]
            tail, halves = state.queues[queue].index.tail, state.halves.waiting_in(queue)
            has_halves = state.topics[topic_of(queue)].name in self._run.beside.half_topics
            is_whole = tail + halves == end or has_halves or (int(queue), end) in self._sealed
            if tail + halves > end or not is_whole:
                what = (
                    f"queue {queue:x}, sealed at {end}, ends at {tail} with {halves} half messages"
                )
                self._broken("sealed_takes_nothing", what)
            if (int(queue), end) not in self._sealed:
                self._sealed.add((int(queue), end))
                self._run.count("queue sealed")

    def counted_is_stored(self, state: GroupState) -> None:
        """What the bill takes for stored in a topic that was resized is what is known of it."""
        may_expire = {sent.topic for sent in self.sent.values() if sent.ttl_ms}
        for topic, resized in state.resized.items():
            if topic in may_expire or topic not in self._run.resizer.topics:
                continue
            refs = (ref.id for ref in state.topics[topic].refs if ref.group == state.group)
            here = resized.queues_here(topic, refs)
            tails = sum(state.queues[each].index.tail for each in here)
            stored = sum(
                1
                for queue, _ in self.known
                if queue >> 8 == topic and self._run.group_of(QueueId(queue)) == state.group
            )
            if tails - resized.never_stored != stored and not self._lost:
                what = f"{state.topics[topic].name}: {tails - resized.never_stored}, not {stored}"
                self._broken("counted_is_stored", what)
            self._run.count("counted over a resize")

    # --- The end ----------------------------------------------------------------------------

    def received(self, uid: bytes) -> None:
        """A message has reached a consumer and was acked by it."""
        self.sent[uid].received += 1

    def total_queue(self) -> None:
        """Every message whose publishing was answered was delivered, unless it has expired or was a
        repeat by its deduplication id. Or its dead letter was: all its leases may have died with
        the leaders that gave them. Or its entry was given up.
        """
        delivered = {known.uid for known in self.known.values() if known.attempt}
        for sent in self.sent.values():
            if sent.outcome != ACKED or sent.ttl_ms or sent.offset < 0 or sent.uid in self._lost:
                continue
            if sent.uid not in delivered and not sent.received:
                what = f"{sent.uid.hex()} was stored at {sent.queue:x}/{sent.offset} and is lost"
                self._broken("total_queue", what)

    def publish_order(self) -> None:
        """Messages of one producer to one queue stand in the order in which they were sent."""
        last: dict[tuple[int, int, bytes], int] = {}
        queues: dict[tuple[int, int, bytes], int] = {}
        for sent in sorted(self.sent.values(), key=lambda each: each.number):
            if sent.offset >= 0 and sent.outcome == ACKED and not sent.deduplication:
                if sent.topic not in self._run.resizer.topics:
                    self._follows((sent.producer, sent.queue, b""), sent, last)
                if sent.key:
                    key = (sent.producer, sent.topic, sent.key)
                    self._follows(key, sent, last)
                    if queues.setdefault(key, sent.queue) != sent.queue:
                        queues[key] = sent.queue
                        self._run.count("key went on in another queue")

    def _follows(
        self, key: tuple[int, int, bytes], sent: Sent, last: dict[tuple[int, int, bytes], int]
    ) -> None:
        """`numbers_grow` across resizes too: no successor begins below its predecessors."""
        if sent.offset <= last.get(key, -1):
            what = (
                f"{sent.uid.hex()} at {sent.queue:x}/{sent.offset}, an earlier one at {last[key]}"
            )
            self._broken("numbers_grow" if key[2] else "publish_order", what)
        last[key] = sent.offset
