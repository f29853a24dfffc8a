"""A tenant that is removed: what the topic tree holds of it goes, and nothing of anybody else's."""

from __future__ import annotations

import pytest

from kernel.api.model import DEFAULT_TENANT
from kernel.broker.snapshots.snapshot import dump, load, state_hash
from kernel.common.errors import KernelError
from kernel.common.feature_levels import REPLICAS
from kernel.subscribers import subscribing
from tests.kernel.tree_client import Listener, SubscriberClient, retained, tell, will_of
from tests.simulator.world import World, simulated


async def forget(world: World, tenant: str = DEFAULT_TENANT) -> int:
    """Rounds until nothing remains."""
    rounds = 1
    while await world.client.tree.forget(tenant):
        rounds += 1
        await world.settle_down()
    return rounds


@simulated()
async def test_subscribers_lists_and_retained_messages_go(world: World) -> None:
    kept = await SubscriberClient.open(world, "kept")
    await kept.subscribe("a/#")
    await kept.leave()
    there = await SubscriberClient.open(world, "there")
    await there.subscribe("b", share="s")
    await tell(world, "a/b", b"1", retain=True)
    await tell(world, "$own/x", b"2", retain=True)

    await forget(world)

    assert there.lost, "its connection is told"
    states = [each.state for each in world.opened.store.replicas()]
    assert not any(each.subscribers or each.ended_subscribers for each in states)
    assert not any(each.indexes or each.retained.messages for each in states)
    again = await SubscriberClient.open(world, "kept")
    assert not again.subscriber.resumed
    assert not await retained(world, "#")
    await forget(world)
    await world.restart()
    assert not any(each.state.subscribers for each in world.opened.store.replicas())


@simulated()
async def test_another_tenants_things_stay(world: World) -> None:
    kept = await SubscriberClient.open(world, "kept")
    await kept.subscribe("a/#")
    await kept.leave()
    await tell(world, "a/b", b"1", retain=True)
    assert await forget(world, "acme") == 1
    assert (await SubscriberClient.open(world, "kept")).subscriber.resumed
    assert await retained(world, "#") == [("a/b", b"1")]


@simulated()
async def test_wills_are_not_published(world: World) -> None:
    listener = Listener(world, "#")
    there = await SubscriberClient.open(world, "there", will=will_of(world, "w", b"now"))
    away = await SubscriberClient.open(
        world, "away", will=will_of(world, "w", b"later", delay_ms=60_000)
    )
    await away.leave(will=True)
    await forget(world)
    await world.settle_down()
    assert there.lost
    assert not listener.got


@simulated()
async def test_a_command_changes_a_bounded_part(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscribing, "FORGOTTEN_TOGETHER", 2)
    for number in range(9):
        client = await SubscriberClient.open(world, f"c{number}")
        await client.leave()
        await tell(world, f"r/{number}", b"x", retain=True)
    assert await forget(world) >= 2
    assert not await retained(world, "#")


@simulated()
async def test_a_replica_made_of_a_snapshot_in_between_is_the_same(world: World) -> None:
    for number in range(4):
        client = await SubscriberClient.open(world, f"c{number}")
        await client.leave()
        await tell(world, f"r/{number}", b"x", retain=True)
    for replica in world.opened.store.replicas():
        before = load(dump(replica.state))
        assert state_hash(before) == state_hash(replica.state)
    await world.client.tree.forget(DEFAULT_TENANT)
    await world.crash()
    await forget(world)
    states = [each.state for each in world.opened.store.replicas()]
    assert not any(each.subscribers or each.retained.messages for each in states)


@simulated(understands=REPLICAS)
async def test_it_takes_the_feature(world: World) -> None:
    with pytest.raises(KernelError, match="level 4"):
        await world.client.tree.forget(DEFAULT_TENANT)
