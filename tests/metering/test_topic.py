"""`__metering` in the kernel: flushes once, in their epoch, readable as they were written."""

from __future__ import annotations

import pytest

from kernel.api.model import DEFAULT_TENANT, TopicKind
from metering.collector import Collector
from metering.driver import FlushFenced, FlushUnavailable
from metering.exporter import Archive, export_queue
from metering.schema import FlushId, parse_manifest
from metering.schema.manifest import MANIFEST_NAME
from metering.store_source import SYSTEM_TENANT
from metering.topic import METERING_TOPIC, MeteringTopic
from tests.metering.samples import window
from tests.simulator.world import World, simulated


async def opened(world: World, node: str = "n1") -> MeteringTopic:
    topic = MeteringTopic(world.client, world.clock, node)
    await topic.open()
    return topic


@simulated()
async def test_the_topic_is_a_hidden_stream_of_the_system(world: World) -> None:
    await opened(world)
    await opened(world)  # a second time it is there
    info = world.client.topic(SYSTEM_TENANT, METERING_TOPIC)
    assert info is not None
    assert (info.options.kind, info.options.hidden) == (TopicKind.STREAM, True)
    assert not world.client.topics(DEFAULT_TENANT)


@simulated()
async def test_a_repeated_flush_is_dropped_also_after_a_restart(world: World) -> None:
    topic = await opened(world)
    epoch = await topic.register()
    flush_id = FlushId("n1", epoch, 0, 3)
    await topic.flush(b"first", flush_id)
    await topic.flush(b"first", flush_id)
    await topic.flush(b"second", FlushId("n1", epoch, 4, 5))
    assert await topic.bounds(0) == (0, 2)
    await world.crash()
    again = await opened(world)
    await again.flush(b"first", flush_id)
    assert await again.bounds(0) == (0, 2)
    assert [each.body for each in await again.read(0, 0, 10)] == [b"first", b"second"]
    assert [each.offset for each in await again.read(0, 1, 10)] == [1]


@simulated()
async def test_an_epoch_that_was_taken_over_is_fenced(world: World) -> None:
    topic = await opened(world)
    first = await topic.register()
    await world.restart()
    topic = await opened(world)
    second = await topic.register()
    assert second > first
    with pytest.raises(FlushFenced):
        await topic.flush(b"late", FlushId("n1", first, 0, 0))
    assert await (await opened(world, "n2")).register() > 0
    await topic.flush(b"now", FlushId("n1", second, 0, 0))  # each node has epochs of its own


@simulated()
async def test_a_full_disk_is_no_outcome_and_the_flush_may_be_sent_again(world: World) -> None:
    topic = await opened(world)
    flush_id = FlushId("n1", await topic.register(), 0, 0)
    world.client.accepting = False
    with pytest.raises(FlushUnavailable, match="free disk"):
        await topic.flush(b"x", flush_id)
    world.client.accepting = True
    await topic.flush(b"x", flush_id)
    assert await topic.bounds(0) == (0, 1)


@simulated()
async def test_what_is_flushed_is_exported_also_from_disk(
    world: World, tmp_path, monkeypatch
) -> None:
    async def at_once(action, *given):
        return action(*given)

    # Virtual time does not wait for a thread.
    monkeypatch.setattr("metering.exporter.asyncio.to_thread", at_once)
    topic = await opened(world)
    collector = Collector("n1")
    collector.registered(await topic.register())
    for number in range(3):
        collector.offer(window(number, orders=5))
        flush = collector.next_flush(1)
        assert flush is not None
        await topic.flush(flush.body, flush.flush_id)
        collector.acknowledged(flush.flush_id)
    await world.restart()
    topic = await opened(world)
    with Archive(tmp_path) as archive:
        await export_queue(archive, topic, 0, now_us=0, final=True)
        assert await export_queue(archive, topic, 0, now_us=0, final=True) == []
    (entry,) = parse_manifest((tmp_path / MANIFEST_NAME).read_bytes())
    assert (entry.from_offset, entry.to_offset, entry.rows) == (0, 3, 3)
