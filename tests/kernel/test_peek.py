"""Looking at messages without taking them."""

from __future__ import annotations

import pytest

from kernel.api import message as messages
from kernel.api.client import DeleteTopic
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, GroupOptions, TopicKind, TopicOptions
from kernel.common.errors import Code, KernelError
from kernel.common.ids import Offset
from tests.simulator.world import World, simulated


@simulated()
async def test_peek_shows_what_waits_and_takes_nothing(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, b"1", b"2", b"3")
    await peer.publish(topic, b"4")
    found = await world.client.peek(topic, 0, Offset(1), 2)
    assert [(at, messages.decode(slot).body) for at, slot in found] == [(1, b"2"), (2, b"3")]
    assert list(await world.client.peek(topic, 0, Offset(4), 2)) == []
    assert world.figures(topic, DEFAULT_GROUP).ready == 4
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "work"))
    with pytest.raises(KernelError) as failure:
        await world.client.peek(topic, 0, Offset(0), 2)
    assert failure.value.code is Code.NOT_FOUND


@simulated()
async def test_what_was_acked_and_is_gone_from_memory_is_left_out(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, b"1")
    await peer.publish(topic, b"2")
    await peer.publish(topic, b"3")
    recorder = peer.attach(topic, credit=2)
    await recorder.wait_for(2)
    await recorder.ack(1)
    await world.crash()
    found = await world.client.peek(topic, 0, Offset(0), 10)
    assert [messages.decode(slot).body for _, slot in found] == [b"1", b"3"]


@simulated()
async def test_a_stream_is_read_from_disk_though_no_group_has_it_ahead(world: World) -> None:
    """Its messages are kept for whoever comes, acked or not, in memory or not."""
    peer = world.peer()
    options = TopicOptions(kind=TopicKind.STREAM, retention_ms=3_600_000)
    topic = await peer.topic("stream", options, groups={"g": GroupOptions()})
    await peer.publish(topic, *[b"%d" % number for number in range(5)])
    recorder = peer.attach(topic, credit=3, group="g")
    await recorder.wait_for(3)
    await recorder.ack()
    filler = await peer.topic("filler")
    for _ in range(20):  # more than the caches of this tiny store hold
        await peer.publish(filler, b"x" * 20_000)
    await world.crash()
    found = await world.client.peek(topic, 0, Offset(0), 10)
    assert [messages.decode(slot).body for _, slot in found] == [b"0", b"1", b"2", b"3", b"4"]
