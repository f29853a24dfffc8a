"""Batches that a gateway sends again under their identity: a leader does all for them once.

What apply remembers of batches is tested with the machine; here is what the leader itself decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from kernel.api.client import Settlement
from kernel.api.model import DEFAULT_TENANT, Reason
from kernel.common.errors import KernelError
from kernel.common.ids import RaftGroup
from kernel.common.placement import home_group
from kernel.requests.leader import Done, Holder, Leader, Settling, Together
from kernel.requests.publish_part import Part
from kernel.store.leading.name_matching import REFUSED
from kernel.subscribers import local_tree
from tests.kernel.tree_client import SubscriberClient, retained, tell
from tests.simulator.peer import Draft
from tests.simulator.world import WRITER, World, simulated

IDENTITY = (7, 1, 1)


def two_names(world: World) -> tuple[RaftGroup, list[str]]:
    """Two names that live in one group."""
    groups = world.opened.store.data_groups
    names = [f"a/{number}" for number in range(100)]
    there = [each for each in names if home_group(groups, DEFAULT_TENANT, each) == groups[0]]
    return groups[0], there[:2]


Attempt = Callable[[Done], None]


async def counts_of(world: World, attempt: Attempt) -> object:
    """What an attempt at a batch is told."""
    told: list[object] = []
    attempt(told.append)
    await world.settle_down()
    (results,) = told
    return counts(results)


def publishing(world: World, group: RaftGroup, *names: str) -> Attempt:
    """A batch of retained messages, one to each name, under an identity."""

    def attempt(done: Done) -> None:
        slots = [Draft(b"x", name=name).parts((1, at), 0) for at, name in enumerate(names)]
        part = Part(
            [],
            [sum(map(len, each)) for each in slots],
            [piece for each in slots for piece in each],
            [(DEFAULT_TENANT, at) for at in range(len(names))],
            [[DEFAULT_TENANT, name, at, 1, 0] for at, name in enumerate(names)],
        )
        world.opened.store.leader(group).publish(IDENTITY, part, done, 0)

    return attempt


def counts(results: object) -> object:
    assert isinstance(results, tuple)
    assert not isinstance(results[0], KernelError)
    return results[-1]


@simulated()
async def test_what_may_not_be_retained_is_refused_to_every_repeat(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, (first, second) = two_names(world)
    subscribed = await SubscriberClient.open(world, "g")
    await subscribed.subscribe("a/+")
    await tell(world, first, b"old", retain=True)
    publish = publishing(world, group, first, second)
    monkeypatch.setattr(local_tree, "RETAINED_MAX", len(world.opened.store.data_groups))
    assert await counts_of(world, publish) == [1, REFUSED]

    monkeypatch.setattr(local_tree, "RETAINED_MAX", 1_000)
    assert await counts_of(world, publish) == [1, REFUSED]
    await world.crash()
    assert await counts_of(world, publish) == [1, REFUSED]
    await world.restart()
    assert await counts_of(world, publish) == [1, REFUSED]
    assert await retained(world, "#") == [(first, b"x")]


@simulated()
async def test_a_repeat_while_the_first_try_is_in_the_log_hears_what_that_comes_to(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, (first, second) = two_names(world)
    publish = publishing(world, group, first, second)
    told: list[object] = []
    world.workers.hold(WRITER)
    publish(told.append)
    monkeypatch.setattr(local_tree, "RETAINED_MAX", 0)
    publish(told.append)
    world.workers.release(WRITER)
    await world.settle_down()
    assert list(map(counts, told)) == [[0, 0], [0, 0]]


@simulated()
async def test_a_transaction_that_is_repeated_gives_back_its_leases_once(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("t")
    await peer.publish(topic, b"m")
    recorder = peer.attach(topic, credit=2)
    await recorder.wait_for(1)
    consumer = cast("Holder", recorder.consumer)
    leader = cast("Leader", world.opened.store.leader(topic.queues[0].group))
    settling = Settling(consumer, Settlement.RELEASE, Reason.REJECTED, [0])
    what = Together(Part([], [], []), [settling], [])
    told: list[object] = []
    world.workers.hold(WRITER)
    leader.transact(IDENTITY, what, told.append, 0)
    await asyncio.sleep(0.1)
    leader.transact(IDENTITY, what, told.append, 0)
    await asyncio.sleep(0.1)
    recorder.held.clear()
    world.workers.release(WRITER)
    await world.settle_down()
    assert told == [([],), ([],)]
    assert recorder.attempts == [1, 2]
    assert consumer.held == {0}
