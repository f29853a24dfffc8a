"""Topics, groups, routers and routes: made, changed and removed, also with a crash half way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kernel.api.client import (
    Administration,
    DeleteGroup,
    DeleteRoute,
    DeleteRouter,
    DeleteTopic,
    PurgeTopic,
    PutRecord,
    PutRoute,
    PutRouter,
    PutTopic,
    Settlement,
)
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    GroupOptions,
    Match,
    Route,
    RouterOptions,
    Start,
    TopicInfo,
    TopicKind,
    TopicOptions,
)
from kernel.common.errors import Code, KernelError
from kernel.common.ids import SessionId
from kernel.common.limits import GROUP_NAME_BYTES_MAX, NAME_BYTES_MAX
from tests.simulator.disk import SimulatedDisk
from tests.simulator.world import WRITER, World, simulated

TRANSIENT = TopicOptions(durable=False)
BOTH = pytest.mark.parametrize("options", [TopicOptions(), TRANSIENT], ids=["durable", "transient"])


async def refused(world: World, change: Administration) -> Code:
    with pytest.raises(KernelError) as caught:
        await world.client.administer(change)
    assert caught.value.message.isascii()
    return caught.value.code


def put_router(name: str, **options: object) -> PutRouter:
    return PutRouter(DEFAULT_TENANT, name, RouterOptions(**options))  # type: ignore[arg-type]


def put_route(router_name: str, key: str = "", **to: str) -> PutRoute:
    return PutRoute(DEFAULT_TENANT, router_name, Route(key=key, **to))  # type: ignore[arg-type]


def ready(world: World, topic: TopicInfo, group: str = DEFAULT_GROUP) -> int:
    return world.figures(topic, group).ready


# --- Topics ---------------------------------------------------------------------------------


@BOTH
@simulated()
async def test_a_topic_is_found_by_name_until_it_is_deleted(
    world: World, options: TopicOptions
) -> None:
    client, peer = world.client, world.peer()
    assert client.topic(DEFAULT_TENANT, "t") is None
    version = client.topology_version
    topic = await peer.topic("t", options)
    assert client.topic(DEFAULT_TENANT, "t") == topic
    assert client.topic("other", "t") is None
    assert client.topology_version > version
    await peer.publish(topic, b"1", b"2")
    version = client.topology_version
    assert await client.administer(DeleteTopic(DEFAULT_TENANT, "t")) == 2
    assert client.topic(DEFAULT_TENANT, "t") is None
    assert client.topology_version > version
    assert await refused(world, DeleteTopic(DEFAULT_TENANT, "t")) is Code.NOT_FOUND
    again = await peer.topic("t", options)
    assert again.id != topic.id
    assert ready(world, again) == 0


@simulated()
async def test_what_the_creator_fixed_stays(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("t", TopicOptions(queues=3))
    changed = await peer.topic("t", TopicOptions(queues=3, message_ttl_ms=5))
    assert (changed.id, changed.queues) == (topic.id, topic.queues)
    assert changed.version > topic.version
    for other in (TopicOptions(queues=4), TopicOptions(queues=3, durable=False)):
        change = PutTopic(DEFAULT_TENANT, "t", other, {}, session=peer.session)
        assert await refused(world, change) is Code.ALREADY_EXISTS
    new = PutTopic(DEFAULT_TENANT, "t", TopicOptions(queues=3), {}, must_be_new=True)
    assert await refused(world, new) is Code.ALREADY_EXISTS


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (PutTopic(DEFAULT_TENANT, "", TopicOptions(), {}), Code.INVALID_ARGUMENT),
        (PutTopic("", "t", TopicOptions(), {}), Code.INVALID_ARGUMENT),
        (
            PutTopic(DEFAULT_TENANT, "ä" * (NAME_BYTES_MAX // 2 + 1), TopicOptions(), {}),
            Code.INVALID_ARGUMENT,
        ),
        (PutTopic(DEFAULT_TENANT, "t", TopicOptions(queues=0), {}), Code.INVALID_ARGUMENT),
        (PutTopic(DEFAULT_TENANT, "t", TopicOptions(queues=257), {}), Code.INVALID_ARGUMENT),
        (
            PutTopic(
                DEFAULT_TENANT,
                "t",
                TopicOptions(),
                {"g" * (GROUP_NAME_BYTES_MAX + 1): GroupOptions()},
            ),
            Code.INVALID_ARGUMENT,
        ),
        (
            PutTopic(DEFAULT_TENANT, "t", TopicOptions(bytes_max=1, kind=TopicKind.STREAM), {}),
            Code.INVALID_ARGUMENT,
        ),
        (
            PutTopic(DEFAULT_TENANT, "t", TopicOptions(retention_bytes=1), {}),
            Code.INVALID_ARGUMENT,
        ),
        (PurgeTopic(DEFAULT_TENANT, "none", DEFAULT_GROUP), Code.NOT_FOUND),
        (DeleteGroup(DEFAULT_TENANT, "none", "g"), Code.NOT_FOUND),
        (DeleteRouter(DEFAULT_TENANT, "none"), Code.NOT_FOUND),
        (put_route("none", topic="none"), Code.NOT_FOUND),
        (DeleteRoute(DEFAULT_TENANT, "none", Route(topic="none")), Code.NOT_FOUND),
    ],
)
@simulated()
async def test_bad_requests_are_refused_by_name(
    world: World, change: Administration, code: Code
) -> None:
    assert await refused(world, change) is code


@simulated()
async def test_a_condition_keeps_a_topic_that_is_used(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("t")
    await peer.publish(topic, b"1")
    recorder = peer.attach(topic)
    unused = DeleteTopic(DEFAULT_TENANT, "t", if_unused=True)
    empty = DeleteTopic(DEFAULT_TENANT, "t", if_empty=True)
    assert await refused(world, unused) is Code.IN_USE
    assert await refused(world, empty) is Code.IN_USE
    recorder.cancel()
    assert await world.client.administer(unused) == 1


@BOTH
@simulated()
async def test_consumers_hear_that_their_topic_is_gone(world: World, options: TopicOptions) -> None:
    peer = world.peer()
    topic = await peer.topic("t", options)
    await peer.publish(topic, b"1", b"2")
    recorder = peer.attach(topic, credit=1)
    await recorder.wait_for(1)
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "t"))
    assert recorder.error is not None
    assert recorder.error.code is Code.NOT_FOUND
    await recorder.ack(0)
    recorder.cancel()
    with pytest.raises(KernelError) as caught:
        peer.attach(topic)
    assert caught.value.code is Code.NOT_FOUND
    sent = await peer.publish(topic, b"to what is gone")
    assert not sent.failures, "a deleted queue's part counts as done"
    assert world.opened.store.transient_log.count == 0


@simulated()
async def test_a_topic_of_a_session_goes_with_it(world: World) -> None:
    peer, other = world.peer(), world.peer()
    owner: SessionId = peer.session.id
    await peer.topic("mine", TopicOptions(durable=False, owner=owner))
    await other.topic("theirs", TopicOptions(durable=False, owner=other.session.id))
    peer.close()
    await asyncio.sleep(0.1)
    assert world.client.topic(DEFAULT_TENANT, "mine") is None
    assert world.client.topic(DEFAULT_TENANT, "theirs") is not None


@BOTH
@simulated()
async def test_a_topic_goes_with_its_last_consumer_but_not_before_the_first(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    wanted = TopicOptions(durable=options.durable, delete_when_unused=True)
    topic = await peer.topic("t", wanted)
    await asyncio.sleep(5)
    first, second = peer.attach(topic), peer.attach(topic)
    first.cancel()
    await asyncio.sleep(5)
    assert world.client.topic(DEFAULT_TENANT, "t") is not None
    second.cancel()
    await asyncio.sleep(0.1)
    assert world.client.topic(DEFAULT_TENANT, "t") is None


@simulated()
async def test_transient_topics_end_with_the_process(world: World) -> None:
    peer = world.peer()
    await peer.topic("v", TRANSIENT)
    await peer.topic("d")
    await world.client.administer(put_router("r", match=Match.ALL))
    await world.client.administer(put_route("r", topic="v"))
    await world.client.administer(put_route("r", topic="d"))
    await world.restart()
    assert world.client.topic(DEFAULT_TENANT, "v") is None
    router = world.client.router(DEFAULT_TENANT, "r")
    assert router is not None
    assert [each.topic for each in router.routes] == ["d"]


# --- Several queues -------------------------------------------------------------------------


@simulated()
async def test_a_topic_can_be_found_only_when_all_its_queues_are_there(world: World) -> None:
    peer = world.peer()
    world.workers.delay_s[WRITER] = 0.01
    creation = asyncio.create_task(peer.topic("t", TopicOptions(queues=4)))
    while (topic := world.client.topic(DEFAULT_TENANT, "t")) is None:
        await asyncio.sleep(0.001)
    sent = await peer.publish(topic, *[b"x"] * 8)
    await creation
    assert not sent.failures
    assert ready(world, topic) == 8


async def _cut_at_every_boundary(
    world: World,
    change: Callable[[World], Awaitable[object]],
    check: Callable[[World], Awaitable[object]],
) -> int:
    """Power loss at each boundary of a change; `check` each recovered store."""
    copies: list[SimulatedDisk] = []

    def cut(number: int, what: str) -> None:
        copies.extend((world.disk.crashed_copy(), world.disk.crashed_copy(number)))

    world.disk.on_boundary = cut
    await change(world)
    world.disk.on_boundary = None
    for copy in copies:
        world.power_off()
        world.disk = copy
        await world.start()
        await check(world)
    return len(copies)


@simulated()
async def test_a_half_made_topic_is_not_found_or_is_whole(world: World) -> None:
    async def create(world: World) -> None:
        await world.peer().topic("t", TopicOptions(queues=4))

    async def check(world: World) -> None:
        topic = world.client.topic(DEFAULT_TENANT, "t")
        if topic is None:
            assert not any(each.state.queues for each in world.opened.store.replicas())
            topic = await world.peer().topic("t", TopicOptions(queues=4))
        sent = await world.peer().publish(topic, *[b"x"] * 8)
        assert not sent.failures
        assert ready(world, topic) == 8

    assert await _cut_at_every_boundary(world, create, check) >= 30


@simulated()
async def test_a_half_deleted_topic_is_whole_or_leaves_nothing(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("t", TopicOptions(queues=4))
    await peer.publish(topic, *[b"x" * 500] * 8)
    await world.client.administer(put_router("r"))
    await world.client.administer(put_route("r", "key", topic="t"))

    async def delete(world: World) -> None:
        await world.client.administer(DeleteTopic(DEFAULT_TENANT, "t"))

    async def check(world: World) -> None:
        known = world.client.topic(DEFAULT_TENANT, "t")
        router = world.client.router(DEFAULT_TENANT, "r")
        assert router is not None
        if known is not None:
            assert ready(world, known) == 8
            assert len(router.routes) == 1
            return
        assert router.routes == ()
        assert not any(each.state.queues for each in world.opened.store.replicas())
        again = await world.peer().topic("t")
        assert ready(world, again) == 0
        assert world.client.to_router(DEFAULT_TENANT, "r", "key").count == 0

    assert await _cut_at_every_boundary(world, delete, check) >= 20


# --- Groups ---------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("publishes", [[4], [1, 1, 1, 1]], ids=["one entry", "four entries"])
@simulated()
async def test_a_group_that_joins_gets_what_is_still_there(
    world: World, options: TopicOptions, publishes: list[int]
) -> None:
    peer = world.peer()
    topic = await peer.topic("t", options, groups={"a": GroupOptions()})
    for count in publishes:
        await peer.publish(topic, *[b"x"] * count)
    first = peer.attach(topic, group="a", credit=3)
    await first.wait_for(3)
    await first.ack(0, 2)

    late = {"b": GroupOptions(), "c": GroupOptions(start=Start.LATEST)}
    topic = await peer.topic("t", options, groups=late)

    second = peer.attach(topic, group="b", credit=10)
    third = peer.attach(topic, group="c", credit=10)
    await second.wait_for(2)
    assert second.offsets == [1, 3]
    assert third.offsets == []
    await second.ack()
    await peer.publish(topic, b"new")
    await third.wait_for(1)
    first.grant(10)
    await first.wait_for(5)
    for recorder in (first, second, third):
        await recorder.ack()
    assert world.opened.store.transient_log.count == 0
    assert world.opened.store.journal.statistics().live_entries == 0


@BOTH
@simulated()
async def test_a_group_that_leaves_lets_go_of_what_it_alone_held(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    groups = {"a": GroupOptions(), "b": GroupOptions()}
    topic = await peer.topic("t", options, groups=groups)
    await peer.publish(topic, b"1", b"2")
    first = peer.attach(topic, group="a", credit=1)
    second = peer.attach(topic, group="b", credit=1)
    await first.wait_for(1)
    await first.ack()
    await second.wait_for(1)
    await world.client.administer(DeleteGroup(DEFAULT_TENANT, "t", "b"))
    known = world.client.topic(DEFAULT_TENANT, "t")
    assert known is not None
    assert list(known.groups) == ["a"]
    assert second.error is not None
    assert second.error.code is Code.NOT_FOUND
    first.grant(1)
    await first.wait_for(2)
    await first.ack()
    assert world.opened.store.transient_log.count == 0
    assert world.opened.store.journal.statistics().live_entries == 0


@simulated()
async def test_a_half_added_group_holds_nothing(world: World) -> None:
    peer = world.peer()
    options = TopicOptions(queues=4)
    await peer.topic("t", options, groups={"a": GroupOptions()})

    async def join(world: World) -> None:
        await world.peer().topic("t", options, groups={"b": GroupOptions()})

    async def check(world: World) -> None:
        peer = world.peer()
        topic = world.client.topic(DEFAULT_TENANT, "t")
        assert topic is not None
        await peer.publish(topic, *[b"x"] * 8)
        for group in topic.groups:
            recorder = peer.attach(topic, group=group, credit=100)
            await recorder.wait_for(8)
            recorder.settle_now(Settlement.ACK, *recorder.got)
        await asyncio.sleep(0.1)
        assert world.opened.store.journal.statistics().live_entries == 0

    assert await _cut_at_every_boundary(world, join, check) >= 15


# --- Routers and routes ---------------------------------------------------------------------


@BOTH
@simulated()
async def test_a_router_leads_to_its_topics_until_the_route_is_removed(
    world: World, options: TopicOptions
) -> None:
    client, peer = world.client, world.peer()
    first, second = await peer.topic("a", options), await peer.topic("b", options)
    await client.administer(put_router("r"))
    await client.administer(put_route("r", "k", topic="a"))
    await client.administer(put_route("r", "k", topic="b"))
    await client.administer(put_route("r", "k", topic="b"))
    assert client.to_router(DEFAULT_TENANT, "r", "k").count == 2
    assert client.to_router(DEFAULT_TENANT, "r", "other").count == 0
    await peer.publish(client.to_router(DEFAULT_TENANT, "r", "k"), b"x")
    assert (ready(world, first), ready(world, second)) == (1, 1)
    route = Route(key="k", topic="b")
    assert await client.administer(DeleteRoute(DEFAULT_TENANT, "r", route)) is True
    assert await client.administer(DeleteRoute(DEFAULT_TENANT, "r", route)) is False
    assert client.to_router(DEFAULT_TENANT, "r", "k").count == 1
    with pytest.raises(KernelError) as caught:
        client.to_router(DEFAULT_TENANT, "none", "k")
    assert caught.value.code is Code.NOT_FOUND


@simulated()
async def test_routers_are_deleted_with_every_route_from_and_to_them(world: World) -> None:
    client, peer = world.client, world.peer()
    await peer.topic("a")
    await peer.topic("v", TRANSIENT)
    for name in ("front", "middle"):
        await client.administer(put_router(name, match=Match.ALL))
    await client.administer(put_route("front", router="middle"))
    await client.administer(put_route("middle", topic="a"))
    await client.administer(put_route("middle", topic="v"))
    assert client.to_router(DEFAULT_TENANT, "front", "").count == 2
    used = DeleteRouter(DEFAULT_TENANT, "middle", if_unused=True)
    assert await refused(world, used) is Code.IN_USE
    await client.administer(DeleteRouter(DEFAULT_TENANT, "middle"))
    front = client.router(DEFAULT_TENANT, "front")
    assert front is not None
    assert front.routes == ()
    await client.administer(put_router("middle", match=Match.ALL))
    middle = client.router(DEFAULT_TENANT, "middle")
    assert middle is not None
    assert middle.routes == ()
    await world.crash()
    assert world.client.to_router(DEFAULT_TENANT, "front", "").count == 0


@simulated()
async def test_an_unused_router_goes_with_its_last_route(world: World) -> None:
    client, peer = world.client, world.peer()
    await peer.topic("a")
    await client.administer(put_router("r", delete_when_unused=True))
    await client.administer(put_route("r", "k", topic="a"))
    assert client.router(DEFAULT_TENANT, "r") is not None
    await client.administer(DeleteTopic(DEFAULT_TENANT, "a"))
    assert client.router(DEFAULT_TENANT, "r") is None


# --- Records --------------------------------------------------------------------------------


@simulated()
async def test_records_have_versions_and_survive(world: World) -> None:
    client = world.client
    heard: list[tuple[str, tuple[int, bytes] | None]] = []
    client.watch_records(lambda key, record: heard.append((key, record)))
    assert await client.administer(PutRecord("user/ann", b"1", expected=0)) == 1
    assert await client.administer(PutRecord("user/ann", b"2", expected=1)) == 2
    assert await refused(world, PutRecord("user/ann", b"3", expected=1)) is Code.ALREADY_EXISTS
    await client.administer(PutRecord("policy/x", b"p"))
    await client.administer(PutRecord("user/bob", b"b"))
    await client.administer(PutRecord("user/bob", None))
    await world.crash()
    assert dict(world.client.records("user/")) == {"user/ann": (2, b"2")}
    assert heard == [
        ("user/ann", (1, b"1")),
        ("user/ann", (2, b"2")),
        ("policy/x", (1, b"p")),
        ("user/bob", (1, b"b")),
        ("user/bob", None),
    ]


# --- The store as a whole -------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [1, 8])
@simulated()
async def test_a_store_keeps_its_number_of_groups(world: World, wanted: int) -> None:
    peer = world.peer()
    topics = [await peer.topic(f"t{number}") for number in range(8)]
    for topic in topics:
        await peer.publish(topic, topic.name.encode())
    world.data_groups = wanted
    await world.restart()
    assert len(world.opened.store.data_groups) == 4
    recorded_bodies = []
    for topic in topics:
        recorder = world.peer().attach(topic, credit=5)
        await recorder.wait_for(1)
        recorded_bodies += recorder.bodies
    assert recorded_bodies == [topic.name.encode() for topic in topics]


@simulated(started=False)
async def test_a_store_whose_first_start_was_cut_short_has_all_its_groups(world: World) -> None:
    copies: list[SimulatedDisk] = []
    disk = world.disk

    def cut(number: int, what: str) -> None:
        copies.extend(disk.crashed_copy(seed) for seed in (None, *range(number, number + 5)))

    disk.on_boundary = cut
    await world.start()
    assert len(copies) > 60
    for copy in copies:
        world.power_off()
        world.disk = copy
        await world.start()
        assert len(world.opened.store.data_groups) == 4
