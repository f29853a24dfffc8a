"""Fair pulls: whose backlog is deep, or whose messages take long, keeps nobody else waiting."""

from __future__ import annotations

import asyncio
import random

import pytest

from kernel.api.client import LeaseChange, LeaseVerb, PurgeTopic, Received, ReceiveSpec
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, TopicInfo, TopicOptions
from kernel.broker.delivery.fairness import NOISY_IN_FLIGHT, QUIET_AFTER_MS, SIFT_MAX, SPENT_MS_MIN
from tests.simulator.peer import Draft, Peer
from tests.simulator.world import World, simulated

LEASE_MS = 12 * 3_600_000


async def pull(
    world: World, topic: TopicInfo, messages: int = 10, lease_ms: int = LEASE_MS
) -> Received:
    spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=messages, lease_ms=lease_ms, fair=True)
    return await world.client.receive(spec)


def bodies(received: Received) -> list[bytes]:
    if received.deliveries is None:
        return []
    return [slot[-1:] for slot in received.deliveries.slots]


async def settle(
    world: World, topic: TopicInfo, received: Received, verb: LeaseVerb = LeaseVerb.ACK
) -> None:
    changes = [LeaseChange(token, verb) for token in received.tokens]
    assert not any(await world.client.settle_leases(topic, DEFAULT_GROUP, changes, 0))


def of(tenant: str, count: int = 1) -> list[Draft]:
    body = tenant.encode()
    return [Draft(body, key=body) for _ in range(count)]


async def noisy(world: World, peer: Peer, topic: TopicInfo, tenant: str, more: int) -> None:
    """Someone with as much in flight as makes noisy, and a backlog."""
    await peer.publish(topic, *of(tenant, NOISY_IN_FLIGHT + more))
    got = await pull(world, topic, NOISY_IN_FLIGHT)
    assert bodies(got) == [tenant.encode()] * NOISY_IN_FLIGHT


@simulated()
async def test_others_go_first_while_the_backlog_of_a_noisy_one_lasts(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await noisy(world, peer, topic, "a", 50)
    await peer.publish(topic, *of("b", 3), Draft(b"-"), *of("c", 2), *of("a", 5))
    assert bodies(await pull(world, topic)) == [b"b", b"b", b"b", b"-", b"c", b"c"] + [b"a"] * 4
    await peer.publish(topic, *of("c"))
    assert bodies(await pull(world, topic, 1)) == [b"c"]
    assert bodies(await pull(world, topic, 100)) == [b"a"] * 51
    assert world.figures(topic, DEFAULT_GROUP).ready == 0


@simulated()
async def test_below_the_thresholds_the_queue_is_served_in_its_order(world: World) -> None:
    """29 in flight are too few, and 30 of 330 too small a share."""
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, *of("a", NOISY_IN_FLIGHT - 1))
    assert len(bodies(await pull(world, topic, 100))) == NOISY_IN_FLIGHT - 1
    await peer.publish(topic, *[Draft(b"%d" % (at % 10)) for at in range(300)])
    assert len(bodies(await pull(world, topic, 300))) == 300
    await peer.publish(topic, *of("a", 2), *of("b"))
    assert bodies(await pull(world, topic, 2)) == [b"a", b"a"]


@simulated()
async def test_few_messages_that_take_long_make_noisy_too(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, *of("a", 2))
    slow = await pull(world, topic, 2)
    for _ in range(20):
        await peer.publish(topic, *[each for name in "bcdefghijk" for each in of(name)])
        got = await pull(world, topic, 10)
        await asyncio.sleep(SPENT_MS_MIN / 10_000)
        await settle(world, topic, got)
    await peer.publish(topic, *of("a", 2), *of("z"))
    first = await pull(world, topic, 1)
    assert bodies(first) == [b"a"], "noisy is who has just got one more"
    assert bodies(await pull(world, topic, 1)) == [b"z"]
    assert bodies(await pull(world, topic, 1)) == [b"a"]
    await settle(world, topic, slow)


@pytest.mark.parametrize("slow", [False, True], ids=["many", "slow"])
@simulated()
async def test_what_has_to_be_read_first_makes_nobody_noisy_sooner(
    world: World, slow: bool
) -> None:
    """It is taken, put back, and taken again once it is in memory: nobody had it in between."""
    peer = world.peer()
    topic = await peer.topic("work")
    held = 2 if slow else NOISY_IN_FLIGHT - 1
    await peer.publish(topic, *of("a", held), *of("x", 0 if slow else 20))
    assert len(bodies(await pull(world, topic, 100))) == held + (0 if slow else 20)
    if slow:
        await asyncio.sleep(SPENT_MS_MIN / 1_000)
    await peer.publish(topic, *of("a", 2), *of("z"))
    ref = topic.queues[0]
    store = world.opened.store
    queue = store.replica(ref.group).state.queues.get(ref.id)
    assert queue is not None
    store.journal.forget(ref.group, queue.index.find(queue.index.tail - 1).index)
    got = [bodies(await pull(world, topic, 1)) for _ in range(3)]
    assert got == [[b"a"], [b"z"], [b"a"]], "as if it had been in memory"


@simulated()
async def test_of_several_noisy_ones_who_has_fewest_in_flight_goes_first(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    for tenant in "ab":
        await peer.publish(topic, *of(tenant, NOISY_IN_FLIGHT + 10))
    got = await pull(world, topic, NOISY_IN_FLIGHT * 2)
    assert sorted(bodies(got)) == [b"a"] * NOISY_IN_FLIGHT + [b"b"] * NOISY_IN_FLIGHT
    rest = await pull(world, topic, 6)
    assert sorted(bodies(rest)) == [b"a"] * 3 + [b"b"] * 3


@simulated()
async def test_whose_backlog_is_gone_is_treated_as_anybody_again(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await noisy(world, peer, topic, "a", 5)
    rest = await pull(world, topic, 5)
    assert bodies(rest) == [b"a"] * 5
    assert bodies(await pull(world, topic, 1)) == []
    await settle(world, topic, rest)


@simulated()
async def test_who_has_sent_nothing_for_long_is_noisy_no_more(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await noisy(world, peer, topic, "a", 5)
    await peer.publish(topic, *of("b"))
    assert bodies(await pull(world, topic, 1)) == [b"b"]
    await asyncio.sleep(QUIET_AFTER_MS / 1_000)
    await peer.publish(topic, *of("b"))
    assert bodies(await pull(world, topic, 1)) == [b"b"], "it has looked at all there is"
    await peer.publish(topic, *of("b"))
    assert bodies(await pull(world, topic, 1)) == [b"a"]


@simulated()
async def test_without_keys_nothing_is_kept_and_with_them_nothing_when_all_is_done(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    ref = topic.queues[0]
    dispatcher = world.opened.store.replica(ref.group).dispatcher(ref.id, DEFAULT_GROUP)

    def keeps_something() -> bool:
        return dispatcher._order is not None

    await peer.publish(topic, *[b"x"] * 50)
    await settle(world, topic, await pull(world, topic, 50))
    assert not keeps_something()
    await peer.publish(topic, *of("a", 3))
    got = await pull(world, topic)
    assert keeps_something()
    await settle(world, topic, got)
    await peer.publish(topic, b"x")
    await settle(world, topic, await pull(world, topic))
    assert await pull(world, topic) is not None
    assert not keeps_something()


@simulated()
async def test_a_deep_backlog_of_a_noisy_one_is_looked_at_in_slices(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await noisy(world, peer, topic, "a", 2 * SIFT_MAX)
    await peer.publish(topic, *of("b"))
    got = [bodies(await pull(world, topic, 1))[0] for _ in range(4)]
    assert sorted(got) == [b"a", b"a", b"a", b"b"]
    assert world.figures(topic, DEFAULT_GROUP).ready == 2 * SIFT_MAX - 3


@simulated()
async def test_push_consumers_of_the_same_queue_get_it_in_order(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await noisy(world, peer, topic, "a", 4)
    await peer.publish(topic, *of("b", 2))
    assert bodies(await pull(world, topic, 1)) == [b"b"]
    recorder = peer.attach(topic, credit=9)
    await recorder.wait_for(5)
    assert recorder.bodies == [b"a"] * 4 + [b"b"]


@simulated()
async def test_what_waits_for_others_is_purged_goes_with_its_time_and_survives_a_crash(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(retention_ms=10_000))
    await noisy(world, peer, topic, "a", 5)
    await peer.publish(topic, *of("b", 2))
    assert bodies(await pull(world, topic, 1)) == [b"b"]
    await world.crash()
    again = world.client.topic(DEFAULT_TENANT, "work")
    assert again is not None
    assert bodies(await pull(world, again, 1)) == [b"b"], "who is noisy shows what is in flight"
    await world.client.administer(
        PurgeTopic(DEFAULT_TENANT, "work", DEFAULT_GROUP, in_flight=False)
    )
    assert world.figures(again, DEFAULT_GROUP).ready == 0
    peer = world.peer()
    await peer.publish(again, *of("a", 3))
    await asyncio.sleep(13)
    assert world.figures(again, DEFAULT_GROUP).ready == 0
    assert bodies(await pull(world, again)) == []


@simulated()
async def test_whatever_happens_each_message_is_had_until_it_is_acked(world: World) -> None:
    rng = random.Random(11)
    peer = world.peer()
    topic = await peer.topic("work")
    sent = 0
    acked: set[int] = set()
    held: list[Received] = []
    for _ in range(150):
        what = rng.random()
        if what < 0.3:
            tenant = rng.choice("aaaaabc")
            count = rng.randint(1, 40)
            await peer.publish(topic, *of(tenant, count), Draft(b"-"))
            sent += count + 1
        elif what < 0.7:
            lease_ms = rng.choice((LEASE_MS, LEASE_MS, 2_000, 0))
            got = await pull(world, topic, rng.randint(1, 20), lease_ms=lease_ms)
            if got.deliveries is not None:
                assert not acked.intersection(got.deliveries.offsets)
                held.append(got)
        elif what < 0.95 and held:
            one = held.pop(rng.randrange(len(held)))
            assert one.deliveries is not None
            verb = rng.choice((LeaseVerb.ACK, LeaseVerb.ACK, LeaseVerb.RELEASE, LeaseVerb.RETURN))
            changes = [LeaseChange(token, verb) for token in one.tokens]
            errors = await world.client.settle_leases(topic, DEFAULT_GROUP, changes, 0)
            if verb is LeaseVerb.ACK:
                pairs = zip(one.deliveries.offsets, errors, strict=True)
                acked.update(at for at, error in pairs if error is None)
        else:
            await asyncio.sleep(rng.choice((0.1, 3)))
        figures = world.figures(topic, DEFAULT_GROUP)
        assert figures.ready + figures.leased + len(acked) == sent
    for one in held:
        changes = [LeaseChange(token, LeaseVerb.RELEASE) for token in one.tokens]
        await world.client.settle_leases(topic, DEFAULT_GROUP, changes, 0)
    await asyncio.sleep(3)
    while (got := await pull(world, topic, 50)).deliveries is not None:
        assert not acked.intersection(got.deliveries.offsets)
        acked.update(got.deliveries.offsets)
        await settle(world, topic, got)
    assert acked == set(range(sent))
