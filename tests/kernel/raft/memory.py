"""A log in memory behind the core's storage port, parts of which may be said not to be there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernel.raft.messages import ENTRY_OVERHEAD_BYTES, Entry, Membership, Snapshot

NOTHING = Snapshot(0, 0, Membership())


class MemoryStorage:
    """What is durable of one group on one node."""

    def __init__(self, snapshot: Snapshot = NOTHING) -> None:
        self.log: list[Entry] = []
        self.start = snapshot
        """The log begins behind it."""
        self.latest = snapshot
        """What a member that lacks the log's beginning is sent."""
        self.refresh: Callable[[], None] = lambda: None
        """Called before a snapshot is handed out."""
        self.resident: Callable[[int], bool] = lambda _index: True
        """Whether a body is in memory."""

    def first_index(self) -> int:
        return self.start.index + 1

    def last_index(self) -> int:
        return self.start.index + len(self.log)

    def term(self, index: int) -> int:
        if index == self.start.index:
            return self.start.term
        assert self.start.index < index <= self.last_index(), f"term of {index}"
        return self.log[index - self.start.index - 1].term

    def entries(self, low: int, high: int, max_bytes: int) -> Sequence[Entry] | None:
        assert self.first_index() <= low <= high <= self.last_index(), f"{low} to {high}"
        found: list[Entry] = []
        for entry in self.log[low - self.first_index() : high - self.first_index() + 1]:
            max_bytes -= len(entry.body) + ENTRY_OVERHEAD_BYTES
            if not self.resident(entry.index) or (max_bytes < 0 and found):
                break
            found.append(entry)
        return found or None

    def snapshot(self) -> Snapshot | None:
        self.refresh()
        return self.latest if self.latest.index else None

    # --- The driver's side ------------------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> None:
        """Entries take their places; what stood there and behind is replaced."""
        if not entries:
            return
        keep = entries[0].index - self.first_index()
        assert 0 <= keep <= len(self.log), f"a gap before {entries[0].index}"
        del self.log[keep:]
        self.log += entries

    def compact(self, index: int) -> None:
        """Entries up to `index` go."""
        term = self.term(index)
        del self.log[: index - self.start.index]
        self.start = Snapshot(index, term, self.start.membership)

    def install(self, snapshot: Snapshot) -> None:
        """A snapshot replaces everything."""
        self.log.clear()
        self.start = self.latest = snapshot

    def has(self, index: int, term: int) -> bool:
        """Whether this entry, or a snapshot that covers it, is here."""
        if index <= self.start.index:
            return True
        return index <= self.last_index() and self.term(index) == term
