"""One group's part of the journal as the log that its Raft core reads."""

from __future__ import annotations

from collections.abc import Sequence

from ..ids import LogIndex, RaftGroup
from ..log.journal import Journal
from ..raft.messages import EMPTY, ENTRY_OVERHEAD_BYTES, NORMAL, Entry, Snapshot


class JournalStorage:
    """`kernel.raft.storage.Storage`. The log begins behind what recovery has replayed: one voter
    sends nothing to anybody.
    """

    def __init__(self, journal: Journal, group: RaftGroup, applied: LogIndex) -> None:
        self._journal = journal
        self._group = group
        self._first = applied + 1
        self._term = journal.last_term(group)

    def first_index(self) -> int:
        """Index of the first entry that is not in the state that was recovered."""
        return self._first

    def last_index(self) -> int:
        """Index of the last entry appended."""
        return max(self._journal.last_index(self._group), self._first - 1)

    def term(self, index: int) -> int:
        """Term of an entry behind the recovered state, or of the last one in it."""
        return self._term if index < self._first else self._journal.term(self._group, index)

    def entries(self, low: int, high: int, max_bytes: int) -> Sequence[Entry] | None:
        """Entries whose bodies are in memory."""
        found: list[Entry] = []
        for index in range(low, high + 1):
            body = self._journal.entry(self._group, index)
            if body is None:
                break
            max_bytes -= len(body) + ENTRY_OVERHEAD_BYTES
            if max_bytes < 0 and found:
                break
            found.append(Entry(self.term(index), index, NORMAL if body else EMPTY, body))
        return found or None

    def snapshot(self) -> Snapshot | None:
        """Nobody is sent one."""
        return None
