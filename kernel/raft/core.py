"""One Raft group's core, in the shape of a raw node: no clock, socket, file or thread inside.

    campaign()           raise the term and become leader
    propose(body)        append an entry at the leader; returns its index
    ready()              what must be written and synced now: hard state and entries
    stable(index)        the driver reports: everything up to `index` is on this node's disk
    committed()          what may be applied now
    applied(index)       the driver reports: everything up to `index` has been applied

One voter a group for now, so that an entry commits as soon as this node's disk has it. The rules
that replication will need are kept already: a leader commits only entries of its own term, the
term is on disk before anything of it is answered, and messages that wait for a sync are told from
those that need not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ..ids import LogIndex, RaftGroup, Term


class Role(Enum):
    """What this node is in the group."""

    FOLLOWER = "follower"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class HardState:
    """What must be on disk before a vote or an answer of this term leaves."""

    term: Term
    vote: int
    commit: LogIndex


@dataclass(slots=True)
class Entry:
    """An entry of the group's log. Never changed (not frozen: that would cost 0.3 us each)."""

    term: Term
    index: LogIndex
    body: bytes


class Ready(NamedTuple):
    """What the driver must write in one synced batch, hard state first, before `stable`."""

    hard_state: HardState | None
    entries: tuple[Entry, ...]


class RaftCore:
    """State of one group on this node. `node` is this node's number among the voters."""

    def __init__(
        self, group: RaftGroup, node: int, hard_state: HardState, last: LogIndex, applied: LogIndex
    ) -> None:
        self.group = group
        self.node = node
        self.role = Role.FOLLOWER
        self.term = hard_state.term
        self.commit = max(hard_state.commit, applied)
        self.last = last
        self.applied_index = applied
        self._handed = applied
        self.stable_index = last
        self._own_term_from = LogIndex(last + 1)
        self._hard_state_changed = False
        self._unwritten: list[Entry] = []
        self._unapplied: dict[LogIndex, Entry] = {}

    def campaign(self) -> None:
        """Become leader of a new term. The term is on disk before any entry of it commits, since
        both travel in one synced batch, hard state first.
        """
        self.term = Term(self.term + 1)
        self.role = Role.LEADER
        self._own_term_from = LogIndex(self.last + 1)
        self._hard_state_changed = True

    def propose(self, body: bytes) -> LogIndex:
        """Append an entry; its index. Raises RuntimeError if this node does not lead."""
        if self.role is not Role.LEADER:
            raise RuntimeError(f"group {self.group}: not the leader")
        self.last = LogIndex(self.last + 1)
        entry = Entry(self.term, self.last, body)
        self._unwritten.append(entry)
        self._unapplied[self.last] = entry
        return self.last

    def ready(self) -> Ready:
        """What to write; each is handed out once."""
        hard_state = None
        if self._hard_state_changed:
            self._hard_state_changed = False
            hard_state = HardState(self.term, self.node, self.commit)
        unwritten = tuple(self._unwritten)
        self._unwritten.clear()
        return Ready(hard_state, unwritten)

    def committed(self) -> tuple[Entry, ...]:
        """Entries that may be applied, in order; each is handed out once."""
        entries: list[Entry] = []
        while self._handed < self.commit:
            entry = self._unapplied.pop(LogIndex(self._handed + 1), None)
            if entry is None:
                break
            self._handed = entry.index
            entries.append(entry)
        return tuple(entries)

    def stable(self, index: LogIndex) -> None:
        """Entries up to `index` are on this node's disk. With one voter that is the majority; an
        entry of an earlier term commits only with one of this term behind it.
        """
        self.stable_index = max(self.stable_index, index)
        if self.role is Role.LEADER and self.stable_index >= self._own_term_from:
            self.commit = max(self.commit, self.stable_index)

    def applied(self, index: LogIndex) -> None:
        """Entries up to `index` have been applied."""
        self.applied_index = max(self.applied_index, index)
