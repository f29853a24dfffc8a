"""One group's log as the core sees it: what storage holds, and the tail that is still needed here.

    first_index ......... base | base + 1 ....................... last_index
    in storage, maybe on disk  | in `tail`: not yet both on disk and handed out to be applied

    applied <= applying <= committed <= last_index      stable_index <= handed <= last_index

An entry leaves the tail when it is both stable and handed out to be applied, so that in the common
case nothing that is applied is ever read back. Writes are answered in order, by number: an answer
counts for what the log still holds of that write. A truncation takes the entries that it removes
out of the writes in flight, and this is what makes an answer immune to A-B-A: an entry that was
overwritten and came back counts as stable with its last write, not with its first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final

from .errors import LogDamaged
from .messages import (
    CONFIGURATION,
    ENTRY_OVERHEAD_BYTES,
    Entry,
    RaftMessage,
    Snapshot,
    size_of,
)
from .storage import Storage

UNKNOWN: Final = -1
"""Term of an entry that is compacted away or does not exist yet."""


Write = tuple[int, int, int, RaftMessage | None]
"""A Ready that the driver will answer: its number; the log up to where is on disk then; the index
of the snapshot that is installed then, 0: none; this node's vote for itself, which counts then."""


class RaftLog:
    """One group's log, as the core sees it."""

    __slots__ = (
        "_applying_bytes",
        "_applying_bytes_max",
        "_applying_sizes",
        "_asynchronous",
        "_storage",
        "applied",
        "applying",
        "base",
        "committed",
        "configurations",
        "handed",
        "last_index",
        "last_term",
        "reading",
        "snapshot",
        "snapshot_handed",
        "stable_index",
        "tail",
        "taken_bytes",
        "writes",
    )

    def __init__(
        self,
        storage: Storage,
        committed: int,
        applied: int,
        *,
        asynchronous: bool,
        applying_bytes_max: int,
        configurations: Sequence[int],
    ) -> None:
        self._storage = storage
        self._asynchronous = asynchronous
        first, last = storage.first_index(), storage.last_index()
        if not first - 1 <= applied <= last:
            raise LogDamaged(f"the log is {first} to {last}, and {applied} is applied")
        self.last_index = last
        self.last_term = storage.term(last)
        self.base = self.handed = self.stable_index = last
        self.tail: list[Entry] = []
        self.writes: deque[Write] = deque()
        # A torn batch may have kept its hard state and lost its entries. They are not lost: nobody
        # was told of them, and the leader says again what is committed.
        self.committed = max(min(committed, last), applied)
        self.applying = self.applied = applied
        self.reading = False
        """What is to be applied next is not in memory and has been asked for."""
        self.snapshot: Snapshot | None = None
        """A snapshot that came from the leader and is not installed yet."""
        self.snapshot_handed = False
        self.configurations = deque(configurations)
        """Indexes of configuration changes behind `applied`."""
        self.taken_bytes = 0
        self._applying_bytes = 0
        self._applying_bytes_max = applying_bytes_max
        self._applying_sizes: deque[tuple[int, int]] = deque()

    # --- Terms ------------------------------------------------------------------------------

    def first_index(self) -> int:
        """Index of the first entry behind the snapshot."""
        if self.snapshot is not None:
            return self.snapshot.index + 1
        return self._storage.first_index()

    def term(self, index: int) -> int:
        """Term of an entry or of the snapshot; UNKNOWN if neither reaches there."""
        if index == self.last_index:
            return self.last_term
        if index > self.last_index:
            return UNKNOWN
        if index > self.base:
            return self.tail[index - self.base - 1].term
        if self.snapshot is not None:
            return self.snapshot.term if index == self.snapshot.index else UNKNOWN
        if index < self._storage.first_index() - 1:
            return UNKNOWN
        return self._storage.term(index)

    def is_up_to_date(self, index: int, term: int) -> bool:
        """Whether a log with that last entry has at least what this one has (Raft 5.4.1)."""
        return term > self.last_term or (term == self.last_term and index >= self.last_index)

    def find_conflict(self, index: int, term: int) -> tuple[int, int]:
        """Where this log may still agree with one that has `term` at `index`: the last index at or
        below it whose term is no higher, and that term; terms only rise, so all between differ.
        The term is 0 if this log does not know it.
        """
        low = self.first_index() - 1
        if index > self.last_index or index < low:
            return index, 0
        if self.term(low) > term:
            return max(low - 1, 0), 0
        at = low + bisect_right(range(low, index + 1), term, key=self.term) - 1
        return at, self.term(at)

    # --- Growing ----------------------------------------------------------------------------

    def append(self, entry: Entry) -> None:
        """An entry follows the last one."""
        if entry.kind == CONFIGURATION:
            self.configurations.append(entry.index)
        self.tail.append(entry)
        self.last_index = entry.index
        self.last_term = entry.term

    def accept(self, index: int, term: int, entries: Sequence[Entry]) -> bool:
        """A leader's entries behind (index, term): False if this log does not have that entry.
        Only what conflicts is removed, so that an old append never shortens the log. LogDamaged if
        it conflicts with what is committed.
        """
        if index != self.last_index or term != self.last_term:
            if self.term(index) != term:
                return False
            skip = 0
            for entry in entries:
                if self.term(entry.index) != entry.term:
                    break
                skip += 1
            entries = entries[skip:]
            if not entries:
                return True
            self.truncate(entries[0].index)
        for entry in entries:
            self.append(entry)
        return True

    def truncate(self, index: int) -> None:
        """Entries from `index` on are void."""
        if index > self.last_index:
            return
        if index <= self.committed:
            raise LogDamaged(f"entry {index} conflicts with the leader's, but is committed")
        last = index - 1
        if last >= self.base:
            del self.tail[last - self.base :]
        else:
            self.tail.clear()
            self.base = last
        self.last_term = self.tail[-1].term if self.tail else self._term_before(last)
        self.last_index = last
        self.handed = min(self.handed, last)
        self.stable_index = min(self.stable_index, last)
        self._cut_writes(last)
        while self.configurations and self.configurations[-1] >= index:
            self.configurations.pop()

    def _term_before(self, last: int) -> int:
        if self.snapshot is not None and last == self.snapshot.index:
            return self.snapshot.term
        return self._storage.term(last)

    def commit_to(self, index: int) -> None:
        """Everything up to `index` is committed. LogDamaged if this log has lost some of it."""
        if index > self.committed:
            if index > self.last_index:
                raise LogDamaged(f"entry {index} was acknowledged and is lost; {self.last_index}")
            self.committed = index

    def restore(self, snapshot: Snapshot) -> None:
        """The leader's snapshot replaces the whole log."""
        self.snapshot = snapshot
        self.snapshot_handed = False
        index = snapshot.index
        self.tail.clear()
        self.base = self.handed = self.stable_index = self.last_index = self.committed = index
        self.last_term = snapshot.term
        self.configurations.clear()
        self.reading = False
        self._cut_writes(0)

    def _cut_writes(self, last: int) -> None:
        """Nothing of the writes in flight counts behind `last`."""
        self.writes = deque(
            (number, min(end, last), snapshot, vote) for number, end, snapshot, vote in self.writes
        )

    # --- Writing ----------------------------------------------------------------------------

    def take_unwritten(self) -> Sequence[Entry]:
        """Entries that are to be written, each once."""
        if self.handed == self.last_index:
            return ()
        entries = self.tail[self.handed - self.base :]
        self.handed = self.last_index
        return entries

    def written(self, number: int) -> list[RaftMessage] | None:
        """All writes up to this one are on disk; this node's votes for itself that wait for it."""
        votes: list[RaftMessage] | None = None
        writes = self.writes
        while writes and writes[0][0] <= number:
            _, last, snapshot, vote = writes.popleft()
            self.stable_index = max(self.stable_index, last)
            if vote is not None:
                votes = [vote] if votes is None else [*votes, vote]
            if snapshot and self.snapshot is not None and snapshot == self.snapshot.index:
                self.applied = self.applying = snapshot
                self.snapshot = None
                self._applying_sizes.clear()
                self._applying_bytes = 0
        self._trim()
        return votes

    def _trim(self) -> None:
        base = self.stable_index
        base = min(base, self.applying)
        if base > self.base:
            if base == self.last_index:
                self.tail.clear()
            else:
                del self.tail[: base - self.base]
            self.base = base

    # --- Applying ---------------------------------------------------------------------------

    def _applicable(self) -> int:
        """The last entry that may be applied: committed, and on this disk if writes are
        asynchronous (else the driver writes before it applies).
        """
        if self._asynchronous and self.stable_index < self.committed:
            return self.stable_index
        return self.committed

    def has_committed(self) -> bool:
        """Whether there is something to be applied, and room for it."""
        return (
            self.applying < self.committed
            and self.applying < self._applicable()
            and self._applying_bytes < self._applying_bytes_max
            and self.snapshot is None
            and not self.reading
        )

    def take_committed(self) -> Sequence[Entry]:
        """Entries to be applied, each once; `taken_bytes` is their size. None of them with
        `reading` newly set: they are not in memory.
        """
        if not self.has_committed():
            return ()
        last = self._applicable()
        if last == self.last_index and self.applying == self.base and last == self.stable_index:
            # The common case: all there is has been written and is committed.
            entries: Sequence[Entry] = self.tail
        else:
            found = self.entries(
                self.applying + 1, last, self._applying_bytes_max - self._applying_bytes
            )
            if found is None:
                self.reading = True
                return ()
            entries = found
        size = ENTRY_OVERHEAD_BYTES * len(entries)
        for entry in entries:
            size += len(entry.body)
        room = self._applying_bytes_max - self._applying_bytes
        if size > room:
            entries = _limited(entries, room)
            size = size_of(entries)
        if entries is self.tail:
            self.tail = []
            self.base = self.applying = last
        else:
            self.applying = entries[-1].index
            self._trim()
        self.taken_bytes = size
        self._applying_bytes += size
        self._applying_sizes.append((self.applying, size))
        if self.applying < last:
            # The rest waits until these are applied, so that one Ready never stalls a loop for
            # longer than the limit allows.
            self._applying_bytes = max(self._applying_bytes, self._applying_bytes_max)
        return entries

    def applied_to(self, index: int) -> None:
        """Entries up to `index` have been applied."""
        if index <= self.applied:
            return
        self.applied = index
        if index >= self.applying:
            self.applying = index
            self._applying_sizes.clear()
            self._applying_bytes = 0
        else:
            sizes = self._applying_sizes
            while sizes and sizes[0][0] <= index:
                sizes.popleft()
            self._applying_bytes = sum(size for _, size in sizes)
        while self.configurations and self.configurations[0] <= index:
            self.configurations.popleft()

    # --- Reading ----------------------------------------------------------------------------

    def entries(self, low: int, high: int, max_bytes: int) -> Sequence[Entry] | None:
        """Entries `low` to `high`, at least one, then while they fit into `max_bytes`; None if the
        first is not in memory. `low` must not be compacted away.
        """
        base = self.base
        if low > base:
            found: Sequence[Entry] = self.tail[low - base - 1 : high - base]
            return found if len(found) == 1 else _limited(found, max_bytes)
        stored = self._storage.entries(low, min(high, base), max_bytes)
        if not stored:
            return None
        if high <= base or stored[-1].index < base:
            return stored
        return _limited([*stored, *self.tail[: high - base]], max_bytes)

    def storage_snapshot(self) -> Snapshot | None:
        """The snapshot to send, if there is one now."""
        return self._storage.snapshot()


def _limited(entries: Sequence[Entry], max_bytes: int) -> Sequence[Entry]:
    size = 0
    for place, entry in enumerate(entries):
        size += len(entry.body) + ENTRY_OVERHEAD_BYTES
        if size > max_bytes and place:
            return entries[:place]
    return entries
