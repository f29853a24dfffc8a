"""Calls beside those of other tenants: who waits, whose turn it is, what becomes of who goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from adapters.fair_scheduler import PART_BYTES_MAX, TURN_US, WAITING_US, FairScheduler
from adapters.rocketmq.transport.fair_calls import CALL_COST_BYTES, CALL_US, FairCalls
from kernel.common.fairness import WriteRounds

AT_ONCE = PART_BYTES_MAX // CALL_COST_BYTES
IN_A_TURN = -(-WAITING_US // CALL_US)


class Calls:
    """Calls, whose turns are the test's."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.fair = FairScheduler(
            WriteRounds(),
            self.soon.append,
            lambda *_: None,
            lambda: 0,  # type: ignore[arg-type]
        )
        self.turns = FairCalls(self.fair, asyncio.get_running_loop())

    def call(
        self, tenant: str, client: str = "one", size: int = 100
    ) -> asyncio.Future[None] | None:
        return self.turns.wait(
            SimpleNamespace(tenant=tenant, client_id=client),  # type: ignore[arg-type]
            size,
        )

    def turn(self) -> None:
        due, self.soon[:] = list(self.soon), []
        for action in due:
            action()


@pytest.fixture
async def calls() -> Calls:
    return Calls()


def waiting(calls: Calls, tenant: str, count: int, client: str = "one") -> list[asyncio.Future]:
    made = [calls.call(tenant, client) for _ in range(count)]
    return [each for each in made if each is not None]


async def test_calls_of_one_tenant_do_not_wait(calls: Calls) -> None:
    assert not waiting(calls, "alone", 1_000)
    assert not calls.soon


async def test_a_flood_of_calls_waits_beside_another_tenant_whose_calls_do_not(
    calls: Calls,
) -> None:
    calls.call("victim")
    flood = waiting(calls, "flood", 100)
    assert len(flood) == 100 - AT_ONCE
    calls.turn()
    assert sum(each.done() for each in flood) == IN_A_TURN
    assert calls.call("victim") is None
    while calls.soon:
        calls.turn()
    assert all(each.done() for each in flood)
    assert not len(calls.turns)


async def test_in_a_turn_no_more_is_taken_at_once_than_there_is_time_for(calls: Calls) -> None:
    calls.call("first")
    taken = sum(calls.call(f"tenant {number}") is None for number in range(100))
    assert taken <= TURN_US // CALL_US


async def test_clients_of_a_tenant_have_their_turn_one_after_the_other(calls: Calls) -> None:
    calls.call("victim")
    many = waiting(calls, "flood", 100, "many")
    few = waiting(calls, "flood", 4, "few")
    for _ in range(2):
        calls.turn()
    assert all(each.done() for each in few)
    assert not all(each.done() for each in many)


async def test_a_call_that_is_given_up_costs_no_turn(calls: Calls) -> None:
    calls.call("victim")
    flood = waiting(calls, "flood", 60)
    for each in flood[:-1]:
        each.cancel()
    calls.turn()
    assert flood[-1].done()
    assert not flood[-1].cancelled()
    assert not len(calls.turns)


async def test_when_all_that_wait_have_gone_nothing_is_left(calls: Calls) -> None:
    calls.call("victim")
    for each in waiting(calls, "flood", 60):
        each.cancel()
    while calls.soon:
        calls.turn()
    assert not len(calls.turns)
    assert calls.fair.waiting == 0
