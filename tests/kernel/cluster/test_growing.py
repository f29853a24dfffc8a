"""A cluster of one store takes in others, over real sockets and on real disks."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from kernel.api.changes import DeleteTopic, PutTopic
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicOptions
from kernel.cluster.cluster_admin import ClusterAdmin
from kernel.cluster.cluster_service import ClusterService
from kernel.cluster.leader_balance import Calm
from kernel.cluster.manager import Manager
from kernel.cluster.messages import (
    Admit,
    Goal,
    GroupReport,
    Leave,
    ReplicaReport,
    Report,
    Towards,
)
from kernel.cluster.outsiders import outsiders
from kernel.cluster.records import Facts, NodeState
from kernel.cluster.roster import Home, Roster, read_home
from kernel.common.ids import METADATA_GROUP, RaftGroup
from kernel.in_process.opening import open_store
from kernel.remote.connecting import connect
from kernel.remote.leader_calls.leaders import RemoteLeaders
from kernel.remote.serving import join_peer_stores, serve_gateways
from kernel.rpc.handshake import VERSIONS, Hello
from kernel.rpc.roles import GATEWAY
from kernel.store.drivers.disk import DirectoryDisk
from kernel.store.drivers.worker import Worker
from kernel.store.raft_groups.peer_links import PeerLinks, new_nonce
from tests.free_ports import free_ports
from tests.kernel.three_stores import CLOCK, RANDOM, SECRET, TIMING, _fatal, until


class Store:
    """A store as a process of its own runs it."""

    def __init__(
        self,
        number: int,
        path: Path,
        port: int,
        peers: dict[int, tuple[str, int]],
        data_groups: int = 1,
        replicas: int = 0,
    ):
        self.number = number
        self.data_groups = data_groups
        self.replicas = replicas
        self.facts = Facts(f"disk-{path.name}", "127.0.0.1", port, f"host-{number}")
        self.disk = DirectoryDisk(path)
        home = read_home(self.disk) or Home("test", number, number == 1)
        self.roster = Roster(home, self.facts.store, {**peers, number: ("127.0.0.1", port)})

    def hello(self, role: str) -> Hello:
        nonce = new_nonce(RANDOM.bits)
        return Hello(VERSIONS, "test", self.number, self.facts.store, role, "", nonce)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        addresses = self.roster.addresses()
        self.links = PeerLinks(
            partial(self.hello, "store"), SECRET, addresses, CLOCK, given=self.roster.given,
            admit=self.roster.admit,
        )  # fmt: skip
        self.local = open_store(
            self.disk, CLOCK, RANDOM, partial(Worker, loop), _fatal, data_groups=self.data_groups,
            node=self.number, members=None if self.number == 1 else (), peers=self.links,
            timing=TIMING, reserve_bytes=0,
        )  # fmt: skip
        store = self.local.store
        self.cluster_service = ClusterService(self.local, self.links, self.roster, CLOCK, "0")
        service = serve_gateways(self.local, loop.call_soon)
        service.add(self.cluster_service)
        self.links.serve(GATEWAY, service, self.roster.admit_gateway)
        assert self.local.source is not None
        own = (self.facts.host, self.facts.port)
        await self.links.start(store.consensus, self.local.source, own)
        self.remote = RemoteLeaders(
            partial(self.hello, GATEWAY), SECRET, addresses, CLOCK, given=self.roster.given
        )
        join_peer_stores(self.local, self.remote, CLOCK, RANDOM)
        await self.local.start()
        self.remote.start()
        self.cluster_admin = ClusterAdmin("test", self.remote, lambda: self.roster.records)
        self.manager = Manager(
            store, self.local.client, self.links, self.remote, self.roster, self.cluster_service,
            self.facts, self.disk,
        )  # fmt: skip
        self.manager.replicas = self.replicas
        self.task = loop.create_task(self.manager.run())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.cluster_service.stop()
        await self.remote.stop()
        await self.links.stop()
        await self.local.stop()

    def leads(self) -> int:
        """How many groups."""
        return sum(self.local.store.serving(each) is not None for each in self.local.store.groups)

    def is_voter(self) -> bool:
        members = self.local.store.consensus.members.values()
        return all(self.number in each.core.tracker.members.voters for each in members)

    def fill(self, *, full: bool) -> None:
        """Have no room on the disk for new messages; or have some again."""
        self.local.housekeeper._watch._mark_bytes = 1 << 62 if full else 0


async def grown(tmp_path: Path) -> list[Store]:
    """Two stores of one cluster."""
    ports = free_ports(2)
    first = Store(1, tmp_path / "1", ports[0], {})
    second = Store(2, tmp_path / "2", ports[1], {1: ("127.0.0.1", ports[0])})
    await first.start()
    await second.start()
    await until(lambda: 1 in first.roster.records)
    await second.cluster_admin.admit(Admit(2, second.facts, 1))
    await until(second.is_voter)
    await until(lambda: first.roster.records[2].state is NodeState.MEMBER)
    return [first, second]


class Always(Calm):
    """It has been calm for long."""

    def look(self, seen: object, now_ms: int) -> bool:
        return True


async def test_a_store_joins_leads_and_leaves(tmp_path: Path) -> None:
    first, second = await grown(tmp_path)
    try:
        assert sorted(first.roster.records) == [1, 2]
        status = await second.cluster_admin.status()
        assert [each.answers for each in status.nodes] == [True, True]
        await until(lambda: len(second.remote.connected) == 2)
        # As the manager would by itself, a minute later.
        first.manager.calm = Always()
        await until(lambda: second.leads() == 1)
        await first.cluster_admin.dismiss(2)
        await until(lambda: sorted(first.roster.records) == [1])
        await until(lambda: not first.links.connected)
    finally:
        await second.stop()
        await first.stop()


async def test_the_address_of_one_store_is_enough_whatever_it_leads(tmp_path: Path) -> None:
    """For a store that is to join, and for a gateway."""
    first, second = await grown(tmp_path)
    known = {1: ("127.0.0.1", first.facts.port)}
    third = Store(3, tmp_path / "3", free_ports(1)[0], known)
    try:
        for group in (RaftGroup(1), METADATA_GROUP):
            await until(lambda: 2 in first.remote.connected)
            await first.cluster_admin.transfer(group, 2)
        await until(lambda: second.leads() == 2)
        await third.start()
        await third.cluster_admin.admit(Admit(3, third.facts, 1))
        await until(third.is_voter)
        hello = partial(Hello, VERSIONS, "test", 0, "process", GATEWAY, "")
        leaders = RemoteLeaders(lambda: hello(new_nonce(RANDOM.bits)), SECRET, known, CLOCK)
        async with asyncio.timeout(10):
            gateway = await connect(leaders, CLOCK, RANDOM)
        try:
            assert {1, 2} <= {*leaders.connected}
        finally:
            await gateway.stop()
    finally:
        for store in (third, second, first):
            await store.stop()


async def test_stores_that_are_all_elsewhere_at_once_find_each_other_by_their_settings(
    tmp_path: Path,
) -> None:
    """The register has the old addresses, and nobody could write the new ones there."""
    for store in await grown(tmp_path):
        await store.stop()
    ports = free_ports(2)
    known = {number: ("127.0.0.1", port) for number, port in enumerate(ports, 1)}
    stores = [Store(n, tmp_path / str(n), ports[n - 1], known) for n in (1, 2)]
    for store in stores:
        assert store.roster.addresses() != known
        await store.start()
    hello = partial(Hello, VERSIONS, "test", 0, "process", GATEWAY, "")
    leaders = RemoteLeaders(lambda: hello(new_nonce(RANDOM.bits)), SECRET, known, CLOCK)
    try:
        leaders.start()
        leaders.update({1: ("127.0.0.1", free_ports(1)[0]), 2: known[2]})  # as a gateway reads it
        await until(lambda: all(each.roster.addresses() == known for each in stores))
        await until(lambda: leaders.connected == [1, 2])
    finally:
        await leaders.stop()
        for store in stores:
            await store.stop()


async def test_a_store_is_not_taken_for_another_at_whose_address_it_is(tmp_path: Path) -> None:
    """Settings may be old. The connection that the two of them have goes on."""
    first, second = await grown(tmp_path)
    third = Store(3, tmp_path / "3", free_ports(1)[0], {1: ("127.0.0.1", first.facts.port)})
    try:
        await third.start()
        await third.cluster_admin.admit(Admit(3, third.facts, 1))
        await until(third.is_voter)
        await first.stop()
        first = Store(1, tmp_path / "1", first.facts.port, {3: ("127.0.0.1", second.facts.port)})
        await third.stop()
        await first.start()
        await until(lambda: "is there, not store 3" in first.links.errors().get(3, ""))
        await until(lambda: first.links.connected == [2] and second.links.connected == [1])
        await until(lambda: first.leads() + second.leads() == 2)
        third = Store(3, tmp_path / "3", third.facts.port, {})
        await third.start()
        await until(lambda: first.links.connected == [2, 3])
    finally:
        for store in (third, second, first):
            await store.stop()


async def test_a_leader_that_was_moved_by_hand_stays_until_somebody_spreads(tmp_path: Path) -> None:
    first, second = await grown(tmp_path)
    try:
        await until(lambda: len(second.remote.connected) == 2)
        for group in (RaftGroup(1), METADATA_GROUP):
            await first.cluster_admin.transfer(group, 2)
        await until(lambda: second.leads() == 2)
        looks = 0

        class Counted(Always):
            def look(self, seen: object, now_ms: int) -> bool:
                nonlocal looks
                looks += 1
                return True

        first.manager.calm = second.manager.calm = Counted()
        await until(lambda: looks >= 5)
        assert second.leads() == 2
        assert len(await first.cluster_admin.spread()) == 1
        await until(lambda: second.leads() == 1)
    finally:
        await second.stop()
        await first.stop()


async def test_a_store_without_room_has_others_lead_that_have_some(tmp_path: Path) -> None:
    first, second = await grown(tmp_path)
    try:
        await until(lambda: first.leads() == 2)
        first.fill(full=True)
        await until(lambda: second.leads() == 2)
        second.fill(full=True)
        await until(lambda: not second.local.client.accepting)
        await second.manager.make_way()
        assert second.leads() == 2, "nobody has room"
        first.fill(full=False)
        await until(lambda: first.leads() == 2)
    finally:
        await second.stop()
        await first.stop()


async def test_leaders_are_not_spread_to_a_store_without_room(tmp_path: Path) -> None:
    first, second = await grown(tmp_path)
    try:
        second.fill(full=True)
        await until(lambda: not second.local.client.accepting)
        assert await first.cluster_admin.rebalance() == []
        second.fill(full=False)
        await until(lambda: second.local.client.accepting)
        assert len(await first.cluster_admin.rebalance()) == 1
    finally:
        await second.stop()
        await first.stop()


async def test_a_store_lets_go_of_a_group_it_was_removed_from_and_is_a_voter_again(
    tmp_path: Path,
) -> None:
    first, second = await grown(tmp_path)
    group, store = RaftGroup(1), second.local.store
    try:
        await until(lambda: len(second.remote.connected) == 2)
        await first.local.client.administer(
            PutTopic("default", "kept", TopicOptions(), {DEFAULT_GROUP: GroupOptions()})
        )
        while group not in store.journal.left:
            progress = first.cluster_service.steps.towards(Towards(group, 2, Goal.GONE))
            await asyncio.sleep(0.1)
        assert progress.done
        assert not store.journal.last_index(group)
        report = second.cluster_service.report()
        assert ([each.group for each in report.groups], report.left) == ([0], [1])
        status = await second.cluster_admin.status()
        assert [len(each.replicas) for each in status.groups] == [2, 1]
        await until(lambda: second.local.client.topic("default", "kept"))
        await second.local.client.administer(DeleteTopic("default", "kept"))
        assert not second.local.client.topic("default", "kept")
        while not second.is_voter():
            first.cluster_service.steps.towards(Towards(group, 2, Goal.VOTER))
            await asyncio.sleep(0.05)
        assert not store.journal.left
    finally:
        await second.stop()
        await first.stop()


def report(number: int, *groups: GroupReport, left: tuple[int, ...] = ()) -> Report:
    return Report(number, "", "", 0, False, True, [], {}, {}, list(groups), list(left))


def led(group: int, voters: list[int], match: int, *, joint: bool = False) -> GroupReport:
    """As store 1, which leads it, says."""
    others = [ReplicaReport(each, True, match, "replicate") for each in voters if each != 1]
    serves = True
    return GroupReport(group, 7, 1, serves, 100, 90, 90, voters, [], joint, others)


def test_who_is_no_member_is_told_once_the_others_have_what_is_committed() -> None:
    others = {each: report(each) for each in (2, 3, 5)}
    told = [(3, Leave(4, 7, 100, 2)), (5, Leave(4, 7, 100, 2))]
    members = [1, 2, 3, 4, 5]  # store 4 does not answer
    settled = {1: report(1, led(4, [1, 2], 90)), **others}
    assert outsiders(settled, members, 2) == told
    assert outsiders(settled, [1, 2, 3], 2) == told[:1]
    assert outsiders({**settled, 3: report(3, left=(4,))}, members, 2) == told[1:]
    behind = led(4, [1, 2], 89)
    changing = led(4, [1, 2], 90, joint=True)
    for group in (behind, changing, led(METADATA_GROUP, [1, 2], 90)):
        assert outsiders({1: report(1, group), **others}, members, 2) == []
