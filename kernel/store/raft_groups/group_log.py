"""One group's part of the journal as the log that its Raft core reads.

On disk an entry has no kind: an empty body is a leader's first entry, one that begins with
CONFIGURATION_MARK is a change of membership. A normal body begins with its log time in
milliseconds, whose upper bytes are zero for the next 280 million years.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from ...common.ids import RaftGroup
from ...log.journal import Journal
from ...raft.messages import (
    CONFIGURATION,
    EMPTY,
    ENTRY_OVERHEAD_BYTES,
    NORMAL,
    Entry,
    Membership,
    Snapshot,
)

CONFIGURATION_MARK = b"\xff" * 8

RECENT_BYTES_MAX = 64 * 1024 * 1024
"""Entries kept in memory for members that are a little behind, in all groups of a store together:
what has been acked meanwhile is not in the journal's cache any more, and reading it from disk would
hold them up further. The bodies are those of the cache as long as it has them."""


def stored_body(entry: Entry) -> bytes:
    """Body of an entry as it stands in the journal."""
    return CONFIGURATION_MARK + entry.body if entry.kind == CONFIGURATION else entry.body


def entry_of(term: int, index: int, stored: bytes) -> Entry:
    """The entry that was stored so."""
    if not stored:
        return Entry(term, index, EMPTY, stored)
    if stored.startswith(CONFIGURATION_MARK):
        return Entry(term, index, CONFIGURATION, stored[len(CONFIGURATION_MARK) :])
    return Entry(term, index, NORMAL, stored)


class GroupLog:
    """Gives the core of one group its part of the journal (`kernel.raft.storage.Storage`)."""

    def __init__(
        self,
        journal: Journal,
        group: RaftGroup,
        index: int,
        term: int,
        *,
        born_alone: bool,
        recent_bytes_max: int,
    ) -> None:
        """`index`, `term`: what the snapshot on disk has applied. `born_alone`: the group began
        with one member.
        """
        self._hidden = int(born_alone)
        self.recent_bytes_max = recent_bytes_max
        """So much is kept in memory for members that are a little behind."""
        self._journal = journal
        self._group = group
        self._snapshot_index, self._snapshot_term = index, term
        self._membership = Membership()
        self._name = ""
        self._recent: deque[Entry] = deque()
        self._recent_bytes = 0
        self._before_recent = 0
        """Term of the entry before them."""
        self.appended_bytes = 0
        """Bytes of entries that were queued for the journal since this log was opened."""
        self.keeps_recent = False
        """Whether there are other members, who may be a little behind."""

    # --- Storage ----------------------------------------------------------------------------

    def first_index(self) -> int:
        """Index of the first entry behind the snapshot, or kept in memory although the snapshot has
        it. The very first entry of a group that was born with one member counts as compacted
        always: that member stands in no entry, only in snapshots.
        """
        recent = self._recent
        if recent and recent[0].index <= self._snapshot_index:
            return max(recent[0].index, 1 + self._hidden)
        hidden = min(self._journal.last_index(self._group), self._hidden)
        return max(self._snapshot_index, hidden) + 1

    def last_index(self) -> int:
        """Index of the last entry appended."""
        return max(self._journal.last_index(self._group), self._snapshot_index)

    def term(self, index: int) -> int:
        """Term of an entry from `first_index` - 1 on."""
        if index == self._snapshot_index:
            return self._snapshot_term
        if index < self._snapshot_index and self._recent:
            behind = index - self._recent[0].index
            return self._recent[behind].term if behind >= 0 else self._before_recent
        return self._journal.term(self._group, index)

    def entries(self, low: int, high: int, max_bytes: int) -> Sequence[Entry] | None:
        """Entries whose bodies are in memory."""
        recent = self._recent
        first = recent[0].index if recent else 0
        found: list[Entry] = []
        for index in range(low, high + 1):
            if first and first <= index:
                entry = recent[index - first]
            else:
                stored = self._journal.entry(self._group, index)
                if stored is None:
                    break
                entry = entry_of(self.term(index), index, stored)
            max_bytes -= len(entry.body) + ENTRY_OVERHEAD_BYTES
            if max_bytes < 0 and found:
                break
            found.append(entry)
        return found or None

    def snapshot(self) -> Snapshot | None:
        """The last one that is on disk, if it may be sent."""
        if not self._name:
            return None
        return Snapshot(self._snapshot_index, self._snapshot_term, self._membership, self._name)

    def newest(self) -> Iterator[Entry]:
        """Those that are kept for other members, the last one first."""
        return reversed(self._recent)

    # --- What the driver tells it -----------------------------------------------------------

    def appended(self, entries: Sequence[Entry]) -> None:
        """Entries were queued for the journal."""
        for entry in entries:
            self._journal.append(self._group, entry.term, entry.index, stored_body(entry))
            self.appended_bytes += len(entry.body) + ENTRY_OVERHEAD_BYTES
        if self.keeps_recent:
            self._keep(entries)

    def _keep(self, entries: Sequence[Entry]) -> None:
        recent = self._recent
        while recent and recent[-1].index >= entries[0].index:
            self._recent_bytes -= len(recent.pop().body) + ENTRY_OVERHEAD_BYTES
        if recent and recent[-1].index + 1 != entries[0].index:
            self.forget_recent()
        if not recent:
            self._before_recent = self.term(entries[0].index - 1)
        for entry in entries:
            recent.append(entry)
            self._recent_bytes += len(entry.body) + ENTRY_OVERHEAD_BYTES
        while self._recent_bytes > self.recent_bytes_max:
            self._drop_first()

    def _drop_first(self) -> None:
        entry = self._recent.popleft()
        self._recent_bytes -= len(entry.body) + ENTRY_OVERHEAD_BYTES
        self._before_recent = entry.term

    def everybody_has(self, index: int) -> None:
        """No member needs an entry up to this one any more."""
        while self._recent and self._recent[0].index <= index:
            self._drop_first()

    def forget_recent(self) -> None:
        """It does not fit the log any more."""
        self._recent.clear()
        self._recent_bytes = 0

    def has_snapshot(self, index: int, term: int, name: str, membership: Membership) -> None:
        """A snapshot is on disk, and named by the checkpoint."""
        self._snapshot_index, self._snapshot_term = index, term
        self._name = name
        self._membership = membership
