"""The leader's choice of who gets what next, for one (queue, group).

Volatile and sans-I/O: everything it decides that must survive becomes a command, by `Port`. It
knows the consumers (priority, credit, exclusive, single active), what each holds, and asks `Ready`
for the next messages. Fresh messages are handed out only below the dispatch mark that the log
holds, so that after a crash everything that may have been seen comes back as redelivered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ..client import ConsumerSink, ConsumerSpec, Deliveries, Settlement
from ..errors import Code, KernelError
from ..ids import QueueId
from ..limits import MARK_AHEAD, MARK_RENEW
from ..log import entry as entries
from ..model import Overflow, Reason
from .ready import Ready
from .runs import Feature, Run
from .state import QueueState


class Port(Protocol):
    """What a dispatcher asks of its node."""

    def entry(self, index: int) -> bytes | None:
        """A log entry, if it is in memory."""

    def fetch(self, index: int, dispatcher: Dispatcher) -> None:
        """Read a log entry, then call `pump`."""

    def propose_settle(
        self,
        queue: QueueId,
        group: str,
        how: Settlement,
        reason: Reason,
        offsets: Sequence[int],
        *,
        urgent: bool,
    ) -> None:
        """Put a settlement into the log: at the next commit if urgent, else within 5 ms or 500."""

    def propose_mark(self, queue: QueueId, group: str, offset: int) -> None:
        """Put a dispatch mark into the log at the next commit."""

    def log_time_ms(self) -> int:
        """Log time now."""

    def wake(self, dispatcher: Dispatcher, delay_ms: int) -> None:
        """Call `woken` after so long."""

    def unused(self, queue: QueueState) -> None:
        """The last consumer of the queue's group has gone."""


class Handed:
    """`Deliveries`: columns of what one consumer gets at once."""

    __slots__ = ("attempts", "offsets", "queue", "slots")

    def __init__(
        self, queue: QueueId, offsets: list[int], slots: list[bytes], attempts: list[int] | None
    ) -> None:
        self.queue = queue
        self.offsets = offsets
        self.slots = slots
        self.attempts = attempts


class DispatchedConsumer:
    """`Consumer`: one consumer, its credit and what it holds."""

    __slots__ = ("_dispatcher", "credit", "ended", "held", "pending", "sink", "spec", "tag")

    def __init__(self, dispatcher: Dispatcher, spec: ConsumerSpec, sink: ConsumerSink) -> None:
        self._dispatcher = dispatcher
        self.spec = spec
        self.sink = sink
        self.tag = spec.tag
        self.credit = 0
        self.held: set[int] = set()
        self.ended = False
        self.pending: Handed | None = None

    @property
    def dispatcher(self) -> Dispatcher:
        """Where it takes from."""
        return self._dispatcher

    def grant(self, messages: int) -> None:
        """Add credit (see `client.Consumer`)."""
        self.credit += messages
        if self.credit > 0 and not self.ended:
            self._dispatcher.pump()

    def cancel(self) -> None:
        """Stop deliveries; what it holds stays held."""
        self._dispatcher.detach(self)


class Dispatcher:
    """One (queue, group) at its leader."""

    def __init__(self, queue: QueueState, group: str, port: Port) -> None:
        self.queue = queue
        self.group = group
        self._port = port
        self._progress = queue.groups[group]
        self.ready = Ready(queue.index, self._progress, queue.topic.options.priority_max + 1)
        self.consumers: list[DispatchedConsumer] = []
        self._turn = 0
        self._mark_asked = 0
        self._fetching = False
        self._pumping = False
        self._wake_at_ms: int | None = None
        self.held_count = 0

    # --- Consumers --------------------------------------------------------------------------

    def attach(self, spec: ConsumerSpec, sink: ConsumerSink) -> DispatchedConsumer:
        """A new consumer. Raises KernelError LOCKED if an exclusive one is in the way."""
        if self.consumers and (spec.exclusive or self.consumers[0].spec.exclusive):
            raise KernelError(
                Code.LOCKED, f"topic {self.queue.topic.name} has an exclusive consumer"
                if self.consumers[0].spec.exclusive
                else f"topic {self.queue.topic.name} is in use: no exclusive consumer possible",
            )
        consumer = DispatchedConsumer(self, spec, sink)
        self.consumers.append(consumer)
        if not self.queue.topic.groups[self.group].single_active_consumer:
            self.consumers.sort(key=lambda each: -each.spec.priority)
        self._ask_mark()
        return consumer

    def detach(self, consumer: DispatchedConsumer) -> None:
        """Take a consumer out of dispatch; it keeps what it holds."""
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        consumer.ended = True
        if consumer.spec.pull:
            return
        if any(not each.spec.pull for each in self.consumers):
            self.pump()
        else:
            self._port.unused(self.queue)

    def end(self, error: KernelError) -> None:
        """The queue is gone: tell everybody."""
        consumers, self.consumers = self.consumers, []
        for consumer in consumers:
            consumer.ended = True
            consumer.sink.consumer_ended(consumer, error)

    # --- Settlement -------------------------------------------------------------------------

    def settle(
        self,
        consumer: DispatchedConsumer,
        how: Settlement,
        offsets: Sequence[int],
        reason: Reason,
        *,
        urgent: bool,
    ) -> list[int]:
        """Settle what a consumer holds; returns the offsets it does not hold (left alone)."""
        strangers: list[int] = []
        if not consumer.held.issuperset(offsets):
            strangers = [each for each in offsets if each not in consumer.held]
            offsets = [each for each in offsets if each in consumer.held]
        consumer.held.difference_update(offsets)
        self.held_count -= len(offsets)
        if how is Settlement.RETURN:
            self.ready.give_back(offsets)
            self.pump()
        elif how is Settlement.RELEASE:
            self._release(offsets)
        elif offsets:
            self._propose(how, reason, offsets, urgent=urgent or how is not Settlement.ACK)
        return strangers

    def _release(self, offsets: Sequence[int]) -> None:
        """Give back with an attempt counted; those out of attempts are dead-lettered."""
        attempts_max = self.queue.topic.groups[self.group].attempts_max
        spent: list[int] = []
        if attempts_max is not None:
            failures = self._progress.failures
            spent = [each for each in offsets if failures(each) + 1 >= attempts_max]
            offsets = [each for each in offsets if failures(each) + 1 < attempts_max]
        if spent:
            self._propose(Settlement.DEAD_LETTER, Reason.ATTEMPTS, spent, urgent=True)
        if offsets:
            self._propose(Settlement.RELEASE, Reason.REJECTED, offsets, urgent=True)

    def _propose(
        self, how: Settlement, reason: Reason, offsets: Sequence[int], *, urgent: bool
    ) -> None:
        self._port.propose_settle(
            self.queue.id, self.group, how, reason, offsets, urgent=urgent
        )

    def released(self, offsets: Iterable[int]) -> None:
        """A RELEASE was applied: the messages are ready again."""
        acked = self._progress.is_acked
        self.ready.give_back([each for each in offsets if not acked(each)])
        self.pump()

    def purged(self) -> None:
        """A purge was applied."""
        self.ready.purged()

    def holds(self) -> list[int]:
        """Offsets that some consumer holds, for a purge to keep."""
        return sorted({each for consumer in self.consumers for each in consumer.held})

    # --- Dispatch ---------------------------------------------------------------------------

    def pump(self) -> None:
        """Hand out what can be handed out (hot)."""
        if self._pumping or self._fetching or not self.consumers:
            return
        self._pumping = True
        try:
            while self._pump_once():
                pass
        finally:
            self._pumping = False
        self._flush()

    def _pump_once(self) -> bool:
        takers = self._takers()
        if not takers:
            return False
        credit = sum(each.credit for each in takers)
        taken = self.ready.take(self._progress.mark, credit)
        if taken is None:
            if self.ready.beyond() >= self._progress.mark:
                self._ask_mark()
            return False
        run, offsets = taken
        if run.features & Feature.TTL or self.queue.topic.options.message_ttl_ms is not None:
            offsets = self._drop_expired(run, offsets)
            if not offsets:
                return True
        entry = self._port.entry(run.index)
        if entry is None:
            self.ready.give_back(offsets)
            self._fetching = True
            self._port.fetch(run.index, self)
            return False
        if self._progress.mark - self.ready.beyond() < MARK_RENEW:
            self._ask_mark()
        self._hand_out(takers, run, offsets, entry)
        return True

    def _takers(self) -> list[DispatchedConsumer]:
        """Consumers that may get the next messages: those of the highest priority with credit."""
        consumers = self.consumers
        if len(consumers) == 1 or self.queue.topic.groups[self.group].single_active_consumer:
            return consumers[:1] if consumers and consumers[0].credit > 0 else []
        able = [each for each in consumers if each.credit > 0]
        if able and able[0].spec.priority != able[-1].spec.priority:
            top = able[0].spec.priority
            able = [each for each in able if each.spec.priority == top]
        return able

    def _hand_out(
        self,
        takers: list[DispatchedConsumer],
        run: Run,
        offsets: Sequence[int],
        entry: bytes,
    ) -> None:
        """Deal messages out to the takers in turn, one at a time."""
        first = offsets[0]
        if offsets[-1] - first + 1 == len(offsets):
            slots = entries.slots(entry, run.slot + first - run.first, len(offsets))
        else:
            base = run.slot - run.first
            slots = [entries.slot(entry, base + each) for each in offsets]
        attempts = None
        if self._progress.pages:
            failures = self._progress.failures
            attempts = [failures(each) + 1 for each in offsets]
        if len(takers) == 1:
            self._give(takers[0], offsets, slots, attempts)
            return
        for at, offset in enumerate(offsets):
            while True:
                self._turn += 1
                taker = takers[self._turn % len(takers)]
                if taker.credit > 0:
                    break
            self._give(
                taker, (offset,), slots[at : at + 1], attempts[at : at + 1] if attempts else None
            )

    def _give(
        self,
        consumer: DispatchedConsumer,
        offsets: Sequence[int],
        slots: list[bytes],
        attempts: list[int] | None,
    ) -> None:
        consumer.credit -= len(offsets)
        handed = consumer.pending
        if handed is None:
            consumer.pending = Handed(self.queue.id, list(offsets), slots, attempts)
        else:
            if attempts is not None or handed.attempts is not None:
                earlier = handed.attempts or [1] * len(handed.offsets)
                handed.attempts = earlier + (attempts or [1] * len(offsets))
            handed.offsets.extend(offsets)
            handed.slots.extend(slots)
        if not consumer.spec.auto_ack:
            consumer.held.update(offsets)
            self.held_count += len(offsets)

    def _flush(self) -> None:
        """Give each consumer what this turn brought, in one call."""
        for consumer in list(self.consumers):
            handed = consumer.pending
            if handed is None:
                continue
            consumer.pending = None
            if consumer.spec.auto_ack:
                self._propose(Settlement.ACK, Reason.REJECTED, handed.offsets, urgent=False)
            consumer.sink.deliver(consumer, handed)

    def fetched(self) -> None:
        """The entry asked for by `Port.fetch` is in memory."""
        self._fetching = False
        self.pump()

    def _ask_mark(self) -> None:
        """Have the dispatch mark moved ahead, unless that is under way."""
        wanted = self.ready.beyond() + MARK_AHEAD
        if wanted >= self._mark_asked + MARK_AHEAD - MARK_RENEW:
            self._mark_asked = wanted
            self._port.propose_mark(self.queue.id, self.group, wanted)

    # --- Expiry and overflow ----------------------------------------------------------------

    def appended(self) -> None:
        """Messages were added: hand out, then drop what is too much or too old."""
        if self.consumers:
            self.pump()
        options = self.queue.topic.options
        if options.messages_max is not None and options.overflow is Overflow.DROP_OLDEST:
            self._drop_excess(options.messages_max)
        if options.message_ttl_ms is not None or self.queue.index.last_features() & Feature.TTL:
            self.expire()

    def _drop_excess(self, ready_max: int) -> None:
        while (excess := self.ready.count - ready_max) > 0:
            taken = self.ready.take(self.queue.index.tail, excess)
            if taken is None:
                return
            self._propose(Settlement.DEAD_LETTER, Reason.OVERFLOW, taken[1], urgent=True)

    def _deadline_ms(self, run: Run, offset: int) -> int | None:
        """Log time at which a message expires; None: never."""
        ttl = run.value(Feature.TTL, offset)
        topic_ttl = self.queue.topic.options.message_ttl_ms
        if topic_ttl is not None:
            ttl = min(ttl, topic_ttl) if ttl else topic_ttl
        elif not ttl:
            return None
        return run.time_ms + ttl

    def _drop_expired(self, run: Run, offsets: Sequence[int]) -> list[int]:
        """Dead-letter those of the messages that have expired; the others."""
        now = self._port.log_time_ms()
        fresh: list[int] = []
        expired: list[int] = []
        for offset in offsets:
            deadline = self._deadline_ms(run, offset)
            (expired if deadline is not None and deadline <= now else fresh).append(offset)
        if expired:
            self._propose(Settlement.DEAD_LETTER, Reason.EXPIRED, expired, urgent=True)
        return fresh

    def expire(self) -> None:
        """Drop expired messages from the front of each level; be woken when the next is due."""
        now = self._port.log_time_ms()
        next_ms: int | None = None
        for level in range(self.ready.levels):
            while (front := self.ready.peek(level)) is not None:
                run, offset = front
                deadline = self._deadline_ms(run, offset)
                if deadline is not None and deadline > now:
                    next_ms = deadline if next_ms is None else min(next_ms, deadline)
                if deadline is None or deadline > now:
                    break
                self.ready.skip(level)
                self._propose(Settlement.DEAD_LETTER, Reason.EXPIRED, (offset,), urgent=True)
        if next_ms is not None and (self._wake_at_ms is None or next_ms < self._wake_at_ms):
            self._wake_at_ms = next_ms
            self._port.wake(self, next_ms - now)

    def woken(self) -> None:
        """The time asked for by `Port.wake` has come."""
        if self._wake_at_ms is not None and self._port.log_time_ms() >= self._wake_at_ms:
            self._wake_at_ms = None
        self.expire()
