"""Places of log entries in a queue: which of its messages stand in them, found in the index
alone.
"""

from __future__ import annotations

from collections.abc import Collection

from ...broker.group_state.state import GroupState
from ...common.ids import QueueId

Ranges = list[tuple[int, int]]
"""(first offset, messages) each."""

Places = dict[int, dict[QueueId, Ranges]]
"""By entry the queues with messages in it that somebody waits for, and where they stand."""


def note_places(state: GroupState, ident: QueueId, wanted: Collection[int], found: Places) -> None:
    """Add what a queue has in the entries `wanted`."""
    queue = state.queues.peek(ident)
    if queue is None:
        return
    index = queue.index
    here = {each for each, _count in index.entries(index.head, index.tail)}
    for entry in here.intersection(wanted):
        ranges: Ranges = []
        for _slot, count, first in index.offsets_of(entry):
            for offset in range(first, first + count):
                if not queue.is_needed(offset):
                    continue
                if ranges and sum(ranges[-1]) == offset:
                    ranges[-1] = (ranges[-1][0], ranges[-1][1] + 1)
                else:
                    ranges.append((offset, 1))
        if ranges:
            found.setdefault(entry, {})[ident] = ranges
