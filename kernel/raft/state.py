"""What one Raft group's node knows, and how it takes a role: what all its handlers work on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .log import RaftLog
from .members.tracker import Tracker
from .messages import (
    CANDIDATE,
    EMPTY,
    FOLLOWER,
    LEADER,
    PRE_CANDIDATE,
    Entry,
    HardState,
    Membership,
    RaftMessage,
    ReadState,
    ReadWanted,
)
from .options import RaftOptions
from .reads import ReadOnly
from .storage import Storage

Jitter = Callable[[int], int]
"""A number from 0 to below the argument, by chance: spreads elections."""


Handler = Callable[["RaftState", RaftMessage], None]
Handlers = tuple[Handler | None, ...]
"""Of one role, by kind of message."""


class RaftState:
    """State of one group on this node."""

    __slots__ = (
        "_handlers_by_role",
        "_jitter",
        "_number",
        "_told_commit",
        "_told_leader",
        "_told_role",
        "_told_term",
        "_told_vote",
        "after_sync",
        "election_elapsed",
        "election_timeout",
        "handlers",
        "heartbeat_elapsed",
        "leader",
        "lease_void",
        "log",
        "messages",
        "node",
        "options",
        "own_vote",
        "pending_change",
        "postponed_reads",
        "read_states",
        "reads",
        "reads_wanted",
        "role",
        "silent_ticks",
        "term",
        "term_start",
        "ticks",
        "tracker",
        "transferee",
        "uncommitted_bytes",
        "vote",
    )

    def __init__(
        self,
        options: RaftOptions,
        storage: Storage,
        hard_state: HardState,
        membership: Membership,
        applied: int,
        jitter: Jitter,
        configurations: Sequence[int],
        handlers_by_role: Sequence[Handlers],
    ) -> None:
        """See `RaftCore`; `handlers_by_role`: the table of `roles`."""
        self._handlers_by_role = handlers_by_role
        self.options = options
        self.node = options.node
        self._jitter = jitter
        self.log = RaftLog(
            storage,
            hard_state.commit,
            applied,
            asynchronous=options.asynchronous_writes,
            applying_bytes_max=options.max_applying_bytes,
            configurations=configurations,
        )
        self.tracker = Tracker(
            options.node, options.max_inflight_messages, options.max_inflight_bytes
        )
        self.tracker.switch(membership, self.log.last_index)
        self.term = hard_state.term
        self.vote = hard_state.vote
        self.role = FOLLOWER
        self.leader = 0
        self.handlers = handlers_by_role[FOLLOWER]
        self.ticks = 0
        self.election_elapsed = 0
        self.heartbeat_elapsed = 0
        self.election_timeout = 0
        # With leases, a restarted voter may have answered a heartbeat just before it went down.
        leased = options.lease_reads or options.silent_start
        self.silent_ticks = options.election_ticks if leased and self.term else 0
        self.transferee = 0
        self.lease_void = False
        self.pending_change = 0
        self.term_start = 0
        self.uncommitted_bytes = 0
        self.own_vote: RaftMessage | None = None
        self.messages: list[RaftMessage] = []
        self.after_sync: list[RaftMessage] = []
        self.read_states: list[ReadState] = []
        self.reads_wanted: list[ReadWanted] = []
        self.reads = ReadOnly()
        self.postponed_reads: list[RaftMessage] = []
        self._number = 0
        self._told_leader, self._told_role = 0, FOLLOWER
        self._told_term, self._told_vote = hard_state.term, hard_state.vote
        self._told_commit = self.log.committed
        self.become_follower(self.term, 0)

    # --- What is the case -------------------------------------------------------------------

    def has_ready(self) -> bool:
        """Whether `ready` would bring anything."""
        log = self.log
        return bool(
            log.handed != log.last_index
            or self.messages
            or self.after_sync
            or log.committed != self._told_commit
            or self.term != self._told_term
            or self.vote != self._told_vote
            or self.role != self._told_role
            or self.leader != self._told_leader
            or self.own_vote is not None
            or self.read_states
            or self.reads_wanted
            or (log.snapshot is not None and not log.snapshot_handed)
            or log.has_committed()
        )

    # --- Roles ------------------------------------------------------------------------------

    def send(self, message: RaftMessage) -> None:
        """It may leave at once."""
        self.messages.append(message)

    def _enter(self, role: int, leads: int) -> None:
        self.role = role
        self.handlers = self._handlers_by_role[role]
        self.leader = leads

    def _reset(self, term: int) -> None:
        if term != self.term:
            self.term = term
            self.vote = 0
        self.election_elapsed = self.heartbeat_elapsed = 0
        ticks = self.options.election_ticks
        self.election_timeout = ticks + self._jitter(ticks)
        self.transferee = 0
        self.lease_void = False
        self.pending_change = 0
        self.uncommitted_bytes = 0
        self.tracker.reset(self.log.last_index, self.log.stable_index)
        self.reads = ReadOnly()
        self.postponed_reads = []
        self.reads_wanted = [each for each in self.reads_wanted if not each.node]

    def become_follower(self, term: int, leads: int) -> None:
        """Follow `leads` (0: nobody yet) in a term."""
        self._reset(term)
        self._enter(FOLLOWER, leads)

    def become_pre_candidate(self) -> None:
        """Ask around in the same term."""
        self.tracker.votes.clear()
        self._enter(PRE_CANDIDATE, 0)

    def become_candidate(self) -> None:
        """Begin a term with a vote for oneself."""
        self._reset(self.term + 1)
        self._enter(CANDIDATE, 0)
        self.vote = self.node

    def become_leader(self) -> None:
        """Lead the term one was elected in, and begin it with an empty entry: to be broadcast."""
        log = self.log
        self._reset(self.term)
        self._enter(LEADER, self.node)
        own = self.tracker.own
        if own is not None:
            own.become_replicate()
            own.recent_active = True
        # There may be a change of membership in what is not applied yet.
        self.pending_change = log.last_index
        self.term_start = log.last_index + 1
        log.append(Entry(self.term, self.term_start, EMPTY, b""))
