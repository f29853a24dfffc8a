"""The outbox of a Raft group: dead letters that have left their queue and not reached their target.

Each keeps one reference to its log entry. Items are sent by `store.dead_letters`.
"""

from __future__ import annotations

from dataclasses import replace

from ...api.model import DeadLetter, Reason, TopicKind
from ...common.ids import LogIndex, Offset
from ..group_state.progress import GroupProgress
from ..group_state.state import GroupState, OutboxItem, QueueState, Section
from ..index.run_page import sent_ms
from ..log_commands import commands
from ..observer import Observer, Retention, release


def has_own_reference(queue: QueueState) -> bool:
    """Whether others may hold a dead letter's message too; else its one reference goes over to the
    outbox.
    """
    return len(queue.groups) > 1 or queue.topic.options.kind is TopicKind.STREAM


class Outbox:
    """Applies what puts dead letters into the outbox and takes them out."""

    def __init__(self, state: GroupState, retention: Retention, observer: Observer) -> None:
        self._state = state
        self._retention = retention
        self._observer = observer

    def put(
        self,
        queue: QueueState,
        name: str,
        target: DeadLetter,
        progress: GroupProgress,
        start: int,
        stop: int,
        reason: Reason,
    ) -> None:
        """Keep messages of group `name` in [start, stop), which must not be acked, for the outbox;
        their references live on there.
        """
        state = self._state
        # In a group that keeps the order of keys a message's time begins anew, as on AWS.
        keeps_age = reason is not Reason.MOVED and not queue.topic.groups[name].ordered
        for index, slot, count, size in queue.index.stretches(start, stop):
            run = queue.index.find(start)
            for each in range(count):
                number = state.next_outbox
                state.next_outbox = number + 1
                state.outbox[number] = OutboxItem(
                    number,
                    queue.topic.tenant,
                    queue.topic.name,
                    target,
                    queue.id,
                    Offset(start),
                    LogIndex(index),
                    slot + each,
                    reason,
                    progress.failures(start),
                    sent_ms(run, start) if keeps_age else 0,
                )
                start += 1
            if has_own_reference(queue):
                self._retention.retain(state.group, index, count)
            else:
                state.stored.left(queue.topic, count, size)
        self._observer.outbox_grew()

    def move(self, command: commands.Move) -> int:
        """MOVE: messages leave their group as new ones, of no age and no attempts."""
        state = self._state
        state.changing(Section.QUEUES, command.queue)
        queue = state.queues.get(command.queue)
        progress = queue.groups.get(command.group) if queue is not None else None
        if queue is None or progress is None:
            return 0
        target = DeadLetter(None, command.topic)
        moved: list[tuple[int, int]] = []
        for offset in command.offsets:
            if offset < queue.index.tail and list(progress.free(offset, offset + 1)):
                self.put(queue, command.group, target, progress, offset, offset + 1, Reason.MOVED)
                fresh = progress.ack(offset, offset + 1)
                if has_own_reference(queue):
                    release(self._retention.release, state, queue, progress, fresh)
                moved.append((offset, 1))
        queue.forget()
        if queue.topic.groups[command.group].ordered:
            self._observer.settled(queue, command.group, moved)
        return len(moved)

    def done(self, command: commands.OutboxDone) -> None:
        """OUTBOX_DONE: the item has reached its target."""
        self._state.changing(Section.OUTBOX, command.number)
        item = self._state.outbox.pop(command.number, None)
        if item is not None:
            self._retention.release(self._state.group, item.index, 1)

    def again(self, command: commands.OutboxAgain) -> None:
        """OUTBOX_AGAIN: send the item under a new number, behind the others."""
        state = self._state
        state.changing(Section.OUTBOX, command.number)
        item = state.outbox.pop(command.number, None)
        if item is not None:
            number = state.next_outbox
            state.next_outbox = number + 1
            state.outbox[number] = replace(item, number=number)
