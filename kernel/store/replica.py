"""One Raft group on this node: core, state machine, the entry being filled, the dispatchers.

The store drives it: `fill` is what clients ask for, `close` proposes it, `commit` applies what has
become durable, answers those who waited and hands out messages. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..broker import commands
from ..broker.dispatcher import Dispatcher
from ..broker.machine import Machine
from ..broker.observer import Observer, Retention
from ..broker.sizes import SizeWindow
from ..broker.state import GroupState, QueueState, RouterState, TopicState
from ..broker.tree_state import TreeEvent
from ..client import LeaseVerb, Settlement
from ..errors import Code, KernelError
from ..ids import Offset, QueueId, RaftGroup
from ..leader import Identity
from ..limits import SETTLE_COUNT
from ..model import Reason, Route, TopicInfo, TopicKind
from ..origins import INTERNAL, Origins
from .listener import Relay
from .log_clock import LogClock
from .open_entry import Completion, Filled, OpenEntry


class Host(Protocol):
    """What a replica asks of the store it lives in."""

    origins: Origins

    def entry(self, group: RaftGroup, index: int) -> bytes | None:
        """A log entry, if it is in memory."""

    def fetch(self, group: RaftGroup, index: int, done: Callable[[], None]) -> None:
        """Read a log entry into memory, then call `done`."""

    def dirty(self, replica: Replica, *, urgent: bool) -> None:
        """The replica has something to propose: at the next commit, or within 5 ms."""

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call `action` after so long."""


class Replica(Observer):
    """One group: follows the log; at its leader it fills entries and hands out messages."""

    def __init__(
        self,
        state: GroupState,
        host: Host,
        relay: Relay,
        retention: Retention,
        clock: LogClock,
    ) -> None:
        self.group = state.group
        self.state = state
        self.machine = Machine(state, retention, self)
        self.open = OpenEntry()
        self.leading = False
        self.serving = False
        """It leads, and what was handed out before its term has been taken back: only then may
        anybody look at what is ready, or messages would be ready twice."""
        self._host = host
        self._relay = relay
        self._clock = clock
        self._entry_index = 0
        """The log entry asked for last in this turn, or 0."""
        self._entry: bytes | None = None
        self._waiting_for_move: list[Callable[[], None]] = []
        self._dispatchers: dict[tuple[QueueId, str], Dispatcher] = {}
        self._by_queue: dict[QueueId, list[Dispatcher]] = {}
        self._waiting: dict[int, list[Completion | None]] = {}
        self._appended: dict[QueueId, None] = {}
        self._released: list[tuple[Dispatcher, list[int]]] = []
        self._settled: list[tuple[Dispatcher, Sequence[tuple[int, int]]]] = []
        self._pump: dict[Dispatcher, None] = {}
        self._idle_indexes: dict[QueueId, None] = {}
        """Reference lists of the topic tree that have lost a consumer."""
        self._streams: dict[QueueId, None] = {}
        """Queues of stream topics, for retention."""
        self._windows: dict[QueueId, SizeWindow] = {}
        self._changed: list[tuple[Dispatcher, Sequence[tuple[int, int]]]] = []
        self._leased: list[tuple[Callable[[int, Sequence[int]], None], int, Sequence[int]]] = []

    # --- Leading ----------------------------------------------------------------------------

    def lead(self) -> None:
        """An election was won."""
        self.leading = True
        self._clock.start_at(self.state.time_ms)

    def follow(self, unknown: KernelError, refused: KernelError) -> None:
        """It leads no more: those whose batches are in the log hear `unknown`, those whose are not
        hear `refused`, as do consumers. What these hold returns when the next leader begins.
        """
        self.leading = self.serving = False
        waiting, self._waiting = self._waiting, {}
        dispatchers, self._dispatchers = self._dispatchers, {}
        for each in (self._by_queue, self._appended, self._pump, self._streams, self._windows):
            each.clear()
        self._released, self._settled, self._changed, self._leased = [], [], [], []
        self._idle_indexes = {}
        for dones in waiting.values():
            _tell(dones, unknown)
        self.refuse(refused)
        for dispatcher in dispatchers.values():
            dispatcher.end(refused)
        self._moved()

    # --- Proposing --------------------------------------------------------------------------

    def refuse(self, error: KernelError) -> None:
        """Nothing of what was asked for is proposed."""
        _tell(self.open.abandon(), error)

    def close(self) -> list[Filled]:
        """What is to be proposed now, as entries."""
        return self.open.take(self._clock.now_ms())

    def proposed(self, index: int, filled: Filled) -> None:
        """`filled` has become entry `index` of the log."""
        self._waiting[index] = filled.waiting

    def apply(self, index: int, term: int, body: bytes) -> None:
        """Apply a committed entry and answer those who waited for its batches."""
        results = self.machine.apply(index, term, body)  # type: ignore[arg-type]
        waiting = self._waiting.pop(index, None)
        if waiting is not None:
            for done, result in zip(waiting, results, strict=True):
                if done is not None:
                    done(result)

    def dispatch(self) -> None:
        """Hand out what the entries applied in this turn made ready."""
        released, self._released = self._released, []
        for dispatcher, offsets in released:
            dispatcher.released(offsets)
        settled, self._settled = self._settled, []
        for dispatcher, ranges in settled:
            dispatcher.settled(ranges)
        appended, self._appended = self._appended, {}
        for ident in appended:
            for dispatcher in self._by_queue.get(ident, ()):
                dispatcher.appended()
        changed, self._changed = self._changed, []
        for dispatcher, ended in changed:
            dispatcher.changed(ended)
        leased, self._leased = self._leased, []
        for done, lease, got in leased:
            done(lease, got)
        pump, self._pump = self._pump, {}
        for dispatcher in pump:
            dispatcher.pump()
        self._entry_index, self._entry = 0, None
        self._moved()

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
            raise KernelError(Code.NOT_FOUND, f"no group {group} on this topic")
        found = Dispatcher(queue, group, self)
        self._dispatchers[ident, group] = found
        self._by_queue.setdefault(ident, []).append(found)
        return found

    def dispatchers_of(self, queue: QueueId) -> Sequence[Dispatcher]:
        """Dispatchers of a queue's groups, as far as anybody has asked for them."""
        return self._by_queue.get(queue, ())

    def watch(self) -> None:
        """Start dispatchers of queues whose messages must be looked after without consumers:
        those with a TTL or a limit. For a new leader, once its term's first entry is applied.
        """
        self.serving = True
        for queue in self.state.queues.values():
            self._watch_queue(queue)
            if queue.topic.options.kind is TopicKind.STREAM:
                self._streams[queue.id] = None

    def _watch_queue(self, queue: QueueState) -> None:
        for group, progress in queue.groups.items():
            if _needs_watching(queue) or progress.leased or progress.hidden:
                self.dispatcher(queue.id, group).appended()

    def retain_streams(self) -> None:
        """Propose to let go of what a stream's retention no longer covers; asked each second."""
        now = self._clock.now_ms()
        for ident in self._streams:
            queue = self.state.queues[ident]
            options = queue.topic.options
            end: int = queue.trimmed
            if options.retention_ms is not None:
                end = max(end, queue.index.first_since(now - options.retention_ms))
            if options.retention_bytes is not None:
                window = self._windows.get(ident)
                if window is None:
                    window = self._windows[ident] = SizeWindow(queue.index, end)
                end = max(end, window.first_within(options.retention_bytes))
            if end > queue.trimmed:
                self.propose(commands.Trim(ident, Offset(end)), (0, 0, 0), None)

    def forget_idle(self) -> None:
        """Forget the dispatchers of reference lists that nobody consumes, once what they settled
        is applied: ten thousand subscribers that are away must cost nothing. Asked each second.
        """
        if not self._idle_indexes or not self.open.empty or self._waiting:
            return
        idle, self._idle_indexes = self._idle_indexes, {}
        for ident in idle:
            for dispatcher in list(self._by_queue.get(ident, ())):
                if not dispatcher.consumers and not dispatcher.held_count:
                    self._by_queue[ident].remove(dispatcher)
                    del self._dispatchers[ident, dispatcher.group]
                elif dispatcher.held_count:
                    self._idle_indexes[ident] = None

    # --- dispatcher.Port --------------------------------------------------------------------

    @property
    def origins(self) -> Origins:
        """Readers of native blocks."""
        return self._host.origins

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
        self, queue: QueueId, group: str, offsets: Sequence[int], origin: int, *, urgent: bool
    ) -> None:
        """Put acks into the open entry (hot)."""
        self.open.add_acked(queue, group, offsets, origin)
        self._host.dirty(self, urgent=urgent or self.open.settled_count >= SETTLE_COUNT)

    def propose_lease(
        self,
        queue: QueueId,
        group: str,
        deadline_ms: int,
        offsets: Sequence[int],
        slot_sizes: Sequence[int],
        done: Callable[[int, Sequence[int]], None],
        origin: int,
    ) -> None:
        """Put timed leases into the open entry."""

        def leased(result: object) -> None:
            offsets = result[0] if isinstance(result, tuple) else []
            self._leased.append((done, self.state.applied, offsets))

        self.open.add_lease(queue, group, deadline_ms, offsets, slot_sizes, leased, origin)
        self._host.dirty(self, urgent=True)

    def propose_change(
        self, queue: QueueId, group: str, changes: Sequence[tuple[int, int, LeaseVerb, Reason, int]]
    ) -> None:
        """Put changes of timed leases into the open entry."""
        self.change(queue, group, changes, (0, 0, 0), None, INTERNAL)

    def change(
        self,
        queue: QueueId,
        group: str,
        changes: Sequence[tuple[int, int, LeaseVerb, Reason, int]],
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
        self.open.add_control(change, identity, done)
        self._host.dirty(self, urgent=True)

    def log_time_ms(self) -> int:
        """Log time now."""
        return self._clock.now_ms()

    def wake(self, dispatcher: Dispatcher, delay_ms: int) -> None:
        """Call `dispatcher.woken` after so long."""
        self._host.call_later(delay_ms, dispatcher.woken)

    def unused(self, queue: QueueState) -> None:
        """The last consumer of a queue has gone."""
        if queue.owed is not None:
            self._idle_indexes[queue.id] = None
        else:
            self._relay.unused(queue)

    # --- machine.Observer -------------------------------------------------------------------

    def appended(self, queue: QueueState) -> None:
        """Messages were added."""
        if queue.id in self._by_queue:
            self._appended[queue.id] = None
        elif self.serving and _needs_watching(queue):
            for group in queue.groups:
                self.dispatcher(queue.id, group)
            self._appended[queue.id] = None

    def released(self, queue: QueueState, group: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Messages are ready again."""
        dispatcher = self._dispatchers.get((queue.id, group))
        if dispatcher is not None:
            offsets = [each for first, count in ranges for each in range(first, first + count)]
            self._released.append((dispatcher, offsets))

    def changed(self, queue: QueueState, group: str, ended: Sequence[tuple[int, int]]) -> None:
        """Timed leases changed."""
        dispatcher = self._dispatchers.get((queue.id, group))
        if dispatcher is not None:
            self._changed.append((dispatcher, ended))

    def settled(self, queue: QueueState, group: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Messages of an ordered group are done with: their keys may be free."""
        dispatcher = self._dispatchers.get((queue.id, group))
        if dispatcher is not None:
            self._settled.append((dispatcher, ranges))

    def marked(self, queue: QueueState, group: str) -> None:
        """The dispatch mark moved ahead."""
        dispatcher = self._dispatchers.get((queue.id, group))
        if dispatcher is not None:
            self._pump[dispatcher] = None

    def purged(self, queue: QueueState, group: str) -> None:
        """Everything ready was dropped."""
        dispatcher = self._dispatchers.get((queue.id, group))
        if dispatcher is not None:
            dispatcher.purged()

    def group_removed(self, queue: QueueState, group: str) -> None:
        """A group is gone from a queue: end its consumers."""
        dispatcher = self._dispatchers.pop((queue.id, group), None)
        if dispatcher is not None:
            self._by_queue[queue.id].remove(dispatcher)
            dispatcher.end(KernelError(Code.NOT_FOUND, f"group {group} was removed"))

    def queues_changed(self, topic: TopicState) -> None:
        """Settings changed: messages may be too many or too old now."""
        for ref in topic.refs:
            if topic.options.kind is TopicKind.STREAM and ref.id in self.state.queues:
                self._streams[ref.id] = None
            for dispatcher in self._by_queue.get(ref.id, ()):
                self._appended[ref.id] = None
                self._pump[dispatcher] = None

    def queues_removed(self, queues: Sequence[QueueState]) -> None:
        """Queues are gone: end their consumers."""
        for queue in queues:
            self._streams.pop(queue.id, None)
            self._windows.pop(queue.id, None)
            for dispatcher in self._by_queue.pop(queue.id, ()):
                del self._dispatchers[queue.id, dispatcher.group]
                name = queue.topic.name
                dispatcher.end(KernelError(Code.NOT_FOUND, f"topic {name} was deleted"))

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """A definition changed."""
        self._relay.topic_changed(topic, removed=removed)

    def router_changed(self, router: RouterState, *, removed: bool) -> None:
        """A router changed."""
        self._relay.router_changed(router, self.group, removed=removed)

    def route_changed(self, router: RouterState, route: Route, *, removed: bool) -> None:
        """A route came or went."""
        self._relay.route_changed(router, route, removed=removed)

    def outbox_grew(self) -> None:
        """There are dead letters to send."""
        self._relay.outbox_grew(self)

    def record_changed(self, key: str, value: bytes | None) -> None:
        """A metadata record changed."""
        self._relay.record_changed(key, value)

    def tree_changed(self, event: TreeEvent) -> None:
        """Something of the topic tree changed."""
        self._relay.tree_changed(self, event)


def _tell(waiting: Sequence[Completion | None], error: KernelError) -> None:
    for done in waiting:
        if done is not None:
            done(error)


def _needs_watching(queue: QueueState) -> bool:
    """Whether messages must be looked after although nobody consumes them. The reference lists
    of the topic tree are not: what expires there is dropped when somebody comes for it.
    """
    if queue.owed is not None:
        return False
    options = queue.topic.options
    limited = options.messages_max is not None or options.bytes_max is not None
    return limited or options.message_ttl_ms is not None or queue.index.delays or queue.index.ttls
