"""Timed leases whose note in the log (`client.ConsumerSpec.note`) says for whom they are, as the
next leader of a group finds them: whoever got them may never have heard of it.

They are looked for when an election is won, among the entries that are kept in memory for other
members: a node that has no other member finds none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...api.message import HEADER_BYTES
from ...broker.log_commands import commands
from ...common.ids import QueueId
from ...log.format import entry as entries
from ...raft.messages import NORMAL, Entry

if TYPE_CHECKING:
    from .replica import Replica

SINCE_MS = 20_000
"""Longer than an election and what leads to it, and than a gateway takes to find the new leader."""

ENTRIES_MAX = 4_096
BYTES_MAX = 64 * 1024 * 1024
"""Looked through when an election is won: some 50 ms when full."""

_LEASE = int(commands.Command.LEASE)


@dataclass(frozen=True, slots=True)
class NotedLease:
    """A lease as it was asked for."""

    note: int
    queue: QueueId
    group: str
    ranges: tuple[tuple[int, int], ...]
    """(first offset, offsets)."""
    lease: int
    """Index of its entry."""
    origin: int
    size: int
    """Bytes of all its messages."""

    def held(self, replica: Replica) -> list[int]:
        """Offsets that are leased by it, and to nobody since."""
        queue = replica.state.queues.get(self.queue)
        progress = queue.groups.get(self.group) if queue is not None else None
        if progress is None:
            return []
        found: list[int] = []
        for first, count in self.ranges:
            for offset in range(first, first + count):
                holder = progress.holder(offset)
                if holder is not None and holder[0] == self.lease and holder[2]:
                    found.append(offset)
        return found

    def slot_sizes(self, offsets: Sequence[int]) -> dict[int, int]:
        """Of each of these messages the size of its slot, as far as the log tells: only that of all
        of them together is exact.
        """
        each, more = divmod(self.size, sum(count for _, count in self.ranges))
        return {offset: HEADER_BYTES + each + (at < more) for at, offset in enumerate(offsets)}


def noted_leases(newest: Iterable[Entry], now_ms: int) -> list[NotedLease]:
    """Those of the last SINCE_MS among entries, the newest first."""
    found: list[NotedLease] = []
    left, since_ms = BYTES_MAX, now_ms - SINCE_MS
    for count, entry in enumerate(newest):
        body = entry.body
        left -= len(body)
        if left < 0 or count >= ENTRIES_MAX:
            break
        if entry.kind != NORMAL:
            continue
        if entries.base_time_ms(body) < since_ms:
            break
        for batch in entries.batches(body):
            if batch.session == 0 and batch.sequence:
                for kind, _version, command in batch.commands:
                    if kind == _LEASE:
                        queue, group, _, ranges, size, _ = commands.decode_lease(command)
                        lease = NotedLease(
                            batch.sequence,
                            QueueId(queue),
                            group,
                            tuple(ranges),
                            entry.index,
                            batch.origin,
                            size,
                        )
                        found.append(lease)
    return found
