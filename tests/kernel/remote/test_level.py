"""A store learns what a group that another one leads has committed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernel.api.changes import PutRecord
from kernel.common.errors import Code, KernelError
from kernel.common.ids import METADATA_GROUP, RaftGroup
from kernel.store.raft_groups import awaited
from tests.kernel.remote.cluster import running_stores
from tests.kernel.remote.spread import lead
from tests.kernel.three_stores import leader_of, until


async def test_what_was_committed_is_known_everywhere_after_levelling(tmp_path: Path) -> None:
    async with running_stores(tmp_path, 3) as nodes:
        await lead(nodes, METADATA_GROUP, 1)
        for number in range(30):
            change = PutRecord(f"k/{number}", b"v")
            await nodes[0].opened.client.administer(change)
            for node in nodes[1:]:
                await node.peer_stores.level([METADATA_GROUP])
                assert f"k/{number}" in node.opened.client.records("k/")


async def test_a_group_that_rests_is_asked_too(tmp_path: Path) -> None:
    async with running_stores(tmp_path, 3) as nodes:
        await lead(nodes, METADATA_GROUP, 1)
        follower = nodes[1].opened.store.consensus
        await until(lambda: follower.members[METADATA_GROUP] in follower.quiescence.quiescent)
        async with asyncio.timeout(5):
            await nodes[1].peer_stores.level([METADATA_GROUP])


async def test_levelling_goes_on_at_the_next_leader(tmp_path: Path) -> None:
    async with running_stores(tmp_path, 3) as nodes:
        await lead(nodes, METADATA_GROUP, 1)
        await until(lambda: nodes[2].remote.connected == [1, 2, 3])
        dying = asyncio.create_task(nodes[0].kill())
        async with asyncio.timeout(10):
            await asyncio.gather(*(nodes[2].peer_stores.level([METADATA_GROUP]) for _ in range(20)))
        await dying
        assert leader_of(nodes, METADATA_GROUP) is not None


async def test_without_a_leader_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel.remote.peer_stores.remote_peer_stores.REACHED_SECONDS", 0.5)
    async with running_stores(tmp_path, 3) as nodes:
        await lead(nodes, METADATA_GROUP, 1)
        for node in nodes[:2]:
            await node.kill()
        with pytest.raises(KernelError) as caught:
            await nodes[2].peer_stores.level([METADATA_GROUP])
        assert caught.value.code is Code.UNAVAILABLE
        waiting = nodes[2].opened.store.consensus.awaited
        assert not waiting._reads


async def test_a_wait_ends_when_the_index_is_applied() -> None:
    applied = {RaftGroup(1): 5}
    asked: list[bytes] = []
    found = awaited.Awaited(1, 2, lambda _, context: asked.append(context), applied.__getitem__)
    await found.reached(RaftGroup(1), 5)
    waiting = asyncio.create_task(found.reached(RaftGroup(1), 6))
    levelling = asyncio.create_task(found.level(RaftGroup(1)))
    await asyncio.sleep(0)
    found.look()
    await asyncio.sleep(0)
    assert not waiting.done()
    found.answered(b"another", 9)
    found.answered(asked[0], 7)
    applied[RaftGroup(1)] = 6
    found.look()
    await waiting
    assert not levelling.done()
    applied[RaftGroup(1)] = 7
    found.look()
    await levelling
