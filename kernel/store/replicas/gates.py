"""A successor waits for its predecessors, for each consumer group (ADR 31).

    ordered group   The keys that a predecessor has unsettled are locked in the successor, as if
                    somebody held a message of each. Which these are is known here if the
                    predecessor is of the same Raft group (`unsettled_keys`), and its leader tells
                    if it is of another (`key_lists`). Until then, and while they are too many, the
                    successor hands out nothing.
    other groups    The successor hands out nothing while the predecessor has something ready.

What is delayed and not due yet holds nothing. What was told once counts until less is told: of a
sealed queue messages are settled, and no others come but its half messages, which count from the
beginning. *Drained*, nothing of that is left, is said in the log, so that no later leader asks
again. All else here is the leader's, in memory, and made anew with each dispatcher. What an apply
changes is noted, and carried out when the turn of the dispatchers is over (`look`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

from ...broker.delivery.dispatcher import GATED, Dispatcher
from ...broker.group_state.state import GroupState, QueueState
from ...broker.log_commands.resize_commands import Drained
from ...common.ids import NUMBER_BITS, QueueId, TopicId, queue_id, topic_of
from ...requests.peer_stores import NO_VERSION, KeysAnswer
from .unsettled_keys import UnsettledKeys, unsettled_keys

Ready = Callable[[QueueId, str], bool]
"""Whether a queue has anything ready for a group."""


class Gate:
    """What one predecessor keeps back of a successor, for one consumer group."""

    __slots__ = (
        "dispatcher",
        "end",
        "is_asked",
        "is_told",
        "keys",
        "predecessor",
        "tokens",
        "version",
    )

    def __init__(self, dispatcher: Dispatcher, predecessor: QueueId) -> None:
        self.dispatcher = dispatcher
        self.predecessor = predecessor
        self.is_told = False
        """Whether it is known which keys are kept back; if not, the whole queue is."""
        self.keys: UnsettledKeys | None = None
        """What is unsettled, if the predecessor is of this Raft group."""
        self.tokens: dict[int, int] = {}
        """Of each key that is kept back: under what it is locked."""
        self.is_asked = False
        """Whether DRAINED is on its way."""
        self.end: int | None = None
        """Where a predecessor of another Raft group ends, once its SEAL has told."""
        self.version = NO_VERSION
        """Of the keys that it has been told by that."""

    @property
    def is_drained(self) -> bool:
        """Whether it is known to keep nothing back: DRAINED is on its way, or was lost."""
        return self.is_told and not self.tokens

    def free(self, keys: Iterable[int]) -> list[int]:
        """Keys are free: what they were locked under."""
        tokens = self.tokens
        return [tokens.pop(each) for each in keys if each in tokens]


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
        self._gates: dict[tuple[QueueId, str], list[Gate]] = {}
        """Of each successor and group."""
        self._of: dict[tuple[QueueId, str], list[Gate]] = {}
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

    @property
    def held_back(self) -> tuple[int, int]:
        """(successors that wait as a whole, keys that others hold back), of each consumer group."""
        whole = keys = 0
        for gates in self._gates.values():
            whole += bool(gates[0].dispatcher.is_gated)
            keys += sum(len(each.tokens) for each in gates)
        return whole, keys

    # --- What has happened ------------------------------------------------------------------

    def begun(self, dispatcher: Dispatcher) -> None:
        """A queue has a dispatcher: if it is a successor, it waits from here on."""
        queue, group = dispatcher.queue, dispatcher.group
        self.ended(dispatcher)
        waits_for = self._waits_for(queue.id, group)
        if not waits_for:
            return
        gates = [Gate(dispatcher, queue_id(topic_of(queue.id), each)) for each in waits_for]
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
            if gate.keys is not None:
                self._free(gate, gate.keys.settled(some))

    def purged(self, queue: QueueState, group: str) -> None:
        """Any of them may be settled."""
        for gate in self._of.get((queue.id, group), ()):
            if gate.keys is not None:
                self._free(gate, gate.keys.look(queue, group))

    def _free(self, gate: Gate, keys: Iterable[int]) -> None:
        if tokens := gate.free(keys):
            self._freed.setdefault(gate.dispatcher, []).extend(tokens)

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
            if state is not None and group in state.groups and any(each.keys for each in gates):
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
                self._free(gate, list(gate.tokens))
        if (queue, group) not in self._gates:
            dispatcher.resume(GATED)

    def _look_at(self, gates: list[Gate]) -> None:
        for gate in gates:
            self._look(gate)
        if all(gate.is_told for gate in gates):
            gates[0].dispatcher.resume(GATED)

    def _look(self, gate: Gate) -> None:
        queue = self._state.queues.get(gate.predecessor)
        group = gate.dispatcher.group
        if queue is not None and group not in queue.groups:
            queue = None
        if gate.is_asked:
            return
        if not gate.dispatcher.is_ordered:
            # Of one in another Raft group its leader is asked each second.
            is_drained = queue is not None and not self._has_ready(queue.id, group)
        else:
            if queue is not None:
                self._look_at_keys(gate, queue)
            is_drained = gate.is_drained
        if is_drained:
            gate.is_asked = True
            command = Drained(gate.dispatcher.queue.id, group, gate.predecessor & NUMBER_BITS)
            self._propose(command, lambda _: self._told(gate))

    def _told(self, gate: Gate) -> None:
        """DRAINED is applied, or was lost: then it is asked for again."""
        gate.is_asked = False

    def _look_at_keys(self, gate: Gate, queue: QueueState) -> None:
        """Lock the keys of what is unsettled, if it is not too much; free those of half messages
        that were rolled back.
        """
        group = gate.dispatcher.group
        if gate.keys is None:
            gate.keys = unsettled_keys(self._state, queue, group, self._now_ms())
            if gate.keys is not None:
                self._lock(gate, gate.keys.messages)
            return
        halves = self._state.halves
        self._free(gate, gate.keys.look_at_halves(halves, queue, group, self._now_ms()))

    def _lock(self, gate: Gate, keys: Iterable[int]) -> None:
        gate.is_told = True
        gate.tokens = {key: next(self._tokens) for key in keys}
        gate.dispatcher.hold_keys({token: key for key, token in gate.tokens.items()})

    # --- Predecessors of other Raft groups --------------------------------------------------

    def elsewhere(self) -> list[Gate]:
        """Those that have to be told which keys are kept back: ordered, and of predecessors that
        are not of this Raft group.
        """
        here = self._state.queues
        return [
            gate
            for gates in self._gates.values()
            for gate in gates
            if gate.dispatcher.is_ordered and gate.predecessor not in here
        ]

    def is_open(self, gate: Gate) -> bool:
        """Whether a gate still keeps anything back, as far as it is known."""
        return gate in self._gates.get((gate.dispatcher.queue.id, gate.dispatcher.group), ())

    def told(self, gate: Gate, answer: KeysAnswer) -> None:
        """The leader of a predecessor has answered (`key_lists`). Whoever leads it now may be
        behind who told before: what was free stays so.
        """
        if not self.is_open(gate) or answer.keys is None:
            return
        if not answer.is_all:
            if answer.version[:2] != gate.version[:2]:
                return
            freed = gate.free(answer.keys)
        elif gate.is_told:
            freed = gate.free(gate.tokens.keys() - set(answer.keys))
        else:
            freed = []
            self._lock(gate, answer.keys)
        gate.version = answer.version
        self._look_at(self._gates[gate.dispatcher.queue.id, gate.dispatcher.group])
        gate.dispatcher.free_keys(freed)

    def _waits_for(self, queue: QueueId, group: str) -> frozenset[int]:
        resized = self._state.resized.get(topic_of(queue))
        successor = resized.successors.get(queue & NUMBER_BITS) if resized is not None else None
        return successor.waits_for(group) if successor is not None else frozenset()
