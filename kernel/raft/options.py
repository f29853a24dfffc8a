"""Settings of a core. Times are in ticks, which the driver makes; sizes are in bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaftOptions:
    """ValueError for settings that do not go together."""

    node: int
    """This node's number in the group, from 1."""
    election_ticks: int = 10
    """A follower that has heard nothing for so long (and up to as long again, by the jitter)
    campaigns; a leader that has not heard a quorum for so long steps down."""
    heartbeat_ticks: int = 1
    pre_vote: bool = True
    """Ask whether an election could be won before raising the term (dissertation 9.6)."""
    check_quorum: bool = True
    """A leader without a quorum steps down; a follower with a leader grants no vote."""
    lease_reads: bool = False
    """Serve reads by the lease where it holds, without a round of heartbeats."""
    silent_start: bool = False
    """Whoever begins anew grants no vote for an election timeout, as with `lease_reads`: it may
    have answered a heartbeat just before it went down, and the driver relies on `holds_lease`."""
    asynchronous_writes: bool = True
    """Entries are applied only after `stable` has covered them. If not, the driver writes and
    syncs what a Ready brings before it applies or sends anything of it."""
    forward_proposals: bool = False
    """A follower sends proposals to the leader instead of refusing them. Nobody hears whether
    they got there."""
    validate_changes: bool = True
    """Refuse a change of membership that cannot fit when it is applied."""
    step_down_on_removal: bool = True
    """A leader that a change has removed or made a learner steps down at once."""
    max_message_bytes: int = 1 << 20
    """Entries of one append, unless a single one is larger."""
    max_inflight_messages: int = 16
    max_inflight_bytes: int = 16 << 20
    """Appends to one follower that wait for an answer: at most so many, and no further one once
    they are so large."""
    max_uncommitted_bytes: int = 64 << 20
    """Proposals beyond are refused, unless nothing else is uncommitted."""
    max_applying_bytes: int = 16 << 20
    """Entries handed out to be applied and not reported as applied."""
    max_pending_reads: int = 4096
    """Read requests that wait for a round of heartbeats or for the term's first commit."""

    def __post_init__(self) -> None:
        if self.node < 1:
            raise ValueError("node numbers begin with 1")
        if not 0 < self.heartbeat_ticks < self.election_ticks:
            raise ValueError("election_ticks must be more than heartbeat_ticks, and both positive")
        if self.lease_reads and not self.check_quorum:
            raise ValueError("lease_reads need check_quorum: nothing else ends a lease")
        limits = (
            self.max_message_bytes,
            self.max_inflight_messages,
            self.max_inflight_bytes,
            self.max_uncommitted_bytes,
            self.max_applying_bytes,
            self.max_pending_reads,
        )
        if min(limits) < 1:
            raise ValueError("every limit is at least 1")
