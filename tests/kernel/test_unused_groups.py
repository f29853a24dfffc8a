"""Groups that nobody uses let go of what they hold; used ones, and the built-in one, never do."""

from __future__ import annotations

import asyncio

import pytest

from kernel.api.client import ReceiveSpec
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicInfo, TopicOptions
from kernel.broker.applying.liveness import references
from kernel.common.errors import Code, KernelError
from kernel.common.limits import UNUSED_MS_MIN
from tests.simulator.peer import Peer
from tests.simulator.world import World, simulated

HOUR = 10
"""Seconds: the tests live fast."""
HOUR_MS = HOUR * 1_000
GROUPS = {
    DEFAULT_GROUP: GroupOptions(unused_ms=HOUR_MS),
    "brief": GroupOptions(unused_ms=2 * HOUR_MS),
    "long": GroupOptions(),
    "ever": GroupOptions(unused_ms=None),
}


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel.leader_tasks.unused_groups.CHECK_MS", 200)
    monkeypatch.setattr("kernel.leader_tasks.unused_groups.GRACE_MS", HOUR_MS)
    monkeypatch.setattr("kernel.definitions.definition_checks.UNUSED_MS_MIN", HOUR_MS)


async def filled(peer: Peer) -> TopicInfo:
    topic = await peer.topic("work", TopicOptions(queues=2), groups=GROUPS)
    await peer.publish(topic, b"1", b"2", b"3")
    return topic


def held(world: World, topic: TopicInfo) -> list[int]:
    return [world.figures(topic, group).ready for group in GROUPS]


@pytest.mark.usefixtures("fast")
@simulated()
async def test_an_unused_group_lets_go_and_goes_on_letting_go(world: World) -> None:
    peer = world.peer()
    topic = await filled(peer)
    await asyncio.sleep(1.9 * HOUR)
    assert held(world, topic) == [3, 3, 3, 3]
    await asyncio.sleep(0.3 * HOUR)
    assert held(world, topic) == [3, 0, 3, 3]
    assert world.client.unused_groups.messages_let_go == 3
    await peer.publish(topic, b"4")
    await asyncio.sleep(3)
    assert held(world, topic) == [4, 0, 4, 4]
    recorder = peer.attach(topic, group="brief", credit=5)
    await peer.publish(topic, b"5")
    assert [each.body for each in await recorder.wait_for(1)] == [b"5"]


@pytest.mark.usefixtures("fast")
@simulated()
async def test_what_only_an_unused_group_held_is_gone_from_the_journal(world: World) -> None:
    peer = world.peer()
    groups = {DEFAULT_GROUP: GroupOptions(), "brief": GROUPS["brief"]}
    topic = await peer.topic("work", groups=groups)
    recorder = peer.attach(topic, credit=5)
    await peer.publish(topic, b"1")
    await recorder.wait_for(1)
    await recorder.ack()
    state = world.opened.store.replica(topic.queues[0].group).state
    assert sum(references(state).values()) == 1
    await asyncio.sleep(2.4 * HOUR)
    assert references(state) == {}


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("how", ["consumer", "receive"])
@simulated()
async def test_consumers_that_find_nothing_are_use(world: World, how: str) -> None:
    peer = world.peer()
    topic = await filled(peer)
    spec = ReceiveSpec(topic, "brief", messages=9, lease_ms=1_000)
    for _ in range(2):
        await world.client.receive(spec)
    if how == "consumer":
        peer.attach(topic, group="brief")
        await asyncio.sleep(5 * HOUR)
    else:
        for _ in range(10):
            await asyncio.sleep(HOUR / 2)
            await world.client.receive(ReceiveSpec(topic, "brief", lease_ms=1_000))
    assert held(world, topic)[1] > 0
    assert world.client.unused_groups.messages_let_go == 0


@pytest.mark.usefixtures("fast")
@simulated()
async def test_the_time_without_use_goes_on_through_a_restart_with_an_hour_to_come_back(
    world: World,
) -> None:
    topic = await filled(world.peer())
    await asyncio.sleep(1.9 * HOUR)
    await world.crash()
    await asyncio.sleep(0.8 * HOUR)
    assert held(world, topic) == [3, 3, 3, 3]
    await asyncio.sleep(0.3 * HOUR)
    assert held(world, topic) == [3, 0, 3, 3]


@simulated()
async def test_a_time_too_short_is_refused(world: World) -> None:
    groups = {"g": GroupOptions(unused_ms=UNUSED_MS_MIN - 1)}
    with pytest.raises(KernelError) as caught:
        await world.peer().topic("work", groups=groups)
    assert caught.value.code is Code.INVALID_ARGUMENT
