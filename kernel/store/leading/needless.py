"""Commands that would change nothing, which a leader answers without the log.

Clients do not know the states of groups, so they ask for what may be so already: that a subscriber
without anything on disk be ended, that a list be joined anew. What such a command comes to is known
from the state that has been applied; commands that are on their way into the log have not been
answered yet, and count as later ones. So it is with a subscriber that is another user's.
"""

from __future__ import annotations

from ...api.tree import anothers, belongs_to
from ...broker.applying.resizes import retirement, window_part
from ...broker.group_state.state import GroupState
from ...broker.log_commands import commands
from ...broker.log_commands import tree_commands as tree
from ...broker.log_commands.resize_commands import ReadWindow, Retire
from ...broker.snapshots.tree_snapshot import index_queue
from ...common.errors import KernelError


def needless(state: GroupState, change: commands.Control, now_ms: int) -> object:
    """What a command comes to, if it changes nothing; None if it may. `now_ms`: the leader's log
    time, at or above what the last entry had. Where nothing else is written it is a RETIRE that
    moves the log's time: by this it is written once the window of its queue is past.
    """
    if isinstance(change, tree.OpenSubscriber | tree.EndSubscriber):
        return _opens_or_ends(state, change)
    if isinstance(change, tree.JoinIndex):
        ident = state.indexes.get((change.tenant, change.pattern))
        groups = state.queues[index_queue(ident)].groups if ident is not None else {}
        progress = groups.get(change.group)
        if progress is None:
            return None
        member = change.member
        joined = progress.joined if member is None else progress.members.get(member, -1)
        return True if joined >= change.epoch else None
    if isinstance(change, Retire):
        return retirement(state, change.queue, now_ms)
    if isinstance(change, ReadWindow):
        return window_part(state, change)
    return None


def _opens_or_ends(
    state: GroupState, change: tree.OpenSubscriber | tree.EndSubscriber
) -> KernelError | bool | None:
    number = state.subscriber_names.get((change.tenant, change.name))
    if number is None:
        only_known = isinstance(change, tree.EndSubscriber) or change.only_known
        return False if only_known else None
    if isinstance(change, tree.EndSubscriber) and change.anyones:
        return None
    # Whoever tries other users' names again and again writes nothing.
    return None if belongs_to(state.subscribers[number].user, change.user) else anothers()
