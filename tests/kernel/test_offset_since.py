"""Finding where a time begins in a queue, against a plain list of what was stored when."""

from __future__ import annotations

import asyncio

import pytest

from kernel.api.client import Client, DeleteTopic
from kernel.api.message import decode
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    DeadLetter,
    GroupOptions,
    TopicInfo,
    TopicKind,
    TopicOptions,
)
from kernel.broker.group_state.idle_record import IdleQueue
from kernel.broker.index.run_page import RUNS_PER_PAGE
from kernel.broker.index.runs import YOUNG_RUNS_MAX
from kernel.common.errors import Code, KernelError
from kernel.common.ids import Offset
from tests.simulator.loop import WALL_START_MS
from tests.simulator.peer import Draft, Peer
from tests.simulator.world import World, simulated

BOTH = pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
STEP_MS = 20
"""Between two batches of a test: more than log time is ever beside the simulated clock."""


async def fill(world: World, peer: Peer, topic: TopicInfo, batches: int) -> list[int]:
    """Publish batches of one to three messages, STEP_MS apart; when each message was stored."""
    stored: list[int] = []
    for number in range(batches):
        await asyncio.sleep(STEP_MS / 1_000)
        drafts = [Draft(b"%d" % at, priority=number % 2) for at in range(1 + number % 3)]
        stored += [world.clock.wall_ms()] * len(drafts)
        await peer.publish(topic, *drafts)
    return stored


async def check(client: Client, topic: TopicInfo, stored: list[int], first: int = 0) -> None:
    """Ask for times around every message, and far away from all."""
    half = STEP_MS // 2
    around = {at for time_ms in stored for at in (time_ms - half, time_ms + half)}
    for time_ms in sorted({-1, 0, WALL_START_MS, 1 << 62, 1 << 70} | around):
        later = [at for at, each in enumerate(stored) if at >= first and each >= time_ms]
        found = await client.offset_since(topic, 0, time_ms)
        assert found == (later[0] if later else len(stored)), time_ms


@BOTH
@pytest.mark.parametrize("batches", [0, 1, YOUNG_RUNS_MAX // 2, 5 * YOUNG_RUNS_MAX])
@simulated()
async def test_a_time_is_found_wherever_it_lies_in_a_queue(
    world: World, durable: bool, batches: int
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(durable=durable, priority_max=1))
    stored = await fill(world, peer, topic, batches)
    await check(world.client, topic, stored)


@simulated()
async def test_a_time_is_found_in_many_pages_and_again_after_a_crash(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    other = await peer.topic("other")
    stored = await fill(world, peer, topic, 3 * RUNS_PER_PAGE)
    replica = world.opened.store.replica(topic.queues[0].group)
    assert replica.state.queues[topic.queues[0].id].index.page_count == 3
    await check(world.client, topic, stored)
    await world.crash()
    await check(world.client, topic, stored)
    await check(world.client, other, [])


@simulated()
async def test_what_is_acked_counts_while_it_is_kept_and_what_is_trimmed_does_not(
    world: World,
) -> None:
    peer = world.peer()
    options = TopicOptions(kind=TopicKind.STREAM, retention_ms=60_000)
    topic = await peer.topic("stream", options, groups={"g": GroupOptions()})
    stored = await fill(world, peer, topic, 5)
    recorder = peer.attach(topic, credit=len(stored), group="g")
    await recorder.wait_for(len(stored))
    await recorder.ack()
    await check(world.client, topic, stored)
    await asyncio.sleep(40)
    stored += await fill(world, peer, topic, 5)
    await asyncio.sleep(25)
    start, end = await world.client.span(topic, 0)
    assert 0 < start < end == len(stored)
    await check(world.client, topic, stored, start)
    await asyncio.sleep(60)
    await check(world.client, topic, stored, len(stored))


@simulated()
async def test_the_clocks_of_publishers_do_not_count(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    slow = Peer(world.client, Behind(), "slow")
    stored: list[int] = []
    for each in (peer, slow, peer):
        await asyncio.sleep(STEP_MS / 1_000)
        stored.append(world.clock.wall_ms())
        await each.publish(topic, b"x")
    found = await world.client.peek(topic, 0, Offset(0), 9)
    assert [decode(slot).published_ms for _, slot in found][1] == 5
    await check(world.client, topic, stored)


class Behind:
    """A clock in 1970."""

    def wall_ms(self) -> int:
        return 5

    def monotonic_ms(self) -> int:
        return 5


@simulated()
async def test_a_dead_letter_was_stored_when_it_died(world: World) -> None:
    peer = world.peer()
    dead = await peer.topic("dead", TopicOptions(message_ttl_ms=3_600_000))
    group = GroupOptions(dead_letter=DeadLetter(None, "dead"))
    topic = await peer.topic("work", TopicOptions(message_ttl_ms=5_000), group)
    await peer.publish(topic, b"x")
    await asyncio.sleep(10)
    died_ms = WALL_START_MS + 4_000
    assert (await world.client.statistics(dead, DEFAULT_GROUP)).ready == 1
    assert await world.client.offset_since(dead, 0, died_ms) == 0
    assert await world.client.offset_since(dead, 0, world.clock.wall_ms()) == 1


@simulated()
async def test_asking_wakes_no_queue_at_rest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel.broker.group_state.queues.LIVE_MAX", 0)
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, b"1", b"2")
    stored = [world.clock.wall_ms()] * 2
    queues = world.opened.store.replica(topic.queues[0].group).state.queues
    assert isinstance(queues.raw(topic.queues[0].id), IdleQueue)
    await check(world.client, topic, stored)
    assert await world.client.span(topic, 0) == (0, 2)
    assert isinstance(queues.raw(topic.queues[0].id), IdleQueue)


@BOTH
@simulated()
async def test_a_queue_that_is_gone_is_not_found(world: World, durable: bool) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(durable=durable))
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "work"))
    with pytest.raises(KernelError) as failure:
        await world.client.offset_since(topic, 0, 0)
    assert failure.value.code is Code.NOT_FOUND
