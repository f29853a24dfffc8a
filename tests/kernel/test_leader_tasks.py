"""What the leader of a group looks after: begun when it is led, ended when it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import cast

import pytest

from kernel.common.errors import Code, KernelError
from kernel.common.ids import RaftGroup
from kernel.leader_tasks import leader_tasks as module
from kernel.leader_tasks.leader_tasks import LeaderTasks
from kernel.requests.peer_stores import PeerStores
from kernel.store.node import Store

ONE, TWO = RaftGroup(1), RaftGroup(2)


class Alone:
    """A store without others."""

    is_alone = True


def leader_tasks_of(*, alone: bool) -> LeaderTasks:
    store = Alone()
    store.is_alone = alone

    async def administer(change: object) -> None:
        raise AssertionError(change)

    found = LeaderTasks(cast("Store", store), lambda: 0, administer, lambda work: work.close())
    if not alone:
        found.peer_stores = cast("PeerStores", object())
    found.look_again_seconds = 0.01
    return found


class LeaderTask:
    """Notes what it was done for; fails, and finds something, as often as it is told to."""

    def __init__(self, failures: int = 0, finds: int = 0) -> None:
        self.done: list[list[RaftGroup]] = []
        self.finds = finds
        self.failures = failures
        self.changed = asyncio.Event()

    async def __call__(self, groups: Collection[RaftGroup]) -> bool:
        if self.failures:
            self.failures -= 1
            raise KernelError(Code.UNAVAILABLE, "not now")
        self.done.append(sorted(groups))
        self.changed.set()
        self.finds -= 1
        return self.finds >= 0

    async def was_done(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.done) < count:
                self.changed.clear()
                await self.changed.wait()


async def test_what_is_led_at_the_start_is_mended_before_that_returns() -> None:
    found, first, later = leader_tasks_of(alone=True), LeaderTask(), LeaderTask()
    found.add(first, later)
    found.leads(ONE)
    found.leads(TWO)
    await found.start()
    assert first.done == [[ONE, TWO]]
    await asyncio.sleep(0.05)
    assert not later.done
    await found.stop()


async def test_a_store_starts_though_nobody_is_reached_whom_it_has_to_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It leads a group that was added, and others have its homes: seed 80021 of the swarm."""
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.001)
    found, first = leader_tasks_of(alone=False), LeaderTask(failures=3)
    found.add(first)
    found.leads(ONE)
    await found.start()
    assert first.failures == 3
    await first.was_done(1)
    assert first.done == [[ONE]]
    await found.stop()


async def test_a_group_is_looked_at_when_it_is_led_and_a_while_later() -> None:
    found, first, later = leader_tasks_of(alone=False), LeaderTask(), LeaderTask()
    found.add(first, later)
    await found.start()
    found.leads(ONE)
    await later.was_done(1)
    assert first.done == later.done == [[ONE]]
    await found.stop()


async def test_a_group_is_looked_at_until_nothing_is_found_any_more() -> None:
    found, first, later = leader_tasks_of(alone=False), LeaderTask(), LeaderTask(finds=2)
    found.add(first, later)
    await found.start()
    found.leads(ONE)
    await later.was_done(3)
    await asyncio.sleep(0.05)
    assert first.done == [[ONE]]
    assert later.done == [[ONE]] * 3
    await found.stop()


async def test_a_group_is_looked_at_again_if_a_change_there_was_left_unfinished() -> None:
    for alone in (False, True):
        found, later = leader_tasks_of(alone=alone), LeaderTask()
        found.add(LeaderTask(), later)
        found.leads(ONE)
        await found.start()
        if not alone:
            await later.was_done(1)
        await asyncio.sleep(0.03)
        before = len(later.done)
        assert before == (0 if alone else 1)
        found.unfinished(TWO)  # which is led elsewhere
        found.unfinished(ONE)
        await later.was_done(before + 1)
        await asyncio.sleep(0.03)
        assert later.done == [[ONE]] * (before + 1)
        await found.stop()
        found.unfinished(ONE)
        await asyncio.sleep(0.03)
        assert later.done == [[ONE]] * (before + 1)


async def test_what_fails_is_tried_again_and_the_next_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.001)
    found, first, second = leader_tasks_of(alone=False), LeaderTask(failures=3), LeaderTask()
    found.add(first)
    found.add(second)
    await found.start()
    found.leads(ONE)
    await second.was_done(1)
    assert first.done == [[ONE]]
    assert not first.failures
    await found.stop()


async def test_nothing_is_done_for_a_group_that_is_led_elsewhere() -> None:
    found, first, later = leader_tasks_of(alone=False), LeaderTask(), LeaderTask()
    found.add(first, later)
    found.leads(ONE)
    found.follows(ONE)
    await found.start()
    found.leads(TWO)
    await first.was_done(1)
    found.follows(TWO)
    await asyncio.sleep(0.05)
    assert first.done == [[TWO]]
    assert not later.done
    await found.stop()


async def test_a_store_that_can_reach_nobody_mends_nothing() -> None:
    found, first = leader_tasks_of(alone=False), LeaderTask()
    found.peer_stores = None
    found.add(first)
    found.leads(ONE)
    await found.start()
    assert not first.done
    await found.stop()
