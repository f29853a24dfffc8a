"""What the state machines have counted, and the proof that it is what the queues grew by."""

from __future__ import annotations

from collections import defaultdict

from kernel.broker.group_state.usage import UsageCount, Verb, counts
from tests.simulator.world import World


def everything(world: World) -> list[UsageCount]:
    """Every counter of every Raft group that was not reported."""
    return [each for replica in world.opened.store.replicas() for each in counts(replica.state)]


def check_growth(world: World) -> None:
    """The reconciliation: what was routed is, message by message, what the queues grew by."""
    routed: dict[tuple[int, int], int] = defaultdict(int)
    ends: dict[tuple[int, int], int] = {}
    for each in everything(world):
        if each.verb is Verb.ROUTED:
            routed[each.topic_id, each.since] += each.messages
            ends[each.topic_id, each.since] = each.end_offset
    assert routed == ends
