"""Lost entries: messages whose log entry does not read any more are given up.

The command names the entry and the queues that have messages in it, as the leader found them: the
entry itself cannot say. Every group is done with these messages, and whatever else refers to the
entry lets go of it: retained messages, half messages (rolled back), dead letters on their way.
"""

from __future__ import annotations

from ..group_state.state import GroupState, QueueState, Section
from ..log_commands.give_up import GiveUp
from ..observer import Observer, Retention, release
from .half_messages import HalfCommands


class LostEntries:
    """Applies GIVE_UP: the messages of a log entry are lost."""

    def __init__(
        self, state: GroupState, retention: Retention, observer: Observer, halves: HalfCommands
    ) -> None:
        self._state = state
        self._retention = retention
        self._observer = observer
        self._halves = halves

    def give_up(self, command: GiveUp) -> int:
        """Every group is done with the messages of the entry; how many somebody waited for."""
        state = self._state
        lost = 0
        for ident in command.queues:
            state.changing(Section.QUEUES, ident)
            queue = state.queues.get(ident)
            if queue is not None:
                lost += self._messages(queue, command.index)
        for number in [
            each.number for each in state.outbox.values() if each.index == command.index
        ]:
            state.changing(Section.OUTBOX, number)
            del state.outbox[number]
            self._retention.release(state.group, command.index, 1)
            lost += 1
        return lost + self._retained(command.index) + self._halves.give_up(command.index)

    def _messages(self, queue: QueueState, index: int) -> int:
        """Those of a queue that lie in the entry."""
        runs = [(first, first + count) for _, count, first in queue.index.offsets_of(index)]
        lost = sum(queue.is_needed(offset) for start, end in runs for offset in range(start, end))
        for name, progress in queue.groups.items():
            for start, end in runs:
                fresh = progress.ack(start, end)
                release(self._retention.release, self._state, queue, progress, fresh)
            if queue.topic.groups[name].ordered:
                settled = [(start, end - start) for start, end in runs]
                self._observer.settled(queue, name, settled)
            self._observer.purged(queue, name)
        queue.forget()
        return lost

    def _retained(self, index: int) -> int:
        retained = self._state.retained
        if not retained.slots_of(index):
            return 0
        keys = [key for key, each in retained.messages.items() if each.index == index]
        for key in keys:
            self._state.changing(Section.RETAINED, key)
            retained.remove(*key)
            self._retention.release(self._state.group, index, 1)
        return len(keys)
