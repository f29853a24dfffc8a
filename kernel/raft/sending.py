"""What a leader sends by itself: appends, snapshots, heartbeats.

Policy (that of etcd's public test files): one append per proposal and member, an empty append for a
new commit index, one probe at a time to a member whose log is not known to match, a pause while
the window of unanswered appends is full, and meanwhile an empty append per answered heartbeat.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import messages
from .members.progress import REPLICATE, SNAPSHOTTING, Progress
from .messages import APPEND, ENTRY_OVERHEAD_BYTES, Entry, RaftMessage, ReadWanted
from .state import RaftState


def broadcast(core: RaftState) -> None:
    """Send everyone what they lack, or at least the commit index."""
    for progress in core.tracker.peers:
        send_append(core, progress)


def send_append(core: RaftState, progress: Progress, *, if_empty: bool = True) -> bool:
    """Send a member the next entries (an empty append only if `if_empty`), or a snapshot if the
    log does not reach back so far. False if nothing was sent.
    """
    if progress.paused or progress.reading or progress.state == SNAPSHOTTING:
        return False
    log = core.log
    following = progress.next
    prior_term = log.term(following - 1)
    if prior_term < 0:
        return _send_snapshot(core, progress)
    entries: Sequence[Entry] = ()
    if following <= log.last_index and not (
        progress.state == REPLICATE and progress.inflights.full
    ):
        # The storage is asked only about what is in memory no more.
        if following <= log.base and following < log.first_index():
            return _send_snapshot(core, progress)
        limit = core.options.max_message_bytes
        found = log.entries(following, log.last_index, limit)
        if found is None:
            # On disk: nothing waits for that, and the member is sent nothing until it is read.
            progress.reading = True
            core.reads_wanted.append(ReadWanted(following, log.base, limit, progress.node))
            return False
        entries = found
    count = len(entries)
    if not count and not if_empty:
        return False
    core.messages.append(
        RaftMessage(
            APPEND,
            core.node,
            progress.node,
            core.term,
            prior_term,
            following - 1,
            log.committed,
            entries,
        )
    )
    if count:
        size = ENTRY_OVERHEAD_BYTES * count
        for entry in entries:
            size += len(entry.body)
        progress.sent(count, size)
    else:
        progress.sent(0, 0)
    progress.sent_commit = log.committed
    return True


def _send_snapshot(core: RaftState, progress: Progress) -> bool:
    if not progress.recent_active:
        return False
    snapshot = core.log.storage_snapshot()
    if snapshot is None or not snapshot.membership.has(progress.node):
        # None now, or one from before the member was added, which would not take it.
        return False
    progress.become_snapshot(snapshot.index)
    core.send(
        RaftMessage(messages.SNAPSHOT, core.node, progress.node, core.term, snapshot=snapshot)
    )
    return True


def heartbeat(core: RaftState, context: bytes) -> None:
    """Tell everyone who leads, and as much of the commit index as each is known to have."""
    committed = core.log.committed
    for progress in core.tracker.peers:
        commit = min(progress.match, committed)
        core.send(
            RaftMessage(
                messages.HEARTBEAT,
                core.node,
                progress.node,
                core.term,
                commit=commit,
                context=context,
                stamp=core.ticks,
            )
        )
        progress.sent_commit = commit


def time_out_now(core: RaftState, to: int) -> None:
    # It may campaign whenever this arrives, in spite of every lease, so that this leader's lease
    # is worth nothing for the rest of the term.
    core.lease_void = True
    core.send(RaftMessage(messages.TIMEOUT_NOW, core.node, to, core.term))
