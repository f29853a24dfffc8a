"""Read requests that wait for a quorum to confirm the leader (dissertation 6.4).

A request is put down with the commit index of its moment and sent around as the context of a round
of heartbeats. Once a quorum has answered it, it is served, and with it all that came before.
"""

from __future__ import annotations

from typing import Final

from . import messages
from .errors import ReadsFull
from .messages import RaftMessage, ReadState
from .sending import heartbeat
from .state import RaftState


def on_read_index(core: RaftState, message: RaftMessage) -> None:
    """Somebody wants to read what is committed now."""
    waiting = len(core.reads) + len(core.postponed_reads)
    if core.tracker.is_singleton and core.tracker.own is not None:
        answer(core, message, core.log.committed)
    elif waiting >= core.options.max_pending_reads:
        raise ReadsFull(f"{waiting} reads wait for a round of heartbeats")
    elif core.log.committed < core.term_start:
        # What earlier terms have committed is known only once something of this one is.
        core.postponed_reads.append(message)
    else:
        _begin_read(core, message)


def _begin_read(core: RaftState, message: RaftMessage) -> None:
    if core.options.lease_reads and holds_lease(core):
        answer(core, message, core.log.committed)
        return
    core.reads.add(core.log.committed, message, core.node)
    heartbeat(core, message.context)


def release(core: RaftState) -> None:
    postponed, core.postponed_reads = core.postponed_reads, []
    for message in postponed:
        _begin_read(core, message)


def answer(core: RaftState, request: RaftMessage, index: int) -> None:
    if request.sender == core.node:
        core.read_states.append(ReadState(index, request.context))
    else:
        core.send(
            RaftMessage(
                messages.READ_INDEX_ANSWER,
                core.node,
                request.sender,
                core.term,
                index=index,
                context=request.context,
            )
        )


LEASE_MARGIN_TICKS: Final = 2
"""A tick of this node and one of the follower are not begun together: each may be short by one."""


def holds_lease(core: RaftState) -> bool:
    """Whether no other leader can have been elected by now: a quorum has answered a heartbeat sent
    less than an election timeout ago, and grants no vote until then.
    """
    if not core.options.check_quorum or core.lease_void or core.transferee:
        return False
    if core.log.committed < core.term_start:
        return False
    age = core.ticks - core.tracker.stamp(core.ticks)
    return age <= core.options.election_ticks - LEASE_MARGIN_TICKS
