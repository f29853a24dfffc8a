"""Three whole stores that speak over real sockets, on real disks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernel.broker.log_commands import commands
from kernel.common.errors import KernelError
from kernel.common.ids import METADATA_GROUP, RaftGroup
from tests.kernel.three_stores import Node, running, until


async def put(nodes: list[Node], key: str, value: bytes) -> None:
    """Set a record at whoever leads."""
    await until(lambda: any(node.leads for node in nodes))
    leader = next(node for node in nodes if node.leads)
    heard: list[object] = []
    change = commands.PutRecord(key, value, None)
    leader.opened.store.leader(METADATA_GROUP).propose(change, (0, 0, 0), heard.append)
    await until(lambda: heard)
    assert not isinstance(heard[0], KernelError), heard


async def test_what_one_store_is_told_is_on_the_disks_of_all(tmp_path: Path) -> None:
    async with running(tmp_path) as nodes:
        await put(nodes, "test/one", b"1" * 100_000)
        await put(nodes, "test/two", b"2")
        await until(lambda: all(set(node.records()) >= {"test/one", "test/two"} for node in nodes))
        assert {node.records()["test/one"][1] for node in nodes} == {b"1" * 100_000}
        assert [node.links.connected for node in nodes] == [[2, 3], [1, 3], [1, 2]]


async def test_the_others_go_on_without_a_leader_that_left_and_it_catches_up(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as nodes:
        await put(nodes, "test/before", b"1")
        leader = next(node for node in nodes if node.leads)
        others = [node for node in nodes if node is not leader]
        await leader.stop()
        await put(others, "test/meanwhile", b"2")
        await leader.start()
        await until(lambda: {"test/before", "test/meanwhile"} <= set(leader.records()))


async def test_a_node_with_another_secret_does_not_get_in(tmp_path: Path) -> None:
    async with running(tmp_path) as nodes:
        stranger = Node(3, tmp_path / "stranger", nodes[0].addresses)
        stranger.secret = b"guessed"
        stranger.reaches_peers = False
        await nodes[2].stop()
        await stranger.start()
        try:
            await put(nodes[:2], "test/secret", b"x")
            await asyncio.sleep(0.5)
            assert stranger.links.connected == []
            assert nodes[0].links.connected == [2]
            assert "test/secret" not in stranger.records()
        finally:
            await stranger.stop()
            await nodes[2].start()


@pytest.mark.parametrize("group", [METADATA_GROUP, RaftGroup(1)])
async def test_leadership_is_handed_over_on_request(tmp_path: Path, group: RaftGroup) -> None:
    async with running(tmp_path) as nodes:
        await until(lambda: any(node.opened.store.member(group).serves for node in nodes))
        leader = next(node for node in nodes if node.opened.store.member(group).serves)
        to = next(node for node in nodes if node is not leader)
        leader.opened.store.consensus.transfer(group, to.number)
        await until(lambda: to.opened.store.member(group).serves)
        assert not leader.opened.store.member(group).leads
