"""Half messages at their leaders: there are never too many, and producers are asked for their
outcome (see `transactions`).

The limits are kept at the leader that takes a half message in, over all groups: of those that it
follows it knows what it has applied, so that messages which other leaders take in at the same
moment may go beyond a limit by as much.

A question is counted in the log before it is put, to one of the sinks of its producer group, in
turn: a connection of this process, or a gateway, which has its own turn of connections. A gateway
that reads too slowly is not asked; neither that nor a question lost on the way is noticed, since
the next one follows by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ...api.transactions import HalfCheck, encode_token
from ...broker.applying.half_messages import OTHERWISE, UNKNOWN
from ...broker.group_state.halves import HalfMessage
from ...broker.group_state.state import TopicState
from ...broker.log_commands import commands
from ...common.errors import Code, KernelError
from ...common.ids import RaftGroup, TopicId
from ...common.limits import HALF_BYTES_PER_STORE_MAX, HALF_CHECKS_PER_TURN, HALVES_PER_STORE_MAX
from ...log.format import entry as entries
from ...requests.half_watches import HalfWatches
from ...requests.leader import Done
from ..node import Store
from ..replicas.replica import Replica

_NOT_DONE = ([UNKNOWN], [OTHERWISE])


@dataclass(slots=True)
class HalfFigures:
    """Counters since this process began, of what it leads."""

    prepared: int = 0
    committed: int = 0
    rolled_back: int = 0
    """By a producer."""
    discarded: int = 0
    """Because nobody has decided."""
    checks_sent: int = 0
    checks_unheard: int = 0
    """Questions that no producer was there for."""


class HalfKeeper:
    """`local_leader.HalfRoom` of a store, and its questions."""

    def __init__(self, store: Store, refusal: Callable[[int], KernelError | None]) -> None:
        """`refusal(bytes)` says why new messages cannot be taken now."""
        self._store = store
        self._refusal = refusal
        self._coming: dict[TopicId, tuple[int, int]] = {}
        """(messages, bytes) on their way into the log, by topic."""
        self._checking: set[RaftGroup] = set()
        self.watches = HalfWatches()
        self.figures = HalfFigures()

    # --- local_leader.HalfRoom --------------------------------------------------------------

    def refusal(self, topic: TopicState, size: int) -> KernelError | None:
        """Why there is no room for one more half message of so many bytes; None if there is."""
        refusal = self._refusal(size)
        if refusal is not None:
            return refusal
        limits = topic.options.half
        messages, held = self._coming.get(topic.id, (0, 0))
        store_messages = sum(each[0] for each in self._coming.values())
        store_bytes = sum(each[1] for each in self._coming.values())
        for replica in self._store.replicas():
            halves = replica.state.halves
            known = halves.figures(topic.id)
            messages, held = messages + known[0], held + known[1]
            store_messages += len(halves.waiting)
            store_bytes += halves.bytes
        for name, value, most in (
            (f"half.messages_max of topic {topic.name}", messages + 1, limits.messages_max),
            (f"half.bytes_max of topic {topic.name}", held + size, limits.bytes_max),
            ("halves_per_store_max", store_messages + 1, HALVES_PER_STORE_MAX),
            ("half_bytes_per_store_max", store_bytes + size, HALF_BYTES_PER_STORE_MAX),
        ):
            if value > most:
                message = f"too much waits for a commit or rollback: {name} is {most}"
                return KernelError(Code.LIMIT_EXCEEDED, message)
        return None

    def take(self, topic: TopicId, size: int, done: Done) -> Done:
        """A half message is on its way into the log; who is to hear of that."""
        self._count(topic, 1, size)
        return partial(self._prepared, topic, size, done)

    def _prepared(self, topic: TopicId, size: int, done: Done, results: object) -> None:
        self._count(topic, -1, -size)
        if isinstance(results, tuple) and not isinstance(results[0], KernelError):
            self.figures.prepared += 1
        done(results)

    def _count(self, topic: TopicId, messages: int, size: int) -> None:
        known = self._coming.get(topic, (0, 0))
        left = known[0] + messages, known[1] + size
        if left[0]:
            self._coming[topic] = left
        else:
            self._coming.pop(topic, None)

    def resolving(self, replica: Replica, command: commands.ResolveHalf, done: Done | None) -> Done:
        """A producer has decided; who is to hear what it came to."""
        is_waiting = command.number in replica.state.halves.waiting
        return partial(self._resolved, command, is_waiting, done)

    def _resolved(
        self, command: commands.ResolveHalf, is_waiting: bool, done: Done | None, results: object
    ) -> None:
        if is_waiting and isinstance(results, tuple) and results[0] not in _NOT_DONE:
            self.figures.committed += command.commit
            self.figures.rolled_back += not command.commit
        if done is not None:
            done(results)

    # --- Questions --------------------------------------------------------------------------

    def ask(self) -> None:
        """Count the questions that are due in the groups led here, then put them; called each
        second.
        """
        for replica in self._store.replicas():
            if not (replica.serving and replica.state.halves.waiting):
                continue
            if replica.group in self._checking:
                continue
            due = replica.state.halves.due(replica.log_time_ms(), HALF_CHECKS_PER_TURN)
            if due:
                self._checking.add(replica.group)
                self._count_questions(replica, due)

    def _count_questions(self, replica: Replica, due: Sequence[int]) -> None:
        def counted(result: object) -> None:
            self._checking.discard(replica.group)
            numbers = result[0] if isinstance(result, tuple) and result else []
            if not isinstance(numbers, list):
                return  # it leads no more
            for number in numbers:
                if number < 0:
                    self.figures.discarded += 1
                    continue
                half = replica.state.halves.waiting.get(number)
                if half is not None:
                    self._put(replica, half)

        replica.propose(commands.CheckHalves(tuple(due)), (0, 0, 0), counted)

    def _put(self, replica: Replica, half: HalfMessage) -> None:
        """Put a question to a producer, if there is one."""
        queue = replica.state.queues[half.queue]
        key = (queue.topic.tenant, half.producers)
        if key not in self.watches:
            self.figures.checks_unheard += 1
            return
        entry = self._store.entry(replica.group, half.index)
        if entry is None:
            self._store.fetch(replica.group, half.index, lambda: self._fetched(replica, half))
            return
        sink = self.watches.next(key)
        if sink is None:
            return
        self.figures.checks_sent += 1
        sink.check(
            HalfCheck(
                queue.topic.tenant,
                queue.topic.name,
                encode_token(half.queue, half.number),
                entries.slot(entry, half.slot),
                half.prepared_ms,
                half.checks,
                half.producers,
            )
        )

    def _fetched(self, replica: Replica, half: HalfMessage) -> None:
        if half.number in replica.state.halves.waiting:
            self._put(replica, half)
