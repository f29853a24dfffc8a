"""What follows from resizes (ADR 31). Those that are half done go on, whoever began them. Sealed
queues that everybody is done with go: first from the definition, by the leader of the topic's home;
then, at the next look, from the group that has them, by its own leader. Consumers have let go of
them by then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine

from ..api.model import QueueRef, TopicInfo
from ..broker.log_commands.resize_commands import Retire
from ..common.errors import KernelError
from ..common.ids import RaftGroup, home_of, topic_of
from ..requests.leader import NO_IDENTITY
from ..store.node import Store

LOOK_MS = 10_000
"""Between two looks: a sealed queue does no harm."""


class Retiring:
    """Of one store. Asked each second."""

    def __init__(
        self,
        store: Store,
        let_go: Callable[[TopicInfo], Awaitable[object]],
        go_on: Callable[[Collection[RaftGroup]], Awaitable[object]],
        background: Callable[[Coroutine[object, object, object]], None],
    ) -> None:
        """`let_go` has the definition lose those queues of a topic that are done with; `go_on`
        finishes the resizes of groups that are led here.
        """
        self._store = store
        self._let_go = let_go
        self._go_on = go_on
        self._background = background
        self._next_ms = 0
        self._is_looking = False

    def look(self, now_ms: int) -> None:
        """Look, if it is time."""
        if now_ms >= self._next_ms and not self._is_looking:
            self._next_ms = now_ms + LOOK_MS
            store = self._store
            served = [each for each in store.data_groups if store.serving(each) is not None]
            if any(store.replica(each).state.resized for each in served):
                self._is_looking = True
                self._background(self._look())

    async def _look(self) -> None:
        try:
            for group in self._store.data_groups:
                leader = self._store.serving(group)
                if leader is None:
                    continue
                state = self._store.replica(group).state
                for ident in list(state.sealed):
                    # Another group may have a queue of that number by now.
                    if QueueRef(ident, group) not in state.topics[topic_of(ident)].refs:
                        leader.propose(Retire(ident), NO_IDENTITY, None)
                homes = [each for each in state.resized if home_of(each) == group]
                if any(state.resized[each].plan is not None for each in homes):
                    await self._have_finished(group)
                for topic in [state.topics[each].info() for each in homes if each in state.topics]:
                    if topic.ring and len(topic.writable) < len(topic.queues):
                        await self._have_let_go(topic)
        finally:
            self._is_looking = False

    async def _have_finished(self, group: RaftGroup) -> None:
        """Whoever asked for a resize has heard an error, and it is half done."""
        try:
            await self._go_on([group])
        except KernelError:
            return  # at the next look

    async def _have_let_go(self, topic: TopicInfo) -> None:
        try:
            await self._let_go(topic)
        except KernelError:
            return  # a group has no leader: at the next look
