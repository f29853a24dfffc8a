"""Asks for successors that are led here whether their predecessors in other Raft groups are done
with (ADR 31). Of those in the same group the state tells (`store.replicas.gates`).

An ordered group is done when its position, which is what the log has, is where the queue ends; any
other when nothing is ready. Both are for ever: a sealed queue gets nothing but its half messages.

Who is asked may have been deposed without having heard, and know of neither SEAL nor of what came
before it. So SEAL is asked for once more, which tells where the queue ends, and what is behind that
counts for nothing. A queue that ends elsewhere, as a half message was rolled back, is waited for
until it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass

from ..api.model import QueueRef
from ..broker.log_commands.resize_commands import Drained, Seal
from ..common.errors import KernelError
from ..common.ids import NUMBER_BITS, QueueId, RaftGroup, queue_id, topic_of
from ..requests.leader import NO_IDENTITY, Leader
from ..requests.proposer import propose_to
from ..store.node import Store

ASKED_MAX = 64
"""Predecessors asked each second, one after the other: each is a question or two to a store."""


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
        background: Callable[[Coroutine[object, object, object]], None],
    ) -> None:
        self._store = store
        self._leader_of = leader_of
        self._background = background
        self._asking = False
        self._asked = 0
        """Where to go on if not all can be asked at once."""

    def look(self) -> None:
        """Ask, unless that is going on."""
        if self._asking:
            return
        waits = list(self._waits())
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
