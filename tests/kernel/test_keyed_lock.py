"""Turns: one at a time of each thing, in the order asked for, and nothing is left behind."""

from __future__ import annotations

import asyncio

from kernel.common.keyed_lock import KeyedLock
from tests.simulator.world import World, simulated


class Line:
    """Work done in turns, and how much of it was under way at once."""

    def __init__(self) -> None:
        self.turns = KeyedLock()
        self.done: list[str] = []
        self.under_way = 0
        self.most = 0

    async def work(self, key: str, name: str) -> None:
        async with self.turns.of(key):
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            await asyncio.sleep(1)
            self.under_way -= 1
            self.done.append(name)


@simulated()
async def test_turns_are_taken_one_at_a_time_in_the_order_asked_for(world: World) -> None:
    line = Line()

    await asyncio.gather(*(line.work("k", name) for name in "abc"))

    assert line.done == ["a", "b", "c"]
    assert line.most == 1


@simulated()
async def test_a_turn_asked_for_while_the_second_has_it_waits_too(world: World) -> None:
    line = Line()
    working = [asyncio.ensure_future(line.work("k", name)) for name in "ab"]
    await asyncio.sleep(1.5)
    working.append(asyncio.ensure_future(line.work("k", "c")))
    await asyncio.gather(*working)

    assert line.most == 1
    assert line.done == ["a", "b", "c"]


@simulated()
async def test_turns_of_different_keys_do_not_wait_for_each_other(world: World) -> None:
    line = Line()

    await asyncio.gather(line.work("k", "a"), line.work("l", "b"))

    assert line.most == 2


@simulated()
async def test_a_turn_ends_however_its_work_ends_and_its_key_is_forgotten(world: World) -> None:
    line = Line()

    async def failing() -> None:
        async with line.turns.of("k"):
            raise ValueError

    await asyncio.gather(failing(), line.work("k", "a"), return_exceptions=True)
    first, second, third = (asyncio.ensure_future(line.work("k", name)) for name in "bcd")
    await asyncio.sleep(0.5)
    second.cancel()
    await asyncio.gather(first, second, third, return_exceptions=True)

    assert line.done == ["a", "b", "d"]
    assert line.most == 1
    assert len(line.turns) == 0


@simulated()
async def test_a_turn_that_comes_to_somebody_who_is_cancelled_goes_to_the_next(
    world: World,
) -> None:
    line = Line()
    async with line.turns.of("k"):
        second, third = (asyncio.ensure_future(line.work("k", name)) for name in "bc")
        await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, third, return_exceptions=True)

    assert line.done == ["c"]
    assert len(line.turns) == 0
