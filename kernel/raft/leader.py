"""The leader's half: proposals, answers of the members, commits, changes of membership."""

from __future__ import annotations

from collections.abc import Sequence

from . import messages
from .errors import (
    ConfigurationRefused,
    NotLeader,
    ProposalsFull,
    RaftError,
    TransferUnderWay,
)
from .members.configuration import changed, decode
from .members.progress import PROBE, REPLICATE, SNAPSHOTTING, Progress
from .members.quorum import VOTE_WON
from .messages import ENTRY_OVERHEAD_BYTES, NORMAL, Entry, RaftMessage
from .read_only import answer, release
from .sending import broadcast, heartbeat, send_append, time_out_now
from .state import RaftState

# --- Proposals ------------------------------------------------------------------------------


def check_may_propose(core: RaftState) -> None:
    """NotLeader or TransferUnderWay if the leader may not append now."""
    if core.tracker.own is None:
        raise NotLeader(0)
    if core.transferee:
        raise TransferUnderWay(f"leadership goes to node {core.transferee}")


def propose(core: RaftState, bodies: Sequence[bytes]) -> int:
    """Append entries and send them; index of the first. See `RaftCore.propose`."""
    if core.transferee or core.tracker.own is None:
        check_may_propose(core)
    size = ENTRY_OVERHEAD_BYTES * len(bodies)
    for body in bodies:
        size += len(body)
    uncommitted = core.uncommitted_bytes
    limit = core.options.max_uncommitted_bytes
    if uncommitted and uncommitted + size > limit:
        raise ProposalsFull(f"{uncommitted} bytes wait to be committed; the limit is {limit}")
    core.uncommitted_bytes = uncommitted + size
    log = core.log
    term, index = core.term, log.last_index
    tail = log.tail
    first = index + 1
    for body in bodies:
        index += 1
        tail.append(Entry(term, index, NORMAL, body))
    log.last_index = index
    log.last_term = term
    if core.tracker.peers:
        broadcast(core)
    return first


def propose_change(core: RaftState, body: bytes) -> int:
    """Append an encoded change of membership. ConfigurationRefused if another one is not applied
    yet, or it does not fit what is in force.
    """
    check_may_propose(core)
    change = decode(body)
    log = core.log
    members = core.tracker.members
    if core.options.validate_changes:
        if core.pending_change > log.applied:
            raise ConfigurationRefused(
                f"the change at index {core.pending_change} is not applied yet ({log.applied})"
            )
        if members.voters_outgoing and not change.leaves_joint:
            raise ConfigurationRefused("must transition out of joint config first")
        changed(members, change)
    index = log.last_index + 1
    core.pending_change = index
    log.append(Entry(core.term, index, messages.CONFIGURATION, body))
    core.uncommitted_bytes += len(body) + ENTRY_OVERHEAD_BYTES
    broadcast(core)
    return index


def on_propose(core: RaftState, message: RaftMessage) -> None:
    """A follower has forwarded proposals: all of one kind."""
    if message.entries[0].kind == messages.CONFIGURATION:
        for entry in message.entries:
            propose_change(core, entry.body)
    else:
        propose(core, [entry.body for entry in message.entries])


# --- Committing -----------------------------------------------------------------------------


def maybe_commit(core: RaftState) -> bool:
    """Commit what a quorum has, if it is of this term; earlier terms go along (Raft 5.4.2)."""
    index = core.tracker.committed()
    log = core.log
    if index <= log.committed or index < core.term_start:
        return False
    log.committed = index
    if core.postponed_reads:
        release(core)
    return True


def own_stable(core: RaftState) -> None:
    """The leader's own disk has more of the log."""
    own = core.tracker.own
    index = core.log.stable_index
    if own is not None and own.match < index:
        own.match = index
        if own.next <= index:
            own.next = index + 1
        if maybe_commit(core):
            broadcast(core)


def on_append_answer(core: RaftState, message: RaftMessage) -> None:
    """A member has, or lacks, what was sent."""
    progress = core.tracker.progress.get(message.sender)
    if progress is None:
        return
    progress.recent_active = True
    if message.reject:
        _on_rejected(core, progress, message)
        return
    index = message.index
    log = core.log
    if index > log.last_index:
        return
    if not progress.update(index) and not (progress.match == index and progress.state == PROBE):
        return
    if progress.state == REPLICATE:
        progress.inflights.free(index)
    elif progress.state == PROBE or progress.match + 1 >= log.first_index():
        # A member that was sent a snapshot, or a part of the log meanwhile, goes on from here.
        progress.become_replicate()
    if maybe_commit(core):
        broadcast(core)
    elif progress.can_bump_commit(log.committed):
        send_append(core, progress)
    if progress.next <= log.last_index:
        catch_up(core, progress)
    if message.sender == core.transferee and progress.match == log.last_index:
        time_out_now(core, message.sender)


def catch_up(core: RaftState, progress: Progress) -> None:
    """Fill a member's window."""
    while send_append(core, progress, if_empty=False):
        pass


def _on_rejected(core: RaftState, progress: Progress, message: RaftMessage) -> None:
    hint = message.hint
    if message.log_term > 0:
        hint = core.log.find_conflict(hint, message.log_term)[0]
    if progress.decrease(message.index, hint):
        if progress.state == REPLICATE:
            progress.become_probe()
        send_append(core, progress)


def on_heartbeat_answer(core: RaftState, message: RaftMessage) -> None:
    """A member lives: let what is held up go on, count it for leases and reads."""
    progress = core.tracker.progress.get(message.sender)
    if progress is None:
        return
    progress.recent_active = True
    progress.paused = False
    if message.stamp > progress.stamp:
        progress.stamp = min(message.stamp, core.ticks)
    if progress.match < core.log.last_index or progress.state == PROBE:
        send_append(core, progress)
    if not message.context:
        return
    acks = core.reads.acknowledge(message.sender, message.context)
    if acks is None or core.tracker.vote_result(acks) != VOTE_WON:
        return
    for pending in core.reads.take(message.context):
        answer(core, pending.request, pending.index)


# --- Members --------------------------------------------------------------------------------


def check_quorum(core: RaftState) -> None:
    """An election timeout has passed: step down if no quorum was heard of in it."""
    if not core.tracker.quorum_active():
        core.become_follower(core.term, 0)
    for progress in core.tracker.peers:
        progress.recent_active = False


def on_transfer(core: RaftState, message: RaftMessage) -> None:
    """The sender is to lead. A learner cannot; a second request replaces the first."""
    to = message.sender
    progress = core.tracker.progress.get(to)
    if progress is None or progress.learner or to in (core.transferee, core.node):
        return
    # It has an election timeout to take over; then this leader goes on.
    core.election_elapsed = 0
    core.transferee = to
    if progress.match == core.log.last_index:
        time_out_now(core, to)
    else:
        send_append(core, progress)


def members_changed(core: RaftState) -> None:
    """Another membership is in force."""
    own = core.tracker.own
    if own is None or own.learner:
        if core.options.step_down_on_removal:
            core.become_follower(core.term, 0)
        return
    if not core.tracker.members.voters:
        return
    if maybe_commit(core):
        broadcast(core)
    else:
        for progress in core.tracker.peers:
            send_append(core, progress, if_empty=False)
    if core.transferee and not core.tracker.is_voter(core.transferee):
        core.transferee = 0


def leave_joint_if_due(core: RaftState) -> None:
    """End a joint configuration that is to end by itself, once nothing else is under way."""
    if core.tracker.members.auto_leave and core.log.applied >= core.pending_change:
        try:
            propose_change(core, b"")
        except RaftError:
            # Leadership is being handed over: the next leader will see to it, or the next tick.
            return


# --- The driver's reports -------------------------------------------------------------------


def report_unreachable(core: RaftState, node: int) -> None:
    """See `RaftCore.report_unreachable`."""
    progress = core.tracker.progress.get(node)
    if progress is not None and progress.state == REPLICATE:
        progress.become_probe()


def report_snapshot(core: RaftState, node: int, *, installed: bool) -> None:
    """See `RaftCore.report_snapshot`."""
    progress = core.tracker.progress.get(node)
    if progress is None or progress.state != SNAPSHOTTING:
        return
    if not installed:
        progress.pending_snapshot = 0
    progress.become_probe()
    progress.paused = True


def replica_lost(core: RaftState, node: int, snapshot_index: int = 0) -> None:
    """A member has lost its log. It gets nothing but the snapshot up to `snapshot_index`, if that
    is on its way.
    """
    progress = core.tracker.progress.get(node)
    if progress is None:
        return
    progress.match = progress.sent_commit = 0
    if snapshot_index:
        progress.become_snapshot(snapshot_index)
    else:
        progress.become_probe()
        progress.paused = True


def is_level(core: RaftState) -> bool:
    """See `RaftCore.is_level`."""
    log = core.log
    last = log.last_index
    if log.applied != last or core.transferee or core.tracker.members.voters_outgoing:
        return False
    if len(core.reads) or core.postponed_reads or core.has_ready():
        return False
    return all(
        each.match == last and each.state == REPLICATE and each.sent_commit == last
        for each in core.tracker.peers
    )


def wake(core: RaftState) -> None:
    """See `RaftCore.wake`. Time has passed that was not counted: no answer from before is good for
    a lease.
    """
    for progress in core.tracker.peers:
        progress.recent_active = True
        progress.stamp = core.ticks - core.options.election_ticks
    heartbeat(core, core.reads.last_context())
