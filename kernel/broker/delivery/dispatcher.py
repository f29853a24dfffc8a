"""The leader's choice of who gets what next, for one (queue, group).

In the leader's memory only, and sans-I/O: everything it decides that must survive becomes a
command, by `Port`. It knows the consumers (priority, credit, exclusive, single active), what each
holds, and asks `Ready` for the next messages. Fresh messages are handed out only below the dispatch
mark that the log holds, so that after a crash everything that may have been seen comes back as
redelivered. Messages for a timed lease are handed out when the log holds the lease.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from ...api.client import ConsumerSink, ConsumerSpec, LeaseVerb, Settlement
from ...api.model import GroupOptions, MessageStanding, Overflow, Reason
from ...api.origins import INTERNAL
from ...common.errors import KernelError
from ...log.format import entry as entries
from ..group_state.state import QueueState
from ..index.features import Feature
from ..index.run_page import Run
from ..observer import ACKED_LATE
from ..tracing import What, ranges_of
from .consumers import (
    Credit,
    DispatchedConsumer,
    Handed,
    check_exclusive,
    eligible_consumers,
    offsets_held,
)
from .delays import Timekeeper
from .delivery_scheduler import ALL
from .dispatch_port import Port
from .fairness import Fairness
from .filtering import Filtering
from .in_order import InOrder
from .marks import Marks
from .ordering_keys import DispatchRound
from .ready import Ready
from .sole_consumer import SoleConsumer
from .standing import standing_of

_ACK = Settlement.ACK
"""A name looked up once: a member of an Enum costs 0.12 us each time it is named."""

FETCHES, AWAITS_CLAIMS, NO_LEASE, GATED, PUT_OFF = 1, 2, 4, 8, 16
"""Why nothing is handed out for now: an entry is being read; earlier holders may still claim;
nobody knows who leads; a sealed queue comes first; it is the turn of others.
"""


class Dispatcher:
    """One (queue, group) at its leader."""

    def __init__(self, queue: QueueState, group: str, port: Port[Dispatcher]) -> None:
        self.queue = queue
        self.group = group
        self._port = port
        self._propose_acks = port.propose_acks
        self._progress = queue.groups[group]
        self.counts = port.counts_of(queue.id, group)
        self.ready = Ready(queue.index, self._progress, queue.topic.options.priority_max + 1)
        self.consumers: list[DispatchedConsumer] = []
        self._detached: dict[DispatchedConsumer, None] = {}
        """Consumers that take no more, but still hold something."""
        self.consumer_count = 0
        """Push consumers attached; pulls do not count."""
        self.held_count = 0
        self.leasing_count = 0
        """Messages whose timed lease is on its way into the log."""
        self._round_robin = 0
        self._marks = Marks(self._progress, self.ready, partial(port.propose_mark, queue.id, group))
        self._halted = 0
        """Nothing is handed out while one of `FETCHES`, `AWAITS_CLAIMS`, `NO_LEASE`, `GATED` is
        set."""
        self._pumping = False
        self._scheduler = port.scheduler
        self._part_left = 0
        """Messages that the part which is being handed out may still have."""
        self.filtering = Filtering(port.origins, lambda: port.wake(self, 1))
        self._time = Timekeeper(
            queue,
            self._progress,
            self.ready,
            port.log_time_ms,
            lambda delay_ms: port.wake(self, delay_ms),
            partial(self._propose, Settlement.DEAD_LETTER, Reason.EXPIRED, urgent=True),
        )
        self._order: InOrder | Fairness | None = None
        if self._options.ordered:
            soon = partial(port.wake, self, 1)
            order = InOrder(queue, self._progress, self.ready, self._time, self._fresh, soon)
            self._order = order
        self._time.schedule()
        self._sole_consumer = SoleConsumer(
            self, self._progress, self.ready, port, self._marks.ask, self._scheduler
        )

    @property
    def _options(self) -> GroupOptions:
        return self.queue.topic.groups[self.group]

    # --- Figures ----------------------------------------------------------------------------

    @property
    def ready_count(self) -> int:
        """Messages that wait for a consumer, those behind a blocked ordering key included."""
        order = self._order
        return self.ready.count + (order.waiting_count if order is not None else 0)

    @property
    def leased_count(self) -> int:
        """Messages that somebody holds."""
        return self.held_count + self._progress.leased + self.leasing_count

    @property
    def delayed_count(self) -> int:
        """Messages that are not due yet."""
        return self._progress.hidden + self.ready.withheld_count

    @property
    def is_used(self) -> bool:
        """Whether anybody consumes, waits or holds something."""
        return bool(self.consumers or self.held_count or self.leasing_count)

    def standing(self, offset: int) -> MessageStanding:
        """What has become of a message."""
        holding = (*self.consumers, *self._detached)
        return standing_of(self.queue, self._progress, self.ready, holding, offset)

    def oldest_ms(self) -> int | None:
        """Log time at which the oldest unacked message was stored."""
        floor = self._progress.floor
        return self.queue.index.find(floor).time_ms if floor < self.queue.index.tail else None

    # --- Consumers --------------------------------------------------------------------------

    def attach(
        self, spec: ConsumerSpec, sink: ConsumerSink, pool: Credit | None = None
    ) -> DispatchedConsumer:
        """A new consumer. Raises KernelError LOCKED if an exclusive one is in the way."""
        if not spec.pull:
            check_exclusive(self.queue.topic.name, self.consumer_count, self.consumers, spec)
            self.consumer_count += 1
        consumer = DispatchedConsumer(self, spec, sink, pool or Credit())
        if self._options.single_active_consumer:
            self.consumers.append(consumer)
        else:
            insort(self.consumers, consumer, key=lambda each: -each.spec.priority)
        self._sole_consumer.look(self.consumers)
        if spec.lease_ms is None:
            for level in range(self.ready.levels):
                self._marks.ask(level)
        return consumer

    def detach(self, consumer: DispatchedConsumer) -> None:
        """Take a consumer out of dispatch; it keeps what it holds."""
        if consumer.ended:
            return
        self.consumers.remove(consumer)
        self._sole_consumer.look(self.consumers)
        consumer.ended = True
        if not consumer.spec.pull:
            self.consumer_count -= 1
        if consumer.held:
            self._detached[consumer] = None
        if not self.consumers:
            self._port.idle(self)
        if consumer.spec.pull:
            return
        if self.consumer_count:
            self.pump()
        else:
            self._port.unused(self)

    def end(self, error: KernelError) -> None:
        """The queue is gone: tell everybody."""
        consumers, self.consumers = self.consumers, []
        self._time.stop()
        self._sole_consumer.look(())
        self.consumer_count = 0
        for consumer in consumers:
            consumer.ended = True
            consumer.sink.consumer_ended(consumer, error)

    # --- Claims (`claims`) ------------------------------------------------------------------

    def halt(self, why: int) -> None:
        """Hand out nothing until `resume` is called with the same reason."""
        self._halted |= why

    def resume(self, why: int) -> None:
        """The reason has gone."""
        if self._halted & why:
            self._halted ^= why
            self.pump()

    @property
    def is_gated(self) -> bool:
        """Whether a sealed queue comes first, as a whole."""
        return bool(self._halted & GATED)

    def blocks(self, offset: int) -> bool:
        """Whether somebody else holds the ordering key of a message."""
        return self._order is not None and self._order.blocks(offset)

    def hold(self, consumer: DispatchedConsumer, offsets: Sequence[int]) -> None:
        """A consumer, attached or over, holds messages that have been taken out of `ready`."""
        for offset in offsets:
            self._lock(offset)
        consumer.held.update(offsets)
        self.held_count += len(offsets)
        if consumer.ended and offsets:
            self._detached[consumer] = None

    # --- Settlement -------------------------------------------------------------------------

    def settle(
        self,
        consumer: DispatchedConsumer,
        how: Settlement,
        offsets: Sequence[int],
        reason: Reason,
        *,
        urgent: bool,
        logged: bool = False,
    ) -> list[int]:
        """Settle what a consumer holds (`logged`: a transaction has done so in the log already, and
        the caller pumps); returns the offsets it does not hold (left alone).
        """
        strangers: list[int] = []
        if not consumer.held.issuperset(offsets):
            strangers = [each for each in offsets if each not in consumer.held]
            offsets = [each for each in offsets if each in consumer.held]
        before = len(consumer.held)
        consumer.held.difference_update(offsets)
        if before - len(consumer.held) != len(offsets):
            offsets = list(dict.fromkeys(offsets))
        self.held_count -= len(offsets)
        if consumer.ended and not consumer.held:
            self._detached.pop(consumer, None)
        if logged:
            if how is not Settlement.RELEASE:
                self._unlock(offsets)
        elif how is Settlement.RETURN:
            if (trace := self.queue.topic.trace) is not None:
                now_ms, own = self._port.log_time_ms(), ranges_of(offsets)
                trace.note(What.RETURNED, now_ms, self.queue.id, self.group, consumer.origin, own)
            self._back(offsets)
            self.pump()
        elif how is Settlement.RELEASE:
            self._release(offsets)
        elif offsets:
            urgent = urgent or how is not _ACK
            self._propose(how, reason, offsets, consumer.origin, urgent=urgent)
        return strangers

    def acknowledge(self, consumer: DispatchedConsumer, offsets: list[int]) -> None:
        """Ack what a consumer holds, nothing else, without an answer (hot: a short `settle`)."""
        named = set(offsets)
        if consumer.ended or len(named) < len(offsets) or not named <= consumer.held:
            self.settle(consumer, _ACK, offsets, Reason.REJECTED, urgent=False)
            return
        consumer.held -= named
        self.held_count -= len(named)
        self._propose_acks(self.queue.id, self.group, offsets, consumer.origin, urgent=False)

    def return_handed(self, consumer: DispatchedConsumer, handed: Handed) -> None:
        """What a consumer was handed and nobody looked at is ready again, no attempt counted."""
        if not handed.lease:
            self.settle(consumer, Settlement.RETURN, handed.offsets, Reason.REJECTED, urgent=False)
        elif handed.offsets:
            what = (handed.lease, LeaseVerb.RETURN, Reason.REJECTED, 0)
            sizes = map(len, handed.slots)
            changes = [(at, *what, size) for at, size in zip(handed.offsets, sizes, strict=True)]
            self._port.propose_change(self.queue.id, self.group, changes, consumer.origin)

    def _release(self, offsets: Sequence[int]) -> None:
        """Give back with an attempt counted; those out of attempts are dead-lettered."""
        spent = [each for each in offsets if self.is_last_attempt(each)]
        if spent:
            offsets = [each for each in offsets if each not in spent]
            self._propose(Settlement.DEAD_LETTER, Reason.ATTEMPTS, spent, INTERNAL, urgent=True)
        if offsets:
            self._propose(Settlement.RELEASE, Reason.REJECTED, offsets, INTERNAL, urgent=True)

    def is_last_attempt(self, offset: int) -> bool:
        """Whether a message is dead-lettered if its present delivery comes to nothing."""
        return self._progress.is_last(offset, self._options.attempts_max)

    def _propose(
        self,
        how: Settlement,
        reason: Reason,
        offsets: Sequence[int],
        origin: int = INTERNAL,
        *,
        urgent: bool,
    ) -> None:
        queue, group = self.queue.id, self.group
        if how is _ACK:
            self._propose_acks(queue, group, list(offsets), origin, urgent=urgent)
        else:
            propose = self._port.propose_settle
            propose(queue, group, how, reason, offsets, origin, urgent=urgent)

    def _back(self, offsets: Iterable[int]) -> None:
        """Messages are ready again, but those that are gone: retention asks no holder."""
        acked = self._progress.is_acked
        offsets = list(offsets)
        self.ready.give_back([each for each in offsets if not acked(each)])
        self._unlock(offsets)

    def released(self, offsets: Iterable[int]) -> None:
        """A RELEASE was applied: the messages are ready again."""
        self._back(offsets)
        self.pump()

    def settled(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Settlements were applied, so that no crash takes them back: their keys may be free."""
        for first, count in ranges:
            self._unlock(range(first, first + count))
        self.pump()

    def changed(self, ended: Sequence[tuple[int, int]]) -> None:
        """A CHANGE was applied: see `machine.Observer.changed`. The caller pumps, once all that was
        applied is known here.
        """
        for offset, until_ms in ended:
            if until_ms > 0:
                self._time.add(offset, until_ms)
            elif until_ms == 0:
                self._back((offset,))
            else:
                self._unlock((offset,))
                order = self._order
                if until_ms == ACKED_LATE and not (order is not None and order.forget(offset)):
                    self.ready.forget(offset)
        self._time.schedule()

    def purged(self) -> None:
        """A purge was applied."""
        self.ready.purged()
        if self._order is not None:
            self._order.purged(self._progress.is_acked)
            self.pump()

    def holds(self) -> list[int]:
        """Offsets that somebody holds, for a purge to keep."""
        return offsets_held((*self.consumers, *self._detached), self._progress)

    # --- Ordering keys ----------------------------------------------------------------------

    def gather(self) -> None:
        """Have all that is ready, and that nobody else's holding keeps back, in `ready`."""
        if self._order is not None:
            self._order.gather()

    def _lock(self, offset: int) -> None:
        if self._order is not None:
            self._order.lock(offset)

    def _unlock(self, offsets: Iterable[int]) -> None:
        if self._order is not None:
            self._order.unlock(offsets)
            if self._order.is_needless:
                self._order = None

    @property
    def is_ordered(self) -> bool:
        """Whether one key's messages go to one holder at a time."""
        return isinstance(self._order, InOrder)

    def hold_keys(self, key_of: Mapping[int, int]) -> None:
        """Hand out no message of these keys; each is held under a token below zero."""
        if isinstance(self._order, InOrder):
            self._order.hold(key_of)

    def free_keys(self, tokens: Sequence[int]) -> None:
        """What was held under these tokens may be handed out."""
        if tokens:
            self._unlock(tokens)
            self.pump()

    # --- Dispatch ---------------------------------------------------------------------------

    def pump(self) -> None:
        """Hand out what can be handed out (hot); then drop what has come to the front too old."""
        if (
            self._pumping
            or self._halted
            or not self._port.may_hand_out()
            or self._sole_consumer.pass_on()
        ):
            return
        order = self._order
        if self.consumers and (self.ready.may_have() or (order is not None and order.has_free)):
            self._pump()
        if self._time.may_expire():
            if not self._halted:
                is_wanted = bool(self._eligible())
                self._time.handed_out(is_wanted=is_wanted, has_consumers=bool(self.consumers))
            self._time.schedule()

    def options_changed(self) -> None:
        """What is set for topic or group has changed."""
        self._sole_consumer.look(self.consumers)

    def _pump(self) -> None:
        in_parts = self._goes_in_parts
        scheduler = self._scheduler
        if in_parts and scheduler.is_taken and self._has_many(scheduler.few):
            self.put_off()
            return
        self._pumping = True
        dispatch_rounds: dict[DispatchedConsumer, DispatchRound] = {}
        most = self._part_left = scheduler.part if in_parts else ALL
        try:
            while self._part_left > 0 and self._pump_once(dispatch_rounds):
                pass
        finally:
            self._pumping = False
        if in_parts:
            scheduler.took(most - self._part_left)
        if self._part_left <= 0:
            self.put_off()
        self._flush()

    def _has_many(self, few: int) -> bool:
        """Whether more than a few messages may be handed out now."""
        return self.ready_count > few and sum(each.credit for each in self.consumers) > few

    @property
    def _goes_in_parts(self) -> bool:
        """Whether what is ready is handed out in parts: another tenant is active. But a pull is
        answered with what it gets at once; and where too many or too old messages are dropped,
        those that somebody has credit for are not.
        """
        has_pulls, index = len(self.consumers) > self.consumer_count, self.queue.index
        alone = self._scheduler.alone
        if not alone or alone == self.queue.topic.tenant:
            return False
        return not (
            has_pulls
            or self._sole_consumer.is_limited
            or index.ttls
            or self.queue.topic.options.message_ttl_ms is not None
        )

    def put_off(self) -> None:
        """Go on handing out when it is its turn."""
        self._halted |= PUT_OFF
        self._port.put_off(self)

    def _pump_once(self, dispatch_rounds: dict[DispatchedConsumer, DispatchRound]) -> bool:
        eligible = self._eligible()
        if not eligible:
            return False
        if self._order is not None or any(each.spec.filter is not None for each in eligible):
            # What comes next depends on who asks: one consumer at a time, each in its turn.
            eligible = eligible[self._round_robin % len(eligible) :][:1]
        count = min(sum(each.credit for each in eligible), self._part_left)
        timed = all(each.spec.lease_ms is not None for each in eligible)
        if self._order is None:
            taken = self._fresh(count, timed)
        else:
            dispatch_round = dispatch_rounds.setdefault(eligible[0], DispatchRound())
            taken = self._order.next(dispatch_round, eligible[0].spec, count)
        if taken is None:
            return False
        run, offsets = taken
        if self._order is None and run.features & Feature.KEY and eligible[0].spec.fair and timed:
            self._be_fair(offsets)
            return True
        if not offsets:
            return True
        entry = self._port.entry(run.index)
        if entry is None:
            # It is on disk only. Later messages in memory must not overtake it, so nothing is
            # handed out until it is here (`fetched`).
            if isinstance(self._order, Fairness):
                self._order.put_back()
            self._back(offsets)
            self._halted |= FETCHES
            self._port.fetch(run.index, self)
            return False
        if eligible[0].spec.filter is not None or self._options.filter is not None:
            offsets = self._drop_unwanted(eligible[0], run, offsets, entry)
            if not offsets:
                return self.filtering.goes_on()
        self._hand_out(eligible, run, offsets, entry)
        return True

    def _be_fair(self, offsets: Sequence[int]) -> None:
        """The first messages that say whose they are have come."""
        self.ready.give_back(offsets)
        self._order = Fairness(
            self.queue,
            self._progress,
            self.ready,
            self._time,
            self._fresh,
            self._port.log_time_ms,
            lambda: self.consumer_count > 0,
        )

    def _fresh(self, count: int, timed: bool) -> tuple[Run, Sequence[int]] | None:
        """The next ready messages of one run, without those that have expired; None: there is none
        for a consumer with, or without, timed leases.
        """
        taken = self._marks.take(count, timed=timed)
        if taken is None:
            return None
        run, offsets = taken
        if run.features & Feature.TTL or self.queue.topic.options.message_ttl_ms is not None:
            offsets = self._time.drop_expired(run, offsets)
        return run, offsets

    def _drop_unwanted(
        self, consumer: DispatchedConsumer, run: Run, offsets: Sequence[int], entry: bytes
    ) -> Sequence[int]:
        """Skip what the group's filter or the consumer's does not match; the rest."""
        filtering = self.filtering
        for wanted in (filtering.of_group(self._options.filter), consumer.spec.filter):
            if wanted is not None and offsets:
                offsets, others = filtering.split(wanted, run, offsets, entry)
                if others:
                    self._propose(Settlement.SKIP, Reason.REJECTED, others, INTERNAL, urgent=False)
                    self._unlock(others)
        return offsets

    def _eligible(self) -> list[DispatchedConsumer]:
        """Consumers that may get the next messages."""
        if self.leased_count >= self._options.in_flight_max:
            return []
        return eligible_consumers(
            self.consumers, single_active=self._options.single_active_consumer
        )

    def _hand_out(
        self,
        eligible: list[DispatchedConsumer],
        run: Run,
        offsets: Sequence[int],
        entry: bytes,
    ) -> None:
        """Deal messages out to the consumers in turn, one at a time."""
        slots = entries.slots_of(entry, run.slot - run.first, offsets)
        self._part_left -= len(slots)
        attempts = None
        if self._progress.pages:
            failures = self._progress.failures
            attempts = [failures(each) + 1 for each in offsets]
        self.counts.handed_out(slots, attempts)
        if self.counts.waits is not None:
            self.counts.waits.add(self._port.log_time_ms() - run.time_ms, len(offsets))
        if len(eligible) == 1:
            self._round_robin += 1
            self._give(eligible[0], offsets, slots, attempts)
            return
        for at, offset in enumerate(offsets):
            # Ends: `_pump_once` took no more messages than all of them have credit for.
            while True:
                self._round_robin += 1
                eligible_one = eligible[self._round_robin % len(eligible)]
                if eligible_one.credit > 0:
                    break
            self._give(
                eligible_one,
                (offset,),
                slots[at : at + 1],
                attempts[at : at + 1] if attempts else None,
            )

    def _give(
        self,
        consumer: DispatchedConsumer,
        offsets: Sequence[int],
        slots: list[bytes],
        attempts: list[int] | None,
    ) -> None:
        consumer.pool.left -= len(offsets)
        if consumer.pending is None:
            consumer.pending = Handed(self.queue.id, list(offsets), slots, attempts)
        else:
            consumer.pending.extend(offsets, slots, attempts)
        if consumer.spec.lease_ms is not None:
            self.leasing_count += len(offsets)
        elif not consumer.spec.auto_ack:
            consumer.held.update(offsets)
            self.held_count += len(offsets)

    def _flush(self) -> None:
        """Give each consumer what this turn brought, in one call."""
        for consumer in list(self.consumers):
            handed = consumer.pending
            if handed is None:
                continue
            consumer.pending = None
            if consumer.ended:
                self.return_handed(consumer, handed)
                continue
            if consumer.spec.lease_ms is not None:
                self._lease(consumer, handed, consumer.spec.lease_ms)
                continue
            if (trace := self.queue.topic.trace) is not None:
                now_ms, place = self._port.log_time_ms(), (self.queue.id, self.group)
                trace.handed_out(consumer, now_ms, *place, handed.offsets)
            if consumer.spec.auto_ack:
                self._propose(_ACK, Reason.REJECTED, handed.offsets, consumer.origin, urgent=False)
            consumer.sink.deliver(consumer, handed)

    def _lease(self, consumer: DispatchedConsumer, handed: Handed, lease_ms: int) -> None:
        """Have the log lease the messages, then deliver those that it leased. `lease_ms` 0: they
        are ready again at once; one that is out of attempts by that, in a moment.
        """
        deadline_ms = self._port.log_time_ms() + max(lease_ms, 1)

        def leased(lease: int, offsets: Sequence[int]) -> None:
            consumer.expecting = False
            self.leasing_count -= len(handed.offsets)
            if len(offsets) < len(handed.offsets):
                self._unlock(set(handed.offsets).difference(offsets))
            handed.keep(set(offsets))
            handed.lease = lease
            ended = [] if lease_ms else self._ended(offsets)
            for offset in offsets:
                if not ended or offset not in ended:
                    self._time.add(offset, deadline_ms)
            self._time.schedule()
            consumer.sink.deliver(consumer, handed)
            if ended:
                self._back(ended)
                self.pump()

        consumer.expecting = True
        sizes = list(map(len, handed.slots))
        self._port.propose_lease(
            self.queue.id,
            self.group,
            deadline_ms,
            handed.offsets,
            sizes,
            leased,
            consumer.who,
            ends=not lease_ms,
        )

    def _ended(self, offsets: Sequence[int]) -> list[int]:
        """Those that no lease or delay keeps from others."""
        holders = ((each, self._progress.holder(each)) for each in offsets)
        return [each for each, holder in holders if holder is None or not holder[2]]

    def tell_when_moved(self, consumer: DispatchedConsumer, tell: Callable[[], None]) -> bool:
        """Have `tell` called after the next turn if something may be on its way to the consumer:
        being leased, read from disk, or waiting for a dispatch mark. Whether so.
        """
        waits_for_mark = consumer.spec.lease_ms is None and self._marks.are_on_their_way
        if not (consumer.expecting or self._halted & ~GATED or waits_for_mark):
            return False
        self._port.tell_when_moved(tell)
        return True

    def fetched(self) -> None:
        """The entry asked for by `Port.fetch` is in memory."""
        with self._scheduler.exempt():  # when its turn comes, the entry may be in memory no more
            self.resume(FETCHES)

    # --- Time and overflow ------------------------------------------------------------------

    def appended(self) -> None:
        """Messages were added, and `Port.may_hand_out` was asked, once for all queues of the turn:
        hand out, then drop what is too old, then what is too much (hot).
        """
        sole_consumer = self._sole_consumer
        if (
            not (sole_consumer.is_limited or self._pumping or self._halted)
            and sole_consumer.pass_on()
        ):
            return
        options = self.queue.topic.options
        if options.bytes_max is not None:
            self.ready.measure()
        self._time.sift_delayed()
        self.pump()
        if options.overflow is Overflow.DROP_OLDEST and self.ready.excess(options):
            for offsets in self.ready.take_excess(options):
                self._propose(Settlement.DEAD_LETTER, Reason.OVERFLOW, offsets, urgent=True)
        if self.queue.index.delays or self._time.may_expire():
            self._time.schedule()

    def woken(self) -> None:
        """The time asked for by `Port.wake` has come."""
        self._time.woken()
        changes = self._time.ended(self.is_last_attempt)
        if changes:
            self._port.propose_change(self.queue.id, self.group, changes, INTERNAL)
        self.pump()
        self._time.schedule()
