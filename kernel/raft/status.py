"""A core's state for people, metrics and the administrator's API."""

from __future__ import annotations

from dataclasses import dataclass

from .messages import LEADER, Membership
from .state import RaftState


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What the leader knows of one member."""

    node: int
    state: int
    """`progress.PROBE`, REPLICATE or SNAPSHOTTING."""
    match: int
    next: int
    learner: bool
    paused: bool
    pending_snapshot: int
    recent_active: bool
    inflight: int
    inflight_full: bool
    reading: bool


@dataclass(frozen=True, slots=True)
class Status:
    """See `RaftCore.status`."""

    node: int
    role: int
    term: int
    vote: int
    leader: int
    committed: int
    applied: int
    last_index: int
    stable_index: int
    transferee: int
    uncommitted_bytes: int
    membership: Membership
    members: tuple[MemberStatus, ...]
    """By node; empty unless this node leads."""


def status_of(core: RaftState) -> Status:
    """The state of a core now."""
    log = core.log
    members: tuple[MemberStatus, ...] = ()
    if core.role == LEADER:
        members = tuple(
            MemberStatus(
                each.node,
                each.state,
                each.match,
                each.next,
                each.learner,
                each.is_paused,
                each.pending_snapshot,
                each.recent_active,
                len(each.inflights),
                each.inflights.full,
                each.reading,
            )
            for each in core.tracker.progress.values()
        )
    return Status(
        core.node,
        core.role,
        core.term,
        core.vote,
        core.leader,
        log.committed,
        log.applied,
        log.last_index,
        log.stable_index,
        core.transferee,
        core.uncommitted_bytes,
        core.tracker.members,
        members,
    )
