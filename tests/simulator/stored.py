"""What the queues of a group are said to hold is what they hold."""

from __future__ import annotations

from kernel.broker.group_state.state import GroupState
from kernel.broker.group_state.stored import Stored


def recounted(state: GroupState) -> Stored:
    """What a start from a snapshot would count."""
    stored = Stored()
    queues = (state.queues.peek(ident) for ident in state.queues)
    stored.count(queue for queue in queues if queue is not None)
    return stored


def wrong_sums(state: GroupState) -> str:
    """How what was counted as messages came and went is not what is there; empty if it is."""
    told, found = state.stored.by_tenant, recounted(state).by_tenant
    if told == found:
        return ""
    return f"group {state.group}: {told} is said to be stored, {found} is"
