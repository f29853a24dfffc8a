"""What Raft nodes say to each other, and what a core says to its driver.

Plain slotted objects and integers: a core makes several of them for each commit. They are never
changed after they were made (not frozen: that would cost 0.3 us each).

    kind               from -> to            fields used besides kind, sender, to, term
    PROPOSE            follower -> leader    entries without term and index
    APPEND             leader -> member      log_term, index (before the entries), commit, entries
    APPEND_ANSWER      member -> leader      index (last it has), or reject, hint, log_term
    PREVOTE, VOTE      candidate -> voter    log_term, index (its last), forced (by a transfer)
    PREVOTE_ANSWER,    voter -> candidate    reject, and then log_term, index of an entry that is
    VOTE_ANSWER                              committed, no higher than the candidate's last
    SNAPSHOT           leader -> member      snapshot; answered by APPEND_ANSWER once installed
    HEARTBEAT          leader -> member      commit, context, stamp
    HEARTBEAT_ANSWER   member -> leader      context, stamp (both as they came)
    TRANSFER           follower -> leader    sender is the node that is to lead
    TIMEOUT_NOW        leader -> voter       campaign at once
    READ_INDEX         follower -> leader    context
    READ_INDEX_ANSWER  leader -> follower    context, index

`term` is that of the sender; 0 in PROPOSE and READ_INDEX, which any leader may serve. `stamp` is
the leader's tick count, echoed, by which it knows how old its lease is; 0 says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

PROPOSE: Final = 0
APPEND: Final = 1
APPEND_ANSWER: Final = 2
PREVOTE: Final = 3
PREVOTE_ANSWER: Final = 4
VOTE: Final = 5
VOTE_ANSWER: Final = 6
SNAPSHOT: Final = 7
HEARTBEAT: Final = 8
HEARTBEAT_ANSWER: Final = 9
TRANSFER: Final = 10
TIMEOUT_NOW: Final = 11
READ_INDEX: Final = 12
READ_INDEX_ANSWER: Final = 13
MESSAGE_KINDS: Final = 14

ANSWERS: Final = frozenset((APPEND_ANSWER, PREVOTE_ANSWER, VOTE_ANSWER, HEARTBEAT_ANSWER))
"""Kinds that only a member may send."""

NORMAL: Final = 0
"""An entry that somebody proposed."""
CONFIGURATION: Final = 1
"""A change of membership (`configuration.encode`), active once applied."""
EMPTY: Final = 2
"""A leader's first entry: it has no body, and commits what earlier terms left."""

ENTRY_OVERHEAD_BYTES: Final = 64
"""Record header and object: counted with each body, so that bounds hold for tiny entries too."""

FOLLOWER: Final = 0
PRE_CANDIDATE: Final = 1
CANDIDATE: Final = 2
LEADER: Final = 3


@dataclass(slots=True, repr=False)
class Entry:
    """An entry of the group's log. The core never looks at `body` (but for CONFIGURATION)."""

    term: int
    index: int
    kind: int
    body: bytes

    def __repr__(self) -> str:
        return f"Entry({self.term}/{self.index} kind {self.kind}, {len(self.body)} bytes)"


def size_of(entries: Sequence[Entry]) -> int:
    """Bytes that entries count for in every bound."""
    size = ENTRY_OVERHEAD_BYTES * len(entries)
    for entry in entries:
        size += len(entry.body)
    return size


@dataclass(frozen=True, slots=True)
class Membership:
    """Who belongs to the group, as a snapshot and a driver keep it. Node numbers, sorted."""

    voters: tuple[int, ...] = ()
    voters_outgoing: tuple[int, ...] = ()
    """The other half of a joint configuration; empty outside of a change."""
    learners: tuple[int, ...] = ()
    learners_next: tuple[int, ...] = ()
    """Voters of the outgoing half that become learners when it ends."""
    auto_leave: bool = False
    """The leader ends the joint configuration by itself."""

    def has(self, node: int) -> bool:
        """Whether the node is a member of any kind."""
        return node in self.voters or node in self.voters_outgoing or node in self.learners


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of the group up to an entry. What it holds is the driver's: `handle` is opaque."""

    index: int
    term: int
    membership: Membership
    handle: object | None = None


@dataclass(slots=True)
class RaftMessage:
    """A message between two nodes of a Raft group."""

    kind: int
    sender: int
    to: int
    term: int
    log_term: int = 0
    index: int = 0
    commit: int = 0
    entries: Sequence[Entry] = ()
    reject: bool = False
    hint: int = 0
    context: bytes = b""
    snapshot: Snapshot | None = None
    stamp: int = 0
    forced: bool = False


@dataclass(slots=True)
class HardState:
    """What must be on disk before a vote or an answer of this term leaves (`commit` need not)."""

    term: int
    vote: int
    """The node voted for in this term; 0: none."""
    commit: int


class SoftState(NamedTuple):
    """What a driver wants to know at once but need not keep."""

    leader: int
    """Who leads; 0: unknown."""
    role: int


@dataclass(frozen=True, slots=True)
class ReadState:
    """A read request may be served once the state machine has applied `index`."""

    index: int
    context: bytes


class ReadWanted(NamedTuple):
    """Entries `low` to `high` (included), at least the first of them and no more than about
    `max_bytes`, are to be read into memory; then `RaftCore.loaded` with this very object.
    """

    low: int
    high: int
    max_bytes: int
    node: int
    """The member that lacks them; 0: this node's own state machine."""


@dataclass(slots=True)
class Ready:
    """What the driver must do now; each thing is handed out once."""

    number: int
    """To be reported by `RaftCore.stable` once this and all earlier Readies are on disk; 0: nobody
    waits for it."""
    must_sync: bool
    """Entries, term or vote have changed. If not, nothing here needs a sync of its own: a hard
    state with a new commit index may ride along with the next, or be left out."""
    hard_state: HardState | None
    soft_state: SoftState | None
    entries: Sequence[Entry]
    """To be written in this order, replacing whatever stands at their indexes or behind."""
    snapshot: Snapshot | None
    """To be installed in place of log and state, before `entries`."""
    committed: Sequence[Entry]
    """To be applied in order, then `RaftCore.applied`."""
    messages_now: Sequence[RaftMessage]
    """May leave at once: what they promise is a majority's to keep, not this disk's."""
    messages_after_sync: Sequence[RaftMessage]
    """Votes and answers: they leave when what this and all earlier Readies bring is on disk."""
    read_states: Sequence[ReadState]
    reads_wanted: Sequence[ReadWanted]
