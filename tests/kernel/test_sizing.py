"""Topics that are resized as they are used, by the leader of their home."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from kernel.api.client import DeleteTopic, PutRecord, PutTopic, ResizeTopic
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, GroupOptions, TopicInfo, TopicOptions
from kernel.common.errors import Code, KernelError
from kernel.definitions import automatic_size
from kernel.definitions.automatic_size import AutomaticSize, Decision, Use, What
from kernel.definitions.sizing import SILENT_MS
from kernel.definitions.topic_records import VOID_MS
from kernel.definitions.topic_sizes import (
    Above,
    TopicSize,
    decode,
    encode,
    key_of,
    name_of_key,
    size_of,
)
from kernel.quotas.limits import LimitSet, SizeLimit
from kernel.requests.peer_stores import Used
from tests.simulator.peer import Draft
from tests.simulator.world import World, simulated

NAME = (DEFAULT_TENANT, "sized")
Told = list[tuple[What | None, str]]


def sizes(topic: TopicInfo, least: float = 100, most: float = 20_000) -> TopicSize:
    return TopicSize(topic.id, least, 0, most, 0, by_key=True)


async def sized(world: World, **bounds: float) -> tuple[TopicInfo, Told]:
    """A topic of one queue that has a size, and what is told of it."""
    client = world.opened.client
    change = PutTopic(*NAME, TopicOptions(), {DEFAULT_GROUP: GroupOptions()}, must_be_new=True)
    topic = await client.administer(change)
    assert isinstance(topic, TopicInfo)
    told: Told = []
    client.sizing.tell = lambda _topic, what, why: told.append((what, why))
    await client.administer(PutRecord(key_of(*NAME), encode(sizes(topic, **bounds)), 0))
    return topic, told


async def publish(world: World, seconds: int, each_second: int, keys: int = 64) -> None:
    """So many messages a second, in tenths."""
    peer, client = world.peer(), world.opened.client
    for _ in range(10 * seconds):
        topic = client.topic(*NAME)
        assert topic is not None
        drafts = [Draft(b"", key=b"%d" % (n % keys)) for n in range(each_second // 10)]
        await peer.publish(topic, *drafts)
        await asyncio.sleep(0.1)


def queues(world: World) -> int:
    topic = world.opened.client.topic(*NAME)
    assert topic is not None
    return len(topic.writable)


@simulated()
async def test_a_topic_grows_within_ten_seconds_and_no_burst_moves_it(world: World) -> None:
    _, told = await sized(world)
    for _ in range(3):
        await publish(world, 4, 4_000)
        await asyncio.sleep(6)
    assert (queues(world), told) == (1, [])
    await publish(world, 11, 4_000)
    assert queues(world) == 3, "1.5 times 4,000, at 2,500 a queue"
    ((what, why),) = told
    assert what is What.GROW
    assert why.startswith("used at 1.6 times its size for 8 of 10 s")


@simulated()
async def test_a_topic_shrinks_once_it_was_calm_long_enough(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automatic_size, "CALM_MS", 120_000)
    _, told = await sized(world)
    await world.opened.client.administer(ResizeTopic(*NAME, 4, by_key=True))
    await asyncio.sleep(110)
    assert queues(world) == 4
    await asyncio.sleep(40)
    assert (queues(world), [what for what, _ in told]) == (1, [What.SHRINK])


@simulated()
async def test_few_keys_and_the_largest_size_are_told_and_nothing_grows(world: World) -> None:
    _, told = await sized(world, most=5_000)
    await world.opened.client.administer(ResizeTopic(*NAME, 2, by_key=True))
    await publish(world, 11, 6_000, keys=1)
    assert [what for what, _ in told] == [What.HOT_KEY]
    await publish(world, 12, 6_000)
    assert [what for what, _ in told] == [What.HOT_KEY, What.AT_MAX]
    assert queues(world) == 2


@simulated()
async def test_what_cannot_be_done_is_told_once_and_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, told = await sized(world)
    client = world.opened.client
    tries = []

    async def fails(change: object) -> object:
        tries.append(change)
        raise KernelError(Code.IN_USE, "a number that is needed is not free")

    monkeypatch.setattr(client.sizing, "_administer", fails)
    await publish(world, 24, 4_000)
    assert len(tries) == 1
    await asyncio.sleep(45)
    await publish(world, 11, 4_000)
    assert len(tries) == 2
    ((what, why),) = told
    assert what is None
    assert why.endswith("but a number that is needed is not free")
    monkeypatch.setattr(client.sizing, "_administer", client.administer)
    await asyncio.sleep(60)
    await publish(world, 11, 4_000)
    assert queues(world) == 3


@simulated()
async def test_groups_that_do_not_tell_what_is_used_are_said_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, told = await sized(world)
    sizing = world.opened.client.sizing
    used = sizing._used

    async def silent(*_: object) -> Used:
        raise KernelError(Code.NOT_LEADER, "nobody leads it")

    await publish(world, 3, 4_000)
    (figures,) = sizing.figures()
    assert (figures.is_unheard, round(figures.use.messages, -3)) == (False, 4_000)
    monkeypatch.setattr(sizing, "_used", silent)
    await publish(world, SILENT_MS // 1_000 - 5, 4_000)
    (figures,) = sizing.figures()
    assert (told, figures.is_unheard) == ([], True)
    await asyncio.sleep(60)
    ((what, why),) = told
    assert what is What.UNHEARD
    assert why.endswith("have not told for 30 s what is used")
    monkeypatch.setattr(sizing, "_used", used)
    await asyncio.sleep(3)
    (figures,) = sizing.figures()
    assert not figures.is_unheard


@simulated()
async def test_the_second_after_a_resize_is_left_out_and_not_taken_for_a_calm_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sized(world)
    client = world.opened.client
    seen: list[float] = []
    await publish(world, 3, 1_000)
    machine = client.sizing._sized[NAME].machine
    look = AutomaticSize.look

    def watched(self: AutomaticSize, use: Use, now_ms: int) -> Decision | None:
        seen.append(use.messages)
        return look(self, use, now_ms)

    monkeypatch.setattr(AutomaticSize, "look", watched)
    await client.administer(ResizeTopic(*NAME, 4, by_key=True))
    await publish(world, 5, 1_000)
    assert machine is client.sizing._sized[NAME].machine
    assert min(seen) > 800, seen


@simulated()
async def test_a_size_that_is_kept_neither_grows_nor_shrinks(world: World) -> None:
    topic, told = await sized(world)
    fixed = TopicSize(topic.id, 500, 0, 500, 0, above=Above.FAIL)
    client = world.opened.client
    ((version, _),) = client.records(key_of(*NAME)).values()
    await client.administer(PutRecord(key_of(*NAME), encode(fixed), version))
    await publish(world, 12, 2_000)
    assert queues(world) == 1
    assert [what for what, _ in told] == [What.AT_MAX]


@simulated()
async def test_the_size_of_a_topic_that_is_gone_goes_and_is_not_of_the_next(world: World) -> None:
    topic, told = await sized(world)
    client = world.opened.client
    await client.administer(DeleteTopic(*NAME))
    change = PutTopic(*NAME, TopicOptions(), {DEFAULT_GROUP: GroupOptions()}, must_be_new=True)
    following = await client.administer(change)
    assert isinstance(following, TopicInfo)
    record = client.records(key_of(*NAME))[key_of(*NAME)]
    assert (size_of(topic, record) is not None, size_of(following, record)) == (True, None)
    await publish(world, 11, 4_000)
    assert (queues(world), told) == (1, [])
    await asyncio.sleep(VOID_MS / 1_000)
    assert not client.records(key_of(*NAME))


@simulated()
async def test_another_start_knows_which_topics_have_a_size(world: World) -> None:
    await sized(world)
    await world.crash()
    told: Told = []
    world.opened.client.sizing.tell = lambda _topic, what, why: told.append((what, why))
    await publish(world, 12, 4_000)
    assert (queues(world), [what for what, _ in told]) == (3, [What.GROW])


def test_what_is_above_a_size_stands_at_the_end_of_its_record() -> None:
    size = TopicSize(7, 100, 0, 2_000.5, 0, above=Above.FAIL)
    assert decode(encode(size)) == size
    assert size.bound == SizeLimit(7, LimitSet(published_messages=2_001), fails=True)
    older = msgspec.msgpack.encode(msgspec.msgpack.decode(encode(size))[:-1])
    assert decode(older) == TopicSize(7, 100, 0, 2_000.5, 0)
    assert TopicSize(7, 100, 0, 2_000.5, 0).bound is None
    later = msgspec.msgpack.encode([*msgspec.msgpack.decode(encode(size)), "of a later build"])
    assert decode(later) == size


def test_a_record_that_says_nothing_is_as_good_as_none() -> None:
    size = TopicSize(7, 100, 0, 2_000, 0, by_key=True)
    assert decode(encode(size)) == size
    for value in (
        b"",
        b"\xc1",
        encode(size)[:-3],
        encode(TopicSize(7, 0, 0, 0, 0)),
        encode(TopicSize(7, 100, 0, 0, 100)),
        encode(TopicSize(7, 100, 0, 50, 0)),
        encode(TopicSize(7, 100, 0, float("nan"), 0)),
        encode(TopicSize(7, 100, 0, float("inf"), 0)),
    ):
        assert decode(value) is None, value
    assert name_of_key(key_of("a/b", "c d/e")) == ("a/b", "c d/e")
    assert name_of_key("sizes/alone") is None
