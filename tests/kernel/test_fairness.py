"""Deficit round robin: everybody's share, whatever their work costs; what a round of writes is."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
from hypothesis import given

from kernel.common.fairness import DeficitRing, Share, WriteRounds

QUANTUM = 100
COSTS = st.integers(1, 5 * QUANTUM)


class Flow(Share):
    """Always wants something, of costs that repeat."""

    def __init__(self, costs: Sequence[int]) -> None:
        super().__init__()
        self.costs = costs
        self.served = 0
        self.taken = 0

    def take(self) -> int:
        cost = self.costs[self.served % len(self.costs)]
        self.served += 1
        self.taken += cost
        return cost


def serve(ring: DeficitRing[Flow]) -> Flow:
    flow = ring.next()
    assert flow is not None
    ring.charge(flow, flow.take())
    return flow


@given(st.lists(st.lists(COSTS, min_size=1, max_size=5), min_size=2, max_size=6))
def test_who_always_wants_something_gets_as_much_as_others(costs: list[list[int]]) -> None:
    ring: DeficitRing[Flow] = DeficitRing(QUANTUM)
    flows = [Flow(each) for each in costs]
    for flow in flows:
        ring.enter(flow)
    for _ in range(300):
        serve(ring)
        # A quantum, and the largest piece of work that was begun within it.
        taken = [flow.taken for flow in flows]
        assert max(taken) - min(taken) <= 2 * (QUANTUM + max(map(max, costs)))


@given(
    st.lists(st.lists(COSTS, min_size=1, max_size=5), min_size=1, max_size=6), st.integers(0, 50)
)
def test_who_comes_waits_for_no_more_than_a_turn_of_each(
    costs: list[list[int]], before: int
) -> None:
    ring: DeficitRing[Flow] = DeficitRing(QUANTUM)
    flows = [Flow(each) for each in costs]
    for flow in flows:
        ring.enter(flow)
    for _ in range(before):
        serve(ring)
    newcomer = Flow([1])
    ring.enter(newcomer)
    started = [flow.taken for flow in flows]
    while serve(ring) is not newcomer:
        pass
    for flow, taken in zip(flows, started, strict=True):
        assert flow.taken - taken <= QUANTUM + max(flow.costs)


@given(st.lists(st.tuples(COSTS, st.booleans()), min_size=20, max_size=80))
def test_who_leaves_and_comes_back_pays_what_is_owed(pieces: list[tuple[int, bool]]) -> None:
    ring: DeficitRing[Flow] = DeficitRing(QUANTUM)
    steady, leaving = Flow([50]), Flow([cost for cost, _ in pieces])
    ring.enter(steady)
    ring.enter(leaving)
    for _, leaves in pieces:
        while serve(ring) is not leaving:
            pass
        if leaves:
            ring.leave(leaving)
            ring.enter(leaving)
        assert leaving.taken - steady.taken <= 2 * (QUANTUM + 5 * QUANTUM)


def test_who_was_away_owes_less_by_what_would_have_been_given_meanwhile() -> None:
    ring: DeficitRing[Flow] = DeficitRing(QUANTUM)
    large, small = Flow([20 * QUANTUM]), Flow([QUANTUM])
    ring.enter(small)
    ring.enter(large)
    while serve(ring) is not large:
        pass
    ring.leave(large)
    for _ in range(30):
        assert serve(ring) is small
    ring.enter(large)
    served = 0
    while serve(ring) is not large:
        served += 1
    assert served <= 2


def test_a_debt_of_many_rounds_is_paid_without_going_through_them() -> None:
    ring: DeficitRing[Flow] = DeficitRing(1)
    flow = Flow([10**12])
    ring.enter(flow)
    serve(ring)
    assert serve(ring) is flow


def test_who_may_not_is_passed_over_and_keeps_its_turn() -> None:
    ring: DeficitRing[Flow] = DeficitRing(QUANTUM)
    one, other = Flow([QUANTUM]), Flow([QUANTUM])
    ring.enter(one)
    ring.enter(other)
    assert ring.next(lambda flow: flow is other) is other
    assert ring.next(lambda _: False) is None
    assert ring.next() in (one, other)
    ring.leave(one)
    ring.leave(one)
    ring.leave(other)
    assert ring.next() is None
    assert len(ring) == 0


def test_a_round_of_writes_ends_when_all_that_came_before_it_is_answered() -> None:
    rounds = WriteRounds()
    rounds.submitted(10)  # this commit is being written
    first = rounds.look()
    rounds.submitted(20)  # and this one fills
    assert rounds.look() == first
    rounds.answered(1)
    second = rounds.look()
    assert second == first + 1
    rounds.submitted(30)
    assert rounds.look() == second
    rounds.answered(1)
    assert rounds.look() == second + 1
    assert rounds.submitted_bytes == 60


def test_with_nothing_on_its_way_each_look_is_a_round() -> None:
    rounds = WriteRounds()
    assert rounds.look() < rounds.look()


def test_who_waits_for_the_end_of_a_round_hears_of_it_once() -> None:
    rounds = WriteRounds()
    heard: list[int] = []
    rounds.submitted(1)
    rounds.look()
    rounds.when_over(lambda: heard.append(rounds.number))
    number = rounds.number
    rounds.answered(1)
    assert heard == [number + 1]
    rounds.submitted(1)
    rounds.answered(1)
    assert heard == [number + 1]
    rounds.when_over(lambda: heard.append(0))
    rounds.when_over(None)
    rounds.end()
    assert heard == [number + 1]
