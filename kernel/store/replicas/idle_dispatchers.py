"""Dispatchers that nobody consumes from: which of them can be forgotten.

What a dispatcher keeps costs 2 to 4 KB, and keeps its queue from being packed
(`broker.group_state.queues`). All of it can be made anew from the state, once nothing that it has
asked for is on its way: so one without consumers is noted here and forgotten some time later.
Nothing of this is state; replicas may differ in it.

A reference list of the topic tree is given up in the next second, for ten thousand subscribers
that go away must cost nothing. Any other queue may be polled again soon, and is given a minute.
"""

from __future__ import annotations

from ...broker.delivery.dispatcher import Dispatcher
from ...common.errors import Code, KernelError

QUEUE_LOOKS = 60
"""Looks, one a second, that a queue's dispatcher outlives its last consumer: to make it anew costs
20 us, so that a queue which is polled now and then pays that once a minute at most."""

FORGOTTEN_MAX = 1_000
"""Queues' dispatchers forgotten in one look: a millisecond or two."""

FORGOTTEN = KernelError(Code.NOT_FOUND, "nobody took anything from it")
"""How one ends that is forgotten. It has no consumer that could hear of it; but what it had asked
to be woken for would keep it alive."""


class IdleDispatchers:
    """Of one Raft group. See the module's head."""

    __slots__ = ("_lists", "_looks", "_queues")

    def __init__(self) -> None:
        self._lists: dict[Dispatcher, None] = {}
        self._queues: dict[Dispatcher, int] = {}
        """And the look at which each may be forgotten: the earliest first."""
        self._looks = 0

    def __contains__(self, dispatcher: Dispatcher) -> bool:
        return dispatcher in self._lists or dispatcher in self._queues

    def note(self, dispatcher: Dispatcher) -> None:
        """It has no consumer: not yet, or not any more."""
        if dispatcher.queue.pending_acks is not None:
            self._lists[dispatcher] = None
        else:
            self._queues.pop(dispatcher, None)
            self._queues[dispatcher] = self._looks + QUEUE_LOOKS

    def remove(self, dispatcher: Dispatcher) -> None:
        """A dispatcher is gone. Idempotent."""
        self._lists.pop(dispatcher, None)
        self._queues.pop(dispatcher, None)

    def look(self) -> list[Dispatcher]:
        """Those to be forgotten now. To be called once a second."""
        self._looks += 1
        return self._look_at_lists() + self._look_at_queues()

    def _look_at_lists(self) -> list[Dispatcher]:
        noted = [each for each in self._lists if not each.consumers]
        self._lists = {each: None for each in noted if each.held_count}
        return list(filter(may_forget, noted))

    def _look_at_queues(self) -> list[Dispatcher]:
        due: list[Dispatcher] = []
        for each, at in self._queues.items():
            if at > self._looks or len(due) == FORGOTTEN_MAX:
                break
            due.append(each)
        for each in due:
            del self._queues[each]
        return list(filter(may_forget, due))


def may_forget(dispatcher: Dispatcher) -> bool:
    """Whether one that is made anew would know as much, once all that this one has asked for is
    applied.
    """
    if dispatcher.queue.pending_acks is not None:
        return not dispatcher.consumers and not dispatcher.held_count
    busy = dispatcher.consumers or dispatcher.leased_count or dispatcher.delayed_count
    return not busy and not dispatcher.queue.needs_watching
