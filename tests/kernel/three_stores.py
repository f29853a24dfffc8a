"""Three whole stores in one process, that speak over real sockets and write to real disks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from kernel.common.ids import METADATA_GROUP, RaftGroup
from kernel.in_process.opening import LocalStore, open_store
from kernel.log.journal import JournalOptions
from kernel.remote.leader_calls.lane_service import BYTES_MAX, CALLS_MAX
from kernel.remote.leader_calls.leaders import RemoteLeaders
from kernel.remote.serving import join_peer_stores, serve_gateways
from kernel.rpc.handshake import VERSIONS, Hello
from kernel.rpc.roles import GATEWAY, STORE
from kernel.store.drivers.disk import DirectoryDisk
from kernel.store.drivers.system import SystemClock, SystemRandom
from kernel.store.drivers.worker import Worker
from kernel.store.raft_groups.consensus import RaftTiming
from kernel.store.raft_groups.peer_links import PeerLinks, new_nonce
from tests.free_ports import free_ports

CLOCK, RANDOM = SystemClock(), SystemRandom()
TIMING = RaftTiming(tick_ms=20, election_ticks=10)
SECRET = b"of this cluster"


class Node:
    """A store and its links."""

    def __init__(
        self,
        number: int,
        path: Path,
        addresses: dict[int, tuple[str, int]],
        data_groups: int = 1,
    ) -> None:
        self.number = number
        self.path = path
        self.addresses = addresses
        self.data_groups = data_groups
        self.secret = SECRET
        self.calls_max = CALLS_MAX
        self.bytes_max = BYTES_MAX
        self.settle_in_ms = 0
        self.reaches_peers = len(addresses) > 1
        """Its own client reaches groups that other stores lead."""
        self.runs = False

    def hello(self, role: str = STORE) -> Hello:
        nonce = new_nonce(RANDOM.bits)
        return Hello(VERSIONS, "test", self.number, str(self.number), role, "", nonce)

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
            data_groups=self.data_groups,
            node=self.number,
            members=tuple(self.addresses) if len(self.addresses) > 1 else None,
            peers=self.links,
            timing=TIMING,
            reserve_bytes=0,
        )
        self.service = serve_gateways(
            self.opened,
            loop.call_soon,
            calls_max=self.calls_max,
            bytes_max=self.bytes_max,
            settle_in_ms=self.settle_in_ms,
        )
        self.links.serve(GATEWAY, self.service, _of_this_cluster)
        self.remote = RemoteLeaders(
            partial(self.hello, GATEWAY), self.secret, self.addresses, CLOCK
        )
        if self.reaches_peers:
            self.peer_stores = join_peer_stores(self.opened, self.remote, CLOCK, RANDOM)
        source = self.opened.source
        assert source is not None
        await self.links.start(self.opened.store.consensus, source)
        await self.opened.start()
        if self.reaches_peers:
            self.remote.start()
        self.runs = True

    async def stop(self) -> None:
        self.runs = False
        await self.remote.stop()
        await self.links.stop()
        await self.opened.stop()

    async def kill(self) -> None:
        """End without a goodbye: nobody hears an answer, or that there will be none."""
        links = self.links
        wires = [*links.acceptor._wires, *(each._wire for each in links._dialers.values())]
        for wire in wires:
            if wire is not None:
                wire.abort()
        await self.stop()

    @property
    def leads(self) -> bool:
        return self.opened.store.member(METADATA_GROUP).serves

    def records(self) -> dict[str, tuple[int, bytes]]:
        return self.opened.store.replica(METADATA_GROUP).state.records

    def fill(self, *, full: bool) -> None:
        """Have no room for new messages, whatever the disk says from now on; or have some."""
        self.opened.housekeeper._accept = lambda _accepting: None
        self.opened.client.accepting = not full

    def serves(self, group: RaftGroup) -> bool:
        return self.runs and self.opened.store.serving(group) is not None


def leader_of(nodes: Sequence[Node], group: RaftGroup) -> Node | None:
    return next((node for node in nodes if node.serves(group)), None)


def _of_this_cluster(peer: Hello) -> str | None:
    return None if peer.cluster == "test" else "another cluster"


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
        node.reaches_peers = False
        await node.start()
    try:
        yield nodes
    finally:
        for node in nodes:
            if node.runs:
                await node.stop()
