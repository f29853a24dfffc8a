"""A slow copy of a group that is written to all the while comes to its end, in a few rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.simulator.cluster import Cluster, Node
from tests.simulator.test_cluster import GROUP, Publisher, bodies_at, clustered, level, state_hash

BODY_BYTES = 20_000
BODIES = 150
"""3 MB, of which the copy brings all."""
WRITTEN = 40_000
"""Bytes a second that are published meanwhile."""
RATE = 100_000
"""Bytes a second of the copy: 2.5 times as much, so that each round brings 0.4 of the one before
it, down to what is written between two checkpoints."""
TAIL_BYTES = 400_000
"""Ten seconds of writes in the leader's memory."""


@pytest.fixture(autouse=True)
def _small_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel.store.raft_groups.consensus.RECENT_BYTES_MAX", 2 * TAIL_BYTES)
    monkeypatch.setattr("kernel.store.snapshots.transfer.ENTRIES_MAX", 4)


def numbered(first: int = 0) -> Iterator[bytes]:
    while True:
        yield b"%d " % first + bytes(BODY_BYTES)
        first += 1


async def copied_under_writes(cluster: Cluster, seconds: float) -> tuple[Node, list[int]]:
    """The node that gets the copy, and what each round has brought; after so long at most."""
    leader = await cluster.led()
    publisher = Publisher(cluster)
    await publisher.topic(leader)
    node = next(each for each in cluster.nodes.values() if each is not leader)
    node.crash()
    bodies = numbered()
    for _ in range(BODIES // 10):
        await publisher.published(leader, [next(bodies) for _ in range(10)])
    await asyncio.sleep(25)
    leader.member(GROUP).log.forget_recent()
    await node.start()
    receiver = node.opened.receiver
    assert receiver is not None
    receiver.rate_of = lambda _group: RATE
    rounds: list[int] = []
    until = cluster.loop.time() + seconds
    while cluster.loop.time() < until:
        await publisher.published(leader, [next(bodies)])
        await asyncio.sleep(BODY_BYTES / WRITTEN)
        while len(rounds) < receiver.installed:
            rounds.append(receiver.received_bytes - sum(rounds))
        lag = leader.opened.store.applied(GROUP) - node.opened.store.applied(GROUP)
        if rounds and lag <= 2 and not receiver.progress:
            return node, rounds
    return node, rounds


@pytest.mark.parametrize("hurry_seconds", [300.0, 0.0], ids=["hurries", "keeps its pace"])
def test_each_round_brings_only_what_is_new_until_the_tail_in_memory_lasts(
    hurry_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    @clustered()
    async def scenario(cluster: Cluster) -> None:
        node, rounds = await copied_under_writes(cluster, 300)
        receiver = node.opened.receiver
        assert receiver is not None
        assert not receiver.progress, rounds
        assert rounds[0] > BODIES * BODY_BYTES
        assert 2 <= len(rounds) <= 6, rounds
        for before, after in pairwise(rounds):
            assert after < before * 0.6 + TAIL_BYTES, rounds
        assert sum(rounds) < 2 * rounds[0]
        assert receiver.taken_bytes > 0.9 * rounds[0]
        await level(cluster)
        others = [each for each in cluster.running() if each is not node]
        assert await bodies_at(node) == await bodies_at(others[0])
        assert len({state_hash(each) for each in cluster.running()}) == 1

    monkeypatch.setattr("kernel.store.snapshots.transfer.HURRY_SECONDS", hurry_seconds)
    scenario()
