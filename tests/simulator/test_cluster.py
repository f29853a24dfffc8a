"""Replicated groups: what was acknowledged stays, whoever goes down."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from hashlib import blake2b

import pytest

from kernel.api.client import ConsumerSpec
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicInfo, TopicOptions
from kernel.broker.delivery.consumers import DispatchedConsumer, Handed
from kernel.broker.log_commands import commands
from kernel.broker.snapshots.snapshot import dump
from kernel.common.errors import KernelError
from kernel.common.ids import QueueId, RaftGroup, TopicId, queue_id
from kernel.log.format import entry as entries
from kernel.log.install import GONE
from kernel.log.journal import Journal
from kernel.log.reading.read import ReadJob
from kernel.raft.members.configuration import ADD_LEARNER, ADD_VOTER, REMOVE, Change
from kernel.raft.messages import APPEND, NORMAL, SNAPSHOT, Entry, Membership, RaftMessage, Snapshot
from kernel.requests.publish_part import Part
from kernel.store.snapshots.copy_pace import PAUSE_SECONDS_MAX
from kernel.store.snapshots.transfer import HOLD_SECONDS
from tests.simulator.cluster import Cluster, Node, Trouble
from tests.simulator.peer import Draft

GROUP = RaftGroup(1)
TOPIC = TopicId(GROUP << 32 | 1)
QUEUE = queue_id(TOPIC, 0)
ENTRIES, ENTRY_BYTES = 41, 5_000
SNAPSHOT_BYTES = 100 * 2_000 + ENTRIES * ENTRY_BYTES
PART_BYTES = 20 * ENTRY_BYTES


Scenario = Callable[[Cluster], Awaitable[None]]


def clustered(**settings: int) -> Callable[[Scenario], Callable[[], None]]:
    """Run an async test in a cluster of its own."""

    def decorate(test: Scenario) -> Callable[[], None]:
        @functools.wraps(test)
        def run() -> None:
            with Cluster(**settings) as cluster:

                async def scenario() -> None:
                    await cluster.start()
                    await test(cluster)

                cluster.loop.run_until_complete(scenario())
                assert not cluster.loop.errors
                assert not [node.fatal for node in cluster.nodes.values() if node.fatal]

        del run.__dict__["__wrapped__"]
        return run

    return decorate


class Publisher:
    """Publishes at whoever leads, and remembers what it heard."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.sequence = 0
        self.acked: list[bytes] = []
        self.outcomes: dict[bytes, object] = {}

    async def topic(self, node: Node) -> None:
        heard: list[object] = []
        change = commands.PutTopic(
            "default",
            "orders",
            TopicOptions(),
            {DEFAULT_GROUP: GroupOptions()},
            must_be_new=False,
            ident=TOPIC,
            placement=(GROUP,),
        )
        node.opened.store.leader(GROUP).propose(change, (0, 0, 0), heard.append)
        await self.cluster.until(lambda: heard)
        (result,) = heard
        assert isinstance(result, tuple)
        assert isinstance(result[0], TopicInfo)

    def publish(self, node: Node, body: bytes) -> None:
        self.sequence += 1
        parts = Draft(body).parts((7, self.sequence), 0)
        part = Part([[QUEUE, 0, 1, 0]], [sum(map(len, parts))], parts)

        def heard(result: object) -> None:
            self.outcomes[body] = result
            if isinstance(result, tuple) and not isinstance(result[0], KernelError):
                self.acked.append(body)

        node.opened.store.leader(GROUP).publish((77, 1, self.sequence), part, heard, 0)

    async def published(self, node: Node, bodies: list[bytes]) -> None:
        for body in bodies:
            self.publish(node, body)
        await self.cluster.until(lambda: all(body in self.outcomes for body in bodies))


async def bodies_at(node: Node, group: RaftGroup = GROUP) -> list[bytes]:
    """Bodies of the queue's messages, in order, as a node has them."""
    store = node.opened.store
    queue = store.replica(group).state.queues[QueueId(queue_id(TopicId(group << 32 | 1), 0))]
    found: list[bytes] = []
    at = queue.index.head
    while at < queue.index.tail:
        run = queue.index.find(at)
        if store.is_given_up(group, run.index):
            at = run.end
            continue
        if (body := store.entry(group, run.index)) is None:
            await store.fetched(group, run.index)
            continue
        slot = entries.slot(body, run.slot + at - run.first)
        found.append(slot[-int.from_bytes(slot[4:8], "little") :])
        at += 1
    return found


def state_hash(node: Node, group: RaftGroup = GROUP) -> bytes:
    digest = blake2b()
    for record in dump(node.opened.store.replica(group).state):
        digest.update(record)
    return digest.digest()


async def level(cluster: Cluster) -> None:
    """Return once every running node has applied the same."""
    await cluster.until(
        lambda: len({node.member(GROUP).state.applied for node in cluster.running()}) == 1
    )


@clustered()
async def test_three_nodes_elect_one_leader_a_group_and_hold_the_same(cluster: Cluster) -> None:
    leader = await cluster.led()
    publisher = Publisher(cluster)
    await publisher.topic(leader)
    sent = [b"m%d" % number for number in range(100)]
    await publisher.published(leader, sent)
    assert publisher.acked == sent
    await level(cluster)
    assert len({state_hash(node) for node in cluster.running()}) == 1
    for node in cluster.running():
        assert await bodies_at(node) == sent
    assert len([node for node in cluster.running() if node.member(GROUP).leads]) == 1


@pytest.mark.parametrize("torn", [None, 5])
def test_what_was_acknowledged_survives_the_loss_of_the_leader(torn: int | None) -> None:
    @clustered(seed=torn or 1)
    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.led()
        publisher = Publisher(cluster)
        await publisher.topic(leader)
        await publisher.published(leader, [b"a%d" % number for number in range(50)])
        for number in range(20):
            publisher.publish(leader, b"in flight %d" % number)
        leader.crash(torn)
        following = await cluster.led()
        assert following is not leader
        await publisher.published(following, [b"b%d" % number for number in range(50)])
        await leader.start()
        await level(cluster)
        stored = await bodies_at(following)
        assert [body for body in stored if body in set(publisher.acked)] == publisher.acked
        assert len(set(stored)) == len(stored)
        assert len({state_hash(node) for node in cluster.running()}) == 1

    scenario()


@clustered()
async def test_a_leader_that_is_cut_off_acknowledges_nothing_and_steps_down(
    cluster: Cluster,
) -> None:
    leader = await cluster.led()
    publisher = Publisher(cluster)
    await publisher.topic(leader)
    await publisher.published(leader, [b"before"])
    cluster.network.isolate([leader.number])
    publisher.publish(leader, b"into the void")
    await cluster.until(lambda: not leader.member(GROUP).leads)
    outcome = publisher.outcomes[b"into the void"]
    assert isinstance(outcome, KernelError)
    following = await cluster.led()
    await publisher.published(following, [b"after"])
    cluster.network.heal()
    await level(cluster)
    assert publisher.acked == [b"before", b"after"]
    assert await bodies_at(leader) == [b"before", b"after"]


@clustered()
async def test_a_repeat_at_the_next_leader_is_stored_once(cluster: Cluster) -> None:
    leader = await cluster.led()
    publisher = Publisher(cluster)
    await publisher.topic(leader)
    cluster.network.isolate([leader.number], one_way=True)
    await publisher.published(leader, [b"lost answer"])
    cluster.network.heal()
    following = await cluster.led()
    publisher.sequence -= 1
    publisher.outcomes.clear()
    await publisher.published(following, [b"lost answer"])
    await level(cluster)
    assert await bodies_at(following) == [b"lost answer"]


@clustered()
async def test_a_power_loss_of_all_nodes_loses_nothing_acknowledged(cluster: Cluster) -> None:
    leader = await cluster.led()
    publisher = Publisher(cluster)
    await publisher.topic(leader)
    await publisher.published(leader, [b"m%d" % number for number in range(60)])
    for node in cluster.nodes.values():
        node.crash(node.number)
    for node in cluster.nodes.values():
        await node.start()
    leader = await cluster.led()
    await publisher.published(leader, [b"again"])
    await level(cluster)
    stored = await bodies_at(leader)
    assert stored == publisher.acked
    assert len({state_hash(node) for node in cluster.running()}) == 1


def test_after_a_power_loss_of_all_nodes_the_log_is_read_in_large_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: list[int] = []
    read_ahead = Journal.read_ahead

    def noted(journal: Journal, group: int, index: int, **how: bool) -> ReadJob:
        reads.append(index)
        return read_ahead(journal, group, index, **how)

    monkeypatch.setattr(Journal, "read_ahead", noted)

    @clustered()
    async def run(cluster: Cluster) -> None:
        leader = await cluster.led()
        publisher = Publisher(cluster)
        await publisher.topic(leader)
        for number in range(60):
            await publisher.published(leader, [b"m%d" % number])
        for node in cluster.nodes.values():
            node.crash(node.number)
        for node in cluster.nodes.values():
            await node.start()
        await publisher.published(await cluster.led(), [b"again"])
        await level(cluster)
        assert len({state_hash(node) for node in cluster.running()}) == 1

    run()
    assert 0 < len(reads) <= 10


@pytest.mark.parametrize("seed", range(8))
def test_loss_repeats_reordering_and_crashes_lose_nothing_acknowledged(seed: int) -> None:
    @clustered(seed=seed, nodes=3 + 2 * (seed % 2))
    async def scenario(cluster: Cluster) -> None:
        publisher = Publisher(cluster)
        await publisher.topic(await cluster.led())
        cluster.network.trouble = Trouble(loss=0.05, repeat=0.05, delay_max=0.05)
        for turn in range(6):
            leader = await cluster.led()
            for number in range(15):
                publisher.publish(leader, b"%d/%d" % (turn, number))
            victim = cluster.nodes[1 + (seed + turn) % len(cluster.nodes)]
            victim.crash(seed * 10 + turn)
            await cluster.until(lambda: cluster.leader(GROUP))
            await victim.start()
        cluster.network.trouble = Trouble()
        await publisher.published(await cluster.led(), [b"the end"])
        await level(cluster)
        assert publisher.acked[-1] == b"the end"
        for node in cluster.running():
            stored = await bodies_at(node)
            assert set(publisher.acked) <= set(stored)
            assert len(set(stored)) == len(stored)
        assert len({state_hash(node) for node in cluster.running()}) == 1

    scenario()


async def behind(cluster: Cluster, leader: Node, node: Node, publisher: Publisher) -> list[bytes]:
    """Publish while a node is down, until its log cannot be brought up to date any more."""
    node.crash()
    bodies = [b"%d " % number + bytes(2_000) for number in range(100)]
    await publisher.published(leader, bodies)
    before = leader.opened.housekeeper.checkpoints
    await asyncio.sleep(25)
    assert leader.opened.housekeeper.checkpoints > before
    leader.member(GROUP).log.forget_recent()
    return bodies


@clustered()
async def test_a_member_that_is_too_far_behind_gets_a_snapshot(cluster: Cluster) -> None:
    leader = await cluster.led()
    publisher = Publisher(cluster)
    await publisher.topic(leader)
    await publisher.published(leader, [b"old"])
    node = next(each for each in cluster.nodes.values() if each is not leader)
    bodies = await behind(cluster, leader, node, publisher)
    await node.start()
    await publisher.published(await cluster.led(), [b"new"])
    await level(cluster)
    receiver = node.opened.receiver
    assert receiver is not None
    assert receiver.installed >= 1
    assert await bodies_at(node) == [b"old", *bodies, b"new"]
    assert len({state_hash(each) for each in cluster.running()}) == 1
    node.crash(3)
    await node.start()
    await publisher.published(await cluster.led(), [b"newest"])
    await level(cluster)
    assert await bodies_at(node) == [b"old", *bodies, b"new", b"newest"]


async def in_mid_transfer(cluster: Cluster, publisher: Publisher) -> tuple[Node, Node]:
    """Leader, and a node that has a part of its snapshot: few entries go in an answer here."""
    leader = await cluster.led()
    await publisher.topic(leader)
    node = next(each for each in cluster.nodes.values() if each is not leader)
    node.crash()
    for number in range(ENTRIES - 1):
        await publisher.published(leader, [b"%d " % number + bytes(ENTRY_BYTES)])
    await behind(cluster, leader, node, publisher)
    await node.start()
    receiver = node.opened.receiver
    assert receiver is not None
    while receiver.received_bytes < PART_BYTES:
        await asyncio.sleep(0.001)
    assert receiver.is_receiving(GROUP)
    return leader, node


@pytest.mark.parametrize("away_s", [20, 100])
def test_a_transfer_goes_on_where_it_was_after_a_cut_that_is_not_too_long(away_s: int) -> None:
    @clustered()
    async def scenario(cluster: Cluster) -> None:
        publisher = Publisher(cluster)
        leader, node = await in_mid_transfer(cluster, publisher)
        (told,) = [each.progress[GROUP] for each in [node.opened.receiver] if each is not None]
        assert (told.sender, told.begun) == (leader.number, True)
        assert 0 < told.file_bytes == told.file_bytes_total < told.bytes
        assert 0 < told.entries < told.entries_total
        cluster.network.isolate([node.number])
        await asyncio.sleep(away_s)
        cluster.network.heal()
        await level(cluster)
        receiver = node.opened.receiver
        assert receiver is not None
        assert await bodies_at(node) == await bodies_at(leader)
        assert len({state_hash(each) for each in cluster.running()}) == 1
        kept = away_s < HOLD_SECONDS
        assert (receiver.resumed, receiver.failures) == ((1, 0) if kept else (0, 1))
        assert receiver.received_bytes < SNAPSHOT_BYTES + PART_BYTES
        assert (receiver.taken_entries == 0) is kept
        assert not receiver.progress
        assert not node.opened.store.journal.kept

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernel.store.snapshots.transfer.ENTRIES_MAX", 4)
        scenario()


def test_what_has_come_before_a_crash_of_the_receiver_does_not_come_again() -> None:
    @clustered()
    async def scenario(cluster: Cluster) -> None:
        publisher = Publisher(cluster)
        leader, node = await in_mid_transfer(cluster, publisher)
        node.crash(3)
        await node.start()
        await level(cluster)
        receiver = node.opened.receiver
        assert receiver is not None
        assert receiver.taken_bytes > PART_BYTES / 4
        assert receiver.received_bytes < SNAPSHOT_BYTES
        assert await bodies_at(node) == await bodies_at(leader)
        node.crash(4)
        await node.start()
        await level(cluster)
        assert await bodies_at(node) == await bodies_at(leader)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernel.store.snapshots.transfer.ENTRIES_MAX", 4)
        scenario()


def test_a_store_takes_in_as_much_a_second_as_it_is_told() -> None:
    @clustered()
    async def scenario(cluster: Cluster) -> None:
        publisher = Publisher(cluster)
        leader, node = await in_mid_transfer(cluster, publisher)
        receiver = node.opened.receiver
        assert receiver is not None
        receiver.bytes_per_second = SNAPSHOT_BYTES // 10
        began, had = cluster.loop.time(), receiver.received_bytes
        await level(cluster)
        bytes_paced = receiver.received_bytes - had
        assert cluster.loop.time() - began >= 0.8 * 10 * bytes_paced / SNAPSHOT_BYTES
        assert (receiver.installed, receiver.failures) == (1, 0)
        assert await bodies_at(node) == await bodies_at(leader)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernel.store.snapshots.transfer.ENTRIES_MAX", 4)
        scenario()


def test_a_transfer_on_its_way_goes_on_as_fast_as_is_said_last() -> None:
    @clustered()
    async def scenario(cluster: Cluster) -> None:
        _leader, node = await in_mid_transfer(cluster, Publisher(cluster))
        receiver = node.opened.receiver
        assert receiver is not None
        receiver.rate_of = lambda _group: 1
        await asyncio.sleep(30)
        assert receiver.progress
        assert receiver.rate_max(GROUP) == 1
        receiver.rate_of = lambda _group: 10 * SNAPSHOT_BYTES
        began = cluster.loop.time()
        while receiver.progress:
            await asyncio.sleep(0.1)
        assert cluster.loop.time() - began < PAUSE_SECONDS_MAX + 2
        assert (receiver.installed, receiver.failures) == (1, 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernel.store.snapshots.transfer.ENTRIES_MAX", 4)
        scenario()


def test_a_slow_transfer_lets_rewrites_go_first_and_takes_over_what_has_come() -> None:
    @clustered()
    async def scenario(cluster: Cluster) -> None:
        publisher = Publisher(cluster)
        leader, node = await in_mid_transfer(cluster, publisher)
        receiver, journal = node.opened.receiver, node.opened.store.journal
        assert receiver is not None
        receiver.bytes_per_second = SNAPSHOT_BYTES // 10
        refused = 0
        while receiver.progress:
            job = journal._space._rewrite
            journal.rewrite_candidate()  # as housekeeping does, where the journal is mostly dead
            refused = 0 if job is None else refused + 1
            assert refused < 100, "it holds the journal for longer"
            await asyncio.sleep(0.1)
        assert receiver.interrupted >= 2
        assert (receiver.installed, receiver.failures) == (1, 0)
        assert receiver.received_bytes < SNAPSHOT_BYTES + PART_BYTES
        await level(cluster)
        assert await bodies_at(node) == await bodies_at(leader)
        node.crash(3)
        await node.start()
        await level(cluster)
        assert await bodies_at(node) == await bodies_at(leader)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernel.store.snapshots.transfer.ENTRIES_MAX", 4)
        patch.setattr("kernel.store.snapshots.transfer.STRETCH_SECONDS", 0.5)
        patch.setattr("kernel.store.snapshots.transfer.GAP_SECONDS", 0.5)
        scenario()


def test_a_transfer_from_who_is_gone_waits_for_nobody_once_another_leads() -> None:
    @clustered()
    async def scenario(cluster: Cluster) -> None:
        publisher = Publisher(cluster)
        leader, node = await in_mid_transfer(cluster, publisher)
        for each in cluster.running():
            each.member(GROUP).log.forget_recent()
        leader.crash()
        began = cluster.loop.time()
        receiver = node.opened.receiver
        assert receiver is not None
        while not receiver.failures:
            await asyncio.sleep(0.1)
        assert cluster.loop.time() - began < 15
        had = receiver.received_bytes
        await level(cluster)
        other = next(each for each in cluster.running() if each is not node)
        assert await bodies_at(node) == await bodies_at(other)
        # What the dead one has sent does not come again.
        assert receiver.taken_bytes > had / 2
        assert receiver.received_bytes < SNAPSHOT_BYTES + PART_BYTES
        node.crash(3)
        await node.start()
        await level(cluster)
        assert await bodies_at(node) == await bodies_at(other)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernel.store.snapshots.transfer.ENTRIES_MAX", 4)
        scenario()


@clustered(nodes=1)
async def test_a_store_grows_into_a_cluster_and_moves_to_other_machines(cluster: Cluster) -> None:
    first = await cluster.led()
    publisher = Publisher(cluster)
    await publisher.topic(first)
    sent = [b"m%d" % number for number in range(30)]
    await publisher.published(first, sent)
    await asyncio.sleep(15)
    for number in (2, 3):
        joined = cluster.add(number)
        await joined.start()
        for group in first.opened.store.groups:
            await cluster.change(group, Change(ADD_LEARNER, number))
            await cluster.until(lambda g=group, n=joined: n.member(g).state.membership)
            await cluster.change(group, Change(ADD_VOTER, number))
    await level(cluster)
    for node in cluster.running():
        assert await bodies_at(node) == sent
        assert node.member(GROUP).core.tracker.members.voters == (1, 2, 3)
    for group in first.opened.store.groups:
        await cluster.change(group, Change(REMOVE, 1))
    first.crash()
    leader = await cluster.led()
    assert leader is not first
    await publisher.published(leader, [b"without the first"])
    assert await bodies_at(leader) == [*sent, b"without the first"]


@clustered()
async def test_a_snapshot_takes_nothing_away_that_the_log_has_beyond_it(cluster: Cluster) -> None:
    leader = await cluster.led()
    publisher = Publisher(cluster)
    await publisher.topic(leader)
    await publisher.published(leader, [b"old"])
    await level(cluster)
    node = next(each for each in cluster.nodes.values() if each is not leader)
    cluster.network.isolate([node.number])
    member = node.member(GROUP)
    core, log = member.core, member.core.log
    last, term = log.last_index, core.term
    # Three entries are acknowledged here before their commit is known; then an offer comes late.
    new = [Entry(term, last + number, NORMAL, GONE) for number in (1, 2, 3)]
    append = RaftMessage(
        APPEND, leader.number, node.number, term, log.last_term, last, log.committed
    )
    append.entries = new
    consensus = node.opened.store.consensus
    consensus.receive(GROUP, append)
    await node.opened.store.flushed()
    snapshot = Snapshot(last + 2, term, core.tracker.members, "snapshots/late")
    offer = RaftMessage(SNAPSHOT, leader.number, node.number, term, snapshot=snapshot)
    consensus.receive(GROUP, offer)
    await asyncio.sleep(0.3)
    assert log.committed == last + 2
    assert log.last_index == node.opened.store.journal.last_index(GROUP) == last + 3
    receiver = node.opened.receiver
    assert receiver is not None
    assert not receiver.is_receiving(GROUP)


@clustered(nodes=1)
async def test_a_member_remembers_that_a_change_of_members_is_committed(cluster: Cluster) -> None:
    first = await cluster.led()
    await asyncio.sleep(15)
    second = cluster.add(2)
    await second.start()
    await cluster.change(GROUP, Change(ADD_LEARNER, 2))
    await cluster.until(lambda: second.member(GROUP).state.membership)
    await cluster.change(GROUP, Change(ADD_VOTER, 2))
    await cluster.change(GROUP, Change(REMOVE, 2))
    await asyncio.sleep(0.05)
    # Nothing came behind the last change that would tell. The other one never comes back.
    second.crash()
    first.crash()
    await first.start()
    assert first.member(GROUP).core.tracker.members == Membership((1,))
    publisher = Publisher(cluster)
    await publisher.topic(await cluster.led())


class Consumer:
    """`ConsumerSink`: keeps what it gets."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def deliver(self, consumer: DispatchedConsumer, handed: Handed) -> None:
        self.offsets += handed.offsets

    def consumer_ended(self, consumer: DispatchedConsumer, error: KernelError) -> None:
        pass


@clustered()
async def test_an_ack_during_a_transfer_that_comes_to_nothing_is_not_lost(cluster: Cluster) -> None:
    leader = await cluster.led()
    publisher = Publisher(cluster)
    await publisher.topic(leader)
    await publisher.published(leader, [b"one"])
    member = leader.member(GROUP)
    queue = member.state.queues[QueueId(QUEUE)]
    spec = ConsumerSpec(queue.topic.info(), DEFAULT_GROUP, None, lease_ms=None, pull=False)
    dispatcher = member.replica.dispatcher(QueueId(QUEUE), DEFAULT_GROUP)
    sink = Consumer()
    consumer = dispatcher.attach(spec, sink)
    consumer.grant(5)
    await cluster.until(lambda: sink.offsets)
    away = next(node for node in cluster.nodes.values() if node is not leader)
    cluster.network.isolate([away.number])
    leader.opened.store.consensus.transfer(GROUP, away.number)
    dispatcher.acknowledge(consumer, [0])
    publisher.publish(leader, b"two")
    await asyncio.sleep(0.1)
    assert publisher.acked == [b"one"]
    await cluster.until(lambda: publisher.acked == [b"one", b"two"])
    assert leader.member(GROUP).leads
    assert queue.groups[DEFAULT_GROUP].floor == 1
