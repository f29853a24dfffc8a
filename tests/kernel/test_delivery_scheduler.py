"""A deep backlog is handed out in parts, so that others get theirs meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kernel.api.changes import DeleteTopic
from kernel.api.model import DEFAULT_TENANT, Overflow, TopicOptions
from kernel.broker.delivery.delivery_scheduler import FEW_MESSAGES, PART_MESSAGES, DeliveryScheduler
from kernel.common.errors import Code
from kernel.common.limits import MARK_AHEAD
from tests.simulator.peer import Draft, Peer, Recorder
from tests.simulator.world import World, simulated

BACKLOG = MARK_AHEAD - 1
"""Some parts, and no dispatch mark is waited for."""
PLAIN = TopicOptions()


class Loop:
    """Calls that wait for their turn."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def soon(self, action: Callable[[], None]) -> None:
        self.calls.append(action)

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for each in calls:
            each()


def test_a_turn_is_taken_by_one_large_part_and_not_by_a_few_messages() -> None:
    loop = Loop()
    scheduler = DeliveryScheduler(loop.soon)
    scheduler.took(FEW_MESSAGES)
    assert (scheduler.is_taken, loop.calls) == (False, []), "a few cost nothing"
    scheduler.took(PART_MESSAGES)
    assert scheduler.is_taken
    loop.turn()
    assert (scheduler.is_taken, loop.calls) == (False, [])


def test_tenants_have_their_turn_one_after_the_other() -> None:
    loop = Loop()
    scheduler = DeliveryScheduler(loop.soon)
    order: list[str] = []

    def again(tenant: str, left: int) -> Callable[[], None]:
        def action() -> None:
            assert not scheduler.is_taken
            order.append(tenant)
            scheduler.took(PART_MESSAGES)
            if left:
                scheduler.put_off(tenant, again(tenant, left - 1))

        return action

    for _ in range(4):
        scheduler.put_off("many", again("many", 1))
    scheduler.put_off("one", again("one", 1))
    served: list[int] = []
    while loop.calls:
        before = len(order)
        loop.turn()
        served.append(len(order) - before)
        assert scheduler.is_taken or not loop.calls, "newcomers go behind them"
    assert served[:-1] == [1] * 10, "one in each turn"
    assert order == ["many", "one", "many", "one", *["many"] * 6]
    assert scheduler.put_offs == 10


async def backlog(peer: Peer, name: str, options: TopicOptions = PLAIN) -> Recorder:
    """A consumer without credit, before `BACKLOG` messages."""
    topic = await peer.topic(name, options)
    recorder = peer.attach(topic, credit=0)
    await peer.publish(topic, *[Draft(b"%d" % at) for at in range(BACKLOG)])
    return recorder


@simulated()
async def test_who_wants_little_is_served_between_the_parts_of_a_backlog(world: World) -> None:
    peer = world.peer()
    world.client.note_active("*")
    deep, other = await backlog(peer, "deep"), await backlog(peer, "other")
    little = await backlog(peer, "little")
    for each, messages in ((deep, 2_000), (other, 2_000), (little, 5)):
        each.grant(messages)
    parts: list[int] = []
    while sum(map(len, (deep.got, other.got))) < 2 * BACKLOG:
        before = [len(each.got) for each in (deep, other, little)]
        await asyncio.sleep(0)
        after = [len(each.got) for each in (deep, other, little)]
        parts.append(sum(after) - sum(before))
        if len(deep.got) < BACKLOG and len(other.got) < BACKLOG and parts[-1]:
            assert len(little.got) == 5, "it does not wait behind them"
    most = 2 * PART_MESSAGES + FEW_MESSAGES
    assert max(parts) <= most, "its turn, somebody whose entry has been read, and a few"
    for each in (deep, other):
        assert each.bodies == [b"%d" % at for at in range(BACKLOG)], "in order"
    assert world.opened.store.scheduler.put_offs >= 2


@simulated()
@pytest.mark.parametrize("consumers", [1, 2])
async def test_who_has_little_credit_waits_for_no_turn(world: World, consumers: int) -> None:
    peer = world.peer()
    world.client.note_active("*")
    little = await backlog(peer, "little")
    for _ in range(consumers - 1):
        peer.attach(await peer.topic("little"), credit=0)
    little.grant(1)
    await little.wait_for(1)
    scheduler = world.opened.store.scheduler
    for credit, at_once in ((FEW_MESSAGES, FEW_MESSAGES), (PART_MESSAGES, 0)):
        before = len(little.got)
        scheduler.took(PART_MESSAGES)
        little.grant(credit)
        assert len(little.got) - before == at_once
    assert scheduler.put_offs == 1
    await little.wait_for(1 + FEW_MESSAGES + PART_MESSAGES)


@simulated()
@pytest.mark.parametrize("active", ["", DEFAULT_TENANT])
async def test_a_backlog_alone_gives_way_to_nobody(world: World, active: str) -> None:
    peer = world.peer()
    world.client.note_active(active)
    for each in (await backlog(peer, "deep"), await backlog(peer, "other")):
        each.grant(BACKLOG)
        await each.wait_for(1)
        assert len(each.got) == BACKLOG
    assert world.opened.store.scheduler.put_offs == 0


@simulated()
async def test_a_queue_that_goes_while_it_waits_for_its_turn_is_left_alone(world: World) -> None:
    peer = world.peer()
    world.client.note_active("another")
    deep = await backlog(peer, "deep")
    deep.grant(2_000)
    await deep.wait_for(PART_MESSAGES)
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "deep"))
    assert deep.error is not None
    assert deep.error.code is Code.NOT_FOUND
    assert (await backlog(peer, "deep")).got == []


@simulated()
@pytest.mark.parametrize(
    "options",
    [
        TopicOptions(messages_max=2 * FEW_MESSAGES, overflow=Overflow.DROP_OLDEST),
        TopicOptions(message_ttl_ms=0),
    ],
)
async def test_nothing_is_dropped_that_somebody_has_credit_for(
    world: World, options: TopicOptions
) -> None:
    peer = world.peer()
    world.client.note_active("*")
    topic = await peer.topic("short", options)
    recorder = peer.attach(topic, credit=BACKLOG)
    await peer.publish(topic, *[Draft(b"%d" % at) for at in range(BACKLOG)])
    assert len(await recorder.wait_for(BACKLOG)) == BACKLOG
