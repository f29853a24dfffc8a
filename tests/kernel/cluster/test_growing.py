"""A cluster of one store takes in others, over real sockets and on real disks."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from kernel.cluster.desk import Desk
from kernel.cluster.manager import Manager
from kernel.cluster.messages import Admit
from kernel.cluster.office import Office
from kernel.cluster.records import Facts, NodeState
from kernel.cluster.roster import Home, Roster, read_home
from kernel.remote.leaders import RemoteLeaders
from kernel.remote.serving import serve_gateways
from kernel.rpc.handshake import Hello
from kernel.rpc.roles import GATEWAY
from kernel.store.disk import DirectoryDisk
from kernel.store.opening import open_store
from kernel.store.peer_links import PeerLinks, new_nonce
from kernel.store.worker import Worker
from tests.kernel.three_stores import CLOCK, RANDOM, SECRET, TIMING, _fatal, free_ports, until


class Store:
    """A store as a process of its own runs it."""

    def __init__(self, number: int, path: Path, port: int, peers: dict[int, tuple[str, int]]):
        self.number = number
        self.facts = Facts(f"disk-{path.name}", "127.0.0.1", port, f"host-{number}")
        self.disk = DirectoryDisk(path)
        home = read_home(self.disk) or Home("test", number, number == 1)
        self.roster = Roster(home, self.facts.store, {**peers, number: ("127.0.0.1", port)})

    def hello(self, role: str) -> Hello:
        nonce = new_nonce(RANDOM.bits)
        return Hello((1, 1), "test", self.number, self.facts.store, role, "", nonce)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        addresses = self.roster.addresses()
        self.links = PeerLinks(
            partial(self.hello, "store"), SECRET, addresses, CLOCK, admit=self.roster.admit
        )
        self.local = open_store(
            self.disk, CLOCK, RANDOM, partial(Worker, loop), _fatal, data_groups=1,
            node=self.number, members=None if self.number == 1 else (), peers=self.links,
            timing=TIMING, reserve_bytes=0,
        )  # fmt: skip
        store = self.local.store
        self.desk = Desk(store, self.local.client, self.links, self.roster, CLOCK, "0")
        service = serve_gateways(self.local, loop.call_soon)
        service.add(self.desk)
        self.links.serve(GATEWAY, service, self.roster.admit_gateway)
        assert self.local.source is not None
        own = (self.facts.host, self.facts.port)
        await self.links.start(store.consensus, self.local.source, own)
        await self.local.start()
        self.remote = RemoteLeaders(partial(self.hello, GATEWAY), SECRET, addresses, CLOCK)
        self.remote.start()
        self.office = Office("test", self.remote, lambda: self.roster.records)
        self.manager = Manager(
            store, self.local.client, self.links, self.remote, self.roster, self.desk,
            self.facts, self.disk,
        )  # fmt: skip
        self.task = loop.create_task(self.manager.run())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.desk.stop()
        await self.remote.stop()
        await self.links.stop()
        await self.local.stop()

    def is_voter(self) -> bool:
        members = self.local.store.consensus.members.values()
        return all(self.number in each.core.tracker.members.voters for each in members)


async def test_a_store_joins_leads_and_leaves(tmp_path: Path) -> None:
    ports = free_ports(2)
    first = Store(1, tmp_path / "1", ports[0], {})
    second = Store(2, tmp_path / "2", ports[1], {1: ("127.0.0.1", ports[0])})
    await first.start()
    await second.start()
    try:
        await until(lambda: 1 in first.roster.records)
        await second.office.admit(Admit(2, second.facts, 1))
        await until(second.is_voter)
        await until(lambda: first.roster.records[2].state is NodeState.MEMBER)
        assert sorted(first.roster.records) == [1, 2]
        status = await second.office.status()
        assert [each.answers for each in status.nodes] == [True, True]
        await until(lambda: len(second.remote.connected) == 2)
        assert len(await second.office.rebalance()) == 1
        await first.office.dismiss(2)
        await until(lambda: sorted(first.roster.records) == [1])
        await until(lambda: not first.links.connected)
    finally:
        await second.stop()
        await first.stop()
