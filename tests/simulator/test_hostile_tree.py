"""The topic tree over a hostile network: what an adapter may rely on whatever that does."""

from __future__ import annotations

import asyncio

import pytest

from kernel.api.client import Settlement
from kernel.api.model import DEFAULT_TENANT
from kernel.api.tree import SubscriberSpec, Subscription
from kernel.common.errors import Code, KernelError
from tests.kernel.tree_client import Listener, SubscriberClient, retained, tell, will_of
from tests.simulator.far import Far
from tests.simulator.peer import Draft
from tests.simulator.world import World, simulated

SEEDS = pytest.mark.parametrize("seed", range(3))


def submit(far: Far, name: str, *bodies: bytes) -> None:
    """Publish without waiting."""
    found = far.client.tree.to(DEFAULT_TENANT, name)
    far.own.submit(found, *(Draft(body, name=name) for body in bodies))


@pytest.mark.usefixtures("often")
@SEEDS
@simulated()
async def test_a_live_route_hears_everything_once_and_of_a_name_in_order(
    world: World, seed: int
) -> None:
    far = Far(world, seed)
    listener = Listener(far, "a/+")
    for number in range(200):
        submit(far, f"a/{number % 3}", b"%d" % number)
        await asyncio.sleep(0.005)
    await asyncio.sleep(2)
    for name in range(3):
        heard = [int(body) for each, body in listener.got if each == f"a/{name}"]
        assert heard == list(range(name, 200, 3))


@SEEDS
@simulated()
async def test_a_route_that_was_given_up_hears_nothing_of_what_is_on_its_way(
    world: World, seed: int
) -> None:
    far = Far(world, seed)
    listener = Listener(far, "a")
    await tell(far, "a", b"1")
    before = len(listener.got)
    listener.watch.cancel()
    await asyncio.sleep(1)
    assert len(listener.got) == before


@pytest.mark.usefixtures("often")
@SEEDS
@simulated()
async def test_a_subscribers_consumer_outlives_its_streams(world: World, seed: int) -> None:
    """Every message once, of a name in order, no more than there is credit for."""
    far = Far(world, seed)
    subscribed = await SubscriberClient.open(far, "g", credit=5)
    for pattern in ("a/+", "b"):
        assert await subscribed.subscribe(pattern)
    for number in range(300):
        submit(far, ("a/0", "a/1", "b")[number % 3], b"%d" % number)
    recorder = subscribed.recorder
    async with asyncio.timeout(100):
        while len(recorder.got) < 300:
            await asyncio.sleep(0.05)
            held = list(recorder.held.values())
            assert len(held) <= 5
            if held:
                recorder.settle_now(Settlement.ACK, *held)
                subscribed.consumer.grant(len(held))
    assert far.client.resets > 5
    await asyncio.sleep(1)
    assert sorted(int(body) for body in recorder.bodies) == list(range(300))
    for name in range(3):
        got = [int(body) for body in recorder.bodies if int(body) % 3 == name]
        assert got == sorted(got)
    assert set(recorder.attempts) == {1}


@pytest.mark.usefixtures("often")
@SEEDS
@simulated()
async def test_credit_that_is_taken_back_is_not_used(world: World, seed: int) -> None:
    far = Far(world, seed)
    subscribed = await SubscriberClient.open(far, "g", credit=10)
    await subscribed.subscribe("a")
    subscribed.consumer.grant(-7)
    await tell(far, "a", *(b"%d" % number for number in range(10)))
    await asyncio.sleep(3)
    assert subscribed.bodies == [b"0", b"1", b"2"]


@pytest.mark.usefixtures("often")
@SEEDS
@simulated()
async def test_what_is_on_its_way_to_a_connection_that_ends_comes_to_the_next(
    world: World, seed: int
) -> None:
    far = Far(world, seed)
    got: list[int] = []
    first = await SubscriberClient.open(far, "g")
    await first.subscribe("a")
    await first.leave()
    await tell(far, "a", *(b"%d" % number for number in range(20)))
    for _ in range(20):
        subscribed = await SubscriberClient.open(far, "g", credit=3)
        await asyncio.sleep(0.04)
        held = list(subscribed.recorder.held.values())
        if held:
            await subscribed.recorder.ack(*held)
        got += [int(each.body) for each in held]
        await subscribed.leave()
    last = await SubscriberClient.open(far, "g", credit=20)
    await asyncio.sleep(1)
    got += [int(body) for body in last.bodies]
    assert sorted(got) == list(range(20))


@SEEDS
@simulated()
async def test_who_leaves_a_subscription_gets_nothing_more_of_it(world: World, seed: int) -> None:
    far = Far(world, seed)
    subscribed = await SubscriberClient.open(far, "g", credit=2)
    for name in ("a", "b"):
        await subscribed.subscribe(name)
    await tell(far, "a", *[b"a"] * 10)
    subscribed.consumer.remove(Subscription("a"))
    before = len(subscribed.bodies)
    subscribed.consumer.grant(before)
    await subscribed.subscriber.unsubscribe(Subscription("a"))
    await tell(far, "b", b"b")
    await asyncio.sleep(1)
    assert subscribed.bodies[before:] == [b"b"], "its credit is there for the others"


@SEEDS
@simulated()
async def test_a_gateway_knows_of_its_own_unsubscribing_when_that_is_answered(
    world: World, seed: int
) -> None:
    """As a gateway does that has names looked up by their leader: it may say "nobody" then."""
    far = Far(world, seed)
    subscribed = await SubscriberClient.open(far, "g", credit=2)
    of = Subscription("a")
    for _ in range(20):
        for unsubscribe in (
            lambda: subscribed.subscriber.unsubscribe(of),
            lambda: subscribed.subscriber.unsubscribe_all([of]),
        ):
            await subscribed.subscribe("a")
            assert far.client.tree.to(DEFAULT_TENANT, "a").count == 1
            assert await unsubscribe() in (True, {of: True})
            assert far.client.tree.to(DEFAULT_TENANT, "a").count == 0


@pytest.mark.usefixtures("often")
@SEEDS
@simulated()
async def test_a_connection_hears_that_it_is_another_ones_before_that_one_begins(
    world: World, seed: int
) -> None:
    far = Far(world, seed)
    all_subscribed: list[SubscriberClient] = []
    for _ in range(20):
        subscribed = await SubscriberClient.open(far, "g")
        assert all(each.lost for each in all_subscribed)
        assert not subscribed.lost
        all_subscribed.append(subscribed)
    with pytest.raises(KernelError) as fenced:
        await all_subscribed[0].subscribe("a")
    assert fenced.value.code is Code.SESSION_FENCED
    heard: list[KernelError | None] = []
    all_subscribed[0].subscriber.note([(b"k", b"v")], heard.append)
    await asyncio.sleep(1)
    assert [each.code for each in heard if each is not None] == [Code.SESSION_FENCED]
    assert [each.subscriber.epoch for each in all_subscribed] == list(range(1, 21))


@pytest.mark.usefixtures("often")
@SEEDS
@simulated()
async def test_what_is_asked_for_a_subscriber_is_done_once_and_in_order(
    world: World, seed: int
) -> None:
    far = Far(world, seed)
    subscribed = await SubscriberClient.open(far, "g")
    subscriber = subscribed.subscriber
    asked = []
    for number in range(60):
        pattern = Subscription(f"p{number % 3}")
        if number % 6 < 3:
            asked.append(subscriber.subscribe(pattern, b"%d" % number))
        else:
            asked.append(subscriber.unsubscribe(pattern))
    assert await asyncio.gather(*asked) == [True] * 60
    heard: list[KernelError | None] = []
    for number in range(100):
        subscriber.note([(b"k%d" % (number % 7), b"%d" % number)], heard.append)
    await subscriber.subscribe(Subscription("kept"), b"o")
    await subscribed.leave()
    assert heard == [None] * 100
    again = await SubscriberClient.open(far, "g")
    assert again.subscriber.resumed
    assert again.subscriber.subscriptions == {Subscription("kept"): b"o"}
    assert sorted(again.subscriber.notes.values()) == [b"%d" % each for each in range(93, 100)]


@pytest.mark.usefixtures("often")
@SEEDS
@simulated()
async def test_a_will_is_published_once_and_one_taken_back_never(world: World, seed: int) -> None:
    far = Far(world, seed)
    listener = Listener(far, "gone/+")
    for number in range(40):
        will = will_of(world, f"gone/{number}", b"%d" % number)
        subscribed = await SubscriberClient.open(far, f"g{number}", expiry_ms=0, will=will)
        await subscribed.leave(will=number % 2 == 0)
    await asyncio.sleep(5)
    assert sorted(int(body) for body in listener.bodies) == list(range(0, 40, 2))


@pytest.mark.usefixtures("often")
@SEEDS
@simulated()
async def test_retained_messages_are_the_last_ones_of_their_names(world: World, seed: int) -> None:
    far = Far(world, seed)
    for number in range(100):
        await tell(far, f"a/{number % 5}", b"%d" % number, retain=True)
    await tell(far, "a/0", b"", retain=True)
    assert await retained(far, "a/+") == [
        (f"a/{number % 5}", b"%d" % number) for number in range(96, 100)
    ]
    with pytest.raises(KernelError) as refused:
        await far.client.tree.retained(DEFAULT_TENANT, "a/#/b", 10)
    assert refused.value.code is Code.INVALID_ARGUMENT


@simulated()
async def test_who_gives_up_opening_leaves_nothing_behind(world: World) -> None:
    far = Far(world, 1)
    subscribed = await SubscriberClient.open(far, "g")
    spec = SubscriberSpec(
        DEFAULT_TENANT, "other", expiry_ms=0, will=will_of(world, "gone", b"never")
    )
    listener = Listener(far, "gone")
    opening = asyncio.ensure_future(far.client.tree.open(spec, subscribed))
    while not world.client.tree._subscribing._open.get((DEFAULT_TENANT, "other")):
        await asyncio.sleep(0.001)
    opening.cancel()
    await asyncio.sleep(5)
    assert not world.client.tree._subscribing._open.get((DEFAULT_TENANT, "other"))
    assert listener.got == []
