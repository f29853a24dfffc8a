"""Cuts that let messages through in one direction only: publishing goes on as soon as two stores
that hear each other have noticed.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.simulator.cluster import TIMING, Cluster
from tests.simulator.test_cluster import GROUP, Publisher, clustered

TIMEOUT_S = TIMING.tick_ms * TIMING.election_ticks / 1_000
"""A follower campaigns after one to two of these; a leader that nobody answers steps down after one
to two as well, and only then do the others miss it."""

OUT, IN, OUT_TO_ONE, IN_FROM_ONE = "out", "in", "out to one", "in from one"

LONGEST = {OUT: 2, IN: 4, OUT_TO_ONE: 0, IN_FROM_ONE: 0}
"""In election timeouts; a few round trips come on top."""


def ways(kind: str, leader: int, others: list[int]) -> set[tuple[int, int]]:
    """(from, to) of what is lost."""
    some = others if kind in {OUT, IN} else others[:1]
    return {(leader, each) if kind in {OUT, OUT_TO_ONE} else (each, leader) for each in some}


async def longest_pause(cluster: Cluster, publisher: Publisher, seconds: float) -> float:
    """Publish at whoever says to serve, again and again; the longest time without an answer."""
    now = cluster.loop.time
    longest, answered, known = 0.0, now(), len(publisher.acked)
    end = now() + seconds
    while now() < end:
        leader = cluster.leader(GROUP)
        if leader is not None:
            publisher.publish(leader, b"x")
        await asyncio.sleep(0.05)
        longest = max(longest, now() - answered)
        if len(publisher.acked) > known:
            answered, known = now(), len(publisher.acked)
    return longest


@pytest.mark.parametrize("rested", [False, True])
@pytest.mark.parametrize("kind", [OUT, IN, OUT_TO_ONE, IN_FROM_ONE])
def test_publishing_goes_on(kind: str, *, rested: bool) -> None:
    @clustered()
    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.led()
        publisher = Publisher(cluster)
        await publisher.topic(leader)
        if rested:
            member, quiescence = leader.member(GROUP), leader.opened.store.consensus.quiescence
            await cluster.until(lambda: member in quiescence.quiescent)
        else:
            await longest_pause(cluster, publisher, TIMEOUT_S)
        others = [number for number in cluster.nodes if number != leader.number]
        cluster.network.cut(ways(kind, leader.number, others))
        pause = await longest_pause(cluster, publisher, 10 * TIMEOUT_S)
        assert pause < LONGEST[kind] * TIMEOUT_S + 0.25

    scenario()
