"""One Raft group on this node: state machine, the entry being filled, the dispatchers.

The store drives it: `close` gives what clients ask for, `apply` what has become durable, answering
those who waited; `dispatch` hands out messages. Nothing here does I/O.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...api.client import Settlement
from ...api.model import Reason, Route, TopicInfo
from ...api.origins import Origins
from ...broker.delivery.claims import await_claims, claims_over
from ...broker.delivery.delivery_scheduler import DeliveryScheduler
from ...broker.delivery.dispatcher import NO_LEASE, PUT_OFF, Dispatcher
from ...broker.delivery.group_counts import CountsOfGroups, GroupCounts
from ...broker.group_state.length_limits import Limits
from ...broker.group_state.resized import RETIRED
from ...broker.group_state.state import GroupState, QueueState, RouterState, TopicState
from ...broker.group_state.tree_state import TreeEvent, WillsGrew
from ...broker.log_commands import commands
from ...broker.log_commands.resize_commands import Drained, Seal
from ...broker.machine import Machine
from ...broker.observer import Observer, Retention
from ...common.errors import Code, KernelError
from ...common.feature_levels import LATEST
from ...common.ids import QueueId, queue_id, topic_of
from ...common.limits import MARK_RENEW, SETTLE_COUNT
from ...log.format.entry import NOTHING_OPENED
from ...requests.leader import Identity
from .gates import Gates
from .host import ReplicaHost
from .idle_dispatchers import FORGOTTEN, IdleDispatchers, may_forget
from .idle_lists import IdleLists
from .key_lists import KeyLists
from .listener import Relay
from .log_clock import LogClock
from .noted_leases import NotedLease
from .open_entry import Completion, Filled, OpenEntry
from .retention import Trimmer
from .sweeper import Sweeper


class Replica(Observer):
    """One group: follows the log; at its leader it fills entries and hands out messages."""

    def __init__(
        self,
        state: GroupState,
        host: ReplicaHost[Replica],
        relay: Relay[Replica],
        retention: Retention,
        clock: LogClock,
        understands: int = LATEST,
    ) -> None:
        self.group = state.group
        self.state = state
        self.defined = int(state.applied)
        """Index of the last entry that has changed a definition, as far as it is known: who is told
        of definitions alone comes so far."""
        self.machine = Machine(state, retention, self, understands)
        self.open = OpenEntry()
        self.leading = False
        self.may_stamp = True
        """Log time is known: what was asked for may become entries."""
        self.serving = False
        """It leads, and what was handed out before its term has been taken back: only then may
        anybody look at what is ready, or messages would be ready twice."""
        self.times_served = 0
        """How often it has become `serving`."""
        self.awaits_claims = False
        """What the last leader's consumers hold may still be claimed: queues of which they may hold
        anything hand out nothing until `claims_over`."""
        self._host = host
        self._relay = relay
        self.clock = clock
        self.newest = NOTHING_OPENED
        """The entry applied last, until the turn of the dispatchers is over."""
        self._entry_index = 0
        """The log entry asked for last in this turn, or 0."""
        self._entry: bytes | None = None
        self._waiting_for_move: list[Callable[[], None]] = []
        self._dispatchers: dict[tuple[QueueId, str], Dispatcher] = {}
        self._by_queue: dict[QueueId, list[Dispatcher]] = {}
        self._waiting: dict[int, list[Completion | None]] = {}
        self._appended: dict[QueueId, list[Dispatcher]] = {}
        self._filled: dict[QueueId, None] = {}
        """Lists that have got a message while somebody waits for it in `idle_lists`."""
        self._released: list[tuple[Dispatcher, list[int]]] = []
        self._settled: list[tuple[Dispatcher, Sequence[tuple[int, int]]]] = []
        self._pump: dict[Dispatcher, None] = {}
        self._sealing: set[QueueId] = set()
        """Queues whose SEAL is on its way into the log, or was in this term."""
        self.idle_lists = IdleLists()
        self._holds_lease = True
        self.leased_until_ms = math.inf
        """By the monotonic clock, set with each tick: a process that was held up hands nothing out
        before it knows how long. Infinite: there is no other voter."""
        self.counts = CountsOfGroups(self._is_dispatched, self._tenant_of)
        self._idle = IdleDispatchers()
        self.key_lists = KeyLists(state, clock.now_ms, clock.monotonic_ms)
        self._rest()
        self._changed: list[tuple[Dispatcher, Sequence[tuple[int, int]]]] = []
        self._leased: list[tuple[Callable[[int, Sequence[int]], None], int, Sequence[int]]] = []

    def takes_nothing(self, queue: QueueId) -> bool:
        """Whether a queue is sealed, or gone, where what is asked for now will stand in the log."""
        return queue in self._sealing or self.state.takes_nothing(queue)

    # --- Leading ----------------------------------------------------------------------------

    def lead(self, *, alone: bool) -> bool:
        """An election was won. False: wait for `stamps` (see `LogClock.start_at`)."""
        self.leading = True
        self._sealing.clear()
        self.may_stamp = self.clock.start_at(self.state.time_ms, alone=alone)
        return self.may_stamp

    def holds_lease(self, holds: bool) -> None:
        """Whether nobody else can lead by now: only then may messages be handed out. Another leader
        may have done so already, and its consumers may have acked them.
        """
        if holds is self._holds_lease:
            return
        self._holds_lease = holds
        for each in list(self._dispatchers.values()):
            if holds:
                each.resume(NO_LEASE)
            else:
                each.halt(NO_LEASE)

    def may_hand_out(self) -> bool:
        """Whether the lease has been looked at lately (hot: a lone voter asks no clock)."""
        until_ms = self.leased_until_ms
        if until_ms < math.inf and self.clock.monotonic_ms() > until_ms:
            self.holds_lease(False)
        return self._holds_lease

    def stamps(self, ahead_ms: int | None) -> None:
        """Entries may be stamped: with the time agreed on (`LogClock.agree`), or the log's."""
        if ahead_ms is not None:
            self.clock.agree(ahead_ms)
        self.may_stamp = True
        self._host.dirty(self, urgent=True)

    def follow(self, unknown: KernelError, refused: KernelError) -> None:
        """It leads no more: those whose batches are in the log hear `unknown`, those whose are not
        hear `refused`, as do consumers. What these hold returns when the next leader begins.
        """
        self.leading = self.serving = self.awaits_claims = False
        self._holds_lease = True
        waiting, self._waiting = self._waiting, {}
        dispatchers, self._dispatchers = self._dispatchers, {}
        self._by_queue, self._appended, self._pump, self._filled = {}, {}, {}, {}
        self._idle = IdleDispatchers()
        self._released, self._settled, self._changed, self._leased = [], [], [], []
        self.idle_lists = IdleLists()
        self.key_lists.follow(unknown)
        self._rest()
        for dones in waiting.values():
            _tell(dones, unknown)
        self.refuse(refused)
        for dispatcher in dispatchers.values():
            dispatcher.end(refused)
        self._moved()

    def _rest(self) -> None:
        """Whoever leads next looks after the queues: those who do begin anew then."""
        self.trimmer = Trimmer(self.state.queues.peek, self.clock.now_ms, self._propose_trim)
        self.sweeper = Sweeper(self.state.queues.get, self._propose_sweep)
        self.limits = Limits()
        self.noted: Sequence[NotedLease] = ()
        self.gates = Gates(self.state, self.clock.now_ms, self._has_ready, self._propose_drained)

    # --- Proposing --------------------------------------------------------------------------

    def refuse(self, error: KernelError) -> None:
        """Nothing of what was asked for is proposed."""
        _tell(self.open.abandon(), error)

    def close(self) -> list[Filled]:
        """What is to be proposed now, as entries."""
        return self.open.take(self.clock.now_ms())

    def proposed(self, index: int, filled: Filled) -> None:
        """`filled` has become entry `index` of the log."""
        self._waiting[index] = filled.waiting

    def apply(self, index: int, term: int, body: bytes) -> None:
        """Apply a committed entry and answer those who waited for its batches. Raises
        NotUnderstood: nobody has been answered.
        """
        results = self.machine.apply(index, term, body)  # type: ignore[arg-type]
        self.state.queues.pack_idle(self._by_queue.__contains__)
        self.newest = self.machine.opened
        waiting = self._waiting.pop(index, None)
        if waiting is not None:
            for done, result in zip(waiting, results, strict=True):
                if done is not None:
                    done(result)

    def dispatch(self) -> None:
        """Hand out what the entries applied in this turn made ready."""
        # First, and before anything is handed out: an ack that came late has been applied, and its
        # message, which was ready again, is no more.
        changed, self._changed = self._changed, []
        for dispatcher, ended in changed:
            dispatcher.changed(ended)
        released, self._released = self._released, []
        for dispatcher, offsets in released:
            dispatcher.released(offsets)
        settled, self._settled = self._settled, []
        for dispatcher, ranges in settled:
            dispatcher.settled(ranges)
        appended, self._appended = self._appended, {}
        self._fill(appended)
        if appended:
            self.may_hand_out()
        for dispatchers in appended.values():
            for dispatcher in dispatchers:
                dispatcher.appended()
        for dispatcher, _ended in changed:
            dispatcher.pump()
        leased, self._leased = self._leased, []
        for done, lease, got in leased:
            done(lease, got)
        pump, self._pump = self._pump, {}
        for dispatcher in pump:
            dispatcher.pump()
        if self.gates.is_busy:
            self.gates.look()
        if self.key_lists.is_busy:
            self.key_lists.look()
        self._entry_index, self._entry = 0, None
        self.newest = NOTHING_OPENED
        self._moved()

    def _fill(self, appended: dict[QueueId, list[Dispatcher]]) -> None:
        """Tell who waits for the lists that have got a message: now they have dispatchers."""
        filled, self._filled = self._filled, {}
        for ident in filled:
            self.idle_lists.filled(ident)
            if ident in self._by_queue:
                appended[ident] = self._by_queue[ident]

    def _moved(self) -> None:
        """Dispatchers have had their turn: tell those who wait for one that was under way."""
        if self._waiting_for_move:
            waiting, self._waiting_for_move = self._waiting_for_move, []
            for tell in waiting:
                tell()

    def tell_when_moved(self, tell: Callable[[], None]) -> None:
        """Call `tell` once after the next turn of this group's dispatchers."""
        self._waiting_for_move.append(tell)

    # --- Dispatchers ------------------------------------------------------------------------

    def dispatcher(self, ident: QueueId, group: str) -> Dispatcher:
        """Dispatcher of a queue's group. Raises KernelError NOT_FOUND, NOT_LEADER."""
        found = self._dispatchers.get((ident, group))
        if found is not None:
            return found
        if not self.serving:
            raise KernelError(Code.NOT_LEADER, "this node does not serve the group")
        queue = self.state.queues.get(ident)
        if queue is None or group not in queue.groups:
            raise self._gone(ident, f"no group {group} on this topic")
        found = Dispatcher(queue, group, self)
        if self.awaits_claims:
            await_claims(found)
        if not self._holds_lease:
            found.halt(NO_LEASE)
        self._dispatchers[ident, group] = found
        self._by_queue.setdefault(ident, []).append(found)
        self._idle.note(found)
        if self.state.resized:
            self.gates.begun(found)
        return found

    def is_retired(self, ident: QueueId) -> bool:
        """Whether a queue was sealed and is gone, while its topic has others."""
        return ident not in self.state.queues and self.state.takes_nothing(ident)

    def _gone(self, ident: QueueId, text: str) -> KernelError:
        """What is said of a queue that is not there, or of which a group is not."""
        return RETIRED if self.is_retired(ident) else KernelError(Code.NOT_FOUND, text)

    def _is_dispatched(self, key: tuple[QueueId, str]) -> bool:
        return key in self._dispatchers

    def _tenant_of(self, queue: QueueId) -> str | None:
        topic = self.state.topics.get(topic_of(queue))
        return None if topic is None else topic.tenant

    def known_dispatcher(self, queue: QueueId, group: str) -> Dispatcher | None:
        """Dispatcher of a queue's group, if anybody has asked for it."""
        return self._dispatchers.get((queue, group))

    def dispatchers_of(self, queue: QueueId) -> Sequence[Dispatcher]:
        """Dispatchers of a queue's groups, as far as anybody has asked for them."""
        return self._by_queue.get(queue, ())

    def has_consumer(self, queue: QueueId, group: str) -> bool:
        """Whether anybody consumes from a group now, pulls aside."""
        dispatcher = self._dispatchers.get((queue, group))
        return dispatcher is not None and dispatcher.consumer_count > 0

    def watch(self) -> None:
        """Begin to look after messages that need it without consumers: the term is on its way."""
        self.clock.reach(self.state.time_ms)
        self.serving = True
        self.times_served += 1
        self.awaits_claims = self._host.awaits_claims
        queues = self.state.queues
        for queue in queues.live.values():
            self._watch_queue(queue)
            if queue.index.long:
                self.sweeper.watch(queue)
        for ident in queues:
            topic = self.state.topics[topic_of(ident)]
            self.trimmer.watch(ident, topic.options)
            self.limits.watch(ident, topic)
        self.trimmer.look()

    def claims_over(self) -> None:
        """Nobody claims any more."""
        if self.awaits_claims:
            self.awaits_claims = False
            for dispatcher in list(self._dispatchers.values()):
                claims_over(dispatcher)

    def when_applied(self, done: Completion) -> None:
        """Call `done` once everything that was asked for up to now is applied: with a KernelError
        if it has not been, and nobody knows whether it will.
        """
        if self.open.empty and not self._waiting:
            done(None)
        else:
            self.open.wait(done)
            self._host.dirty(self, urgent=False)

    def _watch_queue(self, queue: QueueState) -> None:
        for group, progress in queue.groups.items():
            if queue.needs_watching or progress.leased or progress.hidden:
                self.dispatcher(queue.id, group).appended()

    def has_nothing_for(self, ident: QueueId, group: str) -> bool:
        """Whether a group of a reference list has nothing to be handed out, nor is about to: its
        consumers can wait in `idle_lists`. Raises KernelError NOT_FOUND.
        """
        known = self._dispatchers.get((ident, group))
        if known is not None and (known.consumers or known.held_count):
            return False
        queue = self.state.queues.get(ident)
        progress = queue.groups.get(group) if queue is not None else None
        if queue is None or progress is None:
            raise KernelError(Code.NOT_FOUND, f"no group {group} on this topic")
        tail = queue.index.tail
        return progress.floor == tail and progress.mark() >= tail + MARK_RENEW

    def is_consumed(self, queue: QueueId, group: str) -> bool:
        """Whether anybody consumes for a group, waits for its messages or holds some."""
        dispatcher = self._dispatchers.get((queue, group))
        return dispatcher is not None and dispatcher.is_used

    def forget_idle(self) -> None:
        """Forget dispatchers that nobody consumes from, once what they settled is applied. Asked
        each second.
        """
        if self.gates.is_busy:
            self.gates.look_at_all()
        if self.key_lists.is_busy:
            self.key_lists.look_at_all()
        if idle := self._idle.look():
            self.when_applied(lambda _: self._forget(idle))

    def _forget(self, idle: Sequence[Dispatcher]) -> None:
        """What these dispatchers settled is applied: forget them, but for those that have, or had
        meanwhile, a consumer again.
        """
        shrunk: dict[QueueId, set[Dispatcher]] = {}
        for each in idle:
            key = (each.queue.id, each.group)
            if each in self._idle or not may_forget(each) or self._dispatchers.get(key) is not each:
                continue
            del self._dispatchers[key]
            each.end(FORGOTTEN)
            self.gates.ended(each)
            shrunk.setdefault(each.queue.id, set()).add(each)
        for ident, gone in shrunk.items():
            dispatchers = self._by_queue[ident]
            dispatchers[:] = [each for each in dispatchers if each not in gone]
            if not dispatchers:
                del self._by_queue[ident]
                self._appended.pop(ident, None)

    # --- dispatcher.Port --------------------------------------------------------------------

    @property
    def origins(self) -> Origins:
        """Readers of native blocks."""
        return self._host.origins

    @property
    def scheduler(self) -> DeliveryScheduler:
        """How much may be handed out at once."""
        return self._host.scheduler

    def put_off(self, dispatcher: Dispatcher) -> None:
        """Have it go on when it is its turn among all that wait for one."""
        key = dispatcher.queue.id, dispatcher.group

        def turn() -> None:
            if self._dispatchers.get(key) is dispatcher:
                dispatcher.resume(PUT_OFF)
                self._moved()

        self.scheduler.put_off(dispatcher.queue.topic.tenant, turn)

    def counts_of(self, queue: QueueId, group: str) -> GroupCounts:
        """Where it is counted what a group is handed."""
        return self.counts.of(queue, group)

    def entry(self, index: int) -> bytes | None:
        """A log entry, if it is in memory (hot: the queues of one turn mostly ask for the same)."""
        if index == self._entry_index:
            return self._entry
        entry = self._host.entry(self.group, index)
        if entry is not None:
            self._entry_index, self._entry = index, entry
        return entry

    def fetch(self, index: int, dispatcher: Dispatcher) -> None:
        """Read a log entry, then pump."""

        def fetched() -> None:
            dispatcher.fetched()
            self._moved()

        self._host.fetch(self.group, index, fetched)

    def propose_settle(
        self,
        queue: QueueId,
        group: str,
        how: Settlement,
        reason: Reason,
        offsets: Sequence[int],
        origin: int,
        *,
        urgent: bool,
    ) -> None:
        """Put a settlement into the open entry (hot)."""
        self.open.add_settled(queue, group, how, reason, offsets, origin)
        self._host.dirty(self, urgent=urgent or self.open.settled_count >= SETTLE_COUNT)

    def propose_acks(
        self, queue: QueueId, group: str, offsets: list[int], origin: int, *, urgent: bool
    ) -> None:
        """Put acks into the open entry (hot)."""
        before = self.open.settled_count
        self.open.add_acked(queue, group, offsets, origin)
        urgent = urgent or self.open.settled_count >= SETTLE_COUNT > before
        if urgent or not before:
            self._host.dirty(self, urgent=urgent)

    def propose_lease(
        self,
        queue: QueueId,
        group: str,
        deadline_ms: int,
        offsets: Sequence[int],
        slot_sizes: Sequence[int],
        done: Callable[[int, Sequence[int]], None],
        who: tuple[int, int],
        *,
        ends: bool,
    ) -> None:
        """Put timed leases into the open entry."""

        def leased(result: object) -> None:
            offsets = result[0] if isinstance(result, tuple) else []
            self._leased.append((done, self.state.applied, offsets))

        self.open.add_lease(queue, group, deadline_ms, offsets, slot_sizes, leased, who, ends=ends)
        self._host.dirty(self, urgent=True)

    def propose_change(
        self, queue: QueueId, group: str, changes: Sequence[commands.Change], origin: int
    ) -> None:
        """Put changes of timed leases into the open entry."""
        self.change(queue, group, changes, (0, 0, 0), None, origin)

    def change(
        self,
        queue: QueueId,
        group: str,
        changes: Sequence[commands.Change],
        identity: tuple[int, int, int],
        done: Completion | None,
        origin: int,
    ) -> None:
        """Put changes of timed leases into the open entry."""
        self.open.add_changes(identity, queue, group, changes, done, origin)
        self._host.dirty(self, urgent=True)

    def propose_mark(self, queue: QueueId, group: str, level: int, offset: int) -> None:
        """Put a dispatch mark into the open entry."""
        self.open.add_mark(queue, group, level, offset)
        self._host.dirty(self, urgent=True)

    def propose(
        self, change: commands.Control, identity: Identity, done: Completion | None
    ) -> None:
        """Put an administrative command into the open entry."""
        self.propose_all((change,), identity, done)

    def propose_all(
        self,
        changes: Sequence[commands.Control],
        identity: tuple[int, int, int],
        done: Completion | None,
    ) -> None:
        """Put several into the open entry, as one batch."""
        for each in changes:
            if isinstance(each, Seal):
                self._sealing.update(queue_id(each.topic, number) for number in each.queues)
        self.open.add_controls(changes, identity, done)
        self._host.dirty(self, urgent=True)

    def log_time_ms(self) -> int:
        """Log time now."""
        return self.clock.now_ms()

    def wake(self, dispatcher: Dispatcher, delay_ms: int) -> Callable[[], None]:
        """Call `dispatcher.woken` after so long."""
        return self._host.call_later(delay_ms, dispatcher.woken).cancel

    def _propose_trim(self, command: commands.Trim, done: Completion) -> None:
        self.propose(command, (0, 0, 0), done)

    def _propose_drained(self, command: Drained, done: Completion) -> None:
        self.propose(command, (0, 0, 0), done)

    def _has_ready(self, queue: QueueId, group: str) -> bool:
        return not self.serving or self.dispatcher(queue, group).ready_count > 0

    def _propose_sweep(self, command: commands.Sweep, done: Callable[[], None]) -> None:
        self.propose(command, (0, 0, 0), lambda _result: self.tell_when_moved(done))

    def unused(self, dispatcher: Dispatcher) -> None:
        """The last push consumer of a queue's group has gone."""
        if dispatcher.queue.pending_acks is None:
            self._relay.unused(dispatcher.queue)

    def idle(self, dispatcher: Dispatcher) -> None:
        """Nobody takes from a queue's group any more."""
        self._idle.note(dispatcher)

    # --- machine.Observer -------------------------------------------------------------------

    def appended(self, queue: QueueState) -> None:
        """Messages were added."""
        if queue.index.long:
            self.sweeper.watch(queue)
        if queue.index.aged:
            self.trimmer.watch(queue.id, queue.topic.options)
        if queue.pending_acks is not None and queue.id in self.idle_lists:
            self._filled[queue.id] = None
        dispatchers = self._by_queue.get(queue.id)
        if dispatchers is not None:
            self._appended[queue.id] = dispatchers
        elif self.serving and queue.needs_watching and queue.groups:
            for group in queue.groups:
                self.dispatcher(queue.id, group)
            self._appended[queue.id] = self._by_queue[queue.id]

    def released(self, queue: QueueState, group: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Messages are ready again."""
        dispatcher = self._dispatchers.get((queue.id, group))
        if dispatcher is not None:
            offsets = [each for first, count in ranges for each in range(first, first + count)]
            self._released.append((dispatcher, offsets))

    def changed(self, queue: QueueState, group: str, ended: Sequence[tuple[int, int]]) -> None:
        """Timed leases changed."""
        if self.gates.is_busy or self.key_lists.is_busy:
            self._is_settled(queue.id, group, [each for each, until in ended if until < 0])
        dispatcher = self._dispatchers.get((queue.id, group))
        if dispatcher is not None:
            self._changed.append((dispatcher, ended))

    def settled(self, queue: QueueState, group: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Messages of an ordered group are done with: their keys may be free."""
        if self.gates.is_busy or self.key_lists.is_busy:
            for first, count in ranges:
                self._is_settled(queue.id, group, range(first, first + count))
        dispatcher = self._dispatchers.get((queue.id, group))
        if dispatcher is not None:
            self._settled.append((dispatcher, ranges))

    def _is_settled(self, queue: QueueId, group: str, offsets: Sequence[int]) -> None:
        """Tell those whose successors may wait for it."""
        self.gates.settled(queue, group, offsets)
        self.key_lists.settled(queue, group, offsets)

    def given_up(
        self, queue: QueueState, group: str, reason: Reason, messages: int, *, dead_lettered: bool
    ) -> None:
        """Messages left a group unacked."""
        if self.leading and messages:
            counts = self.counts.of(queue.id, group)
            counts.given_up(reason, messages, dead_lettered=dead_lettered)

    def marked(self, queue: QueueState, group: str) -> None:
        """The dispatch mark moved ahead."""
        dispatcher = self._dispatchers.get((queue.id, group))
        if dispatcher is not None:
            self._pump[dispatcher] = None

    def purged(self, queue: QueueState, group: str) -> None:
        """Everything ready was dropped."""
        if self.gates.is_busy:
            self.gates.purged(queue, group)
        if self.key_lists.is_busy:
            self.key_lists.purged(queue, group)
        dispatcher = self._dispatchers.get((queue.id, group))
        if dispatcher is not None:
            dispatcher.purged()
            self._pump[dispatcher] = None

    def sought(self, queue: QueueState, group: str) -> None:
        """A group goes on from another offset: whoever asks next begins there."""
        self._end_dispatcher(queue, group, KernelError(Code.BUSY, "the group's offset was set"))

    def group_removed(self, queue: QueueState, group: str) -> None:
        """A group is gone from a queue: end its consumers."""
        self.counts.drop(queue.topic.tenant, queue.id, (group,))
        gone = KernelError(Code.NOT_FOUND, f"group {group} was removed")
        self._end_dispatcher(queue, group, gone)

    def _end_dispatcher(self, queue: QueueState, group: str, error: KernelError) -> None:
        self.key_lists.drop(queue.id, group)
        dispatcher = self._dispatchers.pop((queue.id, group), None)
        if dispatcher is not None:
            self._idle.remove(dispatcher)
            self._by_queue[queue.id].remove(dispatcher)
            self.gates.ended(dispatcher)
            dispatcher.end(error)

    def queues_changed(self, topic: TopicState) -> None:
        """Settings changed: messages may be too many or too old now."""
        if self.gates.is_busy:
            self.gates.topic_changed(topic.id)
        for ref in topic.refs:
            if ref.id in self.state.queues:
                self.trimmer.watch(ref.id, topic.options)
                self.limits.watch(ref.id, topic)
            for dispatcher in self._by_queue.get(ref.id, ()):
                dispatcher.options_changed()
                self._appended[ref.id] = self._by_queue[ref.id]
                self._pump[dispatcher] = None

    def drained(self, queue: QueueState, group: str) -> None:
        """A successor waits for one less."""
        self.gates.drained(queue.id, group)

    def queues_removed(self, queues: Sequence[QueueState]) -> None:
        """Queues are gone: end their consumers."""
        self.counts.queues_removed(queues)
        for queue in queues:
            self.trimmer.forget(queue.id)
            self.limits.forget(queue.id)
            self.idle_lists.drop(queue.id)
            self._appended.pop(queue.id, None)
            self._filled.pop(queue.id, None)
            for dispatcher in self._by_queue.pop(queue.id, ()):
                del self._dispatchers[queue.id, dispatcher.group]
                self._idle.remove(dispatcher)
                self.gates.ended(dispatcher)
                dispatcher.end(self._gone(queue.id, f"topic {queue.topic.name} was deleted"))

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """A definition changed."""
        self.defined = self.state.applied
        self._relay.topic_changed(topic, removed=removed)

    def router_changed(self, router: RouterState, *, removed: bool) -> None:
        """A router changed."""
        self.defined = self.state.applied
        self._relay.router_changed(router, self.group, removed=removed)

    def route_changed(self, router: RouterState, route: Route, *, removed: bool) -> None:
        """A route came or went."""
        self.defined = self.state.applied
        self._relay.route_changed(router, route, removed=removed)

    def outbox_grew(self) -> None:
        """There are dead letters to send."""
        self._relay.outbox_grew(self)

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """A metadata record changed."""
        self.defined = self.state.applied
        self._relay.record_changed(key, record)

    def tree_changed(self, event: TreeEvent) -> None:
        """Something of the topic tree changed."""
        if not isinstance(event, WillsGrew):
            self.defined = self.state.applied
        self._relay.tree_changed(self, event)


def _tell(waiting: Sequence[Completion | None], error: KernelError) -> None:
    for done in waiting:
        if done is not None:
            done(error)
