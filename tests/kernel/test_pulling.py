"""Single receives: when they end, and with what."""

from __future__ import annotations

import asyncio

import pytest

from kernel.api.client import LeaseChange, LeaseVerb, Received, ReceiveSpec
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicOptions
from kernel.common.errors import Code
from tests.simulator.world import World, simulated

TRANSIENT = TopicOptions(durable=False)
BOTH = pytest.mark.parametrize("options", [TopicOptions(), TRANSIENT], ids=["durable", "transient"])


def _offsets(received: Received) -> list[int]:
    return list(received.deliveries.offsets) if received.deliveries is not None else []


@BOTH
@simulated()
async def test_a_pull_ends_at_its_time_although_messages_are_ready_that_it_may_not_have(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", options, GroupOptions(in_flight_max=1))
    recorder = peer.attach(topic, credit=1, priority=1)
    spec = ReceiveSpec(topic, DEFAULT_GROUP, wait_ms=1_000, lease_ms=60_000)
    pull = asyncio.create_task(world.client.receive(spec))
    await asyncio.sleep(0.1)
    await peer.publish(topic, b"1", b"2")
    await recorder.wait_for(1)
    async with asyncio.timeout(1.5):
        assert (await pull).deliveries is None
    found = world.figures(topic, DEFAULT_GROUP)
    assert (found.ready, found.leased) == (1, 1)


@pytest.mark.parametrize("lease_ms", [None, 60_000], ids=["session", "timed"])
@simulated()
async def test_a_pull_that_does_not_wait_brings_what_must_be_read_from_disk_first(
    world: World, lease_ms: int | None
) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, b"1")
    await world.restart()
    peer = world.peer()
    session = peer.session if lease_ms is None else None
    spec = ReceiveSpec(topic, DEFAULT_GROUP, session=session, lease_ms=lease_ms)
    assert _offsets(await world.client.receive(spec)) == [0]
    assert _offsets(await world.client.receive(spec)) == []


@BOTH
@simulated()
async def test_a_lease_that_ends_at_once_is_one_command_that_counts_the_attempt(
    world: World, options: TopicOptions
) -> None:
    """Six pulls in a row bring the message six times; the last holder may still ack it."""
    peer = world.peer()
    topic = await peer.topic("work", options)
    await peer.publish(topic, b"1")
    spec = ReceiveSpec(topic, DEFAULT_GROUP, lease_ms=0)
    got = [await world.client.receive(spec) for _ in range(6)]
    attempts = [each.deliveries.attempts for each in got if each.deliveries is not None]
    assert attempts == [None, [2], [3], [4], [5], [6]]
    found = world.figures(topic, DEFAULT_GROUP)
    assert (found.ready, found.leased) == (1, 0)
    extend, ack = (
        LeaseChange(got[at].tokens[0], verb)
        for at, verb in ((5, LeaseVerb.ACK_IN_TIME), (4, LeaseVerb.ACK))
    )
    late, lost = await world.client.settle_leases(topic, DEFAULT_GROUP, [extend, ack])
    assert late is not None
    assert lost is not None
    assert (late.code, lost.code) == (Code.LEASE_OVER, Code.LEASE_LOST)
    ack = LeaseChange(got[5].tokens[0], LeaseVerb.ACK)
    assert await world.client.settle_leases(topic, DEFAULT_GROUP, [ack]) == [None]
    assert world.figures(topic, DEFAULT_GROUP).ready == 0


@simulated()
async def test_after_a_crash_a_lease_that_ended_at_once_is_known_to_have_ended(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", None, GroupOptions(attempts_max=3))
    await peer.publish(topic, b"1")
    spec = ReceiveSpec(topic, DEFAULT_GROUP, lease_ms=0)
    first = await world.client.receive(spec)
    await world.crash()
    second = await world.client.receive(spec)
    assert second.deliveries is not None
    assert list(second.deliveries.attempts or ()) == [2]
    lost = LeaseChange(first.tokens[0], LeaseVerb.ACK)
    (error,) = await world.client.settle_leases(topic, DEFAULT_GROUP, [lost])
    assert error is not None
    third = await world.client.receive(spec)
    assert world.figures(topic, DEFAULT_GROUP).leased == 1
    assert _offsets(third) == [0]
    await asyncio.sleep(0.2)
    assert _offsets(await world.client.receive(spec)) == []
