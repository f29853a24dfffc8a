"""Half messages and transactions over a hostile network."""

from __future__ import annotations

import asyncio

import pytest

from kernel.api.atomic import ChangeLeases, Settle, Transaction
from kernel.api.client import LeaseChange, LeaseVerb, ReceiveSpec, Settlement
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, HalfOptions, TopicInfo, TopicOptions
from kernel.api.transactions import HalfCheck
from kernel.common.errors import Code, KernelError
from tests.simulator.far import Far
from tests.simulator.peer import Draft, Recorder
from tests.simulator.world import World, simulated

SEEDS = pytest.mark.parametrize("seed", range(3))
GROUP = "payers"


class Producer:
    """`HalfSink` that decides."""

    def __init__(self, far: Far, topic: TopicInfo) -> None:
        self._far = far
        self._topic = topic
        self.checks: list[HalfCheck] = []
        self.ended: list[asyncio.Task[object]] = []

    def check(self, check: HalfCheck) -> None:
        self.checks.append(check)
        work = self._far.client.halves.end(self._topic, check.token, commit=True)
        self.ended.append(asyncio.ensure_future(work))


async def prepare(far: Far, topic: TopicInfo, body: bytes) -> bytes:
    """Prepare a message; its token."""
    uid = far.client.batch(far.own.session, far.own).uid()
    return await far.client.halves.prepare(topic, GROUP, Draft(body).parts(uid, 0))


@pytest.mark.usefixtures("often")
@SEEDS
@simulated()
async def test_what_is_committed_is_there_once_and_nothing_else_is(world: World, seed: int) -> None:
    far = Far(world, seed)
    topic = await far.own.topic("orders")

    async def one(number: int) -> None:
        token = await prepare(far, topic, b"%d" % number)
        commit = number % 3 != 0
        place = await far.client.halves.end(topic, token, commit=commit)
        assert (place is not None) == commit
        assert await far.client.halves.end(topic, token, commit=commit) == place
        with pytest.raises(KernelError) as otherwise:
            await far.client.halves.end(topic, token, commit=not commit)
        assert otherwise.value.code is Code.LEASE_LOST

    await asyncio.gather(*(one(number) for number in range(100)))
    recorder = world.peer().attach(topic, credit=1_000)
    await asyncio.sleep(1)
    assert sorted(int(body) for body in recorder.bodies) == [n for n in range(100) if n % 3]
    assert min(far.client.link.failures.values()) > 0


@pytest.mark.usefixtures("often")
@SEEDS
@simulated()
async def test_a_question_comes_late_and_its_answer_counts(world: World, seed: int) -> None:
    far = Far(world, seed)
    half = HalfOptions(check_after_ms=1_000, check_interval_ms=60_000)
    topic = await far.own.topic("orders", TopicOptions(half=half))
    producer, closed = Producer(far, topic), Producer(far, topic)
    watch = far.client.halves.watch(DEFAULT_TENANT, GROUP, closed)
    watch.close()
    watch = far.client.halves.watch(DEFAULT_TENANT, GROUP, producer)
    tokens = [await prepare(far, topic, b"%d" % number) for number in range(10)]
    await asyncio.sleep(4)
    assert sorted(each.token for each in producer.checks) == sorted(tokens)
    assert {each.checks for each in producer.checks} == {1}
    assert len({await each for each in producer.ended}) == 10
    assert world.figures(topic, DEFAULT_GROUP).ready == 10
    watch.close()
    await prepare(far, topic, b"unheard")
    await asyncio.sleep(4)
    assert len(producer.checks) == 10
    assert closed.checks == []


# --- Transactions ---------------------------------------------------------------------------


async def two_together(far: Far) -> tuple[TopicInfo, TopicInfo]:
    """Topics whose queues live in one Raft group."""
    found: dict[int, TopicInfo] = {}
    for number in range(20):
        topic = await far.own.topic(f"t{number}")
        other = found.setdefault(topic.queues[0].group, topic)
        if other is not topic:
            return other, topic
    raise AssertionError("unreachable")


def ready(world: World, topic: TopicInfo) -> int:
    return world.figures(topic, DEFAULT_GROUP).ready


@pytest.mark.usefixtures("often")
@SEEDS
@simulated()
async def test_messages_are_moved_once_over_streams_that_are_reset(world: World, seed: int) -> None:
    far = Far(world, seed)
    source, target = await two_together(far)
    await far.own.publish(source, *(b"%d" % number for number in range(100)))
    recorder: Recorder = far.own.attach(source, credit=10)
    while len(recorder.got) < 100 or recorder.held:
        await asyncio.sleep(0.05)
        held = list(recorder.held.values())
        if not held:
            continue
        batch = far.client.batch(far.own.session, far.own)
        for each in held:
            parts = Draft(each.body).parts(batch.uid(), 0)
            batch.add(far.client.to_topic(target), parts, sum(map(len, parts)))
        settled = Settle(held[0].consumer, Settlement.ACK, [each.offset for each in held])
        await far.client.transact(Transaction(batch, (settled,)))
        assert batch.place(0) is not None
        recorder.held.clear()
        recorder.grant(len(held))
    assert far.client.resets > 0
    result = world.peer().attach(target, credit=1_000)
    await asyncio.sleep(1)
    assert result.bodies == [b"%d" % number for number in range(100)]
    found = world.figures(source, DEFAULT_GROUP)
    assert (found.ready, found.leased) == (0, 0)


@SEEDS
@simulated()
async def test_a_transaction_that_fails_does_nothing(world: World, seed: int) -> None:
    far = Far(world, seed)
    source, target = await two_together(far)
    await far.own.publish(source, b"1", b"2")
    spec = ReceiveSpec(source, DEFAULT_GROUP, messages=1, lease_ms=60_000)
    (token,) = (await far.client.receive(spec)).tokens
    recorder = far.own.attach(source, credit=1)
    (held,) = await recorder.wait_for(1)
    await far.client.settle_leases(source, DEFAULT_GROUP, [LeaseChange(token, LeaseVerb.ACK)])
    batch = far.client.batch(far.own.session, far.own)
    parts = Draft(b"no").parts(batch.uid(), 0)
    batch.add(far.client.to_topic(target), parts, sum(map(len, parts)))
    lost = ChangeLeases(source, DEFAULT_GROUP, [LeaseChange(token, LeaseVerb.RELEASE)])
    settle = Settle(held.consumer, Settlement.ACK, [held.offset])
    with pytest.raises(KernelError) as refused:
        await far.client.transact(Transaction(batch, (settle,), (lost,)))
    assert refused.value.code is Code.LEASE_LOST
    assert ready(world, target) == 0
    assert await recorder.ack(held) == {}, "still held, and settled now"
