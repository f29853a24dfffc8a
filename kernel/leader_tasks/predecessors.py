"""Asks for successors that are led here whether their predecessors in other Raft groups are done
with (ADR 31). Of those in the same group the state tells (`store.replicas.gates`).

    ordered group    Which keys are unsettled there is asked of the leader, by one question for
                     each successor, predecessor and group, which waits there until a key is free.
                     The gate of the successor is told each answer. In that way no lease holds back
                     more than its key.
    other groups, and as long as no keys are known (they are too many, nobody consumes from the
    successor, the store that is asked is of an older build)
                     It is asked each second whether the predecessor is done with: an ordered group
                     is when its position, which is what the log has, is where the queue ends; any
                     other when nothing is ready. Both are for ever: a sealed queue gets nothing but
                     its half messages.

Who is asked may have been deposed without having heard, and know of neither SEAL nor of what came
before it. So SEAL is asked for once more, which tells where the queue ends, once by each gate: who
knows of another end does not tell any keys (`store.replicas.key_lists`), and a position that is
elsewhere counts for nothing. A queue that ends elsewhere, as a half message was rolled back, is
then waited for until it is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass

from ..api.model import QueueRef
from ..broker.log_commands.resize_commands import NOT_THERE, Drained, Seal
from ..common.errors import Code, KernelError
from ..common.ids import NUMBER_BITS, QueueId, RaftGroup, queue_id, topic_of
from ..requests.leader import NO_IDENTITY, Leader
from ..requests.peer_stores import KeysAnswer, KeysQuestion
from ..requests.proposer import propose_to
from ..store.node import Store
from ..store.replicas.gates import Gate

ASKED_MAX = 64
"""Predecessors asked each second, one after the other: each is a question or two to a store."""


KEYS_ASKED_MAX = 256
"""Questions about keys that are open at once: each is a task, and waits a second or two. A
successor that would be one too many waits as a whole, until another has what it waits for."""

AskKeys = Callable[[RaftGroup, KeysQuestion], Awaitable[KeysAnswer]]
"""Asks whoever leads a group. Raises KernelError."""


@dataclass(frozen=True, slots=True)
class _Wait:
    """A successor waits for a queue elsewhere."""

    successor: QueueId
    here: RaftGroup
    group: str
    predecessor: QueueRef
    ordered: bool


class Predecessors:
    """Of one store. Asked each second."""

    def __init__(
        self,
        store: Store,
        leader_of: Callable[[RaftGroup], Leader],
        ask_keys: AskKeys,
        background: Callable[[Coroutine[object, object, object]], None],
    ) -> None:
        self._store = store
        self._leader_of = leader_of
        self._ask_keys = ask_keys
        self._background = background
        self._asking = False
        self._asked = 0
        """Where to go on if not all can be asked at once."""
        self._hearing: dict[Gate, asyncio.Task[None]] = {}
        """Those with a question about keys."""

    def look(self) -> None:
        """Ask, unless that is going on."""
        waits = list(self._waits())
        known = self._look_at_gates(waits)
        if self._asking:
            return
        waits = [each for each in waits if each not in known]
        if waits:
            self._asking = True
            at = self._asked % len(waits)
            some = (waits[at:] + waits[:at])[:ASKED_MAX]
            self._asked += len(some)
            self._background(self._ask(some))

    def _waits(self) -> Iterator[_Wait]:
        """What successors of groups that are led here wait for elsewhere."""
        for here in self._store.data_groups:
            if self._store.serving(here) is None:
                continue
            state = self._store.replica(here).state
            for ident, resized in state.resized.items():
                topic = state.topics[ident]
                elsewhere = {ref.id & NUMBER_BITS: ref for ref in topic.refs if ref.group != here}
                for number, successor in resized.successors.items():
                    for name, options in topic.groups.items():
                        for each in successor.waits_for(name) & elsewhere.keys():
                            at = queue_id(ident, number)
                            yield _Wait(at, here, name, elsewhere[each], options.ordered)

    # --- Keys -------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Ask about no more keys."""
        tasks = list(self._hearing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _look_at_gates(self, waits: list[_Wait]) -> set[_Wait]:
        """Ask about keys for each gate for which that is not going on; those that know theirs."""
        known: set[_Wait] = set()
        by_gate = {
            (each.successor, each.group, each.predecessor.id): each
            for each in waits
            if each.ordered
        }
        for here in sorted({each.here for each in by_gate.values()}):
            for gate in self._store.replica(here).gates.elsewhere():
                dispatcher = gate.dispatcher
                wait = by_gate.get((dispatcher.queue.id, dispatcher.group, gate.predecessor))
                if wait is None:
                    continue
                if gate.is_told:
                    known.add(wait)
                if gate not in self._hearing and len(self._hearing) < KEYS_ASKED_MAX:
                    work = self._hear(wait, gate)
                    self._hearing[gate] = asyncio.get_running_loop().create_task(work)
        return known

    async def _hear(self, wait: _Wait, gate: Gate) -> None:
        """Ask for one gate, again and again; begun anew within a second if it ends."""
        try:
            while self._is_open(wait, gate):
                if gate.end is None:
                    gate.end = await self._end_of(wait.predecessor)
                question = KeysQuestion(gate.predecessor, wait.group, gate.end, gate.version)
                answer = await self._ask_keys(wait.predecessor.group, question)
                if answer.keys is None or not self._is_open(wait, gate):
                    return
                is_again = gate.is_told and answer.is_all
                self._store.replica(wait.here).gates.told(gate, answer)
                if is_again:
                    return  # two may take themselves for the leader, each with a list of its own
        except KernelError as error:
            if error.code is Code.NOT_FOUND:
                gate.end = None
        finally:
            del self._hearing[gate]

    def _is_open(self, wait: _Wait, gate: Gate) -> bool:
        """Whether a gate is one of those of now, and there is something to be told to it."""
        if gate.is_drained or self._store.serving(wait.here) is None:
            return False
        return self._store.replica(wait.here).gates.is_open(gate)

    async def _end_of(self, queue: QueueRef) -> int:
        """Where a queue ends, by its SEAL. Raises KernelError."""
        seal = Seal(topic_of(queue.id), (queue.id & NUMBER_BITS,))
        ends = await propose_to(self._leader_of(queue.group), seal, NO_IDENTITY)
        assert isinstance(ends, list)
        if ends == [NOT_THERE]:
            raise KernelError(Code.NOT_FOUND, "the predecessor is gone: its topic loses it soon")
        return int(ends[0])

    # --- Whole queues -----------------------------------------------------------------------

    async def _ask(self, waits: list[_Wait]) -> None:
        try:
            for wait in waits:
                if await self._is_done(wait):
                    number = wait.predecessor.id & NUMBER_BITS
                    command = Drained(wait.successor, wait.group, number)
                    leader = self._store.serving(wait.here)
                    if leader is not None:
                        leader.propose(command, NO_IDENTITY, None)
        finally:
            self._asking = False

    async def _is_done(self, wait: _Wait) -> bool:
        queue = wait.predecessor
        leader = self._leader_of(queue.group)
        seal = Seal(topic_of(queue.id), (queue.id & NUMBER_BITS,))
        try:
            sealed_at = await propose_to(leader, seal, NO_IDENTITY)
            figures = await leader.figures(queue.id, wait.group)
            _, end = await leader.span(queue.id)
        except KernelError:
            return False  # asked again in a second
        if sealed_at != [end]:
            return False
        return figures.position == end if wait.ordered else not figures.ready
