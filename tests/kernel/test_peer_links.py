"""Three whole stores that speak over real sockets, on real disks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from kernel.broker import commands
from kernel.errors import KernelError
from kernel.ids import METADATA_GROUP, RaftGroup
from kernel.log.journal import JournalOptions
from kernel.rpc.handshake import Hello
from kernel.store.consensus import RaftTiming
from kernel.store.disk import DirectoryDisk
from kernel.store.opening import LocalStore, open_store
from kernel.store.peer_links import PeerLinks, new_nonce
from kernel.store.system import SystemClock, SystemRandom
from kernel.store.worker import Worker

CLOCK, RANDOM = SystemClock(), SystemRandom()
TIMING = RaftTiming(tick_ms=20, election_ticks=10)
SECRET = b"of this cluster"


def free_ports(count: int) -> list[int]:
    import socket

    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Node:
    """A store and its links."""

    def __init__(self, number: int, path: Path, addresses: dict[int, tuple[str, int]]) -> None:
        self.number = number
        self.path = path
        self.addresses = addresses
        self.secret = SECRET

    def hello(self) -> Hello:
        nonce = new_nonce(RANDOM.bits)
        return Hello((1, 1), "test", self.number, str(self.number), "store", "", nonce)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.links = PeerLinks(self.hello, self.secret, self.addresses, CLOCK)
        self.opened: LocalStore = open_store(
            DirectoryDisk(self.path),
            CLOCK,
            RANDOM,
            partial(Worker, loop),
            _fatal,
            options=JournalOptions(segment_bytes=1024 * 1024, reserve_bytes=1024 * 1024),
            data_groups=1,
            node=self.number,
            members=tuple(self.addresses),
            peers=self.links,
            timing=TIMING,
            reserve_bytes=0,
        )
        source = self.opened.source
        assert source is not None
        await self.links.start(self.opened.store.consensus, source)
        await self.opened.start()

    async def stop(self) -> None:
        await self.links.stop()
        await self.opened.stop()

    @property
    def leads(self) -> bool:
        return self.opened.store.member(METADATA_GROUP).serves

    def records(self) -> dict[str, tuple[int, bytes]]:
        return self.opened.store.replica(METADATA_GROUP).state.records


def _fatal(text: str, error: BaseException) -> None:
    raise AssertionError(text) from error


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[list[Node]]:
    ports = free_ports(3)
    addresses = {number: ("127.0.0.1", port) for number, port in enumerate(ports, 1)}
    nodes = [Node(number, path / str(number), addresses) for number in addresses]
    for node in nodes:
        await node.start()
    try:
        yield nodes
    finally:
        for node in nodes:
            await node.stop()


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
