"""What the state machines have counted, and the proof that it is what the queues grew by."""

from __future__ import annotations

from collections import defaultdict

from kernel.broker.group_state.usage import UsageCount, Verb, counts
from kernel.common.ids import topic_of
from tests.simulator.world import World

Series = tuple[int, int, int]
"""Raft group, topic and log index of the first entry counted: what a counter is known by."""


def everything(world: World) -> list[UsageCount]:
    """Every counter of every Raft group that was not reported."""
    return [each for replica in world.opened.store.replicas() for each in counts(replica.state)]


def routed_series(world: World) -> dict[Series, tuple[int, int]]:
    """(routed by all origins, end offset) of every topic in every Raft group, not yet reported.

    The Raft group is part of the key, as in the bill (`spark.usage.PROOF`): `since` is an index of
    the group's own log, so the parts of a topic of several queues may well have begun at the same.
    """
    routed: dict[Series, int] = defaultdict(int)
    ends: dict[Series, int] = {}
    for replica in world.opened.store.replicas():
        for each in counts(replica.state):
            if each.verb is Verb.ROUTED:
                series = (int(replica.group), each.topic_id, each.since)
                routed[series] += each.messages
                assert ends.setdefault(series, each.end_offset) == each.end_offset, series
    return {series: (routed[series], end) for series, end in ends.items()}


def check_growth(world: World) -> None:
    """The reconciliation: what was routed is, message by message, what the queues grew by; held
    within each Raft group by itself, deleted topics whose counts were not reported included.
    """
    found = routed_series(world)
    routed = {series: messages for series, (messages, _) in found.items()}
    assert routed == {series: end for series, (_, end) in found.items()}


def check_nothing_uncounted(world: World) -> None:
    """What `check_growth` cannot see, as it goes by the counters: a queue grew, and its topic has
    no counter. Not for resized topics, whose queues may begin above zero.
    """
    for replica in world.opened.store.replicas():
        state = replica.state
        for queue in state.queues.values():
            if queue.index.tail:
                assert state.topics[topic_of(queue.id)].usage.sent, (replica.group, queue.id)
