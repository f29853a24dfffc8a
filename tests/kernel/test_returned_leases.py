"""Leases that reach nobody are counted, and counted as returned: what is left was received."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import repeat

import pytest

from kernel.api.client import (
    DeleteGroup,
    DeleteTopic,
    LeaseChange,
    LeaseVerb,
    Received,
    ReceiveSpec,
)
from kernel.api.message import HEADER_BYTES
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    GroupOptions,
    Reason,
    TopicInfo,
    TopicOptions,
)
from kernel.broker.group_state.usage import Verb, counts
from kernel.broker.log_commands import commands
from kernel.broker.snapshots.snapshot import dump, load, state_hash
from kernel.common.ids import Offset, QueueId
from tests.kernel.counted import everything
from tests.kernel.test_usage import MINE, metered, peer_of
from tests.simulator.peer import Draft
from tests.simulator.world import WRITER, World, simulated

BOTH = pytest.mark.parametrize(
    "options", [TopicOptions(), TopicOptions(durable=False)], ids=["durable", "transient"]
)

Three = tuple[int, int, int]


def counted(world: World, verb: Verb) -> Three:
    """Messages, bytes and units of a verb, under the origin of who received."""
    found = [each for each in everything(world) if each.verb is verb]
    assert all(each.origin == MINE for each in found)
    sums = ((each.messages, each.size_bytes, each.units_4k) for each in found)
    messages, size, units = map(sum, zip(*sums, strict=True)) if found else (0, 0, 0)
    return messages, size, units


def delivered(world: World) -> Three:
    """What was leased, less what was returned."""
    leased, returned = counted(world, Verb.DELIVERED), counted(world, Verb.RETURNED)
    messages, size, units = (a - b for a, b in zip(leased, returned, strict=True))
    return messages, size, units


class Customer:
    """Receives, and remembers what it got."""

    def __init__(self, world: World, topic: TopicInfo) -> None:
        self._world = world
        self._topic = topic
        self.got: Counter[tuple[int, int]] = Counter()
        self.size = self.units = 0

    async def poll(self, wait_ms: int, *, messages: int = 10, lease_ms: int = 60_000) -> int:
        spec = ReceiveSpec(
            self._topic,
            DEFAULT_GROUP,
            messages=messages,
            wait_ms=wait_ms,
            lease_ms=lease_ms,
            origin=MINE,
        )
        received = await self._world.client.receive(spec)
        self._take(received)
        if received.tokens:
            changes = [LeaseChange(each, LeaseVerb.ACK) for each in received.tokens]
            client = self._world.client
            assert not any(await client.settle_leases(self._topic, DEFAULT_GROUP, changes, MINE))
        return len(received.tokens)

    async def take(self, wait_ms: int, group: str, *, lease_ms: int = 60_000) -> None:
        """Receive and keep."""
        spec = ReceiveSpec(
            self._topic, group, messages=3, wait_ms=wait_ms, lease_ms=lease_ms, origin=MINE
        )
        self._take(await self._world.client.receive(spec))

    def _take(self, received: Received) -> None:
        columns = received.deliveries
        if columns is not None:
            for offset, slot in zip(columns.offsets, columns.slots, strict=True):
                self.got[columns.queue, offset] += 1
                size = len(slot) - HEADER_BYTES
                self.size += size
                self.units += (size + 4_095) // 4_096 or 1

    @property
    def three(self) -> Three:
        return self.got.total(), self.size, self.units


@BOTH
@simulated()
async def test_delayed_messages_of_long_polls_are_billed_once_each(
    world: World, options: TopicOptions
) -> None:
    peer = peer_of(world)
    topic = await peer.topic("later", options)
    customer = Customer(world, topic)
    world.workers.delay_s[WRITER] = 0.1
    polls = [asyncio.create_task(customer.poll(20_000)) for _ in range(3)]
    await peer.publish(topic, *[Draft(b"x" * 100, delay_ms=500 + at * 20) for at in range(10)])
    await peer.publish(topic, *[Draft(b"x" * 100, delay_ms=900 + at * 20) for at in range(20)])
    while customer.got.total() < 30:
        await customer.poll(1_000)
    await asyncio.gather(*polls)
    assert set(customer.got.values()) == {1}
    if options.durable:
        assert counted(world, Verb.RETURNED)[0] > 0, "the polls were to be brought too much"
    assert delivered(world) == customer.three == (30, 3_000, 30)


@pytest.mark.parametrize("seed", range(4))
@simulated()
async def test_what_is_billed_is_what_was_received_under_bursts_delays_and_cancelled_polls(
    world: World, seed: int
) -> None:
    rng = random.Random(seed)
    peer = peer_of(world)
    world.workers.delay_s[WRITER] = rng.choice((0, 0.002, 0.01))
    options = TopicOptions(queues=rng.choice((1, 4)))
    topic = await peer.topic("bursts", options, GroupOptions(ordered=seed % 2 == 1))
    customer = Customer(world, topic)
    sent = 0
    for _ in range(12):
        polls = [asyncio.create_task(customer.poll(5_000)) for _ in range(rng.randrange(1, 6))]
        await asyncio.sleep(rng.random() * 0.01)
        drafts = [
            Draft(
                b"x" * rng.choice((0, 10, 4_097, 9_000)),
                delay_ms=rng.choice((0, 0, 1, 30)),
                key=b"%d" % rng.randrange(9),
            )
            for _ in range(rng.randrange(1, 9))
        ]
        sent += len(drafts)
        await peer.publish(topic, *drafts)
        if rng.random() < 0.5:
            await asyncio.sleep(rng.random() * 0.01)
            polls.pop().cancel()
        await asyncio.gather(*polls, return_exceptions=True)
    while customer.got.total() < sent and await customer.poll(100_000):
        pass
    assert set(customer.got.values()) == {1}
    assert customer.got.total() == sent
    await world.settle_down()
    assert delivered(world) == customer.three


@simulated()
async def test_a_return_is_told_again_after_a_crash_and_the_same_from_a_snapshot(
    world: World,
) -> None:
    peer = peer_of(world)
    topic = await peer.topic("kept")
    await peer.publish(topic, b"x" * 5_000)
    await _receive_and_return(world, topic)
    await metered(world)
    assert counted(world, Verb.RETURNED) == (0, 0, 0), "it was reported"
    await _receive_and_return(world, topic)
    await world.crash()
    await world.restart()
    assert counted(world, Verb.RETURNED) == (2, 10_000, 4)
    assert delivered(world) == (0, 0, 0)
    for replica in world.opened.store.replicas():
        again = load(dump(replica.state))
        assert state_hash(again) == state_hash(replica.state)
        assert list(counts(again)) == list(counts(replica.state))


async def _receive_and_return(world: World, topic: TopicInfo) -> Received:
    spec = ReceiveSpec(topic, DEFAULT_GROUP, lease_ms=60_000, origin=MINE)
    received = await world.client.receive(spec)
    assert received.deliveries is not None
    (token,), (slot,) = received.tokens, received.deliveries.slots
    change = LeaseChange(token, LeaseVerb.RETURN, slot_bytes=len(slot))
    assert await world.client.settle_leases(topic, DEFAULT_GROUP, [change], MINE) == [None]
    return received


@simulated()
async def test_a_lease_is_taken_off_once_however_often_it_is_returned(world: World) -> None:
    peer = peer_of(world)
    topic = await peer.topic("twice")
    await peer.publish(topic, b"x")
    received = await _receive_and_return(world, topic)
    assert received.deliveries is not None
    size = len(received.deliveries.slots[0])
    change = LeaseChange(received.tokens[0], LeaseVerb.RETURN, slot_bytes=size)
    (failure,) = await world.client.settle_leases(topic, DEFAULT_GROUP, [change], MINE)
    assert failure is not None
    late = LeaseChange(received.tokens[0], LeaseVerb.ACK)
    (failure,) = await world.client.settle_leases(topic, DEFAULT_GROUP, [late], MINE)
    assert failure is not None, "nobody has got it: nobody acks it"
    assert counted(world, Verb.RETURNED)[0] == 1


@simulated()
async def test_a_lease_that_ran_out_before_it_was_returned_is_taken_off_all_the_same(
    world: World,
) -> None:
    peer = peer_of(world)
    topic = await peer.topic("late")
    await peer.publish(topic, b"x", b"y")
    spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=2, lease_ms=1, origin=MINE)
    received = await world.client.receive(spec)
    assert received.deliveries is not None
    await asyncio.sleep(1)
    # One of them is leased to somebody else by now.
    again = await world.client.receive(
        ReceiveSpec(topic, DEFAULT_GROUP, messages=1, lease_ms=60_000, origin=MINE)
    )
    assert len(again.tokens) == 1
    changes = [
        LeaseChange(token, LeaseVerb.RETURN, slot_bytes=len(slot))
        for token, slot in zip(received.tokens, received.deliveries.slots, strict=True)
    ]
    failures = await world.client.settle_leases(topic, DEFAULT_GROUP, changes, MINE)
    assert all(failures)
    assert delivered(world)[0] == 1
    assert world.figures(topic, DEFAULT_GROUP).leased == 1, "it is still its holder's"
    other = await world.client.receive(ReceiveSpec(topic, DEFAULT_GROUP, lease_ms=60_000))
    assert other.deliveries is not None
    assert list(other.deliveries.attempts or [1]) == [1], "the first attempt was none"


@simulated()
async def test_a_delay_s_end_and_a_suspended_delivery_are_no_returns(world: World) -> None:
    peer = peer_of(world)
    topic = await peer.topic("delays")
    await peer.publish(topic, b"x", Draft(b"y", delay_ms=100))
    spec = ReceiveSpec(topic, DEFAULT_GROUP, lease_ms=60_000, origin=MINE)
    received = await world.client.receive(spec)
    change = LeaseChange(received.tokens[0], LeaseVerb.RETURN, 50)
    assert await world.client.settle_leases(topic, DEFAULT_GROUP, [change], MINE) == [None]
    await asyncio.sleep(1)
    assert world.figures(topic, DEFAULT_GROUP).ready == 2
    assert counted(world, Verb.RETURNED) == (0, 0, 0)
    assert delivered(world)[0] == 1


@pytest.mark.parametrize("seed", range(4))
@simulated()
async def test_what_is_received_with_leases_that_end_at_once_is_billed_each_time(
    world: World, seed: int
) -> None:
    rng = random.Random(seed)
    peer = peer_of(world)
    topic = await peer.topic("at once")
    customer = Customer(world, topic)
    world.workers.delay_s[WRITER] = rng.choice((0.002, 0.05))
    tasks = [asyncio.create_task(customer.take(2_000, DEFAULT_GROUP, lease_ms=0)) for _ in range(5)]
    for _ in range(6):
        peer.submit(topic, *[b"x" * 5_000] * rng.randrange(1, 4))
        await asyncio.sleep(rng.random() * 0.02)
        tasks.append(asyncio.create_task(customer.take(500, DEFAULT_GROUP, lease_ms=0)))
    tasks[3].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await world.settle_down()
    assert delivered(world) == customer.three
    assert customer.three[0]
    attempts: Counter[int] = Counter()
    final = ReceiveSpec(topic, DEFAULT_GROUP, messages=100, lease_ms=60_000, origin=MINE)
    received = await world.client.receive(final)
    columns = received.deliveries
    assert columns is not None
    for offset, attempt in zip(columns.offsets, columns.attempts or repeat(1), strict=False):
        attempts[offset] = attempt - 1
    (queue,) = {queue for queue, _ in customer.got} | {columns.queue}
    assert attempts == Counter({at: customer.got[queue, at] for at in attempts})


@pytest.mark.parametrize("step", range(12))
@pytest.mark.parametrize("what", ["topic", "group"])
@simulated()
async def test_leases_in_flight_while_their_topic_or_group_goes_are_billed_if_they_came(
    world: World, what: str, step: int
) -> None:
    peer = peer_of(world)
    topic = await peer.topic(
        "going", groups={DEFAULT_GROUP: GroupOptions(), "other": GroupOptions()}
    )
    customer = Customer(world, topic)
    world.workers.delay_s[WRITER] = 0.005
    polls = [asyncio.create_task(customer.take(20_000, "other")) for _ in range(3)]
    await asyncio.sleep(0.01)
    for _ in range(4):
        peer.submit(topic, *[b"x" * 5_000] * 5)
        await asyncio.sleep(0.002)
    await asyncio.sleep(step * 0.001)
    change = DeleteTopic(DEFAULT_TENANT, "going")
    if what == "group":
        change = DeleteGroup(DEFAULT_TENANT, "going", "other")  # type: ignore[assignment]
    await world.client.administer(change)
    await asyncio.gather(*polls, return_exceptions=True)
    await world.settle_down()
    assert delivered(world) == customer.three


@simulated()
async def test_what_a_gateway_gives_back_of_a_deleted_topic_is_taken_off(world: World) -> None:
    peer = peer_of(world)
    topic = await peer.topic("gone")
    await peer.publish(topic, b"x" * 5_000)
    spec = ReceiveSpec(topic, DEFAULT_GROUP, lease_ms=60_000, origin=MINE)
    received = await world.client.receive(spec)
    assert received.deliveries is not None
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "gone"))
    size = len(received.deliveries.slots[0])
    change = LeaseChange(received.tokens[0], LeaseVerb.RETURN, slot_bytes=size)
    (failure,) = await world.client.settle_leases(topic, DEFAULT_GROUP, [change], MINE)
    assert failure is not None
    assert counted(world, Verb.DELIVERED) == (1, 5_000, 2)
    assert delivered(world) == (0, 0, 0)
    await world.crash()
    await world.restart()
    assert delivered(world) == (0, 0, 0)


def test_a_change_is_of_the_second_version_only_if_it_undoes_a_delivery() -> None:
    queue, name = QueueId(7), "g"
    plain = (Offset(3), 9, LeaseVerb.RETURN, Reason.REJECTED, 50, 0)
    undone = (Offset(4), 9, LeaseVerb.RETURN, Reason.REJECTED, 0, 5_000)
    _, version, body = commands.encode_change(queue, name, [plain])
    assert version == 1
    assert commands.decode_change(version, body) == (queue, name, [plain])
    _, version, body = commands.encode_change(queue, name, [plain, undone])
    assert version == commands.CHANGE_RETURNS
    assert commands.decode_change(version, body) == (queue, name, [plain, undone])
