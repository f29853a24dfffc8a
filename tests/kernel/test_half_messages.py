"""Half messages: stored, invisible, then ordinary or gone, whatever happens in between."""

from __future__ import annotations

import asyncio

import pytest

from kernel.api.client import DeleteTopic, PurgeTopic, PutTopic
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    GroupOptions,
    HalfOptions,
    TopicInfo,
    TopicKind,
    TopicOptions,
)
from kernel.api.transactions import HalfCheck
from kernel.broker.group_state.halves import HalfMessage, Halves
from kernel.broker.snapshots.snapshot import dump, load, state_hash
from kernel.common.errors import Code, KernelError
from kernel.common.ids import LogIndex, QueueId, TopicId
from kernel.common.limits import HALF_OUTCOMES_KEPT
from tests.simulator.peer import Draft, Peer
from tests.simulator.world import World, simulated

GROUP = "payers"


async def prepare(peer: Peer, topic: TopicInfo, draft: Draft | bytes) -> bytes:
    """Prepare a message; its token."""
    wanted = draft if isinstance(draft, Draft) else Draft(draft)
    uid = peer.client.batch(peer.session, peer).uid()
    return await peer.client.halves.prepare(topic, GROUP, wanted.parts(uid, 0))


def ready(world: World, topic: TopicInfo) -> int:
    return world.figures(topic, DEFAULT_GROUP).ready


class Producer:
    """`HalfSink` that remembers what it was asked."""

    def __init__(self) -> None:
        self.checks: list[HalfCheck] = []

    def check(self, check: HalfCheck) -> None:
        self.checks.append(check)


class Failing:
    """Expect a KernelError of a code."""

    def __init__(self, code: Code, words: str = "") -> None:
        self._code = code
        self._words = words

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        assert isinstance(error, KernelError), f"no {self._code}"
        assert error.code is self._code
        assert self._words in error.message
        return True


@simulated()
async def test_a_half_message_is_invisible_until_its_commit_and_ordinary_after(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("orders", TopicOptions(priority_max=5))
    recorder = peer.attach(topic, credit=100)
    token = await prepare(peer, topic, Draft(b"half", priority=9))
    await peer.publish(topic, b"before")
    await asyncio.sleep(1)
    assert recorder.bodies == [b"before"]
    queue, offset = await world.client.halves.end(topic, token, commit=True)
    await recorder.wait_for(2)
    assert (queue, offset) == (topic.queues[0].id, 1)
    assert recorder.bodies == [b"before", b"half"]
    await recorder.ack()
    assert ready(world, topic) == 0
    assert not world.opened.store.replica(topic.queues[0].group).state.halves.waiting


@simulated()
async def test_a_rollback_leaves_nothing(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("orders")
    token = await prepare(peer, topic, b"half")
    assert await world.client.halves.end(topic, token, commit=False) is None
    assert ready(world, topic) == 0
    group = topic.queues[0].group
    assert all(each != group for each, _ in world.opened.store.journal._locations.held())


@simulated()
async def test_an_outcome_said_twice_is_heard_twice_and_the_other_one_is_refused(
    world: World,
) -> None:
    peer = world.peer()
    halves = world.client.halves
    topic = await peer.topic("orders")
    first = await prepare(peer, topic, b"1")
    second = await prepare(peer, topic, b"2")
    place = await halves.end(topic, first, commit=True)
    assert await halves.end(topic, first, commit=True) == place
    await halves.end(topic, second, commit=False)
    await halves.end(topic, second, commit=False)
    with Failing(Code.LEASE_LOST, "committed"):
        await halves.end(topic, first, commit=False)
    with Failing(Code.LEASE_LOST, "rolled back"):
        await halves.end(topic, second, commit=True)
    await world.crash()
    peer = world.peer()
    assert await world.client.halves.end(topic, first, commit=True) == place
    assert ready(world, topic) == 1


@simulated()
async def test_a_token_of_another_topic_or_of_nobody_is_refused(world: World) -> None:
    peer = world.peer()
    topic, other = await peer.topic("orders"), await peer.topic("others")
    token = await prepare(peer, topic, b"half")
    for where, wrong in (
        (other, token),
        (topic, b""),
        (topic, b"x" * 24),
        (topic, token[:8] + (99).to_bytes(8, "little")),
    ):
        with Failing(Code.LEASE_LOST):
            await world.client.halves.end(where, wrong, commit=True)
    assert ready(world, topic) == 0


@simulated()
async def test_a_deleted_topic_takes_its_half_messages_along(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("orders", TopicOptions(queues=3))
    tokens = [await prepare(peer, topic, b"half") for _ in range(5)]
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "orders"))
    again = await peer.topic("orders", TopicOptions(queues=3))
    with Failing(Code.LEASE_LOST):
        await world.client.halves.end(again, tokens[0], commit=True)
    assert not any(each.state.halves.waiting for each in world.opened.store.replicas())
    with Failing(Code.NOT_FOUND):
        await prepare(peer, topic, b"to nowhere")


@simulated()
async def test_a_purge_leaves_half_messages_alone(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("orders")
    token = await prepare(peer, topic, b"half")
    await peer.publish(topic, b"whole")
    await world.client.administer(PurgeTopic(DEFAULT_TENANT, "orders", DEFAULT_GROUP))
    await world.client.halves.end(topic, token, commit=True)
    assert ready(world, topic) == 1


@simulated()
async def test_the_producers_of_the_group_are_asked_in_turn_until_one_answers(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("orders")
    one, two, stranger = Producer(), Producer(), Producer()
    halves = world.client.halves
    watch = halves.watch(DEFAULT_TENANT, GROUP, one)
    halves.watch(DEFAULT_TENANT, GROUP, two)
    halves.watch(DEFAULT_TENANT, "others", stranger)
    token = await prepare(peer, topic, b"half")
    await asyncio.sleep(5)
    assert one.checks == two.checks == []
    await asyncio.sleep(3)
    assert len(one.checks) + len(two.checks) == 1
    await asyncio.sleep(30)
    assert (len(one.checks), len(two.checks)) == (1, 1)
    watch.close()
    watch.close()
    await asyncio.sleep(30)
    assert (len(one.checks), len(two.checks), stranger.checks) == (1, 2, [])
    check = two.checks[-1]
    assert (check.token, check.topic, check.checks) == (token, "orders", 3)
    assert check.slot.endswith(b"half")
    await halves.end(topic, check.token, commit=True)
    await asyncio.sleep(60)
    assert len(two.checks) == 2
    assert world.client.half_keeper.figures.checks_sent == 3


@simulated()
async def test_a_message_that_nobody_decides_on_is_rolled_back_after_the_last_question(
    world: World,
) -> None:
    peer = world.peer()
    options = HalfOptions(check_after_ms=1_000, check_interval_ms=10_000, checks_max=2)
    topic = await peer.topic("orders", TopicOptions(half=options))
    token = await prepare(peer, topic, b"half")
    await asyncio.sleep(19)
    assert world.client.half_keeper.figures.checks_unheard == 2
    await world.crash()  # the number of questions is not forgotten
    await asyncio.sleep(5)
    assert world.client.half_keeper.figures.checks_unheard == 0
    assert world.client.half_keeper.figures.discarded == 1
    with Failing(Code.LEASE_LOST, "rolled back"):
        await world.client.halves.end(topic, token, commit=True)


@simulated()
async def test_too_many_half_messages_are_refused_and_a_commit_makes_room(world: World) -> None:
    peer = world.peer()
    limits = HalfOptions(messages_max=3, bytes_max=5_000)
    topic = await peer.topic("orders", TopicOptions(queues=4, half=limits))
    tokens = [await prepare(peer, topic, b"x") for _ in range(3)]
    with Failing(Code.LIMIT_EXCEEDED, "half.messages_max of topic orders is 3"):
        await prepare(peer, topic, b"x")
    await world.client.halves.end(topic, tokens[0], commit=True)
    with Failing(Code.LIMIT_EXCEEDED, "half.bytes_max"):
        await prepare(peer, topic, b"x" * 5_000)
    results = await asyncio.gather(
        prepare(peer, topic, b"y"), prepare(peer, topic, b"y"), return_exceptions=True
    )
    assert [type(each) for each in results] == [bytes, KernelError]


@simulated()
async def test_what_cannot_be_kept_half_is_refused(world: World) -> None:
    peer = world.peer()
    transient = await peer.topic("brief", TopicOptions(durable=False))
    topic = await peer.topic("orders", TopicOptions(deduplication_ms=60_000))
    with Failing(Code.INVALID_ARGUMENT, "transient"):
        await prepare(peer, transient, b"x")
    with Failing(Code.INVALID_ARGUMENT, "deduplicated"):
        await prepare(peer, topic, Draft(b"x", deduplication_id=b"1"))
    world.client.accepting = False
    with Failing(Code.NO_SPACE):
        await prepare(peer, topic, b"x")


@pytest.mark.parametrize("kind", list(TopicKind), ids=lambda kind: kind.value)
@simulated()
async def test_bytes_outlive_checkpoints_rewrites_and_crashes_half_and_committed(
    world: World, kind: TopicKind
) -> None:
    peer = world.peer()
    held = HalfOptions(check_after_ms=10**9)
    topic = await peer.topic("orders", TopicOptions(kind=kind, half=held), GroupOptions())
    filler = await peer.topic("filler")
    recorder = peer.attach(filler, credit=10_000)
    tokens = []
    for number in range(12):
        tokens.append(await prepare(peer, topic, b"half %d" % number))
        await peer.publish(filler, *[b"." * 3_000] * 12)
        await recorder.ack()
    ended = [await world.client.halves.end(topic, each, commit=True) for each in tokens[::3]]
    for _ in range(40):  # checkpoints, then rewrites of the sparse segments
        await peer.publish(filler, b"." * 3_000)
        await recorder.ack()
        await asyncio.sleep(11)
    journal = world.opened.store.journal.statistics()
    assert journal.rewrites > 0
    await world.crash(seed=1)
    ended += [await world.client.halves.end(topic, each, commit=True) for each in tokens[1::3]]
    await world.restart()
    found = await world.client.peek(topic, 0, 0, 100)
    assert [slot.rsplit(b"half ")[1] for _, slot in found] == [
        b"%d" % number for number in (0, 3, 6, 9, 1, 4, 7, 10)
    ]
    assert [offset for _, offset in ended] == list(range(8))
    state = world.opened.store.replica(topic.queues[0].group).state
    assert len(state.halves.waiting) == 4
    assert state_hash(load(dump(state))) == state_hash(state)


@simulated()
async def test_delay_ttl_and_key_count_from_the_commit(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("orders", group=GroupOptions(ordered=True))
    late = await prepare(peer, topic, Draft(b"late", delay_ms=5_000))
    brief = await prepare(peer, topic, Draft(b"brief", ttl_ms=5_000))
    keyed = [await prepare(peer, topic, Draft(b"keyed", key=b"k")) for _ in range(2)]
    await asyncio.sleep(10)
    for each in (late, brief, *keyed):
        await world.client.halves.end(topic, each, commit=True)
    await asyncio.sleep(1)
    recorder = peer.attach(topic, credit=1)
    assert (await recorder.wait_for(1))[0].body == b"brief"
    await recorder.ack()
    other = peer.attach(topic, credit=10)
    await asyncio.sleep(2)
    assert other.bodies == [b"keyed", b"keyed"]  # one run of the key, to one holder
    await asyncio.sleep(3)
    assert other.bodies == [b"keyed", b"keyed", b"late"]


def test_outcomes_are_remembered_up_to_a_limit() -> None:
    halves = Halves()
    for number in range(1, HALF_OUTCOMES_KEPT + 3):
        half = HalfMessage(number, QueueId(256), LogIndex(7), number, 10, GROUP, (), 0, 5, 0)
        halves.put(half)
        assert (halves.bytes, halves.figures(TopicId(1))) == (10, (1, 10))
        halves.resolved(half, -1)
    assert len(halves.outcomes) == HALF_OUTCOMES_KEPT
    assert (halves.bytes, halves.figures(TopicId(1))) == (0, (0, 0))
    assert not list(halves.of_entry(7))
    assert halves.due(100, 10) == []


@simulated()
async def test_a_half_message_that_nobody_has_a_group_of_is_not_kept_once_it_is_committed(
    world: World,
) -> None:
    peer = world.peer()
    await world.client.administer(PutTopic(DEFAULT_TENANT, "lonely", TopicOptions(), {}))
    topic = peer.client.topic(DEFAULT_TENANT, "lonely")
    assert topic is not None
    token = await prepare(peer, topic, b"1")
    await peer.client.halves.end(topic, token, commit=True)
    (group,) = {each.group for each in topic.queues}
    assert world.opened.store.replica(group).state.stored.by_tenant == {}
