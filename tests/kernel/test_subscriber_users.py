"""Whose a subscriber is: nobody but its user opens it, and an administrator may drop it."""

from __future__ import annotations

import msgspec
import pytest

from kernel.api.model import DEFAULT_TENANT
from kernel.api.tree import Belongings, Subscriber, SubscriberSpec, Subscription
from kernel.broker.snapshots.snapshot import dump, load, state_hash
from kernel.broker.snapshots.tree_records import SubscriberRecord
from kernel.common.errors import Code, KernelError
from tests.kernel.tree_client import SubscriberClient, tell
from tests.simulator.world import World, simulated


async def refused(world: World, name: str, user: str, **more: object) -> None:
    """Opening it is refused, and nobody is told."""
    with pytest.raises(KernelError) as error:
        await SubscriberClient.open(world, name, user=user, **more)  # type: ignore[arg-type]
    assert error.value.code is Code.NOT_ALLOWED


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("expiry_ms", [0, None])
def test_another_user_neither_opens_nor_ends_a_live_one(clean: bool, expiry_ms: int | None) -> None:
    @simulated()
    async def scenario(world: World) -> None:
        subscribed = await SubscriberClient.open(world, "g", user="ann", credit=10)
        await subscribed.subscribe("t")
        await refused(world, "g", "bob", clean=clean, expiry_ms=expiry_ms)
        await tell(world, "t", b"1")
        await subscribed.recorder.wait_for(1)
        assert not subscribed.lost

    scenario()


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("expiry_ms", [0, None])
def test_nor_one_that_is_away_even_after_a_crash(clean: bool, expiry_ms: int | None) -> None:
    @simulated()
    async def scenario(world: World) -> None:
        subscribed = await SubscriberClient.open(world, "g", user="ann")
        await subscribed.subscribe("t")
        await subscribed.leave()
        await world.crash()
        await refused(world, "g", "bob", clean=clean, expiry_ms=expiry_ms)
        again = await SubscriberClient.open(world, "g", user="ann")
        assert list(again.subscriber.subscriptions) == [Subscription("t")]

    scenario()


@simulated()
async def test_who_is_refused_writes_nothing(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g", user="ann")
    await subscribed.leave()
    await world.settle_down()

    def indexes() -> list[int]:
        return [each.state.applied for each in world.opened.store.replicas()]

    before = indexes()
    for clean in (False, True):
        for expiry_ms in (0, None):
            await refused(world, "g", "bob", clean=clean, expiry_ms=expiry_ms)
    assert indexes() == before


@simulated()
async def test_one_in_memory_stays_with_its_user_and_is_free_afterwards(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g", user="ann", clean=True, expiry_ms=0)
    await refused(world, "g", "bob", clean=True, expiry_ms=0)
    await refused(world, "g", "bob")
    await refused(world, "g", "")
    assert not subscribed.lost
    again = await SubscriberClient.open(world, "g", user="ann", clean=True, expiry_ms=0)
    assert subscribed.lost
    await again.leave()
    await SubscriberClient.open(world, "g", user="bob")


@simulated()
async def test_one_that_is_nobodys_becomes_whose_who_may_have_all_of_it(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g")
    await subscribed.subscribe("a/+")
    await subscribed.leave()
    asked: list[list[tuple[str, str]]] = []

    def may_not(belongings: Belongings) -> bool:
        asked.append(list(belongings.subscriptions))
        return False

    await refused(world, "g", "bob", may_have=may_not)
    await refused(world, "g", "bob", may_have=may_not, clean=True)
    await refused(world, "g", "bob", may_have=may_not, clean=True, expiry_ms=0)
    assert asked == [[("", "a/+")]] * 3
    again = await SubscriberClient.open(world, "g", user="ann", may_have=lambda _: True)
    assert again.subscriber.resumed
    await again.leave()
    await world.crash()
    await refused(world, "g", "bob", may_have=lambda _: True)


@simulated()
async def test_a_snapshot_keeps_whose_it_is(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g", user="ann")
    await subscribed.leave()
    for replica in world.opened.store.replicas():
        state = replica.state
        copy = load(dump(state))
        assert state_hash(copy) == state_hash(state)
        for number, subscriber in state.subscribers.items():
            assert copy.subscribers[number].user == subscriber.user == "ann"


def test_a_record_of_an_older_build_is_nobodys() -> None:
    user = SubscriberRecord(1, "t", "g", 1, False, None, None, None, None, [], [], False, 0, "ann")
    written = msgspec.msgpack.decode(msgspec.msgpack.encode(user))
    older = msgspec.msgpack.encode(written[:-1])
    assert msgspec.msgpack.decode(older, type=SubscriberRecord).user == ""


@pytest.mark.parametrize("expiry_ms", [0, None])
def test_an_administrator_drops_it_whosever_it_is(expiry_ms: int | None) -> None:
    @simulated()
    async def scenario(world: World) -> None:
        subscribed = await SubscriberClient.open(
            world, "g", user="ann", clean=True, expiry_ms=expiry_ms
        )
        assert await world.client.tree.drop(DEFAULT_TENANT, "g")
        assert subscribed.lost
        assert not await world.client.tree.drop(DEFAULT_TENANT, "g")
        taken = await SubscriberClient.open(world, "g", user="bob")
        assert not taken.subscriber.resumed

    scenario()


class Connection:
    """A client's connection."""

    def taken_over(self, subscriber: Subscriber) -> None:
        """Nothing happens."""


@simulated()
async def test_a_user_without_a_name_has_what_is_nobodys_only(world: World) -> None:
    spec = SubscriberSpec(DEFAULT_TENANT, "g", expiry_ms=None)
    await world.client.tree.open(spec, Connection())
    await world.client.tree.open(spec, Connection())
