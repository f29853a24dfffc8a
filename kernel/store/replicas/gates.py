"""A successor waits for its predecessors, for each consumer group (ADR 31).

    ordered group   The keys that a predecessor has unsettled are locked in the successor, as if
                    somebody held a message of each. Which these are is known here if the
                    predecessor is of the same Raft group, and has no more than
                    GATE_MESSAGES_MAX unsettled; else the successor hands out nothing.
    other groups    The successor hands out nothing while the predecessor has something ready.

What is delayed and not due yet holds nothing. *Drained*, nothing of that is left, is said in the
log, so that no later leader asks again. All else here is the leader's, in memory, and made anew
with each dispatcher. What an apply changes is noted, and carried out when the turn of the
dispatchers is over (`look`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

from ...broker.delivery.dispatcher import GATED, Dispatcher
from ...broker.group_state.state import GroupState, QueueState
from ...broker.index.features import Feature
from ...broker.log_commands.resize_commands import Drained
from ...common.ids import NUMBER_BITS, QueueId, TopicId, queue_id, topic_of

GATE_MESSAGES_MAX = 65_536
"""Unsettled messages of a predecessor that are looked at, at some 0.7 us each, and then kept by
offset: 50 ms, once, and 8 MB. Above it the whole successor waits."""

Ready = Callable[[QueueId, str], bool]
"""Whether a queue has anything ready for a group."""


class _Gate:
    """What one predecessor keeps back of a successor, for one consumer group."""

    __slots__ = ("dispatcher", "held", "is_asked", "predecessor", "tokens")

    def __init__(self, dispatcher: Dispatcher, predecessor: QueueId) -> None:
        self.dispatcher = dispatcher
        self.predecessor = predecessor
        self.held: dict[int, int] | None = None
        """Ordering key of each offset that is unsettled; None: the whole queue is kept back."""
        self.tokens: dict[int, tuple[int, int]] = {}
        """Of each key: under what it is locked, and how many of the messages have it."""
        self.is_asked = False
        """Whether DRAINED is on its way."""

    def settled(self, offset: int) -> int | None:
        """A message is settled: the token of its key, if that is free by it."""
        key = self.held.pop(offset, 0) if self.held is not None else 0
        if not key:
            return None
        token, messages = self.tokens[key]
        if messages > 1:
            self.tokens[key] = token, messages - 1
            return None
        del self.tokens[key]
        return token


class Gates:
    """Those of one Raft group, at its leader."""

    def __init__(
        self,
        state: GroupState,
        now_ms: Callable[[], int],
        has_ready: Ready,
        propose: Callable[[Drained, Callable[[object], None]], None],
    ) -> None:
        """`propose(command, done)`: have it written."""
        self._state = state
        self._now_ms = now_ms
        self._has_ready = has_ready
        self._propose = propose
        self._gates: dict[tuple[QueueId, str], list[_Gate]] = {}
        """Of each successor and group."""
        self._of: dict[tuple[QueueId, str], list[_Gate]] = {}
        """Of each predecessor and group."""
        self._freed: dict[Dispatcher, list[int]] = {}
        """Tokens of keys that are free by now."""
        self._drained: dict[tuple[QueueId, str], None] = {}
        """Successors that wait for one less."""
        # No offset is below zero.
        self._tokens = count(-1, -1)

    @property
    def is_busy(self) -> bool:
        """Whether anybody waits (hot)."""
        return bool(self._gates)

    # --- What has happened ------------------------------------------------------------------

    def begun(self, dispatcher: Dispatcher) -> None:
        """A queue has a dispatcher: if it is a successor, it waits from here on."""
        queue, group = dispatcher.queue, dispatcher.group
        self.ended(dispatcher)
        waits_for = self._waits_for(queue.id, group)
        if not waits_for:
            return
        gates = [_Gate(dispatcher, queue_id(topic_of(queue.id), each)) for each in waits_for]
        self._gates[queue.id, group] = gates
        for gate in gates:
            self._of.setdefault((gate.predecessor, group), []).append(gate)
        dispatcher.halt(GATED)
        self._look_at(gates)

    def ended(self, dispatcher: Dispatcher) -> None:
        """A dispatcher is over."""
        group = dispatcher.group
        for gate in self._gates.pop((dispatcher.queue.id, group), ()):
            others = self._of[gate.predecessor, group]
            others.remove(gate)
            if not others:
                del self._of[gate.predecessor, group]

    def settled(self, queue: QueueId, group: str, offsets: Iterable[int]) -> None:
        """Messages are settled, in the log."""
        gates = self._of.get((queue, group))
        if gates is None:
            return
        some = list(offsets)
        for gate in gates:
            freed = self._freed.setdefault(gate.dispatcher, [])
            freed += [token for each in some if (token := gate.settled(each)) is not None]

    def purged(self, queue: QueueState, group: str) -> None:
        """Any of them may be settled."""
        is_acked = queue.groups[group].is_acked
        for gate in self._of.get((queue.id, group), ()):
            self.settled(queue.id, group, [each for each in gate.held or () if is_acked(each)])

    def drained(self, queue: QueueId, group: str) -> None:
        """A successor waits for one less, in the log."""
        self._drained[queue, group] = None

    def topic_changed(self, topic: TopicId) -> None:
        """A topic may have lost predecessors: all were done with those, whether or not that was
        said.
        """
        self._drained.update((key, None) for key in self._gates if topic_of(key[0]) == topic)

    # --- Looking ----------------------------------------------------------------------------

    def look(self) -> None:
        """Entries were applied: hand out what is free by that."""
        drained, self._drained = self._drained, {}
        for queue, group in drained:
            self._wait_for_less(queue, group)
        for gates in list(self._gates.values()):
            self._look_at(gates)
        freed, self._freed = self._freed, {}
        for dispatcher, tokens in freed.items():
            dispatcher.free_keys(tokens)

    def look_at_all(self) -> None:
        """The same, and at every message that holds a key: asked each second, for what is settled
        without a word.
        """
        for (queue, group), gates in list(self._of.items()):
            state = self._state.queues.get(queue)
            if state is not None and group in state.groups and any(each.held for each in gates):
                self.purged(state, group)
        self.look()

    def _wait_for_less(self, queue: QueueId, group: str) -> None:
        gates = self._gates.get((queue, group))
        if gates is None:
            return
        waits_for, dispatcher = self._waits_for(queue, group), gates[0].dispatcher
        self.ended(dispatcher)
        for gate in gates:
            if gate.predecessor & NUMBER_BITS in waits_for:
                self._gates.setdefault((queue, group), []).append(gate)
                self._of.setdefault((gate.predecessor, group), []).append(gate)
            else:
                freed = self._freed.setdefault(dispatcher, [])
                freed += [token for token, _ in gate.tokens.values()]
        if (queue, group) not in self._gates:
            dispatcher.resume(GATED)

    def _look_at(self, gates: list[_Gate]) -> None:
        for gate in gates:
            self._look(gate)
        if all(gate.held is not None for gate in gates):
            gates[0].dispatcher.resume(GATED)

    def _look(self, gate: _Gate) -> None:
        queue = self._state.queues.get(gate.predecessor)
        group = gate.dispatcher.group
        if gate.is_asked or queue is None or group not in queue.groups:
            return  # of another Raft group: its leader tells
        if not gate.dispatcher.is_ordered:
            is_drained = not self._has_ready(queue.id, group)
        else:
            if gate.held is None:
                self._hold(gate, queue)
            is_drained = gate.held is not None and not gate.held
        if is_drained:
            gate.is_asked = True
            command = Drained(gate.dispatcher.queue.id, group, gate.predecessor & NUMBER_BITS)
            self._propose(command, lambda _: self._told(gate))

    def _told(self, gate: _Gate) -> None:
        """DRAINED is applied, or was lost: then it is asked for again."""
        gate.is_asked = False

    def _hold(self, gate: _Gate, queue: QueueState) -> None:
        """Lock the keys of what is unsettled, if it is not too much."""
        progress = queue.groups[gate.dispatcher.group]
        tail = queue.index.tail
        if tail - progress.floor - progress.acked_above > GATE_MESSAGES_MAX:
            return
        now_ms = self._now_ms()
        gate.held = {}
        for start, end in progress.unacked(progress.floor, tail):
            at = start
            while at < end:
                run = queue.index.find(at)
                for offset in range(at, min(run.end, end)):
                    key = run.value(Feature.KEY, offset)
                    if key and run.time_ms + run.value(Feature.DELAY, offset) <= now_ms:
                        gate.held[offset] = key
                at = run.end
        for key in gate.held.values():
            token, messages = gate.tokens.get(key) or (next(self._tokens), 0)
            gate.tokens[key] = token, messages + 1
        gate.dispatcher.hold_keys({token: key for key, (token, _) in gate.tokens.items()})

    def _waits_for(self, queue: QueueId, group: str) -> frozenset[int]:
        resized = self._state.resized.get(topic_of(queue))
        successor = resized.successors.get(queue & NUMBER_BITS) if resized is not None else None
        return successor.waits_for(group) if successor is not None else frozenset()
