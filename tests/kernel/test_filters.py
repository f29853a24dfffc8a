"""Filters of groups: who does not match is skipped for good, counted, and never delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
import pytest

from kernel.api.client import ConsumerSpec, ReceiveSpec
from kernel.api.filters import ATTRIBUTES_MAX, sql_filter
from kernel.api.model import (
    DEFAULT_GROUP,
    AttributesMatch,
    FilterKind,
    GroupFilter,
    GroupOptions,
    TopicInfo,
    TopicOptions,
)
from kernel.broker.delivery.filtering import SCAN_MAX
from kernel.common.errors import Code, KernelError
from tests.simulator.peer import ORIGIN, Draft, Peer, Recorder
from tests.simulator.world import World, simulated

pack = msgspec.msgpack.encode


class Reader:
    """`OriginReader` of native blocks in JSON."""

    def routing_key(self, native: bytes) -> str:
        return ""

    def topic_name(self, native: bytes) -> str:
        return ""

    def attributes(self, native: bytes) -> Mapping[str, object]:
        found: dict[str, object] = msgspec.json.decode(native)
        return found


def with_filter(kind: FilterKind, expression: str = "", **fields: object) -> GroupOptions:
    return GroupOptions(filter=GroupFilter(kind=kind, expression=expression, **fields))  # type: ignore[arg-type]


def draft(number: int, tag: bytes = b"", **attributes: object) -> Draft:
    return Draft(b"%d" % number, tag=tag, native=msgspec.json.encode(attributes))


async def filled(world: World, group: GroupOptions, *drafts: Draft) -> tuple[Peer, TopicInfo]:
    """A topic with a group, and messages."""
    world.client.origins.register(ORIGIN, Reader())
    peer = world.peer()
    topic = await peer.topic("work", group=group)
    await peer.publish(topic, *drafts)
    return peer, topic


@simulated()
async def test_a_tag_filter_of_the_group_holds_for_every_consumer(world: World) -> None:
    group = with_filter(FilterKind.TAGS, "red || blue")
    drafts = [draft(n, tag) for n, tag in enumerate((b"red", b"green", b"blue", b"", b"red"))]
    peer, topic = await filled(world, group, *drafts)
    recorders = [peer.attach(topic, credit=10) for _ in range(2)]
    await world.settle_down()
    assert sorted(recorders[0].bodies + recorders[1].bodies) == [b"0", b"2", b"4"]
    for recorder in recorders:
        await recorder.ack()
    figures = world.figures(topic, DEFAULT_GROUP)
    assert (figures.ready, figures.leased, figures.filtered) == (0, 0, 2)


@simulated()
async def test_what_was_filtered_out_stays_out_after_a_crash_and_without_the_filter(
    world: World,
) -> None:
    group = with_filter(FilterKind.SQL, "size > 2 AND color <> 'red' OR TAGS = 'always'")
    drafts = [
        draft(0, size=1, color="blue"),
        draft(1, size="3", color="blue"),
        draft(2, size=3, color="red"),
        draft(3, b"always"),
        draft(4, size=3),
    ]
    peer, topic = await filled(world, group, *drafts)
    recorder = peer.attach(topic, credit=10)
    await world.settle_down()
    assert recorder.bodies == [b"1", b"3"]
    await asyncio.sleep(0.01)
    await world.crash()
    peer = world.peer()
    topic = await peer.topic("work", group=GroupOptions())
    recorder = peer.attach(topic, credit=10)
    await world.settle_down()
    assert recorder.bodies == [b"1", b"3"]
    assert recorder.attempts == [2, 2]


@pytest.mark.parametrize(
    ("combine", "expected"),
    [(AttributesMatch.ALL_OF, [b"0"]), (AttributesMatch.ANY_OF, [b"0", b"1", b"2"])],
    ids=["all", "any"],
)
@simulated()
async def test_a_header_match_looks_at_values_and_presence(
    world: World, combine: AttributesMatch, expected: list[bytes]
) -> None:
    wanted = (("level", pack(1)), ("seen", pack(None)))
    group = with_filter(FilterKind.ATTRIBUTES, attributes=wanted, combine=combine)
    drafts = [
        draft(0, level=1, seen="x"),
        draft(1, level=1),
        draft(2, seen=False),
        draft(3, level=True),
    ]
    peer, topic = await filled(world, group, *drafts)
    recorder = peer.attach(topic, credit=10)
    await world.settle_down()
    assert recorder.bodies == expected


@simulated()
async def test_a_filter_of_the_consumer_comes_on_top(world: World) -> None:
    peer, topic = await filled(
        world,
        with_filter(FilterKind.TAGS, "red"),
        draft(0, b"red", n=1),
        draft(1, b"red", n=2),
        draft(2, b"blue", n=2),
    )
    recorder = Recorder(world.client)
    spec = ConsumerSpec(topic, DEFAULT_GROUP, peer.session, filter=sql_filter("n = 2"))
    recorder.consumer = world.client.attach(spec, recorder)
    recorder.grant(10)
    await world.settle_down()
    assert recorder.bodies == [b"1"]
    assert world.figures(topic, DEFAULT_GROUP).filtered == 2


@simulated()
async def test_other_groups_see_what_one_group_filters_out(world: World) -> None:
    world.client.origins.register(ORIGIN, Reader())
    peer = world.peer()
    groups = {DEFAULT_GROUP: GroupOptions(), "reds": with_filter(FilterKind.TAGS, "red")}
    topic = await peer.topic("work", groups=groups)
    await peer.publish(topic, draft(0, b"blue"), draft(1, b"red"))
    reds, all_of_them = peer.attach(topic, credit=9, group="reds"), peer.attach(topic, credit=9)
    await world.settle_down()
    assert (reds.bodies, all_of_them.bodies) == ([b"1"], [b"0", b"1"])


@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
@simulated()
async def test_sparse_matches_are_found_without_holding_up_the_loop(
    world: World, ordered: bool
) -> None:
    group = GroupOptions(
        ordered=ordered, filter=GroupFilter(kind=FilterKind.TAGS, expression="rare")
    )
    count = 3 * SCAN_MAX
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(), group)
    for at in range(0, count, 500):
        await peer.publish(
            topic, *[Draft(b"%d" % n, key=b"k", tag=b"usual") for n in range(at, at + 500)]
        )
    await peer.publish(topic, Draft(b"found", key=b"k", tag=b"rare"))
    received = await world.client.receive(
        ReceiveSpec(topic, DEFAULT_GROUP, messages=3, wait_ms=5_000, lease_ms=30_000)
    )
    assert received.deliveries is not None
    assert [slot[-5:] for slot in received.deliveries.slots] == [b"found"]
    assert world.figures(topic, DEFAULT_GROUP).filtered == count


@pytest.mark.parametrize(
    "wanted",
    [
        GroupFilter(kind=FilterKind.SQL, expression="a ="),
        GroupFilter(kind=FilterKind.TAGS, expression="a | b"),
        GroupFilter(kind=FilterKind.TAGS, expression="a || "),
        GroupFilter(kind=FilterKind.ATTRIBUTES),
        GroupFilter(kind=FilterKind.ATTRIBUTES, attributes=(("a", b"\xc1"),)),
        GroupFilter(
            kind=FilterKind.ATTRIBUTES,
            attributes=tuple((f"a{n}", pack(n)) for n in range(ATTRIBUTES_MAX + 1)),
        ),
    ],
    ids=lambda each: f"{each.kind.value} {each.expression or len(each.attributes)}",
)
@simulated()
async def test_a_filter_that_says_nothing_sensible_is_refused(
    world: World, wanted: GroupFilter
) -> None:
    with pytest.raises(KernelError) as caught:
        await world.peer().topic("work", group=GroupOptions(filter=wanted))
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert world.client.topic("default", "work") is None
