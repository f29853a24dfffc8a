"""A delayed message is recalled, and a group of a stream goes on from another offset."""

from __future__ import annotations

import asyncio

import pytest

from kernel.api.client import LeaseChange, LeaseVerb, ReceiveSpec
from kernel.api.model import (
    DEFAULT_GROUP,
    GroupOptions,
    Start,
    TopicInfo,
    TopicKind,
    TopicOptions,
)
from kernel.broker.applying import offsets
from kernel.broker.applying.liveness import references
from kernel.common.errors import Code, KernelError
from kernel.common.ids import Offset
from tests.simulator.peer import Draft, Peer
from tests.simulator.world import World, simulated

STREAM = TopicOptions(kind=TopicKind.STREAM)
EARLY = GroupOptions(start=Start.EARLIEST)
KINDS = pytest.mark.parametrize(
    "options", [TopicOptions(), STREAM], ids=[each.value for each in TopicKind]
)
DELAY_MS = 60_000


async def bodies(world: World, topic: TopicInfo, group: str = DEFAULT_GROUP) -> list[bytes]:
    """What is delivered now, and taken."""
    recorder = world.peer().attach(topic, credit=1_000, group=group)
    await world.settle_down()
    await recorder.ack()
    recorder.cancel()
    return recorder.bodies


def state_of(world: World, topic: TopicInfo):
    return world.opened.store.replica(topic.queues[0].group).state


async def delayed(world: World, options: TopicOptions) -> tuple[Peer, TopicInfo]:
    """A topic with four messages, the middle two of which are not due."""
    peer = world.peer()
    topic = await peer.topic("orders", options, EARLY)
    late = (Draft(each, delay_ms=DELAY_MS) for each in (b"1", b"2"))
    await peer.publish(topic, Draft(b"0"), *late, Draft(b"3"))
    return peer, topic


@KINDS
@simulated()
async def test_a_message_that_was_recalled_reaches_nobody(
    world: World, options: TopicOptions
) -> None:
    peer, topic = await delayed(world, options)
    assert await world.client.recall(topic, 0, Offset(1))
    assert world.figures(topic).delayed == 1
    joined = await peer.topic("orders", options, groups={"later": EARLY})
    await asyncio.sleep(DELAY_MS / 1_000 + 1)
    assert await bodies(world, joined) == [b"0", b"2", b"3"]
    assert await bodies(world, joined, "later") == [b"0", b"2", b"3"]
    looked_at = [at for at, _ in await world.client.peek(joined, 0, Offset(0), 10)]
    assert 1 not in looked_at


@KINDS
@simulated()
async def test_what_is_due_or_not_there_is_not_recalled(
    world: World, options: TopicOptions
) -> None:
    _, topic = await delayed(world, options)
    for offset in (0, 3, 4, 1_000):
        assert not await world.client.recall(topic, 0, Offset(offset))
    assert await world.client.recall(topic, 0, Offset(1))
    await asyncio.sleep(DELAY_MS / 1_000 + 1)
    assert not await world.client.recall(topic, 0, Offset(2))
    assert sorted(await bodies(world, topic)) == [b"0", b"2", b"3"]


@KINDS
@pytest.mark.parametrize("crash", [True, False], ids=["crash", "restart"])
@simulated()
async def test_a_recall_outlives_the_process(
    world: World, options: TopicOptions, crash: bool
) -> None:
    _, topic = await delayed(world, options)
    assert await world.client.recall(topic, 0, Offset(1))
    await (world.crash() if crash else world.restart())
    again = await world.client.recall(topic, 0, Offset(1))
    assert again is (options is STREAM), "a stream still knows; elsewhere there is no message"
    await asyncio.sleep(DELAY_MS / 1_000 + 1)
    joined = await world.peer().topic("orders", options, groups={"later": EARLY})
    assert sorted(await bodies(world, joined)) == [b"0", b"2", b"3"]
    assert sorted(await bodies(world, joined, "later")) == [b"0", b"2", b"3"]


@simulated()
async def test_a_recalled_message_of_a_stream_holds_its_log_entry_no_more(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("orders", TopicOptions(kind=TopicKind.STREAM, retention_ms=90_000))
    await peer.publish(topic, Draft(b"1", delay_ms=DELAY_MS))
    await peer.publish(topic, Draft(b"2"))
    assert sum(references(state_of(world, topic)).values()) == 2
    assert await world.client.recall(topic, 0, Offset(0))
    assert sum(references(state_of(world, topic)).values()) == 1
    live = world.opened.store.journal.statistics().live_entries
    await asyncio.sleep(300)
    assert references(state_of(world, topic)) == {}
    assert state_of(world, topic).queues[topic.queues[0].id].recalled == {}
    assert world.opened.store.journal.statistics().live_entries < live


@simulated()
async def test_a_stream_keeps_only_so_many_recalled_offsets(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "RECALLED_MAX", 1)
    _, topic = await delayed(world, STREAM)
    assert await world.client.recall(topic, 0, Offset(1))
    with pytest.raises(KernelError) as caught:
        await world.client.recall(topic, 0, Offset(2))
    assert caught.value.code is Code.LIMIT_EXCEEDED


@simulated()
async def test_a_recall_frees_the_key_of_an_ordered_group(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("fifo", STREAM, GroupOptions(start=Start.EARLIEST, ordered=True))
    late = Draft(b"late", key=b"k", delay_ms=DELAY_MS)
    await peer.publish(topic, late, Draft(b"next", key=b"k"))
    assert await world.client.recall(topic, 0, Offset(0))
    assert await bodies(world, topic) == [b"next"]


@pytest.mark.parametrize("to", [0, 2, 4])
@simulated()
async def test_a_group_goes_on_from_another_offset(world: World, to: int) -> None:
    peer = world.peer()
    topic = await peer.topic("log", STREAM, groups={"a": EARLY, "b": EARLY})
    await peer.publish(topic, *(b"%d" % each for each in range(4)))
    assert len(await bodies(world, topic, "a")) == 4
    assert await world.client.position(topic, 0, "a") == 4
    assert await world.client.seek(topic, 0, "a", Offset(to)) == to
    assert await world.client.position(topic, 0, "a") == to
    await world.crash()
    assert await world.client.position(topic, 0, "a") == to
    assert await bodies(world, topic, "a") == [b"%d" % each for each in range(to, 4)]
    assert len(await bodies(world, topic, "b")) == 4, "no other group has moved"


@simulated()
async def test_a_group_goes_no_further_than_there_are_messages(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("log", TopicOptions(kind=TopicKind.STREAM, retention_ms=60_000))
    topic = await peer.topic("log", topic.options, groups={"a": EARLY})
    await peer.publish(topic, b"0", b"1")
    await asyncio.sleep(90)
    await peer.publish(topic, b"2")
    assert await world.client.seek(topic, 0, "a", Offset(0)) == 2
    assert await world.client.seek(topic, 0, "a", Offset(99)) == 3


@simulated()
async def test_a_group_that_is_consumed_stays_where_it_is(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("log", STREAM, EARLY)
    await peer.publish(topic, b"0", b"1")
    recorder = peer.attach(topic, credit=1)
    await recorder.wait_for(1)

    async def refusal() -> Code:
        with pytest.raises(KernelError) as caught:
            await world.client.seek(topic, 0, DEFAULT_GROUP, Offset(0))
        return caught.value.code

    assert await refusal() is Code.IN_USE
    recorder.cancel()
    assert await refusal() is Code.IN_USE, "it holds a message"
    await recorder.ack()
    got = await world.client.receive(ReceiveSpec(topic, DEFAULT_GROUP, lease_ms=30_000))
    assert await refusal() is Code.IN_USE, "a lease is in the log"
    ack = LeaseChange(got.tokens[0], LeaseVerb.ACK)
    assert await world.client.settle_leases(topic, DEFAULT_GROUP, [ack]) == [None]
    assert await world.client.seek(topic, 0, DEFAULT_GROUP, Offset(1)) == 1
    (failure,) = await world.client.settle_leases(topic, DEFAULT_GROUP, [ack])
    assert failure is not None, "what was leased before is past"
    assert await bodies(world, topic) == [b"1"]


@simulated()
async def test_only_groups_of_streams_go_back(world: World) -> None:
    topic = await world.peer().topic("work")
    with pytest.raises(KernelError) as caught:
        await world.client.seek(topic, 0, DEFAULT_GROUP, Offset(0))
    assert caught.value.code is Code.NOT_ALLOWED
    with pytest.raises(KernelError) as caught:
        await world.client.seek(topic, 0, "none", Offset(0))
    assert caught.value.code is Code.NOT_FOUND
