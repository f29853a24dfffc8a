"""What a process publishes around queues that are sealed (ADR 31): one publisher's messages of a
key get into the predecessor, then into the successor, in their order.

    SEALED is heard, or a ring is known while something is unanswered at a queue that it has not
      -> the topic is *cut over*: nothing more is sent to it
      -> all that was sent to its sealed queues is answered, and its new ring is known
      -> what was refused is sent again, to the queues of the ring, in the order of its coming
      -> then what has come meanwhile

A batch goes as a whole: while it is held back, so are later ones to any topic that it has messages
for. Batches are found by looking at all that wait for an answer, once for each topic and change: a
process that knows of no sealed queue pays one test a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from zlib import crc32

from ..api import message as messages
from ..api.message import HEADER, HEADER_BYTES, LENGTHS, LENGTHS_AT, Ext
from ..api.model import QueueRef, TopicInfo
from ..common.errors import Code, KernelError
from ..common.ids import QueueId, RaftGroup, TopicId, topic_of
from .publish import KEY_FIELD, ProducerBatch
from .publish_part import BatchPart, refer

LATELY_MS = 60_000
"""So long after a queue was sealed batches are looked at for it: one that was begun before the new
ring was known may be handed over after it. Later ones are refused, and only then noticed."""

ASK_AGAIN_MS = 2_000
"""After so long what a queue has refused is sent to it again, if it takes messages by the ring that
is known: the refusal may be what another process was told about queues before this one. If it is
sealed, the ring has not come yet. Each time takes one of 32 identities: `PUBLISH_DEADLINE_MS` has
room for fewer."""

TOO_OFTEN = KernelError(Code.BUSY, "the topic is being resized again and again")

Run = list[int]


class _CutOver:
    """One topic."""

    __slots__ = ("ask_again_ms", "refused", "sealed", "waiting")

    def __init__(self) -> None:
        self.ask_again_ms = 0
        """When queues that are not sealed, as far as is known, are asked again; 0: none is."""
        self.sealed: set[int] = set()
        """Queues that have refused something."""
        self.waiting: set[ProducerBatch] = set()
        """Batches on their way that have messages for a sealed queue."""
        self.refused: dict[ProducerBatch, None] = {}


class CutOvers:
    """Those of one process."""

    def __init__(
        self,
        pending: Iterable[ProducerBatch],
        send: Callable[[ProducerBatch, Sequence[BatchPart]], None],
        done: Callable[[ProducerBatch], None],
    ) -> None:
        """`pending`: all batches that have no whole answer, in the order of their coming; `send`
        has parts of one stored; `done`: nothing more comes of it.
        """
        self._pending = pending
        self._send = send
        self._done = done
        self._known: dict[TopicId, TopicInfo | None] = {}
        """Topics that have a ring; None: it is gone, and was being cut over."""
        self._lately: dict[int, int] = {}
        """Queues that were sealed lately, and until when they are looked for; 0: not known yet."""
        self._topics: dict[TopicId, _CutOver] = {}
        self._blocked: set[TopicId] = set()
        """Topics that are cut over, or that a batch held back has messages for."""
        self._held: list[ProducerBatch] = []
        self._round_robin = 0
        self._goes_on = False
        self.is_busy = False
        """Whether `holds` is to be asked."""

    @property
    def held_count(self) -> int:
        """Batches that wait for a topic to be cut over."""
        return len(self._held)

    # --- What has happened ------------------------------------------------------------------

    def topic_changed(self, before: TopicInfo | None, after: TopicInfo | None) -> None:
        """A topic that was resized is known, has changed, or (None) is gone."""
        if after is not None:
            self._known[after.id] = after
        elif before is not None:
            self._known.pop(before.id, None)
            if before.id in self._topics:
                self._known[before.id] = None
        if after is not None and before is not None:
            gone = {ref.id for ref in before.writable}.difference(ref.id for ref in after.writable)
            self._lately.update(dict.fromkeys(gone, 0))
            waiting = set(self._sent_to(gone))
            if waiting:
                self._cut(after.id).waiting |= waiting
        self._go_on()

    def tick(self, now_ms: int) -> None:
        """Some time has passed: forget what was lately."""
        for queue, until_ms in list(self._lately.items()):
            if not until_ms:
                self._lately[queue] = now_ms + LATELY_MS
            elif until_ms <= now_ms:
                del self._lately[queue]
        self._ask_again(now_ms)
        self._note()

    def _ask_again(self, now_ms: int) -> None:
        """Nobody waits for ever for a ring that is here."""
        self._goes_on = True
        for ident, cut in list(self._topics.items()):
            topic = self._known.get(ident)
            taking = cut.sealed.intersection(ref.id for ref in topic.writable) if topic else set()
            if not taking:
                cut.ask_again_ms = 0
            elif not cut.ask_again_ms:
                cut.ask_again_ms = now_ms + ASK_AGAIN_MS
            elif cut.ask_again_ms <= now_ms:
                cut.ask_again_ms = 0
                cut.sealed -= taking
                if self._is_over(ident):
                    self._send_refused(ident)
        self._goes_on = False
        self._go_on()

    def _send_refused(self, ident: TopicId) -> None:
        """Send what was refused of a topic; what was held back waits until that has an answer."""
        cuts = [self._topics[each] for each in self._together(ident) if each in self._topics]
        refused = {batch for cut in cuts for batch in cut.refused}
        for cut in cuts:
            cut.waiting.update(cut.refused)
            cut.refused.clear()
        for batch in [each for each in self._pending if each in refused]:
            self._send_again(batch)

    def holds(self, batch: ProducerBatch, parts: Sequence[BatchPart]) -> bool:
        """Whether a batch that is about to be sent waits here."""
        topics = {topic_of(QueueId(run[0])) for part in parts for run in part.runs}
        if not self._blocked.isdisjoint(topics):
            self._blocked |= topics
            self._held.append(batch)
            return True
        for queue in {run[0] for part in parts for run in part.runs if run[0] in self._lately}:
            self._cut(topic_of(QueueId(queue))).waiting.add(batch)
        return False

    def goes_on(self, batch: ProducerBatch) -> bool:
        """All parts of a batch that were sent are answered: whether there is more to come, since
        something was refused.
        """
        for each in self._topics.values():
            each.waiting.discard(batch)
        refused = batch.refused if batch.submitted_ms >= 0 else ()
        for _, run in refused:
            cut = self._cut(topic_of(QueueId(run[0])))
            cut.refused[batch] = None
            if run[0] not in cut.sealed and not self._is_old_answer(batch, run[0]):
                cut.sealed.add(run[0])
                cut.waiting.update(each for each in self._sent_to({run[0]}) if each is not batch)
        if refused:
            batch.remaining = 1  # until it is sent again
        self._go_on()
        return bool(refused)

    def _is_old_answer(self, batch: ProducerBatch, queue: int) -> bool:
        """Whether SEALED may be what another process was told of this batch, about a queue before
        the one that is asked for now: it is kept under the batch's identity. That one takes what is
        sent under the next; if it does not, it is sealed.
        """
        known = self._known.get(topic_of(QueueId(queue)))
        return batch.is_first_identity and known is not None and not self._is_sealed(queue)

    # --- Going on ---------------------------------------------------------------------------

    def _cut(self, ident: TopicId) -> _CutOver:
        found = self._topics.get(ident)
        if found is None:
            found = self._topics[ident] = _CutOver()
            self._blocked.add(ident)
            self._note()
        return found

    def _note(self) -> None:
        self.is_busy = bool(self._topics or self._lately or self._held)

    def _sent_to(self, queues: set[QueueId] | set[int]) -> Iterable[ProducerBatch]:
        """Batches on their way that have messages for one of these queues."""
        if not queues:
            return
        # One that has heard no from one group may have something on its way to another still.
        here = {*self._held, *chain.from_iterable(e.refused for e in self._topics.values())}
        for batch in self._pending:
            if batch.remaining and batch not in here:
                runs = (run for part in batch.parts for run in part.runs)
                if any(run[0] in queues for run in runs):
                    yield batch

    def _is_ready(self, ident: TopicId) -> bool:
        """Whether all is answered, and it is known where the refused goes."""
        cut = self._topics.get(ident)
        if cut is None or (not cut.sealed and not cut.waiting):
            return True
        if cut.waiting or ident not in self._known:
            return False
        topic = self._known[ident]
        return topic is None or cut.sealed.isdisjoint(ref.id for ref in topic.writable)

    def _go_on(self) -> None:
        """Cut over what is ready, and what is ready by that."""
        if self._goes_on:
            return
        self._goes_on = True
        while over := [ident for ident in self._topics if self._is_over(ident)]:
            self._end(over)
        self._goes_on = False
        self._note()

    def _end(self, over: Sequence[TopicId]) -> None:
        refused = {batch for ident in over for batch in self._topics[ident].refused}
        again = [batch for batch in self._pending if batch in refused]
        for ident in over:
            del self._topics[ident]
        for batch in again:
            self._send_again(batch)
        for ident in over:
            if self._known.get(ident, self) is None:
                del self._known[ident]
        held, self._held = self._held, []
        self._blocked = set(self._topics)
        for batch in held:
            self._let_go(batch)

    def _is_over(self, ident: TopicId) -> bool:
        """Whether a topic is ready, and so are all others with which it goes on."""
        return self._is_ready(ident) and all(map(self._is_ready, self._together(ident)))

    def _together(self, ident: TopicId) -> set[TopicId]:
        """Topics of which all that was refused is sent again at once, in its order: two of them are
        bound by each batch that both have refused.
        """
        found: set[TopicId] = set()
        looked_at = [ident]
        while looked_at:
            each = looked_at.pop()
            if each not in found:
                found.add(each)
                cut = self._topics.get(each)
                for batch in cut.refused if cut is not None else ():
                    looked_at += [topic_of(QueueId(run[0])) for _, run in batch.refused]
        return found

    def _send_again(self, batch: ProducerBatch) -> None:
        """Send what was refused of a batch."""
        refused, batch.refused = batch.refused, ()
        parts = self._placed_again(batch, refused) if batch.submitted_ms >= 0 else []
        if parts and not batch.next_identity():
            for part in parts:
                batch.fail_part(part, TOO_OFTEN)
            parts = []
        self._sent(batch, parts)

    def _let_go(self, batch: ProducerBatch) -> None:
        """Send a batch that was held back."""
        parts: Sequence[BatchPart] = batch.parts
        if batch.submitted_ms < 0:
            parts = []
        elif batch.identity is None and any(
            self._is_sealed(run[0]) for part in parts for run in part.runs
        ):
            # One with an identity asks the sealed queue first: it may have it from another process.
            parts = self._placed_again(
                batch, [(part, run) for part in parts for run in part.runs], parts
            )
        if not parts or not self.holds(batch, parts):
            self._sent(batch, parts)

    def _sent(self, batch: ProducerBatch, parts: Sequence[BatchPart]) -> None:
        batch.remaining = len(parts)
        if parts:
            batch.parts = parts
            self._send(batch, parts)
        else:
            self._done(batch)

    # --- Where messages go now --------------------------------------------------------------

    def _is_sealed(self, queue: int) -> bool:
        topic = self._known.get(topic_of(QueueId(queue)))
        return topic is not None and all(ref.id != queue for ref in topic.writable)

    def _placed_again(
        self,
        batch: ProducerBatch,
        runs: Sequence[tuple[BatchPart, Run]],
        whole: Sequence[BatchPart] = (),
    ) -> list[BatchPart]:
        """Parts in which the messages of these runs go where the rings say, in the order of the
        batch; those of topics that are gone are left out. `whole`: parts all of whose messages go
        on, also to where no queue is.
        """
        found: dict[RaftGroup, BatchPart] = {}
        slots = {id(part): _slots_of(part) for part, _ in runs}
        slots.update((id(part), _slots_of(part)) for part in whole)
        there: dict[tuple[RaftGroup, int], int] = {}
        once = batch.identity is not None

        def slot_in(group: RaftGroup, part: BatchPart, slot: int) -> tuple[BatchPart, int]:
            """The part of a group, and the message's slot in it, put there if it is not yet."""
            into = found.setdefault(group, BatchPart(group))
            position = part.positions[slot]
            at = there.get((group, position))
            if at is None:
                at = there[group, position] = len(into.lengths)
                into.lengths.append(part.lengths[slot])
                into.buffers.append(slots[id(part)][slot])
                into.positions.append(position)
            return into, at

        places = [
            (part.positions[slot], order, part, slot, run)
            for order, (part, run) in enumerate(runs)
            for slot in range(run[1], run[1] + run[2])
        ]
        for _, _, part, slot, run in sorted(places, key=lambda each: each[:2]):
            ref = self._queue_of(part, run, slots[id(part)][slot], once=once)
            if ref is not None:
                into, at = slot_in(ref.group, part, slot)
                refer(into, ref, at, run[3])
        for part in whole:
            for tenant, slot in part.retained:
                into, at = slot_in(part.group, part, slot)
                into.retained.append((tenant, at))
            for each in part.routed:
                whose, name, first, count, bits = each
                assert isinstance(first, int)
                assert isinstance(count, int)
                for slot in range(first, first + count):
                    into, at = slot_in(part.group, part, slot)
                    into.routed.append([whose, name, at, 1, bits])
        return list(found.values())

    def _queue_of(self, part: BatchPart, run: Run, slot: bytes, *, once: bool) -> QueueRef | None:
        """The queue of a message by its key, or its name in the tree, else in turn; None: its topic
        is gone.
        """
        queue = QueueId(run[0])
        if topic_of(queue) in self._known:
            topic = self._known[topic_of(queue)]
            if topic is None:
                return None
            if self._is_sealed(queue):
                return topic.queue_of(self._key_of(slot), once=once)
        return QueueRef(queue, part.group)

    def _key_of(self, slot: bytes) -> int:
        key: int = HEADER.unpack_from(slot)[KEY_FIELD]
        if key:
            return key
        ext_bytes: int = LENGTHS.unpack_from(slot, LENGTHS_AT)[2]
        name = messages.decode_ext(slot[HEADER_BYTES : HEADER_BYTES + ext_bytes]).get(Ext.TREE_NAME)
        if name is not None:
            return crc32(name) or 1
        self._round_robin += 1
        return self._round_robin


def _slots_of(part: BatchPart) -> list[bytes]:
    """The slots of a part, whose buffers are cut anywhere."""
    whole, slots, at = b"".join(part.buffers), [], 0
    for length in part.lengths:
        slots.append(whole[at : at + length])
        at += length
    return slots
