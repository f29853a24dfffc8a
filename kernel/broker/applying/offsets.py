"""Commands about single offsets of a queue: a message is recalled before it is due, and a group
goes on from another offset.

    RECALL  every group is done with the message. On a stream, where a group that joins later would
            begin with it, the queue keeps its offset, until retention has come so far.
    SEEK    the group is done with everything below the offset and with nothing above it: what it
            had acked, leased and counted there is forgotten. On streams only: elsewhere what was
            acked is gone.
"""

from __future__ import annotations

from collections.abc import Callable

from ...api.model import TopicKind
from ...common.errors import Code, KernelError
from ...common.ids import Offset
from ..group_state.progress import GroupProgress
from ..group_state.state import GroupState, QueueState, Section
from ..index.features import Feature
from ..log_commands import commands
from ..observer import Observer, Retention, release, release_all

RECALLED_MAX = 10_000
"""Recalled offsets that a queue of a stream keeps: 100 bytes each in memory, 8 in a snapshot."""

TOO_LATE, RECALLED, TOO_MANY = 0, 1, 2
"""What a RECALL came to. Too late: the message is due, or there is none."""


class Offsets:
    """Applies RECALL and SEEK."""

    def __init__(self, state: GroupState, retention: Retention, observer: Observer) -> None:
        self._state = state
        self._retention = retention
        self._observer = observer
        self.commands: dict[int, Callable[..., object]] = {
            commands.Command.RECALL: self.recall,
            commands.Command.SEEK: self.seek,
        }

    def recall(self, command: commands.Recall) -> int:
        """Have nobody get a message that is not due; see the constants above."""
        state, offset = self._state, command.offset
        state.changing(Section.QUEUES, command.queue)
        queue = state.queues.get(command.queue)
        if queue is None or queue.pending_acks is not None:
            return TOO_LATE
        if offset in queue.recalled:
            return RECALLED
        if not self._is_delayed(queue, offset) or not queue.is_needed(offset):
            return TOO_LATE
        if len(queue.recalled) >= RECALLED_MAX:
            return TOO_MANY
        if queue.topic.options.kind is TopicKind.STREAM:
            release_all(self._retention.release, state, queue, offset, offset + 1)
            queue.recalled = {**queue.recalled, offset: None}
        for name, progress in queue.groups.items():
            fresh = progress.ack(offset, offset + 1)
            release(self._retention.release, state, queue, progress, fresh)
            if queue.topic.groups[name].ordered:
                self._observer.settled(queue, name, [(offset, 1)])
            self._observer.purged(queue, name)
        queue.forget()
        return RECALLED

    def _is_delayed(self, queue: QueueState, offset: int) -> bool:
        index = queue.index
        if not index.head <= offset < index.tail:
            return False
        run = index.find(offset)
        return run.time_ms + run.value(Feature.DELAY, offset) > self._state.time_ms

    def seek(self, command: commands.Seek) -> int | KernelError:
        """Have a group go on from an offset; the offset, which lies among those that are there."""
        state, name = self._state, command.group
        state.changing(Section.QUEUES, command.queue)
        queue = state.queues.get(command.queue)
        known = queue.groups.get(name) if queue is not None else None
        if queue is None or known is None:
            return KernelError(Code.NOT_FOUND, f"no group {name}")
        if queue.topic.options.kind is not TopicKind.STREAM:
            text = "what a group of this topic has acked is gone: only on streams it can go back"
            return KernelError(Code.NOT_ALLOWED, text)
        if known.leased:
            return KernelError(Code.IN_USE, f"group {name} has leased messages")
        first = max(queue.trimmed, queue.index.head)
        offset = Offset(min(max(command.offset, first), queue.index.tail))
        progress = GroupProgress(offset)
        progress.used_ms = state.time_ms
        progress.expired = known.expired
        for recalled in sorted(queue.recalled):
            progress.ack(recalled, recalled + 1)
        queue.groups[name] = progress
        self._observer.sought(queue, name)
        return offset
