"""Ordered groups: one key's messages in order, one holder at a time, across crashes too."""

from __future__ import annotations

import asyncio

import pytest

from kernel.api.client import LeaseChange, LeaseVerb, PurgeTopic, Received, ReceiveSpec, Settlement
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, GroupOptions, TopicInfo, TopicOptions
from kernel.broker.delivery.in_order import LOOK_AHEAD, SIFT_MAX
from kernel.broker.index.runs import DEAD_RUNS_KEPT
from tests.simulator.peer import Draft
from tests.simulator.world import WRITER, World, simulated

ORDERED = GroupOptions(ordered=True)
STALL_S = 0.5
BOTH = pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])


def of_key(*bodies: bytes, key: bytes = b"k") -> list[Draft]:
    return [Draft(body, key=key) for body in bodies]


@pytest.mark.parametrize("how", [Settlement.ACK, Settlement.DEAD_LETTER])
@simulated()
async def test_a_key_is_free_once_the_settlement_is_on_disk_and_not_before(
    world: World, how: Settlement
) -> None:
    """Otherwise a crash in between hands out 2 again before 1, which its ack had not outlived."""
    peer = world.peer()
    topic = await peer.topic("work", None, ORDERED)
    await peer.publish(topic, *of_key(b"1", b"2"))
    first, second = peer.attach(topic, credit=1), peer.attach(topic, credit=1)
    await asyncio.sleep(0.1)
    holder, other = (first, second) if first.got else (second, first)
    await world.settle_down()
    world.workers.delay_s[WRITER] = STALL_S
    holder.settle_now(how, 0)
    await asyncio.sleep(STALL_S - 0.01)
    assert (holder.bodies, other.bodies) == ([b"1"], [])
    await other.wait_for(1)
    assert other.bodies == [b"2"]


@simulated()
async def test_after_a_crash_a_key_goes_on_with_what_was_not_acked(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", None, ORDERED)
    await peer.publish(topic, *of_key(b"1", b"2", b"3"))
    recorder = peer.attach(topic, credit=1)
    await recorder.wait_for(1)
    world.workers.hold(WRITER)
    recorder.settle_now(Settlement.ACK, 0)
    recorder.grant(2)
    await asyncio.sleep(1)
    seen = recorder.bodies
    await world.crash()
    again = world.peer().attach(topic, credit=3)
    await again.wait_for(1)
    assert (seen, again.bodies[0]) == ([b"1"], b"1")


@simulated()
async def test_the_last_attempt_keeps_its_key_until_the_dead_letter_is_on_disk(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", None, GroupOptions(ordered=True, attempts_max=1))
    await peer.publish(topic, *of_key(b"1", b"2"))
    recorder = peer.attach(topic, credit=1)
    await recorder.wait_for(1)
    await world.settle_down()
    world.workers.delay_s[WRITER] = STALL_S
    recorder.settle_now(Settlement.RELEASE, 0)
    recorder.grant(1)
    await asyncio.sleep(STALL_S - 0.01)
    assert recorder.bodies == [b"1"]
    await recorder.wait_for(2)


@BOTH
@simulated()
async def test_many_keys_are_settled_in_any_order(world: World, durable: bool) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(durable=durable), ORDERED)
    for number in range(3):
        await peer.publish(topic, *[Draft(b"%d" % number, key=b"%d" % key) for key in range(40)])
    recorder = peer.attach(topic, credit=40)
    for number in range(3):
        got = (await recorder.wait_for(40 * (number + 1)))[40 * number :]
        assert {each.body for each in got} == {b"%d" % number}
        for each in reversed(got):
            recorder.settle_now(Settlement.ACK, each)
        recorder.grant(40)
    await asyncio.sleep(0.1)
    assert world.figures(topic, DEFAULT_GROUP).ready == 0


@BOTH
@simulated()
async def test_a_purge_of_what_is_in_flight_frees_the_key(world: World, durable: bool) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(durable=durable), ORDERED)
    await peer.publish(topic, *of_key(b"1", b"2"))
    spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=1, lease_ms=60_000)
    assert len((await world.client.receive(spec)).tokens) == 1
    await world.client.administer(PurgeTopic(DEFAULT_TENANT, "work", DEFAULT_GROUP, in_flight=True))
    await peer.publish(topic, *of_key(b"3"))
    got = await world.client.receive(spec)
    assert got.deliveries is not None
    assert list(got.deliveries.offsets) == [2]


# --- Pulls: one key first, then the next ---------------------------------------------------------


async def pull(
    world: World, topic: TopicInfo, messages: int = 10, lease_ms: int = 60_000, wait_ms: int = 0
) -> Received:
    spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=messages, lease_ms=lease_ms, wait_ms=wait_ms)
    return await world.client.receive(spec)


def offsets_of(received: Received) -> list[int]:
    return [] if received.deliveries is None else list(received.deliveries.offsets)


async def change(
    world: World, topic: TopicInfo, received: Received, verb: LeaseVerb, *positions: int
) -> None:
    changes = [LeaseChange(received.tokens[each], verb) for each in positions]
    assert await world.client.settle_leases(topic, DEFAULT_GROUP, changes, 0) == [None] * len(
        positions
    )


@simulated()
async def test_a_pull_is_filled_from_one_key_first_and_blocks_no_more_than_it_must(
    world: World,
) -> None:
    """Twelve keys whose messages come in turn: ten of each, the oldest first."""
    peer = world.peer()
    topic = await peer.topic("work", None, ORDERED)
    for _ in range(12):
        await peer.publish(topic, *[Draft(b"m", key=b"%d" % key) for key in range(12)])
    first = await pull(world, topic)
    assert offsets_of(first) == [12 * turn for turn in range(10)]
    second = await pull(world, topic)
    assert offsets_of(second) == [12 * turn + 1 for turn in range(10)]
    await change(world, topic, first, LeaseVerb.ACK, *range(10))
    third = await pull(world, topic)
    assert offsets_of(third) == [12 * turn + 2 for turn in range(10)]
    for key in range(3, 12):
        assert offsets_of(await pull(world, topic)) == [12 * turn + key for turn in range(10)]
    await change(world, topic, second, LeaseVerb.ACK, *range(10))
    assert offsets_of(await pull(world, topic)) == [120, 132, 121, 133]


@simulated()
async def test_a_pull_takes_from_the_next_keys_when_the_first_has_too_few(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", None, ORDERED)
    await peer.publish(topic, *[Draft(b"m", key=key) for key in (b"a", b"b", b"c", b"a", b"b")])
    assert offsets_of(await pull(world, topic)) == [0, 3, 1, 4, 2]


@simulated()
async def test_a_long_backlog_of_one_blocked_key_keeps_no_other_back(world: World) -> None:
    """Looked at once, in slices: a pull that waits goes on by itself."""
    peer = world.peer()
    topic = await peer.topic("work", None, ORDERED)
    await peer.publish(topic, *[Draft(b"m", key=b"a") for _ in range(SIFT_MAX + LOOK_AHEAD)])
    await peer.publish(topic, Draft(b"m", key=b"b"))
    first = await pull(world, topic)
    assert offsets_of(first) == list(range(10))
    assert offsets_of(await pull(world, topic, wait_ms=1_000)) == [SIFT_MAX + LOOK_AHEAD]
    await change(world, topic, first, LeaseVerb.ACK, *range(10))
    assert offsets_of(await pull(world, topic)) == list(range(10, 20))
    assert world.figures(topic, DEFAULT_GROUP).ready == SIFT_MAX + LOOK_AHEAD - 20


@simulated()
async def test_what_was_looked_at_ahead_is_handed_to_push_consumers_in_order(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", None, ORDERED)
    await peer.publish(topic, *[Draft(b"%d" % at, key=b"%d" % (at % 3)) for at in range(9)])
    assert offsets_of(await pull(world, topic, messages=1)) == [0]
    recorder = peer.attach(topic, credit=9)
    await recorder.wait_for(6)
    assert recorder.bodies == [b"1", b"2", b"4", b"5", b"7", b"8"]


# --- What came back ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["expires", "given back"])
@BOTH
@simulated()
async def test_what_came_back_is_handed_out_alone_while_later_ones_are_held(
    world: World, durable: bool, how: str
) -> None:
    """Those stay with their holder, and what nobody has got yet stays behind them."""
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(durable=durable), ORDERED)
    await peer.publish(topic, *of_key(b"1", b"2", b"3", b"4"))
    held = await pull(world, topic, messages=3)
    assert offsets_of(held) == [0, 1, 2]
    if how == "expires":
        later = LeaseChange(held.tokens[0], LeaseVerb.EXTEND, 1_000)
        assert await world.client.settle_leases(topic, DEFAULT_GROUP, [later], 0) == [None]
        await asyncio.sleep(1.1)
    else:
        await change(world, topic, held, LeaseVerb.RELEASE, 0)
    again = await pull(world, topic)
    assert offsets_of(again) == [0]
    assert again.deliveries is not None
    assert list(again.deliveries.attempts or ()) == [2]
    assert offsets_of(await pull(world, topic)) == []
    await change(world, topic, held, LeaseVerb.ACK, 1)
    await change(world, topic, again, LeaseVerb.ACK, 0)
    assert offsets_of(await pull(world, topic)) == []
    await change(world, topic, held, LeaseVerb.ACK, 2)
    assert offsets_of(await pull(world, topic)) == [3]


@simulated()
async def test_what_was_given_back_with_a_delay_keeps_its_key(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", None, ORDERED)
    await peer.publish(topic, *of_key(b"1", b"2"))
    held = await pull(world, topic, messages=1)
    later = LeaseChange(held.tokens[0], LeaseVerb.RETURN, 2_000)
    assert await world.client.settle_leases(topic, DEFAULT_GROUP, [later], 0) == [None]
    assert offsets_of(await pull(world, topic)) == []
    await world.crash()
    again = world.client.topic(DEFAULT_TENANT, "work")
    assert again is not None
    assert offsets_of(await pull(world, again)) == []
    assert offsets_of(await pull(world, again, wait_ms=5_000)) == [0, 1]


@simulated()
async def test_what_came_back_waits_for_an_earlier_one_that_is_held(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", None, ORDERED)
    await peer.publish(topic, *of_key(b"1", b"2", b"3", b"4"))
    held = await pull(world, topic, messages=3)
    await change(world, topic, held, LeaseVerb.RELEASE, 0, 2)
    assert offsets_of(await pull(world, topic)) == [0]
    await change(world, topic, held, LeaseVerb.ACK, 1)
    assert offsets_of(await pull(world, topic)) == []


@simulated()
async def test_after_a_crash_what_came_back_is_still_handed_out_alone(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", None, ORDERED)
    await peer.publish(topic, *of_key(b"1", b"2", b"3"))
    held = await pull(world, topic, messages=2)
    await change(world, topic, held, LeaseVerb.RELEASE, 0)
    await world.crash()
    again = world.client.topic(DEFAULT_TENANT, "work")
    assert again is not None
    assert offsets_of(await pull(world, again)) == [0]
    assert offsets_of(await pull(world, again)) == []


@simulated()
async def test_a_session_gets_back_alone_what_it_released_while_it_holds_later_ones(
    world: World,
) -> None:
    """The rule is that of all ordered groups, however a message is held."""
    peer = world.peer()
    topic = await peer.topic("work", None, ORDERED)
    await peer.publish(topic, *of_key(b"1", b"2", b"3"))
    recorder = peer.attach(topic, credit=2)
    await recorder.wait_for(2)
    recorder.settle_now(Settlement.RELEASE, 0)
    recorder.grant(2)
    await recorder.wait_for(3)
    await asyncio.sleep(0.1)
    assert recorder.bodies == [b"1", b"2", b"1"]


@simulated()
async def test_what_waits_for_its_key_goes_when_it_is_purged_or_too_old(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(retention_ms=1_000), ORDERED)
    await peer.publish(topic, *of_key(b"1", b"2", b"3"), Draft(b"4", key=b"other"))
    held = await pull(world, topic, messages=1)
    assert offsets_of(held) == [0]
    await asyncio.sleep(3)
    assert world.figures(topic, DEFAULT_GROUP).ready == 0
    await peer.publish(topic, *of_key(b"5", b"6"))
    assert offsets_of(await pull(world, topic)) == [4, 5]


@BOTH
@simulated()
async def test_several_acks_that_come_late_in_one_turn_leave_nothing_to_those_who_wait(
    world: World, durable: bool
) -> None:
    """Each is applied before any consumer is served: what was ready again is no more."""
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(durable=durable), ORDERED)
    for _ in range(DEAD_RUNS_KEPT):  # of fewer the index keeps the runs all the same
        await peer.publish(topic, *of_key(b"m"))
    held = await pull(world, topic, messages=DEAD_RUNS_KEPT, lease_ms=1_000)
    assert len(offsets_of(held)) == DEAD_RUNS_KEPT
    await asyncio.sleep(1.1)
    world.workers.delay_s[WRITER] = 0.1
    acks = [LeaseChange(token, LeaseVerb.ACK, 0) for token in held.tokens]
    settling = [
        asyncio.ensure_future(world.client.settle_leases(topic, DEFAULT_GROUP, [each], origin))
        for origin, each in enumerate(acks)
    ]
    await asyncio.sleep(0.01)
    pulls = [asyncio.ensure_future(pull(world, topic, messages=1, wait_ms=500)) for _ in range(3)]
    assert await asyncio.gather(*settling) == [[None]] * DEAD_RUNS_KEPT
    assert [offsets_of(await each) for each in pulls] == [[], [], []]
