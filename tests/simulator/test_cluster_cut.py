"""The cut of a cluster for a backup: stores made of it are a cluster without holes, whoever dies.

Clients publish to two Raft groups in turn, each message only once the one before it is confirmed:
so the message behind one that is missing must be missing too. A dead letter that leaves its group
once it has arrived in another is such a pair, and so is what a consumer publishes before it acks.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicOptions
from kernel.broker.log_commands import commands
from kernel.cluster import messages
from kernel.cluster.cluster_cut import cut_of as cut_of_stores
from kernel.cluster.cluster_cut import cut_stores
from kernel.cluster.messages import CutStep, CutTold
from kernel.cluster.store_cut import StoreCut
from kernel.common.errors import Code, KernelError
from kernel.common.ids import RaftGroup, TopicId, queue_id
from kernel.log.format.checkpoint import CHECKPOINT_NAME, encode_checkpoint
from kernel.raft.messages import APPEND, APPEND_ANSWER, Entry, RaftMessage
from kernel.requests.publish_part import Part
from kernel.store.raft_groups.holding import HOLD_MS, Holding
from kernel.store.raft_groups.member import Member
from kernel.store.space.pin_keeper import PinKeeper
from kernel.store.space.pinning import UNUSED_SECONDS, files_of
from tests.kernel import test_pinning
from tests.simulator.cluster import Cluster, Node
from tests.simulator.disk import SimulatedDisk
from tests.simulator.peer import Draft
from tests.simulator.test_cluster import GROUP, Publisher, bodies_at, clustered

GROUPS = (RaftGroup(1), RaftGroup(2))
CLIENTS = 6
SEEDS = range(1, 7)
SPREAD_S = 0.06
"""Between the first store's cut and the last one's."""


@dataclass
class Client:
    """Publishes 0, 1, 2, ... to the two groups in turn, one at a time; repeats until it hears."""

    cluster: Cluster
    number: int
    next: int = 0
    confirmed: int = 0
    is_over: bool = False

    async def run(self) -> None:
        """Go on until `is_over`."""
        while not self.is_over:
            heard: asyncio.Future[object] = self.cluster.loop.create_future()
            group = GROUPS[self.next % 2]
            leader = self.cluster.leader(group)
            if leader is not None:
                self._send(leader, group, heard)
                await asyncio.wait([heard], timeout=1)
            if heard.done() and self._is_ok(heard.result()):
                self.next += 1
                self.confirmed = self.next
            else:
                await asyncio.sleep(0.02)

    def _send(self, leader: Node, group: RaftGroup, heard: asyncio.Future[object]) -> None:
        def done(result: object) -> None:
            if not heard.done():
                heard.set_result(result)

        body = b"%d %d" % (self.number, self.next)
        parts = Draft(body).parts((self.number, self.next), 0)
        queue = queue_id(TopicId(group << 32 | 1), 0)
        part = Part([[queue, 0, 1, 0]], [sum(map(len, parts))], parts)
        identity = (1_000 + self.number, 1, self.next + 1)
        leader.opened.store.leader(group).publish(identity, part, done, 0)

    @staticmethod
    def _is_ok(result: object) -> bool:
        if isinstance(result, tuple):
            (result,) = result[:1]
        return not isinstance(result, KernelError)


async def make_topics(cluster: Cluster) -> None:
    for group in GROUPS:
        leader = await cluster.led(group)
        heard: list[object] = []
        change = commands.PutTopic(
            "default",
            f"topic{group}",
            TopicOptions(),
            {DEFAULT_GROUP: GroupOptions()},
            must_be_new=False,
            ident=TopicId(group << 32 | 1),
            placement=(group,),
        )
        leader.opened.store.leader(group).propose(change, (0, 0, 0), heard.append)
        await cluster.until(lambda heard=heard: heard)


def cut(node: Node) -> SimulatedDisk:
    """The disk that a restore of this store's prefix makes."""
    prefix, made = node.opened.store.journal.prefix(), SimulatedDisk()
    for each in files_of(prefix):
        if each.name == CHECKPOINT_NAME:
            content = encode_checkpoint(prefix.checkpoint)
        else:
            content = node.disk.content(each.name)
        if each.length >= 0:
            content = content[: each.length].ljust(each.size, b"\0")
        made.put(each.name, content)
    return made


@dataclass
class Cut:
    """What was cut, and what clients had heard before it began."""

    disks: dict[int, SimulatedDisk]
    confirmed: list[int]
    is_whole: bool
    """Whether nothing was applied anywhere from before the first to behind the last."""


async def cut_all(
    chance: random.Random, clients: list[Client], nodes: list[Node], spread_s: float = SPREAD_S
) -> Cut:
    """As the manager has it done: all hold, then each is cut at a moment of its own, all go on."""
    confirmed = [each.confirmed for each in clients]
    asked = [each.number for each in nodes]
    number = chance.getrandbits(64)
    disks: dict[int, SimulatedDisk] = {}
    for node in nodes:
        await asyncio.sleep(chance.uniform(0, 0.01))
        node.opened.store.consensus.holding.hold(number, asked)

    async def at_its_moment(node: Node) -> None:
        await asyncio.sleep(chance.uniform(0, spread_s))
        if node.runs:
            disks[node.number] = cut(node)

    await asyncio.gather(*map(at_its_moment, nodes))
    whole = [node.runs and node.opened.store.consensus.holding.release(number) for node in nodes]
    return Cut(disks, confirmed, all(whole))


async def running(cluster: Cluster) -> tuple[list[Client], list[asyncio.Task[None]]]:
    await cluster.start()
    await make_topics(cluster)
    clients = [Client(cluster, number) for number in range(CLIENTS)]
    tasks = [cluster.loop.create_task(each.run()) for each in clients]
    await asyncio.sleep(0.5)
    return clients, tasks


async def ended(clients: list[Client], tasks: list[asyncio.Task[None]]) -> None:
    for each in clients:
        each.is_over = True
    await asyncio.gather(*tasks)


async def lead_all(cluster: Cluster, node: Node) -> None:
    """Have a node lead all groups of messages."""
    for group in GROUPS:
        while (leader := await cluster.led(group)) is not node:
            leader.opened.store.consensus.transfer(group, node.number)
            await asyncio.sleep(0.2)


def lose(cluster: Cluster, group: RaftGroup, to: int) -> None:
    """Have what is sent to one node in one group be lost, as chance has it now and then."""
    network = cluster.network
    send = network.send

    def sends(sender: int, number: int, message: RaftMessage) -> None:
        if (number, message.to) != (group, to):
            send(sender, number, message)

    network.send = sends


def cut_of(seed: int, trouble: str = "none", spread_s: float = SPREAD_S) -> Cut:
    """A cut of a cluster under load."""
    chance = random.Random(seed)
    with Cluster(data_groups=2, seed=seed) as cluster:

        async def scenario() -> Cut:
            clients, tasks = await running(cluster)
            group = GROUPS[seed % 2]
            leader = await cluster.led(group)
            asked = list(cluster.nodes.values())
            others = [each for each in asked if each is not leader]
            if trouble == "a leader changes":
                consensus, to = leader.opened.store.consensus, chance.choice(others).number
                cluster.loop.call_later(chance.uniform(0, 0.03), consensus.transfer, group, to)
            elif trouble == "a store dies":
                cluster.loop.call_later(chance.uniform(0.031, 0.05), leader.crash)
            elif trouble == "a leader is not asked":
                asked = others
                await lead_all(cluster, leader)
                lose(cluster, GROUPS[0], others[0].number)
            made = await cut_all(chance, clients, asked, spread_s)
            assert not any(
                each.opened.store.consensus.holding.is_held for each in cluster.running()
            )
            before = [each.confirmed for each in clients]
            await cluster.until(
                lambda: all(now.confirmed > then for now, then in zip(clients, before, strict=True))
            )
            await ended(clients, tasks)
            return made

        return cluster.loop.run_until_complete(scenario())


class Asking:
    """Puts the questions of a cut to the stores of a cluster, each after a while of its own."""

    def __init__(self, cluster: Cluster, seed: int = 1) -> None:
        self.cluster = cluster
        self.before: Callable[[int, CutStep], None] = lambda _number, _step: None
        """Called when a question comes to a store."""
        self.asked: list[tuple[int, CutStep]] = []
        self._chance = random.Random(seed)
        self._roster = SimpleNamespace(records=dict.fromkeys(cluster.nodes))

    async def __call__(self, number: int, asked: messages.Cut) -> CutTold:
        await asyncio.sleep(self._chance.uniform(0, 0.02))
        self.asked.append((number, asked.step))
        self.before(number, asked.step)
        node = self.cluster.nodes[number]
        if not node.runs:
            raise KernelError(Code.NOT_LEADER, "it is not connected")
        part = StoreCut(node.opened.store, self.pins(number), self._roster)  # type: ignore[arg-type]
        told = await part.do(asked) if part.waits(asked) else part.do_at_once(asked)
        await asyncio.sleep(self._chance.uniform(0, 0.02))
        return messages.unpack(messages.pack(told)[0], CutTold)

    def pins(self, number: int) -> PinKeeper:
        return self.cluster.nodes[number].opened.housekeeper.pins


@clustered()
async def test_whoever_asks_pins_all_stores_at_one_moment_or_none(cluster: Cluster) -> None:
    ask, stores = Asking(cluster), list(cluster.nodes)
    await cluster.led()
    for step in (CutStep.PREPARE, CutStep.HOLD, CutStep.TAKE, CutStep.RELEASE):

        def dies(number: int, asked: CutStep, step: CutStep = step) -> None:
            if (number, asked) == (2, step):
                raise KernelError(Code.UNAVAILABLE, f"it dies before {step}")

        ask.before = dies
        with pytest.raises(KernelError, match=f"store 2: it dies before {step}"):
            await cut_stores(ask, stores, (), 71)
        await asyncio.sleep(1)
        assert not any(each.opened.store.consensus.holding.is_held for each in cluster.running())
        assert all(ask.pins(number).held is None for number in stores)
    ask.before = lambda _number, _step: None
    await cut_stores(ask, stores, (), 72)
    assert [ask.pins(number).held.cut for number in stores] == [72, 72, 72]  # type: ignore[union-attr]
    with pytest.raises(KernelError) as refused:
        await cut_stores(ask, stores, (), 73)
    assert refused.value.code is Code.IN_USE
    assert [ask.pins(number).held.cut for number in stores] == [72, 72, 72]  # type: ignore[union-attr]
    await asyncio.sleep(UNUSED_SECONDS)
    await cut_stores(ask, stores, (), 74)
    assert [ask.pins(number).held.cut for number in stores] == [74, 74, 74]  # type: ignore[union-attr]


@clustered()
async def test_a_store_that_is_late_makes_no_cut_and_one_left_out_needs_a_majority(
    cluster: Cluster,
) -> None:
    ask, stores = Asking(cluster), list(cluster.nodes)
    leader = await cluster.led()

    def lets_go(number: int, step: CutStep) -> None:
        if (number, step) == (1, CutStep.RELEASE):
            cluster.nodes[1].opened.store.consensus.holding.stop()

    ask.before = lets_go
    with pytest.raises(KernelError, match=r"stores \[1\] went on before all were cut"):
        await cut_stores(ask, stores, (), 71)
    await asyncio.sleep(1)
    ask.before = lambda _number, _step: None
    with pytest.raises(KernelError, match="is changing"):
        await cut_stores(ask, stores[:2], (), 72)
    with pytest.raises(KernelError, match="too few of its voters"):
        await cut_stores(ask, stores[:1], stores[1:], 73)
    await asyncio.sleep(1)
    away = leader.number
    others = [each for each in stores if each != away]
    await cut_stores(ask, others, (away,), 74)
    assert ask.pins(away).held is None
    assert {each for each, _ in ask.asked[-4:]} == set(others)


def test_a_cut_of_no_store_and_without_one_that_is_none_is_refused() -> None:
    assert cut_of_stores([3, 1, 2], [2]) == [1, 3]
    for records, without, code in (
        ([], [], Code.NOT_ALLOWED),
        ([1], [1], Code.NOT_ALLOWED),
        ([1], [2], Code.NOT_FOUND),
    ):
        with pytest.raises(KernelError) as refused:
            cut_of_stores(records, without)
        assert refused.value.code is code


def test_what_was_pinned_when_asked_makes_a_cluster_without_holes() -> None:
    """As the admin API does it, under load."""
    for seed in SEEDS:
        with Cluster(data_groups=2, seed=seed) as cluster:

            async def scenario(cluster: Cluster = cluster, seed: int = seed) -> Cut:
                clients, tasks = await running(cluster)
                confirmed = [each.confirmed for each in clients]
                ask = Asking(cluster, seed)
                await cut_stores(ask, list(cluster.nodes), (), 71)
                disks = {
                    number: test_pinning.restored(node.disk, await ask.pins(number).keep(71))
                    for number, node in cluster.nodes.items()
                }
                await ended(clients, tasks)
                return Cut(disks, confirmed, True)

            made = cluster.loop.run_until_complete(scenario())
        assert not holes(made, seed)


def is_holed(numbers: list[int]) -> bool:
    """Whether one is missing in front of another, or there twice."""
    return numbers != list(range(len(numbers)))


def restored(made: Cut, seed: int) -> list[list[int]]:
    """Numbers of each client that a cluster of the cut stores has, sorted, once its clients have
    repeated the last message that it knows of theirs, and gone on.
    """
    with Cluster(data_groups=2, seed=seed + 100) as cluster:
        for number, disk in made.disks.items():
            cluster.nodes[number].disk = disk

        async def numbers() -> list[list[int]]:
            found: list[list[int]] = [[] for _ in range(CLIENTS)]
            for group in GROUPS:
                node = await cluster.led(group)
                for body in await bodies_at(node, group):
                    client, number = map(int, body.split())
                    found[client].append(number)
            return [sorted(each) for each in found]

        async def scenario() -> list[list[int]]:
            for number in made.disks:
                await cluster.nodes[number].start()
            found = await numbers()
            if any(map(is_holed, found)):
                return found
            clients = [
                Client(cluster, number, max(0, len(each) - 2)) for number, each in enumerate(found)
            ]
            tasks = [cluster.loop.create_task(each.run()) for each in clients]
            await cluster.until(lambda: all(each.next > 2 + len(found[0]) for each in clients))
            await ended(clients, tasks)
            again = await numbers()
            assert again == [list(range(each.next)) for each in clients], "lost, or there twice"
            return found

        return cluster.loop.run_until_complete(scenario())


def holes(made: Cut, seed: int) -> int:
    """How many clients lack a message in front of one that is there. Nothing confirmed is lost."""
    found = restored(made, seed)
    for numbers, confirmed in zip(found, made.confirmed, strict=True):
        assert set(range(confirmed)) <= set(numbers), "confirmed before the cut, and lost"
    return sum(map(is_holed, found))


@pytest.mark.parametrize("trouble", ["none", "a leader changes", "a leader is not asked"])
def test_stores_cut_at_different_moments_make_a_cluster_without_holes(trouble: str) -> None:
    for seed in SEEDS:
        made = cut_of(seed, trouble)
        assert made.is_whole
        assert not holes(made, seed), (trouble, seed)


def test_without_the_hold_there_are_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    def apply_at_once(holding: Holding, member: Member, committed: Sequence[Entry]) -> None:
        holding._apply(member, committed)

    monkeypatch.setattr(Holding, "keep", apply_at_once)
    assert any(holes(cut_of(seed), seed) for seed in SEEDS)


def test_if_who_was_not_asked_is_heard_there_are_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = Holding.hold
    monkeypatch.setattr(Holding, "hold", lambda holding, cut, _: hold(holding, cut, range(1, 4)))
    assert any(holes(cut_of(seed, "a leader is not asked"), seed) for seed in SEEDS)


def test_who_dies_in_the_middle_or_is_late_makes_no_cut_and_holds_nobody() -> None:
    """A store that dies; and a manager that lets go later than each store does by itself."""
    assert not cut_of(1, "a store dies").is_whole
    assert not cut_of(2, spread_s=3 * HOLD_MS / 1_000).is_whole


@clustered()
async def test_one_holds_at_a_time_and_lets_go_for_its_own_cut(cluster: Cluster) -> None:
    held = (await cluster.led()).opened.store.consensus.holding
    held.hold(71, cluster.members)
    with pytest.raises(KernelError) as refused:
        held.hold(72, cluster.members)
    assert refused.value.code is Code.IN_USE
    await asyncio.sleep(HOLD_MS / 1_000 + 0.01)
    held.hold(72, cluster.members)
    assert not held.release(71)
    assert held.is_held
    assert held.release(72)


@clustered()
async def test_a_store_that_starts_again_in_the_middle_knows_no_earlier_cut(
    cluster: Cluster,
) -> None:
    """One asked it, it died, it holds for another: the first must not hear that it has held."""
    node = await cluster.led()
    node.opened.store.consensus.holding.hold(71, cluster.members)
    node.crash()
    await node.start()
    held = node.opened.store.consensus.holding
    assert not held.release(71)
    held.hold(72, cluster.members)
    assert not held.release(71)
    assert held.release(72)


@clustered()
async def test_who_holds_sends_nothing_to_who_was_not_asked(cluster: Cluster) -> None:
    """Not what is committed, and not that it has an entry: that may be behind its cut."""
    leader = await cluster.led()
    publisher = Publisher(cluster)
    await publisher.topic(leader)
    await publisher.published(leader, [b"before"])
    away = next(each for each in cluster.nodes.values() if each is not leader)
    asked = [each for each in cluster.nodes.values() if each is not away]
    for each in asked:
        each.opened.store.consensus.holding.hold(71, [node.number for node in asked])
    sent: list[tuple[int, int]] = []
    send = cluster.network.send

    def sends(sender: int, group: int, message: RaftMessage) -> None:
        if message.kind in {APPEND, APPEND_ANSWER}:
            sent.append((sender, message.to))
        send(sender, group, message)

    cluster.network.send = sends
    publisher.publish(leader, b"meanwhile")
    await asyncio.sleep(0.1)
    assert sent
    assert not [way for way in sent if away.number in way]
    assert leader.member(GROUP).core.log.committed > leader.member(GROUP).state.applied
    assert publisher.acked == [b"before"]
    for each in asked:
        assert each.opened.store.consensus.holding.release(71)
    await cluster.until(lambda: publisher.acked == [b"before", b"meanwhile"])
    await cluster.until(
        lambda: away.member(GROUP).state.applied == leader.member(GROUP).state.applied
    )
