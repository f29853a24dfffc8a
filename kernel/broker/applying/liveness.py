"""Liveness of slots: which of a log entry somebody still needs. Asked when a sparse segment is
rewritten.
"""

from __future__ import annotations

from ...common.ids import QueueId, topic_of
from ...log.format import entry as entries
from ..group_state.idle_queue import references_of
from ..group_state.state import GroupState
from ..log_commands import commands
from ..log_commands.commands import Command


def live_slots(state: GroupState, index: int, body: bytes) -> set[int]:
    """Slots of entry `index` that a queue's group has not acked, that are retained, or that wait in
    the outbox or for the outcome of a half message.
    """
    live = {item.slot for item in state.outbox.values() if item.index == index}
    live.update(state.retained.slots_of(index))
    live.update(half.slot for half in state.halves.of_entry(index))
    queues: dict[int, None] = {}
    for batch in entries.batches(body):
        for kind, _version, command in batch.commands:
            if kind == Command.ENQUEUE:
                queues.update((run[0], None) for run in commands.decode_enqueue(command))
            elif kind == Command.PREPARE:
                queues.update((run[0], None) for run in commands.decode_prepare(command)[1])
    for ident in queues:
        queue = state.queues.peek(QueueId(ident))
        if queue is None:
            continue
        for slot, count, first in queue.index.offsets_of(index):
            live.update(
                slot + offset - first
                for offset in range(first, first + count)
                if queue.is_needed(offset)
            )
    return live


def references(state: GroupState) -> dict[int, int]:
    """Log index to the number of queue places, outbox items, retained and half messages that refer
    to its slots: what a recovered state must tell the journal before anything is replayed.
    """
    found: dict[int, int] = {}
    for item in state.outbox.values():
        found[item.index] = found.get(item.index, 0) + 1
    for index, count in state.retained.references():
        found[index] = found.get(index, 0) + count
    for half in state.halves.waiting.values():
        found[half.index] = found.get(half.index, 0) + 1
    for ident, packed in state.queues.records():
        for index, count in references_of(packed, state.topics[topic_of(ident)].options.kind):
            found[index] = found.get(index, 0) + count
    for queue in state.queues.live.values():
        for start, end in queue.needed():
            for index, count in queue.index.entries(start, end):
                found[index] = found.get(index, 0) + count
    return found
