"""The follower's half: taking what the leader sends. Candidates use it too, once there is one."""

from __future__ import annotations

from dataclasses import replace

from . import messages
from .election import hang_up
from .errors import LogDamaged, NotLeader
from .messages import APPEND_ANSWER, FOLLOWER, RaftMessage, ReadState, Snapshot
from .state import RaftState


def _heard(core: RaftState, message: RaftMessage) -> None:
    """The sender leads this term."""
    if core.role != FOLLOWER:
        core.become_follower(message.term, message.sender)
    core.election_elapsed = 0
    core.leader = message.sender


def on_append(core: RaftState, message: RaftMessage) -> None:
    """Entries, or a commit index. Answered once they are on disk."""
    _heard(core, message)
    log = core.log
    index, entries = message.index, message.entries
    if index < log.committed:
        # An old one: say how far this log is known to be right.
        answer = RaftMessage(APPEND_ANSWER, core.node, message.sender, core.term, 0, log.committed)
    else:
        last = index + len(entries)
        if entries and entries[-1].index != last:
            raise LogDamaged(f"{len(entries)} entries behind {index} end at {entries[-1].index}")
        if log.accept(index, message.log_term, entries):
            log.commit_to(min(message.commit, last))
            answer = RaftMessage(APPEND_ANSWER, core.node, message.sender, core.term, 0, last)
        else:
            hint, term = log.find_conflict(min(index, log.last_index), message.log_term)
            answer = RaftMessage(
                APPEND_ANSWER,
                core.node,
                message.sender,
                core.term,
                term,
                index,
                reject=True,
                hint=hint,
            )
    core.after_sync.append(answer)


def on_heartbeat(core: RaftState, message: RaftMessage) -> None:
    """The leader lives."""
    _heard(core, message)
    core.log.commit_to(message.commit)
    core.send(
        RaftMessage(
            messages.HEARTBEAT_ANSWER,
            core.node,
            message.sender,
            core.term,
            context=message.context,
            stamp=message.stamp,
        )
    )


def on_snapshot(core: RaftState, message: RaftMessage) -> None:
    """A snapshot in place of entries that the leader does not have any more."""
    _heard(core, message)
    log = core.log
    snapshot = message.snapshot
    restored = snapshot is not None and restore(core, snapshot)
    index = log.last_index if restored else log.committed
    core.after_sync.append(
        RaftMessage(APPEND_ANSWER, core.node, message.sender, core.term, 0, index)
    )


def restore(core: RaftState, snapshot: Snapshot) -> bool:
    """Take the snapshot, unless this log has what it holds or this node is not in it."""
    log = core.log
    if snapshot.index <= log.committed or not snapshot.membership.has(core.node):
        return False
    if log.term(snapshot.index) == snapshot.term:
        log.commit_to(snapshot.index)
        return False
    install(core, snapshot)
    return True


def install(core: RaftState, snapshot: Snapshot) -> None:
    """It takes the place of log and membership. LogDamaged if as much is committed."""
    if snapshot.index <= core.log.committed:
        raise LogDamaged(f"a snapshot of {snapshot.index} in place of a log that is longer")
    core.log.restore(snapshot)
    core.tracker.progress.clear()
    core.tracker.switch(snapshot.membership, core.log.last_index)


def on_timeout_now(core: RaftState, _message: RaftMessage) -> None:
    """The leader hands over."""
    hang_up(core, forced=True)


def forward(core: RaftState, message: RaftMessage) -> None:
    """Send on to the leader what only it can do. NotLeader if none is known."""
    if not core.leader:
        raise NotLeader(0)
    core.messages.append(replace(message, to=core.leader))


def on_propose(core: RaftState, message: RaftMessage) -> None:
    """Proposals for the leader. NotLeader unless this node forwards them."""
    if not core.options.forward_proposals:
        raise NotLeader(core.leader)
    forward(core, message)


def on_candidate_request(_core: RaftState, _message: RaftMessage) -> None:
    """There is no leader to ask."""
    raise NotLeader(0)


def on_read_index_answer(core: RaftState, message: RaftMessage) -> None:
    """The leader has confirmed a read of this node."""
    core.read_states.append(ReadState(message.index, message.context))
