"""What the journal remembers of one Raft group's log, beside where its entries stand."""

from __future__ import annotations

from bisect import bisect_right

from .format.checkpoint import HardState


class GroupLog:
    """Last entry, terms by index, hard state."""

    __slots__ = ("_firsts", "_terms", "grew", "hard_state", "last_index", "last_term", "replaced")

    def __init__(self, index: int = 0, term: int = 0, hard_state: HardState | None = None) -> None:
        self.last_index = index
        self.last_term = term
        self.hard_state = hard_state or HardState()
        """As synced."""
        self.replaced = 0
        """From this entry on the log on disk may still be the one that has been replaced here; 0:
        it is this one."""
        self.grew = False
        """It has got an entry since this was last set (`install`)."""
        self._firsts = [index]
        self._terms = [term]

    def append(self, index: int, term: int) -> None:
        """Entry `index` follows (index = last + 1) or replaces what stood there and behind."""
        if index <= self.last_index:
            self.cut(index)
        self.last_index = index
        self.grew = True
        if term != self.last_term:
            self.last_term = term
            self._firsts.append(index)
            self._terms.append(term)

    def replaces(self, index: int) -> None:
        """What stands on disk from `index` on is void once the entry that is queued now is synced:
        until then it is the log, which may have been acknowledged.
        """
        self.replaced = min(index, self.replaced or index)

    def synced(self, index: int, term: int) -> int:
        """The entry is on disk, and all before it. Returns its index."""
        if self.replaced and index >= self.replaced and self.term(index) == term:
            self.replaced = 0
        return index

    def cut(self, index: int) -> None:
        """Forget the entries from `index` on."""
        while len(self._firsts) > 1 and self._firsts[-1] >= index:
            self._firsts.pop()
            self._terms.pop()
        self.last_index = index - 1
        self.last_term = self._terms[-1]

    def term(self, index: int) -> int:
        """Term of an entry from the last checkpoint on; 0 below it and beyond the end."""
        if index > self.last_index:
            return 0
        at = bisect_right(self._firsts, index) - 1
        return self._terms[at] if at >= 0 else 0

    def forget_below(self, index: int) -> None:
        """A snapshot holds everything up to `index`: its term stays known, older ones go."""
        at = bisect_right(self._firsts, index) - 1
        if at > 0:
            del self._firsts[:at]
            del self._terms[:at]
