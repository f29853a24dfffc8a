"""Retained messages of the topic tree: the last one of each name, and only that."""

from __future__ import annotations

import asyncio

import pytest

from kernel.api.model import DEFAULT_TENANT
from kernel.common.errors import Code, KernelError
from tests.kernel.tree_client import retained, tell
from tests.simulator.peer import Draft
from tests.simulator.world import READER, World, simulated


@simulated()
async def test_retained_messages_survive_a_crash_and_an_empty_one_removes(world: World) -> None:
    await tell(world, "a/1", b"old", retain=True)
    await tell(world, "a/1", b"new", retain=True)
    await tell(world, "a/2", b"two", retain=True)
    await tell(world, "b", b"b", retain=True)
    await tell(world, "b", b"", retain=True)
    await world.crash()

    assert await retained(world, "a/+") == [("a/1", b"new"), ("a/2", b"two")]
    assert await retained(world, "#") == [("a/1", b"new"), ("a/2", b"two")]
    await world.restart()
    assert await retained(world, "a/1") == [("a/1", b"new")]
    with pytest.raises(KernelError) as refused:
        await world.client.tree.retained(DEFAULT_TENANT, "#", 1)
    assert refused.value.code is Code.LIMIT_EXCEEDED


@simulated()
async def test_a_retained_message_is_not_pinned_to_its_segment(world: World) -> None:
    await tell(world, "keep", b"k" * 100, retain=True)
    topic = await world.peer().topic("busy")
    peer = world.peer()
    recorder = peer.attach(topic, credit=1_000_000)
    for _ in range(100):
        await peer.publish(topic, *[b"x" * 1_000] * 20)
        await recorder.ack()
    await asyncio.sleep(30)

    assert await retained(world, "keep") == [("keep", b"k" * 100)]
    kept = sum(len(world.disk.content(f"journal/{name}")) for name in world.disk.names("journal"))
    assert kept < 500_000, "2 MB went through"


@simulated()
async def test_a_retained_message_replaced_while_others_are_read_is_left_out(world: World) -> None:
    async def fill_segments() -> None:
        peer = world.peer()
        topic = await peer.topic("busy")
        recorder = peer.attach(topic, credit=100)
        for _ in range(4):
            await peer.publish(topic, *[b"x" * 1_000] * 20)
            await recorder.ack()

    await tell(world, "a/1", b"old", retain=True)
    await fill_segments()
    await tell(world, "a/2", b"old", retain=True)
    await world.restart()
    world.workers.hold(READER)
    reading = asyncio.ensure_future(retained(world, "a/+"))
    await asyncio.sleep(0)
    assert world.workers.waiting(READER) == 1, "one is read after the other"
    await tell(world, "a/2", b"new", retain=True)
    await fill_segments()
    await asyncio.sleep(30)
    world.workers.release(READER)

    assert await reading == [("a/1", b"old")], "the segment of the other is gone"


@simulated()
async def test_an_expired_retained_message_is_gone(world: World) -> None:
    found = world.client.tree.to(DEFAULT_TENANT, "t", retain=True)
    await world.peer().publish(found, Draft(b"x", name="t", ttl_ms=2_000))
    assert await retained(world, "t") == [("t", b"x")]
    await asyncio.sleep(5)

    assert await retained(world, "t") == []
    replicas = world.opened.store.replicas()
    assert not any(replica.state.retained.count(DEFAULT_TENANT) for replica in replicas)
